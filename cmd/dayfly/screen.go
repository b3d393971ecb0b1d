package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
)

// watchEvery is the pause between two requests of --watch.
const watchEvery = 2 * time.Second

// paged are the last words of commands that print at most once, and may print much.
var paged = []string{"list", "show", "why", "plan", "explain", "runners"}

// perform runs the command that was parsed: again and again with --watch, and through a pager where its result is
// longer than the terminal.
func perform(a *cli.App) error {
	leaf := a.Parsed.Selected()
	run := func() error { return a.Parsed.Run(a) }
	switch {
	case switched(leaf, "watch"):
		return repeat(a, run)
	case a.Style().Height > 0 && slices.Contains(paged, leaf.Name) && !switched(leaf, "follow") && leaf.Parent.Name != "state":
		return page(a, run)
	}
	return run()
}

// repeat runs a command until it has nothing more to show, or is interrupted.
func repeat(a *cli.App, run func() error) error {
	out, errs, style := a.Stdout, a.Stderr, a.Style()
	a.Screen = out
	defer func() { a.Stdout, a.Stderr = out, errs }()
	var failed error
	first, last := true, ""
	err := new(cli.Poll).Until(a.Ctx, func() (bool, error) {
		var b bytes.Buffer
		if a.Stdout = &b; style.Height > 0 {
			a.Stderr = &b
		}
		err := run()
		if err != nil && first { // there is nothing to go on with
			failed = err
			return true, nil
		}
		text := b.String()
		switch {
		case style.Height == 0:
			a.Stderr = io.Discard // a notice is said once
			if err == nil {
				_, err = io.WriteString(out, updates(last, text, a.Output == "table" || a.Output == "name"))
			}
		case err != nil:
			text = last + style.Dim(cli.Sentence(err)) + "\n"
			fallthrough
		case a.Ctx.Err() == nil:
			_, _ = io.WriteString(out, redraw(text, style, first))
		}
		if first = false; err == nil {
			last = text
		}
		return a.Over, err
	}, watchEvery)

	if a.Ctx.Err() != nil {
		return &cli.ExitError{Code: cli.ExitInterrupted}
	}
	return cmp.Or(failed, err)
}

// redraw writes a text over the one before, cut to the height of the terminal.
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

// times match the parts of a text that change although nothing happens: moments, ages and remaining times.
var times = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d[\d.]*(Z|[+-]\d\d:\d\d)?|(^|[\s(+])-?\d[\d.]*[smhd][\dms]*\b`)
})

// updates are the lines of a text that were not in the one before, or the whole text if any line is new and not by
// lines. Times do not count, nor the room that they take.
func updates(before, now string, byLines bool) string {
	plain := func(line string) string {
		return strings.Join(strings.Fields(times().ReplaceAllString(line, " ")), " ")
	}
	known := map[string]bool{}
	for line := range strings.Lines(before) {
		known[plain(line)] = true
	}
	var b strings.Builder
	for line := range strings.Lines(now) {
		if !known[plain(line)] {
			b.WriteString(line)
		}
	}
	if b.Len() > 0 && !byLines {
		return now
	}
	return b.String()
}

// page collects the output of a command, and shows it through the pager if it is longer than the terminal.
func page(a *cli.App, run func() error) error {
	var b, said bytes.Buffer
	out, errs, style := a.Stdout, a.Stderr, a.Style()
	a.Screen, a.Stdout, a.Stderr = out, &b, &said
	failed := run()
	a.Stdout, a.Stderr = out, errs
	defer func() { _, _ = errs.Write(said.Bytes()) }() // below the result, as without a pager
	const usual = "less -FRX"
	pager := cmp.Or(a.Getenv("DAYFLY_PAGER"), a.Getenv("PAGER"), usual)
	if bytes.Count(b.Bytes(), []byte("\n")) < style.Height || pager == "cat" || pager == usual && !cli.Installed("less", a.Getenv) {
		_, err := out.Write(b.Bytes())
		return cmp.Or(failed, err)
	}
	// An interrupt is the pager's: killed, it would leave the terminal without echo.
	c := exec.CommandContext(context.WithoutCancel(a.Ctx), "sh", "-c", pager)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(b.Bytes()), out, errs
	if err := c.Run(); failed == nil && err != nil && c.ProcessState != nil && c.ProcessState.ExitCode() == 127 {
		_, failed = out.Write(b.Bytes()) // there is no such program, as the shell has said
	}
	return failed
}
