package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
)

// watchEvery is the pause between two looks of --watch.
const watchEvery = 2 * time.Second

// watching is the flag of commands that can be repeated.
type watching struct {
	Watch bool `help:"Show it again as it changes: on a terminal in place, elsewhere only what is new or different. It ends with Ctrl-C, and for one workflow when that has ended."`
}

// paged are the last words of commands that print at most once, and may print much.
var paged = []string{"list", "show", "why", "plan", "explain", "runners"}

// perform runs the command that was parsed: again and again with --watch, and through a pager where its result is
// longer than the terminal.
func (a *app) perform() error {
	leaf := a.parsed.Selected()
	run := func() error { return a.parsed.Run(a) }
	switch {
	case switched(leaf, "watch"):
		return a.repeat(run)
	case a.style().Height > 0 && !a.noPager && slices.Contains(paged, leaf.Name) && !switched(leaf, "follow") && leaf.Parent.Name != "state":
		return a.page(run)
	}
	return run()
}

// repeat runs a command until it has nothing more to show, or is interrupted.
func (a *app) repeat(run func() error) error {
	out, errs, style := a.stdout, a.stderr, a.style()
	a.screen, a.printed = out, map[string]string{}
	defer func() { a.stdout, a.stderr = out, errs }()
	var f follower // it knows how long to bear with a control plane that does not answer
	var failed error
	first, last := true, ""
	err := f.poll(a.ctx, func() (bool, error) {
		var b bytes.Buffer
		if style.Height > 0 {
			a.stdout, a.stderr, a.printed = &b, &b, nil
		}
		err := run()
		if err != nil && first { // there is nothing to go on with
			failed = err
			return true, nil
		}
		text := b.String()
		switch {
		case style.Height == 0:
			a.stderr = io.Discard // a notice is said once
		case err != nil:
			text = last + style.Dim(sentence(err)) + "\n"
			fallthrough
		case a.ctx.Err() == nil:
			_, _ = io.WriteString(out, redraw(text, style, first))
		}
		if first = false; err == nil {
			last = text
		}
		return a.over, err
	}, watchEvery)
	if a.ctx.Err() != nil {
		return &exitError{code: exitInterrupted}
	}
	return cmp.Or(failed, err)
}

// redraw writes a text over the one before, cut to what the terminal has room for.
func redraw(text string, style term.Style, first bool) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	if first {
		b.WriteString("\x1b[2J")
	}
	rows := 0
	for line := range strings.Lines(text) {
		if rows += 1 + max(term.Width(line)-1, 0)/max(style.Width, 1); rows >= style.Height {
			break
		}
		b.WriteString(strings.TrimSuffix(line, "\n") + "\x1b[K\n")
	}
	return b.String() + "\x1b[J"
}

// fresh reports whether something is to be shown: always, but with --watch only what is not as it was shown before.
func (a *app) fresh(key string, v any) bool {
	if a.printed == nil {
		return true
	}
	b, err := json.Marshal(v)
	was, known := a.printed[key]
	a.printed[key] = string(b)
	return err != nil || !known || was != string(b)
}

// page collects what a command prints, and shows it through the pager if it is longer than the terminal.
func (a *app) page(run func() error) error {
	var b, said bytes.Buffer
	out, errs, style := a.stdout, a.stderr, a.style()
	a.screen, a.stdout, a.stderr = out, &b, &said
	failed := run()
	a.stdout, a.stderr = out, errs
	defer func() { _, _ = errs.Write(said.Bytes()) }() // below the result, as without a pager
	const usual = "less -FRX"
	pager := cmp.Or(a.getenv("DAYFLY_PAGER"), a.getenv("PAGER"), usual)
	if bytes.Count(b.Bytes(), []byte("\n")) < style.Height || pager == "cat" || pager == usual && !installed("less", a.getenv) {
		_, err := out.Write(b.Bytes())
		return cmp.Or(failed, err)
	}
	// An interrupt is the pager's: killed, it would leave the terminal without echo.
	c := exec.CommandContext(context.WithoutCancel(a.ctx), "sh", "-c", pager)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(b.Bytes()), out, errs
	if err := c.Run(); failed == nil && err != nil && c.ProcessState != nil && c.ProcessState.ExitCode() == 127 {
		_, failed = out.Write(b.Bytes()) // there is no such program, as the shell has said
	}
	return failed
}
