package main

import (
	"context"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

// watched runs a command with --watch and returns its output.
func (w *world) watched(args ...string) (out *lockedBuffer, ended func() int, stop func()) {
	return w.begun(append(args, "--watch")...)
}

// begun runs a command that goes on and returns its output.
func (w *world) begun(args ...string) (out *lockedBuffer, ended func() int, stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	out = &lockedBuffer{written: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() {
		code <- command(ctx, args, func(name string) string { return w.env[name] }, strings.NewReader(""), out, out)
	}()
	return out, func() int { return <-code }, cancel
}

// until waits until a text was printed.
func (l *lockedBuffer) until(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.written:
		case <-t.Context().Done():
			t.Fatalf("got\n%s\nand not %q", l, text)
		}
	}
}

func TestWatch_OfAListAppendsWhatIsNewOrDifferent(t *testing.T) {
	w := newWorld(t)
	w.workspace("network")
	first := value[struct{ ID string }](w, "run", "network").ID
	out, ended, stop := w.watched("workflow", "list")
	out.until(t, first)
	second := value[struct{ ID string }](w, "run", "network").ID
	out.until(t, second)
	w.ok("workflow", "cancel", second)
	out.until(t, "cancelled")
	stop()
	if got := ended(); got != cli.ExitInterrupted {
		t.Errorf("got exit %d, want 130", got)
	}
	text := out.String()
	if strings.Count(text, "WORKFLOW ") != 1 || strings.Count(text, first) != 1 || strings.Count(text, second) != 2 {
		t.Errorf("got\n%s\nwant one heading, the first once, and the second as it was made and as it ended", text)
	}
}

func TestWatch_OfAWorkflowEndsWithIt(t *testing.T) {
	for _, args := range [][]string{{"workflow", "show"}, {"why"}} {
		w := newWorld(t)
		w.workspace("network")
		id := value[struct{ ID string }](w, "run", "network").ID
		out, ended, _ := w.watched(append(args, id)...)
		out.until(t, "pending")
		w.ok("workflow", "cancel", id)
		if got, text := ended(), out.String(); got != cli.ExitOK || !strings.Contains(text, "cancelled") || strings.Count(text, "\nstate") > 2 || strings.Count(text, "  submitted  ") > 1 {
			t.Errorf("%v: got exit %d\n%s\nwant no line twice", args, got, text)
		}
	}
}

func TestWatch_OfWhatIsNotThereEndsAtOnce(t *testing.T) {
	w := newWorld(t)
	if got := w.run("pool", "show", "none", "--watch"); got.code != cli.ExitRefused {
		t.Errorf("got %+v", got)
	}
	w.env["DAYFLY_URL"] = "http://127.0.0.1:1"
	if got := w.run("workflow", "list", "--watch"); got.code != cli.ExitUnreachable {
		t.Errorf("got %+v", got)
	}
}

func TestWatch_TimesAreNotNews(t *testing.T) {
	const before = "POOL  LAST SEEN  SINCE\nbuild-5s  9.9s ago  2026-01-02 03:04:05Z (9.9s)\n"
	for _, tc := range []struct {
		now, want string
		whole     bool
	}{
		{now: "POOL   LAST SEEN   SINCE\nbuild-5s  1m00s ago  2026-02-03 04:05:06Z (2d)\n"},
		{now: "POOL  LAST SEEN  SINCE\nbuild-6s  9.9s ago  2026-01-02 03:04:05Z (9.9s)\n", want: "build-6s  9.9s ago  2026-01-02 03:04:05Z (9.9s)\n"},
		{now: before + "a\n", want: before + "a\n", whole: true},
		{now: before, whole: true},
	} {
		if got := updates(before, tc.now, !tc.whole); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.now, got, tc.want)
		}
	}
}

func TestWatch_OfAPoolPrintsWhatIsDifferent(t *testing.T) {
	w := newWorld(t)
	out, ended, stop := w.watched("pool", "show", "default")
	out.until(t, "no runners")
	w.ok("pool", "update", "default", "--description", "for all")
	out.until(t, "for all")
	stop()
	ended()
	if text := out.String(); strings.Count(text, "role path") != 1 {
		t.Errorf("got\n%s\nwant equal lines once", text)
	}
}

func TestColor_IsRefusedWhereThereAreNoResults(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{"up"}, {"server"}, {"agent"}} {
		if got := w.run(append(args, "--color", "never")...); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--color: dayfly "+args[0]) {
			t.Errorf("%v: got %+v", args, got)
		}
	}
}

func TestColor_MayBeAskedForAndRefused(t *testing.T) {
	w := newWorld(t)
	for flag, want := range map[string]bool{"auto": false, "always": true, "never": false} {
		if got := w.ok("pool", "list", "--color", flag); strings.Contains(got, "\x1b[") != want {
			t.Errorf("--color %s: got %q", flag, got)
		}
	}
}
