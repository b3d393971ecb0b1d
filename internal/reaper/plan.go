package reaper

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Policy holds the limits of Plan. Zero fields mean the defaults.
type Policy struct {
	// Young is the age below which a task is left alone, even if the control plane does not know it; 0 means 2 min.
	Young time.Duration
	// ConfirmFor is how long something must have looked wrong, over at least two passes, before it is
	// believed; 0 means 1 min.
	ConfirmFor time.Duration
	// HeartbeatAge is how recent a heartbeat of a task must be to prove that it lives and is wanted; 0 means 90 s.
	HeartbeatAge time.Duration
	// Overtime is how long a task may take beyond its deadline and the grace that the contract gives it,
	// before it is stopped from outside; 0 means 1 min.
	Overtime time.Duration
	// CancelGrace is how long a run may take to end after its cancellation; 0 means 5 min.
	CancelGrace time.Duration
	// AbsenceProves is how old a claim must be before a task that the launcher does not know counts as
	// ended. 0 means that absence never proves an end, which is right wherever a task may be hidden from
	// the launcher.
	AbsenceProves time.Duration
	// Repeat is how long an accepted report of an end is not repeated; 0 means 5 min.
	Repeat time.Duration
	// MaxActions is how many actions one pass may take; 0 means 20.
	MaxActions int
	// Doubt is the number of contradictions from which a snapshot is not believed; 0 means 3.
	Doubt int
}

func (p Policy) withDefaults() Policy {
	p.Young = cmp.Or(p.Young, 2*time.Minute)
	p.ConfirmFor = cmp.Or(p.ConfirmFor, time.Minute)
	p.HeartbeatAge = cmp.Or(p.HeartbeatAge, 90*time.Second)
	p.Overtime = cmp.Or(p.Overtime, time.Minute)
	p.CancelGrace = cmp.Or(p.CancelGrace, 5*time.Minute)
	p.Repeat = cmp.Or(p.Repeat, 5*time.Minute)
	p.MaxActions = cmp.Or(p.MaxActions, 20)
	p.Doubt = cmp.Or(p.Doubt, 3)
	return p
}

// Snapshot is the world as one pass saw it. The order in which its parts were asked for makes them comparable: a task
// in Before that Jobs does not want existed before the answer that does not want it; a job in Jobs whose task is not
// in After was running before the answer without the task.
type Snapshot struct {
	// Begun is when the first question was asked; the zero time means now. A reaper may be suspended between its look
	// and its decision; the snapshot does not grow older by that.
	Begun  time.Time
	Before []launcher.Task         // first
	Jobs   map[string]api.JobState // second: the jobs that the control plane holds, and those of Before
	After  []launcher.Task         // third
	// Described holds those of Asked that the launcher knew when asked for by reference, last.
	Described map[string]launcher.Task
	Asked     map[string]bool

	Suspected  map[string]time.Time // by suspicion: since when every pass has had it
	Reported   map[string]time.Time // by task: when the report of its end was last accepted
	Heartbeats map[string]time.Time // by task: its last heartbeat, where a relay saw any
}

// Kind of an action.
type Kind string

// The kinds of action.
const (
	Stop   Kind = "stop"   // ask the launcher to end the task
	Report Kind = "report" // tell the control plane that the task has ended
)

// Action is one thing to do, and why.
type Action struct {
	Kind Kind
	Task launcher.Task
	Why  string
}

// Outcome is the decision of Plan.
type Outcome struct {
	Actions      []Action
	Suspected    map[string]time.Time // for the next pass's Snapshot
	Spared       []Action             // tasks that look odd, and why nothing is done about them; they have no Kind
	Deferred     int                  // actions beyond MaxActions, left to the next pass
	Refused      []string             // why the snapshot was not believed, in sentences
	Acknowledged []launcher.Task      // have ended, and no job counts on them any more
}

// Plan chooses the actions for a snapshot. It is a pure function.
func Plan(s Snapshot, now time.Time, p Policy) Outcome {
	pl := plan{s: s, now: now, p: p.withDefaults(), out: Outcome{Suspected: map[string]time.Time{}}}
	pl.out.Acknowledged = pl.over()
	ended := pl.ended()
	lost := pl.lost()
	unwanted, stuck := pl.living()
	// Ends come first: they are proven, they do no harm, and they free the jobs that wait.
	for _, group := range [][]Action{ended, lost, stuck, unwanted} {
		slices.SortFunc(group, func(a, b Action) int {
			return cmp.Or(a.Task.CreatedAt.Compare(b.Task.CreatedAt), cmp.Compare(a.Task.Ref, b.Task.Ref))
		})
		pl.out.Actions = append(pl.out.Actions, group...)
	}
	if n := len(pl.out.Actions); n > pl.p.MaxActions {
		pl.out.Deferred = n - pl.p.MaxActions
		pl.out.Actions = pl.out.Actions[:pl.p.MaxActions]
	}
	return pl.out
}

