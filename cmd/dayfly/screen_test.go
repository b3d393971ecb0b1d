package main

import (
	"context"
	"strings"
	"testing"
)

// watched runs a command with --watch and returns what it prints.
func (w *world) watched(args ...string) (out *lockedBuffer, ended func() int, stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	out = &lockedBuffer{written: make(chan struct{}, 1)}
	code := make(chan int, 1)
	go func() {
		code <- command(ctx, append(args, "--watch"), func(name string) string { return w.env[name] }, strings.NewReader(""), out, out)
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
	if got := ended(); got != exitInterrupted {
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
		if got := ended(); got != exitOK || strings.Count(out.String(), "deployment preview") != 2 {
			t.Errorf("%v: got exit %d\n%s\nwant it twice", args, got, out)
		}
	}
}

func TestWatch_OfWhatIsNotThereEndsAtOnce(t *testing.T) {
	w := newWorld(t)
	if got := w.run("pool", "show", "none", "--watch"); got.code != exitRefused {
		t.Errorf("got %+v", got)
	}
	w.env["DAYFLY_URL"] = "http://127.0.0.1:1"
	if got := w.run("workflow", "list", "--watch"); got.code != exitUnreachable {
		t.Errorf("got %+v", got)
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
