package console

import (
	"context"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
)

// Functions that tests call with bytes that no page would let through.
var (
	Clean   = clean
	OwnPath = ownPath
	Long    = runtext.Long
)

// Relative is a moment as a page shows it.
func Relative(at, now time.Time) string { return stamp{at}.relative(now) }

// RenderRun is the page of a run as its administrator sees it a minute after it ended.
func RenderRun(why api.Why, files []api.Artifact) templ.Component {
	v := &view{now: time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)}
	v.who.Audience, v.who.Role = "user", api.RoleAdmin
	d := runDataOf(why, v)
	d.artifacts = files
	return runPage(v, d)
}

// RenderParts are the row of a run in a list, and the parts of its page.
func RenderParts(why api.Why, now time.Time) map[string]templ.Component {
	v := &view{now: now}
	v.who.Audience, v.who.Role = "user", api.RoleAdmin
	return map[string]templ.Component{"row": runRow(v, why.Workflow, runLink), "page": runParts(v, runDataOf(why, v))}
}

// Heading is the heading of the changes that a run has.
func Heading(of string, c api.Changes, w api.Workflow) string { return treeOf(of, c, false).heading(w) }

// RenderTree is the part of a run's page about the tree that it is of.
func RenderTree(tree api.Tree, workspace string, now time.Time) templ.Component {
	return treeSection(&view{now: now}, tree, workspace)
}

// Sentences are the first sentences of the page of a run, with moments in brackets.
func Sentences(why api.Why, me string) string {
	s := say(why, me)
	out := s.head().word + " " + s.lead
	for _, p := range s.notes {
		out += " " + p.text
		if !p.at.IsZero() {
			out += " [" + p.at.Format("15:04") + "]."
		}
	}
	return out
}

// Timeline is the picture of a run in words, and the places where each phase begins and ends.
func Timeline(w api.Workflow, events []api.Event, now time.Time) (words string, places [][2]float64) {
	pic := draw(phasesOf(w, events, now))
	for _, p := range pic.phases {
		for _, s := range p.spans {
			places = append(places, [2]float64{pic.place(s.from), pic.place(s.to)})
		}
	}
	return pic.words(), places
}

// SplitAddress cuts an address of a plan.
var SplitAddress = splitAddress

// The text of a line of a log, and the only HTML that no template escapes.
var (
	Paint = paint
	Plain = plain
)

// Look shares a look with nobody.
func Look(ctx context.Context, look func()) error {
	var l looks
	_, _, _, err := l.share(ctx, lookKey{}, 1, func(context.Context, lookKey) (update, error) { look(); return update{}, nil })
	return err
}