type plan struct {
	s   Snapshot
	now time.Time
	p   Policy
	out Outcome
}

func (pl *plan) spare(t launcher.Task, why string) {
	pl.out.Spared = append(pl.out.Spared, Action{Task: t, Why: why})
}

// looked is no later than anything that the snapshot says.
func (pl *plan) looked() time.Time {
	if pl.s.Begun.IsZero() {
		return pl.now
	}
	return pl.s.Begun
}

// confirmed remembers a suspicion and reports whether it is old enough to act on: an earlier pass had it, as long ago as
// the policy says.
func (pl *plan) confirmed(suspicion string) bool {
	since, before := pl.s.Suspected[suspicion]
	if !before {
		since = pl.now
	}
	pl.out.Suspected[suspicion] = since
	return before && pl.looked().Sub(since) >= pl.p.ConfirmFor
}

func (pl *plan) beats(ref string) bool {
	at, ok := pl.s.Heartbeats[ref]
	return ok && pl.looked().Sub(at) < pl.p.HeartbeatAge
}

// ended finds tasks whose end the launcher has proven while their job still counts on them.
func (pl *plan) ended() (actions []Action) {
	for _, t := range latest(pl.s.Before, pl.s.After, pl.s.Described) {
		if t.Phase != launcher.Stopped {
			continue
		}
		if !pl.counts(t) {
			continue
		}
		job := pl.s.Jobs[t.Workflow]
		if job.Task != "" && job.Task != t.Ref {
			continue // it does not count on this one
		}
		if at, ok := pl.s.Reported[t.Ref]; ok && pl.now.Sub(at) < pl.p.Repeat {
			continue
		}
		actions = append(actions, Action{Report, t, "the launcher says that the task has ended, and its job is still active"})
	}
	return actions
}

// counts reports whether an active job is at the attempt of a task.
func (pl *plan) counts(t launcher.Task) bool {
	job, ok := pl.s.Jobs[t.Workflow]
	return ok && job.Known && job.Active && job.Attempt == t.Attempt
}

