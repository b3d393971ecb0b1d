// Package mutate names the deliberate mistakes that the simulation, or a test of the promise, must notice. In
// ordinary builds On is false and the compiler leaves the mistakes out. With the build tag mutate, which only tests
// set, Use or the environment variable DAYFLY_MUTANT makes one of them.
package mutate

// The mistakes. Each is at one place of the product.
const (
	NoStartFence    = "no start fence"                     // any boot of the attempt may start
	NoBoot          = "no boot in the fence"               // any boot of the task that holds the run counts as its holder
	EarlyClaim      = "claims handed out before the lease" // a claim lapses with the next pass
	EarlySlot       = "slot freed at runner_lost"          // without proof that the run is over
	NoWantedCheck   = "no still-wanted check"              // every message is launched
	NoVersion       = "no version condition"               // a commit overwrites what was changed since it was decided
	OnePhaseReap    = "one-phase reap"                     // what looks wrong once is acted on
	NamelessReports = "reports without the task's name"    // the end of any task of an attempt counts as the end of its run
	NoHolder        = "holders taken for unwanted"         // the task that holds a run is stopped like any other
	NoGrace         = "no grace after the deadline"        // a task is stopped that is about to end by itself
	NoBeatCheck     = "heartbeat not read again"           // a run ends for a silence that was over at the commit
	LateClear       = "wake mark cleared after the look"   // a wake is forgotten whose work the look has not seen
	NoPoolCheck     = "claim without the pool's record"    // a pool still claims after it was disabled or narrowed
	OneTimerPage    = "one page of timers"                 // a pass skips what is due after it
	OneHeldPage     = "one page of held claims"            // a reaper does not ask for those beyond it
	HeldCut         = "held claims cut short"              // the control plane returns one page and says that it is all
	FoldedTwice     = "freed places counted twice"         // they are subtracted from a limit and stay
	CutBlind        = "no second look at a full limit"     // a claim misses what is freed before it says that it waits
	OldRoute        = "claims by a route out of date"      // a pool claims what belongs to another one by now
	ApproveOld      = "approval of what is out of date"    // neither the settings nor the time since the plan count
	NoPermit        = "start without an approval"          // whatever is required by then
	NoPolicies      = "start without policies"             // whichever hold by then
	OldInputs       = "inputs not read again"              // a run starts with what another has replaced
	TreeAtOnce      = "a tree in no order"                 // what depends on a workspace does not wait for it
	TreeTwice       = "a node not read again"              // a run is submitted of a node that has one by now
)

// All lists them.
func All() []string {
	return []string{
		NoStartFence, NoBoot, EarlyClaim, EarlySlot, NoWantedCheck, NoVersion, OnePhaseReap, NamelessReports, NoHolder, NoGrace,
		NoBeatCheck, LateClear, NoPoolCheck, OneTimerPage, OneHeldPage, HeldCut,
		FoldedTwice, CutBlind, OldRoute, ApproveOld, NoPermit, NoPolicies, OldInputs, TreeAtOnce, TreeTwice,
	}
}
