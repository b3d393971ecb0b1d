package runs

import (
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// WhyCommand is dayfly why.
type WhyCommand struct {
	ID string `arg:"" help:"The workflow."`
	cli.Watching
}

// Run prints where the workflow stands and its timeline.
func (c *WhyCommand) Run(a *cli.App, cl *client.Client) error {
	why, err := cl.Why(a.Ctx, c.ID)
	if err != nil {
		return err
	}
	a.Over = why.Workflow.State.Terminal()
	return a.Done(why, "%s", strings.TrimSuffix(explain(a.Style(), why, time.Now()), "\n"))
}

// explain formats the answer of why for people.
func explain(style term.Style, why api.Why, now time.Time) string {
	var b strings.Builder
	w := why.Workflow
	fmt.Fprintf(&b, "%s  %s: %s\n\n", style.Bold(w.ID), runtext.Title(w), style.State(runtext.State(w)))
	line := cli.Lines(&b, style, "", 10)
	line("now", why.Summary)
	line("waits for", why.Waiting)
	if !why.Since.IsZero() {
		line("since", fmt.Sprintf("%s (%s)", term.Time(why.Since), text.Duration(now.Sub(why.Since))))
	}
	line("next", why.Next)
	if len(why.Timeline) > 0 {
		b.WriteByte('\n')
		b.WriteString(timeline(style, why.Timeline))
	}
	return b.String()
}

// timeline lists events with the time since the first of them.
func timeline(style term.Style, events []api.Event) string {
	var b strings.Builder
	wide := 0
	for _, e := range events {
		wide = max(wide, term.Width(e.Kind))
	}
	for _, e := range events {
		kind := term.Clean(e.Kind)
		after := "+" + text.Duration(e.At.Sub(events[0].At))
		fmt.Fprintf(&b, "%s  %8s  %s%s  %s\n", style.Dim(term.Time(e.At)), after,
			kind, strings.Repeat(" ", wide-term.Width(kind)), term.Clean(e.Text))
	}
	return b.String()
}
