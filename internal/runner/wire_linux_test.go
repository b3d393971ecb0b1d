package runner_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// What the engine started and let go of is dead before the result says that the run is over.
func TestRun_EngineChildrenAreDeadBeforeResult(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, `setsid sh -c 'exec 3>`+pipe.path+`; echo $$ >&3; exec sleep 1000' >/dev/null 2>&1 & read x < `+pipe.path+`.gate || true`)
	if err := syscall.Mkfifo(pipe.path+".gate", 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, spec)
	k := startTask(t, r, cfg)
	k.open(t)
	left, err := strconv.Atoi(pipe.says(t))
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(call string, _ []byte) error {
		if err := syscall.Kill(left, 0); call == "result" && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d lives when the result is sent", left)
			_ = syscall.Kill(left, syscall.SIGKILL)
		}
		return nil
	}
	r.set(func() { r.refuse = refuse })
	if err := os.WriteFile(pipe.path+".gate", nil, 0); err != nil {
		t.Fatal(err)
	}
	k.end(t, 0)
	if got := r.result(); got.Outcome != workflow.Succeeded {
		t.Errorf("got %+v", got)
	}
}

// R5: 200,000 lines while the relay is away arrive complete and in order, within 64 MiB.
func TestRun_LogDuringRelayOutageIsBoundedInMemory(t *testing.T) {
	const limit = 64 << 10
	count := 200_000
	if raceEnabled {
		count = 20_000
	}
	pipe := newAlive(t)
	spec, cfg := job(t, "exec 3>"+pipe.path+"; echo ready >&3; read x < "+pipe.path+".gate || true; seq -f 'aws_instance.web[%.0f]: Still creating... [id=i-0123456789abcdef, 00m10s elapsed] with some more text to fill it' 1 "+strconv.Itoa(count))
	if err := syscall.Mkfifo(pipe.path+".gate", 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Secrets = []api.Secret{}
	r := newRelay(t, spec)
	r.control.HeartbeatSeconds = 30
	k := startTask(t, r, cfg)
	k.open(t)
	ended := pipe.ready(t)
	r.set(func() { r.away = true })
	if err := os.WriteFile(pipe.path+".gate", nil, 0); err != nil {
		t.Fatal(err)
	}
	ended() // all was written, and read by the runner
	used := 0
	r.set(func() {
		r.away = false
		r.refuse = func(string, []byte) error {
			used = max(used, highWater(t, k.cmd.Process.Pid))
			return nil
		}
	})
	k.end(t, 0)

	got := r.result()
	if got.Outcome != workflow.Succeeded || got.LogEnd != int64(len(r.lines)) {
		t.Fatalf("got %+v and %d lines", got, len(r.lines))
	}
	first := slices.IndexFunc(r.lines, func(l api.LogLine) bool { return strings.HasPrefix(l.Text, "aws_instance.web[1]") })
	if first < 0 || len(r.lines)-first != count {
		t.Fatalf("got %d lines, the first at %d, want %d", len(r.lines), first, count)
	}
	for i, l := range r.lines[first:] {
		if want := fmt.Sprintf("aws_instance.web[%d]: ", i+1); !strings.HasPrefix(l.Text, want) {
			t.Fatalf("line %d is %q, want %q", i, l.Text, want)
		}
	}
	t.Logf("the runner took %d KiB at most", used)
	if used > limit && !raceEnabled {
		t.Errorf("the runner took %d KiB, want at most %d", used, limit)
	}
}

// highWater returns the most memory that a process had so far, in KiB. (What is told of a process
// that has ended also counts what its parent had when it forked.)
func highWater(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, rest, ok := strings.Cut(string(b), "VmHWM:")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ok {
		return 0 // it has ended: this is its last heartbeat, which nobody waits for
	}
	if err != nil {
		t.Error(err)
	}
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Error(err)
	}
	return kib
}

// Who shares the runner's user cannot read its environment, which still holds the ticket.
func TestRun_EngineOfTheSameUserCannotReadTheRunner(t *testing.T) {
	spec, cfg := job(t, `for f in environ mem maps fd/0; do if cat /proc/$PPID/$f >/dev/null 2>&1; then echo "read $f"; fi; done; id -u; echo tried`)
	r := newRelay(t, spec)
	var user *syscall.Credential
	want := strconv.Itoa(os.Getuid())
	if os.Getuid() == 0 { // who may read everything
		user, want = &syscall.Credential{Uid: 200_099, Gid: 200_099}, "200099"
		publish(t, cfg.WorkDir)
		if err := errors.Join(os.Mkdir(cfg.WorkDir, 0o700), os.Chown(cfg.WorkDir, 200_099, 200_099)); err != nil {
			t.Fatal(err)
		}
	}
	k := startTaskAs(t, user, r, cfg)
	k.open(t)
	k.end(t, 0)
	if text := r.text(); strings.Contains(text, "read ") || !strings.Contains(text, want+"\ntried\n") {
		t.Errorf("got %s", text)
	}
}
