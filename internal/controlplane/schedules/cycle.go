package schedules

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
)

// cycle is one time of a schedule.
type cycle struct {
	times  times
	at     time.Time     // the latest time of the schedule that has come; zero: none has
	spread time.Duration // of its workspaces
	paused bool
	since  time.Time // its times count from then on
	// Times before the end of its last pause are not made up for, but count as missed.
	resumed time.Time
	done    time.Time // the latest time that was dealt with in all workspaces that it had then
}

// cycleOf is the cycle of a schedule at a time.
func cycleOf(s schedule, done record.Cycle, now time.Time) (cycle, error) {
	t, err := timesOf(s.V.Cron, s.V.TimeZone)
	if err != nil {
		return cycle{}, fmt.Errorf("schedule %s: %w", s.V.Name, err)
	}
	c := cycle{times: t, at: t.last(now), paused: s.V.IsPaused, since: s.Created, done: done.At}
	if s.V.Since != nil {
		c.since = *s.V.Since
	}
	if s.V.ResumedAt != nil {
		c.resumed = *s.V.ResumedAt
	}
	c.spread, err = time.ParseDuration(s.V.SpreadOver)
	return c, err
}

// open says whether the cycle may have something to do in some workspace.
func (c cycle) open() bool {
	return !c.paused && c.at.After(rules.Latest(c.since, c.resumed, c.done))
}

// delay is how long after the times of a schedule a workspace is due: always the same.
func (c cycle) delay(wsid string) time.Duration {
	if c.spread < time.Second {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(wsid)) // it never fails
	return time.Duration(int64(h.Sum32())%int64(c.spread/time.Second)) * time.Second
}

// verb is an action for a workspace.
type verb string

const (
	nothing verb = ""       // neither now nor later in this cycle
	later   verb = "later"  // it is not due yet
	wait    verb = "wait"   // it is due, and cannot be claimed
	skip    verb = "skip"   // this time is left out
	submit  verb = "submit" // a run is submitted
)

// decision is the action of a cycle for one workspace.
type decision struct {
	do     verb
	at     time.Time // when it is due, or was
	missed int       // times before this one for which nothing was done
	note   string    // why not, in words
}

// target holds the facts for a decision about a workspace.
type target struct {
	id      string
	made    time.Time
	planned record.Planned
	off     string // why no pool takes it now; "": one does
	running string // the last run of this schedule, where it has not ended
}

// due decides on the action for a workspace. It is a pure function.
func (c cycle) due(t target, now time.Time) decision {
	from := rules.Latest(c.since, t.made)
	if c.paused || !c.at.After(rules.Latest(from, c.resumed, c.done, t.planned.At)) {
		return decision{do: nothing}
	}
	out := decision{do: submit, at: c.at.Add(c.delay(t.id))}
	if now.Before(out.at) {
		out.do = later
		return out
	}
	if t.planned.At.IsZero() { // it joined after that
		from = rules.Latest(from, c.done)
	}
	out.missed = c.times.between(rules.Latest(from, t.planned.At), c.at)
	switch {
	case t.off != "":
		out.do, out.note = wait, t.off
	case t.running != "":
		out.do, out.note = skip, "run "+t.running+" of this schedule has not ended"
	}
	return out
}

// nextAt is when a workspace is due next; nil while the schedule is paused.
func (c cycle) nextAt(t target, now time.Time) *time.Time {
	d := c.due(t, now)
	if c.paused {
		return nil
	}
	if d.do != nothing {
		return &d.at
	}
	next := c.times.next(rules.Latest(now, c.since))
	if next.IsZero() {
		return nil
	}
	next = next.Add(c.delay(t.id))
	return &next
}
