package console

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// phase is one row of the timeline: all the time that a run was in it, over its attempts.
type phase struct {
	name  string
	spans []span
	marks []event
	open  bool // it goes on
}

type span struct{ from, to time.Time }

// event is something in a phase that is worth a look.
type event struct {
	at    time.Time
	text  string
	class string
}

func (p phase) took() (all time.Duration) {
	for _, s := range p.spans {
		all += s.to.Sub(s.from)
	}
	return all
}

// phasesOf finds the phases of a run in its events, and those of its latest attempt in its steps. It is a pure function.
func phasesOf(w api.Workflow, events []api.Event, now time.Time) []phase {
	end := now
	if w.EndedAt != nil {
		end = *w.EndedAt
	}
	t := &telling{from: w.SubmittedAt, phase: "waiting"}
	for _, e := range events {
		t.take(e)
	}
	if w.State == workflow.Pending && t.phase != "waiting" && !t.lost.IsZero() {
		t.enter("waiting", t.lost)
	}
	stepped := t.phase == "running" && len(w.Steps) > 0
	if !stepped {
		t.spend(end)
		t.row(t.phase).open = !w.State.Terminal()
	}
	order := []string{"waiting", "queued", "provisioning", "running"}
	slices.SortStableFunc(t.rows, func(x, y phase) int { return slices.Index(order, x.name) - slices.Index(order, y.name) })
	if stepped {
		t.takeSteps(w, end)
	}
	t.takeReview(w, now)
	return t.rows
}

// telling is how far the story was read.
type telling struct {
	rows  []phase
	phase string
	from  time.Time // since when it is in the phase
	lost  time.Time // when the attempt came to nothing, if it did
	marks []event   // of the phase that it is in
}

// row is the row of a phase; it is made if it is missing.
func (t *telling) row(name string) *phase {
	i := slices.IndexFunc(t.rows, func(p phase) bool { return p.name == name })
	if i < 0 {
		i, t.rows = len(t.rows), append(t.rows, phase{name: name})
	}
	return &t.rows[i]
}

func (t *telling) spend(until time.Time) {
	if until.Before(t.from) {
		until = t.from
	}
	p := t.row(t.phase)
	p.spans, p.marks = append(p.spans, span{t.from, until}), append(p.marks, t.marks...)
	t.from, t.marks = until, nil
}

func (t *telling) enter(name string, at time.Time) {
	t.spend(at)
	t.phase, t.lost = name, time.Time{}
}

// take reads one event. An attempt that came to nothing ends where that was noticed; whether it did is known when the
// run is claimed again.
func (t *telling) take(e api.Event) {
	switch e.Kind {
	case "claimed":
		if t.phase != "waiting" {
			lost := t.lost
			if lost.IsZero() {
				lost = e.At
			}
			t.enter("waiting", lost)
		}
		t.enter("queued", e.At)
	case "launched", "progress", "launch_refused":
		if t.phase == "queued" {
			t.enter("provisioning", e.At)
		}
	case "started":
		t.enter("running", e.At)
	case "lapsed", "lease_lapsed", "released", "launch_window", "silence", "task_stopped", "result_missing":
		t.lost = e.At
	}
	switch e.Kind {
	case "launch_refused", "launch_failed", "lapsed", "lease_lapsed", "released", "launch_window", "silence", "task_stopped",
		"result_missing", "late_result", "deadline", "queue_timeout", "cancel_requested", "cancelled", "unlocked":
		t.marks = append(t.marks, event{e.At, e.Text, "warn"})
	}
}

// takeSteps adds the steps of the latest attempt. Their times are of the runner's clock: if that is ahead or behind, they
// are moved to where they can have been, between the start and the end that the control plane saw.
func (t *telling) takeSteps(w api.Workflow, end time.Time) {
	spans := make([]span, len(w.Steps))
	var first, last time.Time
	for i, one := range w.Steps {
		spans[i] = span{one.StartedAt, one.StartedAt.Add(api.Seconds(max(one.Seconds, 0)))}
		if i == 0 || one.StartedAt.Before(first) {
			first = one.StartedAt
		}
		if spans[i].to.After(last) {
			last = spans[i].to
		}
	}
	move := min(0, end.Sub(last))
	move += max(0, t.from.Sub(first.Add(move)))
	within := func(at time.Time) time.Time {
		if at = at.Add(move); at.After(end) {
			return end
		}
		return at
	}
	for i, one := range w.Steps {
		s := span{within(spans[i].from), within(spans[i].to)}
		p := t.row(text.Cut(clean(one.Name), 14))
		if one.Status == workflow.StepRunning {
			s.to, p.open = end, !w.State.Terminal()
		}
		if one.Status == workflow.StepFailed {
			p.marks = append(p.marks, event{s.to, "failed: " + one.Text, "bad"})
		}
		p.spans = append(p.spans, s)
		for len(t.marks) > 0 && (i+1 == len(spans) || t.marks[0].at.Before(within(spans[i+1].from))) {
			p.marks, t.marks = append(p.marks, t.marks[0]), t.marks[1:]
		}
	}
}

