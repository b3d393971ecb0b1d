package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// upProcess is `dayfly up` as a process of its own, with a run that goes on until the file letGo is there.
type upProcess struct {
	w      *world
	cmd    *exec.Cmd
	stderr *lockedBuffer
	id     string
	letGo  string
	ended  chan struct{} // closed when it has ended, as err says
	err    error
}

func upWithARun(t *testing.T, script string, flags ...string) *upProcess {
	t.Helper()
	w := newWorld(t)
	delete(w.env, "DAYFLY_URL")
	delete(w.env, "DAYFLY_API_TOKEN")
	sources, data := reachable(t), reachable(t)
	s := &upProcess{w: w, stderr: &lockedBuffer{written: make(chan struct{}, 1)}, letGo: filepath.Join(sources, "go"), ended: make(chan struct{})}
	file := "name: one\nengine: command\ncommands:\n  preview: |\n    " + strings.ReplaceAll(script, "GO", s.letGo) + "\n"
	if err := os.WriteFile(filepath.Join(sources, "workspace.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.CommandContext(t.Context(), os.Args[0], append([]string{"up", "--data", data, "--source-root", sources, "--listen", "127.0.0.1:0", "--deploy-target", "process"}, flags...)...)
	s.cmd.Env = []string{asProgram + "=1", noWait, "PATH=" + w.env["PATH"], "HOME=" + w.env["HOME"]}
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.err = s.cmd.Wait(); close(s.ended) }()
	s.says("try:")
	s.id = strings.TrimSpace(w.ok("run", sources))
	for !strings.Contains(w.ok("workflow", "logs", s.id), "it runs") {
	}
	return s
}

// says waits until it has said a text.
func (s *upProcess) says(text string) {
	s.w.t.Helper()
	for !strings.Contains(s.stderr.String(), text) {
		select {
		case <-s.stderr.written:
		case <-s.ended:
			if strings.Contains(s.stderr.String(), text) {
				return
			}
			s.w.t.Fatalf("it said\n%s\nand not %q", s.stderr, text)
		}
	}
}

func (s *upProcess) gets(sig os.Signal) {
	s.w.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.w.t.Fatal(err)
	}
}

func (s *upProcess) ends() {
	s.w.t.Helper()
	<-s.ended
	if s.err != nil {
		s.w.t.Errorf("it ended with %v and said\n%s", s.err, s.stderr)
	}
}

const untilLetGo = "trap 'echo interrupted; exit 3' INT; echo it runs; until [ -e GO ]; do sleep 0.05; done"

func TestUp_AnInterruptServesUntilRunningJobsEnd(t *testing.T) {
	s := upWithARun(t, untilLetGo)
	s.gets(os.Interrupt)
	s.says("waiting for 1 run to end:")
	has(t, "what it waits for", s.stderr.String(), "draining: no new work is taken", s.id+"  preview of one, since 20")
	late := strings.TrimSpace(s.w.ok("run", "one"))
	if got := value[api.Workflow](s.w, "workflow", "show", late); got.State != workflow.Pending {
		t.Errorf("a workflow submitted during a drain is %s", got.State)
	}
	if err := os.WriteFile(s.letGo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, "a follower", s.w.ok("workflow", "logs", "-f", s.id), "succeeded")
	s.ends()
}

func TestUp_ASecondInterruptOrSIGTERMInterruptsWhatRuns(t *testing.T) {
	for name, signals := range map[string][]os.Signal{"twice": {os.Interrupt, os.Interrupt}, "SIGTERM": {syscall.SIGTERM}} {
		t.Run(name, func(t *testing.T) {
			s := upWithARun(t, untilLetGo)
			for i, sig := range signals {
				s.gets(sig)
				s.says([]string{"waiting for 1 run", "stopping: running jobs are interrupted"}[min(i+2-len(signals), 1)])
			}
			s.says(`"reason":"interrupted"`)
			s.ends()
		})
	}
}

func TestUp_AThirdInterruptKillsWhatRuns(t *testing.T) {
	s := upWithARun(t, "trap '' INT TERM; echo it runs; while :; do sleep 0.05; done")
	for _, says := range []string{"waiting for 1 run", "stopping: running jobs", "killing the running jobs"} {
		s.gets(os.Interrupt)
		s.says(says)
	}
	s.ends() // long before the engine's grace is over
}

func TestUp_LogsTheStartAndEndOfEachJob(t *testing.T) {
	s := upWithARun(t, untilLetGo+"; test -e GO.good", "--log-format", "lines")
	s.says("• preview of one started  " + s.id + "\n")
	if err := os.WriteFile(s.letGo, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.says("s  " + s.id + ": ")
	if err := os.WriteFile(s.letGo+".good", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := strings.TrimSpace(s.w.ok("run", "one"))
	s.says("s  " + good + "\n")
	if err := os.Remove(s.letGo); err != nil {
		t.Fatal(err)
	}
	cut := strings.TrimSpace(s.w.ok("run", "one"))
	s.says("• preview of one started  " + cut + "\n")
	s.gets(syscall.SIGTERM)
	s.says("s  " + cut + ": ") // a job that is interrupted with dayfly up has its line too
	s.ends()
	said := s.stderr.String()
	has(t, "its ends", said, "✗ preview of one ", "✓ preview of one ")
	if strings.Contains(said, "level=INFO") || strings.Contains(said, `"msg"`) {
		t.Errorf("a record that is no warning is said:\n%s", said)
	}
	if n := strings.Count(said, "  "+good+"\n"); n != 2 { // a warning may name it, too: its runner may be leaving still
		t.Errorf("%s has %d lines, want 2:\n%s", good, n, said)
	}
}
