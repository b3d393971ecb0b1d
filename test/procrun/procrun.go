// Package procrun runs the containers of a fake ECS as processes of this machine, each in a session of
// its own. As with a container, nothing of it is left once its first process has ended.
package procrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
)

// Runner is an ecs.Runner. Users, read-only roots and limits of a container do not hold for a process.
type Runner struct {
	// Commands are what the images stand for: the program and its first arguments, by the image's name.
	Commands map[string][]string
	Env      []string // further variables of each process, such as PATH; those of the task win
	Dir      string   // in which each task has a directory to run in; empty: this process's own
	// DirEnv is a variable that names that directory, in place of what the task is told; empty: none. In a container
	// each task has a file system of its own.
	DirEnv string
	Output io.Writer // of the processes; nil: none. It is written to by several at once
}

// Start implements ecs.Runner.
func (r *Runner) Start(_ context.Context, s ecs.Spec) (ecs.Process, error) {
	command, ok := r.Commands[s.Image]
	if !ok {
		return nil, fmt.Errorf("CannotPullContainerError: pull image manifest has been retried 5 time(s): %s: not found", s.Image)
	}
	command = append(append([]string(nil), command...), s.Command...)
	if len(s.EntryPoint) > 0 {
		command = append(append([]string(nil), s.EntryPoint...), s.Command...)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // a test's own program, which is ended by signals
	cmd.Env = append(append([]string(nil), r.Env...), s.Env...)
	cmd.Stdout, cmd.Stderr = r.Output, r.Output
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if r.Dir != "" {
		cmd.Dir = filepath.Join(r.Dir, filepath.Base(s.Task))
		if err := os.MkdirAll(cmd.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("CannotCreateContainerError: %w", err)
		}
		if r.DirEnv != "" {
			cmd.Env = append(cmd.Env, r.DirEnv+"="+cmd.Dir)
		}
	}
	boot, err := cleanup.Boot()
	if err != nil {
		return nil, fmt.Errorf("CannotCreateContainerError: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("CannotStartContainerError: %w", err)
	}
	start, err := cleanup.ProcessStart(cmd.Process.Pid)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("CannotStartContainerError: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	return &process{cmd: cmd, trace: cleanup.Trace{
		Boot: boot, Session: cmd.Process.Pid, Start: start, Users: []uint32{uint32(os.Getuid())}, //nolint:gosec // a user's number
	}}, nil
}

type process struct {
	cmd   *exec.Cmd
	trace cleanup.Trace
}

// Signal implements ecs.Process.
func (p *process) Signal(_ context.Context, s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Wait implements ecs.Process.
func (p *process) Wait(context.Context) (ecs.Exit, error) {
	err := p.cmd.Wait()
	state, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return ecs.Exit{}, fmt.Errorf("how the process ended is not known: %w", err)
	}
	for {
		left, err := cleanup.Kill(p.trace, p.trace.Boot)
		if err != nil {
			return ecs.Exit{}, fmt.Errorf("end what is left of process %d: %w", p.trace.Session, err)
		}
		if left == 0 {
			break
		}
	}
	if state.Signaled() {
		return ecs.Exit{Code: 128 + int(state.Signal())}, nil
	}
	return ecs.Exit{Code: state.ExitStatus()}, nil
}
