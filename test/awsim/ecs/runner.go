package ecs

import (
	"context"
	"syscall"
)

// Spec is a container to run: what the task definition and the overrides of a task make together.
type Spec struct {
	Task       string // ARN
	Name       string // of the container
	Image      string
	Command    []string // in place of the image's; empty: the image's
	EntryPoint []string // likewise
	Env        []string // NAME=value, sorted
	User       string
	ReadOnly   bool     // the root file system
	Volumes    []string // paths in the container that can be written
	DropAll    bool     // no capability is left
	CPUUnits   int      // of the task
	MemoryMB   int
}

// Exit is how a container ended.
type Exit struct {
	Code   int
	Reason string // such as "OutOfMemoryError: Container killed due to memory usage"
}

// Process is a container that runs.
type Process interface {
	// Signal sends SIGTERM, or ends all of it with SIGKILL. It is not an error when it has ended.
	Signal(ctx context.Context, s syscall.Signal) error
	// Wait returns when nothing of the container is left. It is called once.
	Wait(ctx context.Context) (Exit, error)
}

// Runner runs containers.
type Runner interface {
	// Start runs a container. The text of its error is the task's stopped reason, in ECS's words:
	// "CannotPullContainerError: ...".
	Start(ctx context.Context, s Spec) (Process, error)
}

// Func is a Runner in memory: each container is a call of it, which returns the exit code. It hears
// SIGTERM on terminate, which is then closed, and SIGKILL is the end of ctx, after which what it returns does not count.
type Func func(ctx context.Context, s Spec, terminate <-chan struct{}) int

// UntilStopped is a container that runs until it is asked to end, for a Func.
func UntilStopped(ctx context.Context, _ Spec, terminate <-chan struct{}) int {
	select {
	case <-terminate:
	case <-ctx.Done():
	}
	return 1
}

// Start implements Runner.
func (f Func) Start(ctx context.Context, s Spec) (Process, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &played{terminate: make(chan struct{}), kill: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer cancel()
		p.code = f(ctx, s, p.terminate)
		if ctx.Err() != nil {
			p.code = 128 + int(syscall.SIGKILL)
		}
	}()
	return p, nil
}

type played struct {
	terminate chan struct{}
	kill      context.CancelFunc
	done      chan struct{}
	code      int
	told      bool // only the task's own goroutine signals
}

func (p *played) Signal(_ context.Context, s syscall.Signal) error {
	if s == syscall.SIGKILL {
		p.kill()
	} else if !p.told {
		p.told = true
		close(p.terminate)
	}
	return nil
}

func (p *played) Wait(context.Context) (Exit, error) {
	<-p.done
	return Exit{Code: p.code}, nil
}