// takeReview adds the time for which a plan waits or waited for its approval.
func (t *telling) takeReview(w api.Workflow, now time.Time) {
	r := w.Review
	if r == nil || w.EndedAt == nil || r.Status == api.ReviewEmpty || r.Status == api.ReviewStale && len(r.Votes) == 0 {
		return
	}
	p := phase{name: "approval", open: r.Status == api.ReviewWaiting}
	to := now
	if r.ExpiresAt.Before(to) {
		to = r.ExpiresAt
	}
	for _, v := range r.Votes {
		if v.At.Before(*w.EndedAt) { // it was carried over
			v.At = *w.EndedAt
		}
		p.marks = append(p.marks, event{v.At, runtext.Vote(v), "good"})
		if !p.open {
			to = v.At
		}
	}
	if to.Before(*w.EndedAt) {
		to = *w.EndedAt
	}
	p.spans = []span{{*w.EndedAt, to}}
	t.rows = append(t.rows, p)
}

// picture is where the phases are drawn, in hundredths of the width of the axis.
type picture struct {
	phases []phase
	times  []time.Time // where anything begins or ends
	places []float64
}

// draw makes the scale. The distance of two times is the cube root of their difference: a longer time is always longer,
// but a wait of four hours is 50 times as long as a step of 0.1 s, not 144,000 times, so that both can be seen. Each row
// says how long it was.
func draw(phases []phase) picture {
	pic := picture{phases: phases}
	for _, p := range phases {
		for _, s := range p.spans {
			pic.times = append(pic.times, s.from, s.to)
		}
	}
	slices.SortFunc(pic.times, time.Time.Compare)
	pic.times = slices.CompactFunc(pic.times, time.Time.Equal)
	sum := 0.0
	for i, at := range pic.times {
		if i > 0 {
			sum += math.Cbrt(at.Sub(pic.times[i-1]).Seconds())
		}
		pic.places = append(pic.places, sum)
	}
	for i := range pic.places {
		pic.places[i] *= 100 / max(sum, 1e-9)
	}
	return pic
}

// place is where a moment is; one outside lies at the edge.
func (pic picture) place(at time.Time) float64 {
	i, found := slices.BinarySearchFunc(pic.times, at, time.Time.Compare)
	switch {
	case found:
		return pic.places[i]
	case len(pic.times) == 0 || i == 0:
		return 0
	case i == len(pic.times):
		return 100
	}
	part := float64(at.Sub(pic.times[i-1])) / float64(pic.times[i].Sub(pic.times[i-1]))
	return pic.places[i-1] + part*(pic.places[i]-pic.places[i-1])
}

// axis is a place on the page: to the left of the axis are names, to its right there is room for a duration.
func axis(place float64) string { return fmt.Sprintf("%.2f%%", 22+place*0.61) }

// wide is the width of a bar, never too little to be seen.
func wide(from, to float64) string { return fmt.Sprintf("%.2f%%", max((to-from)*0.61, 0.5)) }

// words says all that the picture shows.
func (pic picture) words() string {
	var out []string
	for _, p := range pic.phases {
		said := p.name + " " + runtext.Long(p.took())
		if p.open {
			said += " so far"
		}
		for _, m := range p.marks {
			said += "; " + text.Cut(m.text, 120)
		}
		out = append(out, said)
	}
	return clean("Timeline: " + strings.Join(out, ", "))
}

// waits says whether nothing was done in the phase but to wait.
func (p phase) waits() bool { return p.name == "waiting" || p.name == "queued" || p.name == "approval" }

// end is where the last of a phase is.
func (pic picture) end(p phase) float64 {
	if len(p.spans) == 0 {
		return 0
	}
	return pic.place(p.spans[len(p.spans)-1].to)
}

// marks are the latest marks of all phases, the oldest first.
func (pic picture) marks() []event {
	const most = 5
	var all []event
	for _, p := range pic.phases {
		for _, m := range p.marks {
			if m.class == "warn" { // the sentences and the review say the others
				all = append(all, m)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y event) int { return x.at.Compare(y.at) })
	return all[max(0, len(all)-most):]
}
