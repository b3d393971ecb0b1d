package procrun_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

func runner(t *testing.T, script string) (*procrun.Runner, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	return &procrun.Runner{
		Commands: map[string][]string{"image": {"/bin/sh", "-c", script, "sh"}}, Env: []string{"PATH=" + os.Getenv("PATH"), "A=1"}, Dir: t.TempDir(), Output: &out,
	}, &out
}

func start(t *testing.T, r *procrun.Runner, s ecs.Spec) ecs.Process {
	t.Helper()
	s.Image, s.Task = "image", "arn:task/cluster/id"
	p, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wait(t *testing.T, p ecs.Process) ecs.Exit {
	t.Helper()
	exit, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

func TestStart_GivesEnvironmentArgumentsAndDirectory(t *testing.T) {
	r, out := runner(t, `echo "$A $B $1 $(basename "$PWD")"; exit 7`)
	if exit := wait(t, start(t, r, ecs.Spec{Env: []string{"A=2", "B=3"}, Command: []string{"x"}})); exit.Code != 7 {
		t.Errorf("got %+v, want code 7", exit)
	}
	if got := out.String(); got != "2 3 x id\n" {
		t.Errorf("it said %q", got)
	}
}

func TestSignal_EndsAndKills(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		signal syscall.Signal
		want   int
	}{
		"heard":  {`trap 'exit 3' TERM; echo > up; sleep 1000 & wait $!`, syscall.SIGTERM, 3},
		"killed": {`trap '' TERM; echo > up; sleep 1000 & wait $!`, syscall.SIGKILL, 137},
	} {
		r, _ := runner(t, tc.script)
		up := filepath.Join(r.Dir, "id", "up") // a pipe: who reads it waits until the script is ready
		if err := os.Mkdir(filepath.Dir(up), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(up, 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, r, ecs.Spec{})
		if _, err := os.ReadFile(up); err != nil { //nolint:gosec // a pipe of the test
			t.Fatal(err)
		}
		if err := p.Signal(t.Context(), tc.signal); err != nil {
			t.Fatal(err)
		}
		if exit := wait(t, p); exit.Code != tc.want {
			t.Errorf("%s: got %+v, want code %d", name, exit, tc.want)
		}
		if err := p.Signal(t.Context(), syscall.SIGTERM); err != nil {
			t.Errorf("%s: after its end: %v", name, err)
		}
	}
}

func TestStart_SaysWhyNot(t *testing.T) {
	r, _ := runner(t, "")
	r.Commands["broken"] = []string{"/no/such/program"}
	for image, want := range map[string]string{"unknown": "CannotPullContainerError: ", "broken": "CannotStartContainerError: "} {
		if _, err := r.Start(t.Context(), ecs.Spec{Image: image, Task: "id"}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", image, err, want)
		}
	}
}
