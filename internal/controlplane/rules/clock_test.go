package rules_test

import (
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestAdvance_CountsOnlyTimeSeenByPasses(t *testing.T) {
	for name, tt := range map[string]struct {
		gone  time.Duration // on the wall clock, since the last pass
		first bool
		adds  time.Duration
		stays bool // no new pass is recorded
	}{
		"a minute":                       {time.Minute, false, time.Minute, false},
		"a late pass":                    {89 * time.Second, false, time.Minute, false},
		"an outage":                      {time.Hour, false, time.Minute, false},
		"the first pass of a process":    {time.Minute, true, 0, false},
		"at once":                        {0, false, 0, false},
		"another machine's clock":        {-2 * time.Second, false, 0, true},
		"as far as another's may be":     {-5 * time.Minute, false, 0, true},
		"set back":                       {-5*time.Minute - time.Nanosecond, false, 0, false},
		"set back, and the first pass":   {-time.Hour, true, 0, false},
		"set forward":                    {24 * time.Hour, false, time.Minute, false},
		"set forward, and a first pass":  {24 * time.Hour, true, 0, false},
		"of a machine behind, the first": {-time.Second, true, 0, true},
	} {
		was := record.Clock{Last: now, Service: now.Add(-time.Hour)}
		want := record.Clock{Last: now.Add(tt.gone), Service: was.Service.Add(tt.adds)}
		if tt.stays {
			want.Last = now
		}
		if got := rules.Advance(was, now.Add(tt.gone), tt.first); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if got := rules.Advance(record.Clock{}, now, true); got != (record.Clock{Last: now, Service: now}) {
		t.Errorf("the very first pass: %+v", got)
	}
}

// The clock of a pool never goes back. It is as far behind as the time without calls, whenever it is read in between.
func TestLag_IsTheMinutesWithoutACall(t *testing.T) {
	minutes := func(n int) time.Time { return now.Add(time.Duration(n) * time.Minute) }
	for name, tt := range map[string]struct {
		calls []int // in minutes
		until int
		want  time.Duration
	}{
		"never heard":          {nil, 100, 0},
		"heard each minute":    {[]int{0, 1, 2, 3, 4}, 5, 0},
		"cut off":              {[]int{0}, 25, 24 * time.Minute},
		"cut off for long":     {[]int{0}, 50, 30 * time.Minute},
		"back":                 {[]int{0, 25, 26}, 27, 24 * time.Minute},
		"back, after long":     {[]int{0, 500, 501}, 501, 30 * time.Minute},
		"comes and goes":       {[]int{0, 25, 50, 75}, 100, 4 * 24 * time.Minute},
		"comes each 2 minutes": {[]int{0, 2, 4, 6, 8, 10}, 10, 5 * time.Minute},
	} {
		var h record.PoolCall
		before := time.Duration(0)
		for _, m := range tt.calls {
			if lag := rules.Lag(h, minutes(m)); lag < before {
				t.Errorf("%s: the clock goes on by more than the time", name)
			}
			before = rules.Lag(h, minutes(m))
			if h = rules.NextPoolCall(h, minutes(m)); rules.Lag(h, minutes(m)) != before {
				t.Errorf("%s: the call at %d moves the clock", name, m)
			}
		}
		if got := rules.Lag(h, minutes(tt.until)); got != tt.want {
			t.Errorf("%s: %s behind, want %s", name, got, tt.want)
		}
	}
}

// Only time that was excused since the last sign of life counts.
func TestDue_SilenceOfAPoolThatWasCutOff(t *testing.T) {
	w := deployment(workflow.Running)
	w.Service.Deadline = now.Add(time.Hour).UnixMilli()
	beat := rules.Sign(rules.Time{Now: now, Service: now, Lag: time.Hour}, "apply")
	after := func(d, lag time.Duration) rules.Overdue {
		return rules.Due(w, beat, rules.Time{Now: now.Add(d), Service: now.Add(d), Lag: lag})
	}
	for name, tt := range map[string]struct {
		gone, lag time.Duration
		want      workflow.Event
	}{
		"heard all the time":   {10 * time.Minute, time.Hour, workflow.OnSilence},
		"not for a minute":     {10 * time.Minute, time.Hour + time.Minute, ""},
		"and then long enough": {11 * time.Minute, time.Hour + time.Minute, workflow.OnSilence},
		"not at all":           {39 * time.Minute, time.Hour + 30*time.Minute, ""},
		"not at all, for long": {40 * time.Minute, time.Hour + 30*time.Minute, workflow.OnSilence},
	} {
		if got := after(tt.gone, tt.lag); got.Event != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A sign of life without news is stored only now and then.
func TestMustStore(t *testing.T) {
	last := rules.Sign(at(now), "apply")
	for name, tt := range map[string]struct {
		sign record.Beat
		last record.Beat
		want bool
	}{
		"at once":             {rules.Sign(at(now), "apply"), last, false},
		"soon":                {rules.Sign(at(now.Add(19*time.Second)), "apply"), last, false},
		"later":               {rules.Sign(at(now.Add(20*time.Second)), "apply"), last, true},
		"of another step":     {rules.Sign(at(now), "output"), last, true},
		"of a clock set back": {rules.Sign(at(now.Add(-time.Hour)), "apply"), last, true},
	} {
		if got := rules.MustStore(tt.sign, tt.last); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
