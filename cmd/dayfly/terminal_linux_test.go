package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// session is the program at a terminal of its own.
type session struct {
	t        *testing.T
	cmd      *exec.Cmd
	keyboard *os.File // and screen: the side of the terminal where a person sits
	terminal *os.File
	screen   *lockedBuffer
	before   *unix.Termios
	read     chan struct{} // closed when the screen shows all
}

// sit starts the program with arguments at a terminal.
func (w *world) sit(args ...string) *session {
	w.t.Helper()
	return w.sitAt(&unix.Winsize{}, "dumb", args...)
}

// sitAt starts it at a terminal of a size and a kind.
func (w *world) sitAt(size *unix.Winsize, kind string, args ...string) *session {
	w.t.Helper()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	s := &session{t: w.t, screen: &lockedBuffer{written: make(chan struct{}, 1)}, read: make(chan struct{})}
	var err error
	s.keyboard, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(err)
	must(unix.IoctlSetPointerInt(int(s.keyboard.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(s.keyboard.Fd()), unix.TIOCGPTN)
	must(err)
	s.terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(err)
	must(unix.IoctlSetWinsize(int(s.terminal.Fd()), unix.TIOCSWINSZ, size))
	s.before, err = unix.IoctlGetTermios(int(s.terminal.Fd()), unix.TCGETS)
	must(err)
	s.cmd = exec.CommandContext(w.t.Context(), os.Args[0], args...)
	s.cmd.Env = []string{asProgram + "=1", noWait, "TERM=" + kind}
	for name, value := range w.env {
		s.cmd.Env = append(s.cmd.Env, name+"="+value)
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.terminal, s.terminal, s.terminal
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that keys are signals
	must(s.cmd.Start())
	go func() {
		defer close(s.read)
		for b := make([]byte, 4096); ; {
			n, err := s.keyboard.Read(b)
			_, _ = s.screen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	return s
}

// shows waits until the screen shows a text.
func (s *session) shows(text string) {
	s.t.Helper()
	for !strings.Contains(s.screen.String(), text) {
		select {
		case <-s.screen.written:
		case <-s.t.Context().Done():
			s.t.Fatalf("the screen shows\n%s\nand not %q", s.screen, text)
		}
	}
}

func (s *session) types(keys string) {
	s.t.Helper()
	if _, err := s.keyboard.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// ends waits for the program and checks its exit code, and that the terminal is as it was.
func (s *session) ends(code int) {
	s.t.Helper()
	err := s.cmd.Wait()
	after, failed := unix.IoctlGetTermios(int(s.terminal.Fd()), unix.TCGETS)
	if err := errors.Join(failed, s.terminal.Close()); err != nil {
		s.t.Fatal(err)
	}
	<-s.read
	_ = s.keyboard.Close()
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("got exit %d (%v), want %d; the screen shows\n%s", got, err, code, s.screen)
	}
	if diff := cmp.Diff(s.before, after); diff != "" {
		s.t.Errorf("the terminal is not as it was (-before +after):\n%s", diff)
	}
}

// A prompt that shows nothing and ends by no key took the next command for the secret.
func TestTerminal_AHiddenPromptIsLeftByItsKeys(t *testing.T) {
	for name, keys := range map[string]string{"Ctrl-C": "\x03", "Ctrl-D": "\x04", "Ctrl-C after a while": "half\x03", "Ctrl-D after a while": "half\x04"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			data := t.TempDir()
			s := w.sit("secret", "set", "db", "--data", data)
			s.shows("value of db: ")
			s.types(keys)
			s.ends(cli.ExitInterrupted)
			if got := s.screen.String(); !strings.Contains(got, "interrupted: nothing was done") || strings.Contains(got, "half") {
				t.Errorf("the screen shows\n%s", got)
			}
			if kept, err := filepath.Glob(filepath.Join(data, "secrets", "*")); err != nil || len(kept) > 0 {
				t.Errorf("kept: %v, %v", kept, err)
			}
			login := w.sit("login", w.url)
			login.shows("token for " + w.url + ": ")
			login.types(keys)
			login.ends(cli.ExitInterrupted)
		})
	}
}

func TestTerminal_AHiddenPromptRestoresTheTerminal(t *testing.T) {
	w := newWorld(t)
	s := w.sit("secret", "set", "db", "--data", t.TempDir())
	s.shows("value of db: ")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.ends(cli.ExitInterrupted)
}

// R6: typed characters are not shown, and can be erased.
func TestTerminal_AHiddenPromptTakesALine(t *testing.T) {
	w := newWorld(t)
	data := t.TempDir()
	long := strings.Repeat("long ", 1200) // more than a terminal hands over as one line
	for name, keys := range map[string]string{"planted": "plantef\x7fd\r", "after": "wrong\x15after\n", "gr\u00fcn": "gr\u00fc\u00fc\x7fn\r", long: long + "\r"} {
		s := w.sit("secret", "set", "db", "--data", data)
		s.shows("value of db: ")
		s.types(keys)
		s.ends(cli.ExitOK)
		got, err := os.ReadFile(filepath.Join(data, embedded.SecretsDir, "db"))
		if err != nil || string(got) != name {
			t.Errorf("got %q, %v, want %q", got, err, name)
		}
		if strings.Contains(s.screen.String(), name) {
			t.Errorf("the screen shows %q", s.screen)
		}
	}
}

func TestTerminal_ConfigureAsksForWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	token := strings.TrimSpace(w.ok("pool", "create", "second"))
	file := filepath.Join(t.TempDir(), "dayfly.yaml")
	s := w.sit("configure", "--config", file, "--deploy-target", "process")
	for _, step := range [][2]string{
		{"Address of the control plane", w.url + "\n"}, {"Data directory", "\n"}, {"may be sources", "/srv/one:/srv/two\n"}, {"pool token, which dayfly pool create printed: ", token + "\r"},
	} {
		s.shows(step[0])
		s.types(step[1])
	}
	s.ends(cli.ExitOK)
	if got := s.screen.String(); strings.Contains(got, token) || !strings.Contains(got, "wrote "+file) {
		t.Errorf("the screen shows\n%s", got)
	}
	text, err := os.ReadFile(file)
	want := "# yaml-language-server: $schema=" + w.url + "/schemas/agent.json\ntoken: " + token + "\nservice_url: " + w.url + "\ndeploy_target: process\nsource_roots: [/srv/one, /srv/two]\n"
	if err != nil || string(text) != want {
		t.Errorf("got %s, %v, want\n%s", text, err, want)
	}
	aborted := w.sit("configure", "--config", file+"2")
	aborted.shows("Address of the control plane")
	aborted.types("\x03")
	aborted.ends(cli.ExitInterrupted)
}

func TestTerminal_WhatCannotBeTakenBackAsksFirst(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	first := strings.TrimSpace(w.ok("run", "one", "--op", "destroy", "--yes"))
	w.ok("workflow", "cancel", first)
	w.ok("pool", "create", "second")
	for _, tc := range []struct {
		args []string
		asks string
	}{
		{[]string{"run", "one", "--op", "destroy"}, "destroys everything that workspace one manages"},
		{[]string{"run", "one", "--op", "update"}, "changes the resources that workspace one manages"},
		{[]string{"workflow", "retry", first}, "destroys everything that workspace one manages"},
		{[]string{"pool", "delete", "second"}, "This deletes pool second and ends its token"},
		{[]string{"pool", "rotate-token", "second"}, "This ends the present token of pool second at once"},
	} {
		for keys, want := range map[string]struct {
			code int
			says string
		}{
			"\x03": {cli.ExitInterrupted, "interrupted: nothing was done"}, "\x04": {cli.ExitInterrupted, "interrupted: nothing was done"},
			"no\r": {cli.ExitFailed, "not confirmed: nothing was done"}, "\r": {cli.ExitFailed, "not confirmed: nothing was done"},
		} {
			s := w.sit(tc.args...)
			s.shows("Type yes to go on: ")
			s.types(keys)
			s.ends(want.code)
			has(t, "screen", s.screen.String(), tc.asks, want.says)
		}
	}
	if got := value[[]api.Workflow](w, "workflow", "list"); len(got) != 1 {
		t.Errorf("without a yes there are %d workflows, want the first alone", len(got))
	}
	s := w.sit("run", "one", "--op", "destroy")
	s.shows("Type yes to go on: ")
	s.types("yes\r")
	s.ends(cli.ExitOK)
	has(t, "screen", s.screen.String(), "submitted destroy of one")
}

func TestTerminal_ALongResultGoesThroughThePager(t *testing.T) {
	w := newWorld(t)
	w.workspace("network")
	w.env["DAYFLY_PAGER"] = "sed s/^/paged:/"
	long := []string{"workflow", "list"}
	for range 3 {
		w.ok("run", "network")
	}
	for _, tc := range []struct {
		args  []string
		rows  uint16
		paged bool
	}{{long, 3, true}, {long, 50, false}, {append(long, "-n", "1"), 2, true}} {
		s := w.sitAt(&unix.Winsize{Row: tc.rows, Col: 200}, "xterm", tc.args...)
		s.ends(cli.ExitOK)
		got := s.screen.String()
		if strings.Contains(got, "paged:") != tc.paged || !strings.Contains(got, "WORKFLOW") {
			t.Errorf("%v with %d rows: the screen shows\n%s", tc.args, tc.rows, got)
		}
		if before, after, more := strings.Cut(got, "there are more"); more && (before == "" || strings.Contains(after, "wf_")) {
			t.Errorf("the notice is not below the list:\n%s", got)
		}
	}
}

func TestTerminal_AWatchedListIsRedrawnUntilCtrlC(t *testing.T) {
	w := newWorld(t)
	w.workspace("network")
	w.ok("run", "network")
	s := w.sitAt(&unix.Winsize{Row: 10, Col: 200}, "xterm", "workflow", "list", "--watch")
	s.shows("\x1b[H\x1b[2J")
	w.ok("run", "network")
	s.shows("\x1b[J\x1b[H\x1b[1mWORKFLOW")
	s.types("\x03")
	s.ends(cli.ExitInterrupted)
}

func TestTerminal_ARunEndsWithTheAddressOfItsPage(t *testing.T) {
	w := newWorld(t)
	w.workspace("network")
	if got := w.run("run", "network"); strings.Contains(got.stdout+got.stderr, "page  ") {
		t.Errorf("in a pipe: got %+v", got)
	}
	for _, pages := range []bool{false, true} {
		if pages {
			w.withPages()
		}
		s := w.sitAt(&unix.Winsize{Row: 30, Col: 200}, "xterm", "run", "network")
		s.ends(cli.ExitOK)
		got := s.screen.String()
		id, _, _ := strings.Cut(got, "\r\n")
		if strings.HasSuffix(got, "\r\npage  "+w.url+"/runs/"+id+"\r\n") != pages {
			t.Errorf("with pages %t the screen shows\n%q", pages, got)
		}
	}
}