// over lists the tasks that had ended before the jobs were asked for: no later answer names a task that none of them
// counts on.
func (pl *plan) over() (tasks []launcher.Task) {
	for _, t := range pl.s.Before {
		if t.Phase == launcher.Stopped && !pl.counts(t) {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// lost finds started jobs whose task the launcher does not know.
func (pl *plan) lost() (actions []Action) {
	suspects := slices.DeleteFunc(Suspects(pl.s), func(ref string) bool {
		_, known := pl.s.Described[ref] // the list does not have all that have ended
		return known
	})
	if n := len(suspects); n >= pl.p.Doubt && 2*n > pl.counted() {
		pl.out.Refused = append(pl.out.Refused, fmt.Sprintf(
			"the launcher does not know the tasks of %d of %d started jobs: so many do not vanish at once, so none of them counts as lost", n, pl.counted()))
		return nil
	}
	for _, ref := range suspects {
		job := pl.holder(ref)
		t := launcher.Task{Ref: ref, Workflow: job.ID, Attempt: job.Attempt, Phase: launcher.Stopped,
			Text: "the launcher does not know the task any more"}
		if !pl.s.Asked[ref] {
			continue // the launcher was not asked by reference
		}
		switch {
		case !pl.confirmed("lost " + ref):
			pl.spare(t, "the launcher does not know the task; the next pass looks again")
		case pl.beats(ref):
			pl.spare(t, "the launcher does not know the task, but it reports: something is wrong with the launcher")
		case pl.p.AbsenceProves <= 0:
			pl.spare(t, "the launcher does not know the task, which with this launcher proves nothing; the silence of the run or its deadline ends it")
		case api.Seconds(job.ClaimAge) < pl.p.AbsenceProves:
			pl.spare(t, "the launcher does not know the task yet")
		default:
			actions = append(actions, Action{Report, t, "the job runs, and twice the launcher did not know its task"})
		}
	}
	return actions
}

// counted is the number of started jobs that name a task.
func (pl *plan) counted() (n int) {
	for _, job := range pl.s.Jobs {
		if job.Known && job.Active && job.Started && job.Task != "" {
			n++
		}
	}
	return n
}

func (pl *plan) holder(ref string) api.JobState {
	for _, job := range pl.s.Jobs {
		if job.Task == ref {
			return job
		}
	}
	return api.JobState{}
}

// Suspects lists the tasks that a started job counts on and that the launcher did not list after the job was seen. The
// launcher is asked about each of them by its reference.
func Suspects(s Snapshot) []string {
	known := index(s.After)
	var refs []string
	for _, job := range s.Jobs {
		if _, ok := known[job.Task]; !ok && job.Known && job.Active && job.Started && job.Task != "" {
			refs = append(refs, job.Task)
		}
	}
	slices.Sort(refs)
	return slices.Compact(refs)
}

// living looks at each task that lives: is it wanted, and has it overstayed?
func (pl *plan) living() (unwanted, stuck []Action) {
	live, strangers := 0, 0
	after := index(pl.s.After)
	var candidates []Action
	for _, t := range pl.s.Before {
		if t.Phase == launcher.Stopped || t.Phase == launcher.Stopping {
			continue // ended, or told to end: the launcher finishes that
		}
		if a, ok := after[t.Ref]; ok && (a.Phase == launcher.Stopped || a.Phase == launcher.Stopping) {
			continue
		}
		live++
		job, asked := pl.s.Jobs[t.Workflow]
		if !asked {
			pl.spare(t, "the control plane was not asked about its job")
			continue
		}
		if !job.Known {
			strangers++
		}
		if why := overstayed(job, t, pl.p); why != "" {
			if pl.confirmed("overstayed " + t.Ref) {
				stuck = append(stuck, Action{Stop, t, why})
			} else {
				pl.spare(t, "overstayed; the next pass looks again: "+why)
			}
			continue
		}
		if why := orphaned(job, t); why != "" {
			candidates = append(candidates, Action{Stop, t, why})
		}
	}
	if strangers >= pl.p.Doubt && 2*strangers > live {
		pl.out.Refused = append(pl.out.Refused, fmt.Sprintf(
			"the control plane does not know the jobs of %d of %d tasks: it looks like another control plane, or another pool's, so no task is stopped as unwanted", strangers, live))
		return nil, stuck
	}
	return pl.unwanted(candidates), stuck
}

// unwanted returns the stops of orphaned tasks that are old, confirmed and silent enough, and spares the others.
func (pl *plan) unwanted(candidates []Action) (actions []Action) {
	for _, a := range candidates {
		switch {
		case pl.now.Sub(a.Task.CreatedAt) < pl.p.Young:
			pl.spare(a.Task, "unwanted, but young: "+a.Why)
		case !pl.confirmed("unwanted " + a.Task.Ref):
			pl.spare(a.Task, "unwanted; the next pass looks again: "+a.Why)
		case pl.beats(a.Task.Ref):
			pl.spare(a.Task, "unwanted, but its heartbeats are taken: "+a.Why)
		default:
			actions = append(actions, a)
		}
	}
	return actions
}

// orphaned says why a task is not wanted, or "".
func orphaned(job api.JobState, t launcher.Task) string {
	switch {
	case !job.Known:
		return "the control plane does not know its job"
	case job.Active && job.Started && job.Task == t.Ref:
		return "" // it holds the run, or the slot of a run that was given up: it is not stopped before its deadline
	case job.Attempt != t.Attempt:
		return fmt.Sprintf("attempt %d is over; the job is at attempt %d", t.Attempt, job.Attempt)
	case !job.Active:
		return fmt.Sprintf("the job is %s", job.State)
	case !job.Wanted(t.Attempt):
		return "the job was cancelled before it started"
	case job.Started:
		return "another task holds the run"
	}
	return ""
}

// overstayed says why a task that holds a run is to be stopped although it is wanted, or "".
func overstayed(job api.JobState, t launcher.Task, p Policy) string {
	if !job.Known || !job.Active || !job.Started || job.Task != t.Ref {
		return ""
	}
	over := -api.Seconds(job.RemainingSeconds) - workflow.DeadlineGrace
	if over > p.Overtime {
		return fmt.Sprintf("its deadline and the grace after it passed %s ago", over.Round(time.Second))
	}
	if age := api.Seconds(job.CancelAge); job.Cancel && age > p.CancelGrace {
		return fmt.Sprintf("its cancellation was asked for %s ago", age.Round(time.Second))
	}
	return ""
}

// latest merges views of the tasks: the last one wins, but a proven end stays.
func latest(before, after []launcher.Task, described map[string]launcher.Task) []launcher.Task {
	all := map[string]launcher.Task{}
	for _, t := range slices.Concat(before, after, slices.Collect(maps.Values(described))) {
		if was, ok := all[t.Ref]; !ok || was.Phase != launcher.Stopped {
			all[t.Ref] = t
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b launcher.Task) int { return strings.Compare(a.Ref, b.Ref) })
}

func index(tasks []launcher.Task) map[string]launcher.Task {
	out := make(map[string]launcher.Task, len(tasks))
	for _, t := range tasks {
		out[t.Ref] = t
	}
	return out
}
