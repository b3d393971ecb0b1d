//go:build linux || darwin

// Package child runs one child process: in a group of its own, as a user of its own where asked,
// without the parent's environment, dying with its parent, ended by an interrupt or a kill of the whole group, with a
// bounded wait for its pipes. It can find programs that were installed beside this one. It parses no output and does
// not know the purpose of the process.
//
// # Guarantees
//
// When Wait returns, the leader is dead and reaped and every other member of its group was sent
// SIGKILL and has been waited for as long as Spec.WaitDelay. A descendant that made a group or
// session of its own is not a member: to end those as well, use a cgroup, the session
// (Spec.NewSession), or EndOrphans.
//
// A signal never reaches a foreign process: the kernel does not give the group's number away while the leader is
// not reaped, and no signal is sent after that.
package child

import (
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// DefaultGrace is the time between the interrupt and the kill, by default.
	DefaultGrace     = 10 * time.Second
	defaultWaitDelay = 5 * time.Second
)

// Spec describes the process to run.
type Spec struct {
	Path string   // absolute path of the program; nothing is looked up
	Args []string // arguments, without the program's name
	Env  []string // the whole environment; nil means an empty one
	Dir  string   // working directory; empty means the parent's

	// Stdin is the input of the process; nil means /dev/null. Give an *os.File where a reader could block: another
	// kind of reader is copied by a goroutine that ends only with its Read.
	Stdin io.Reader
	// Stdout and Stderr take its output; nil means /dev/null. The same writer may stand in both.
	Stdout, Stderr io.Writer
	ExtraFiles     []*os.File // its descriptors from 3 on

	User       *User // the user that it runs as, without supplementary groups; nil means the parent's user
	NewSession bool  // it leads a session of its own, and not only a process group
	// NoNewPrivileges closes set-uid programs to it and to all that it starts (Linux).
	NoNewPrivileges bool
	Limits          Limits // see there
	// CgroupFD is an open directory of a cgroup v2 in which it starts (Linux); nil means the parent's.
	CgroupFD *os.File

	// WaitDelay bounds the wait, after the leader's end, for the rest of the group to die and for its
	// pipes to be read out; 0 means 5 s.
	WaitDelay time.Duration
}

// User is a numeric user and group.
type User struct {
	UID, GID uint32
}

// Limits are resource limits of the process. They are set right after it started (Linux), before it can have done
// much, and inherited by its children; children that it starts earlier escape them. Memory is not among them, because
// Terraform and its providers reserve far more than they use.
type Limits struct {
	OpenFiles uint64 // descriptors of one process; 0 means the parent's limit
	Processes uint64 // processes and threads of its user, so only of use with a User; 0 means the parent's limit
	NoCore    bool   // it leaves no core file
}

// Exit is how a process ended.
type Exit struct {
	Code        int            // its exit code; -1 when a signal ended it
	Signal      syscall.Signal // the signal that ended it; 0 means none
	Interrupted bool           // Interrupt, Signal or Kill was called while it lived
	Cut         bool           // a process outside its group kept its output open: the rest of it is lost
	Left        bool           // a member of its group was still dying when WaitDelay was over
}

// Process is a running child. Its methods may be called concurrently.
type Process struct {
	cmd  *exec.Cmd
	spec Spec
	done chan struct{} // closed when exit and err are set

	mu          sync.Mutex
	reaped      bool // the leader's number may belong to somebody else: signal nothing
	interrupted bool
	signalled   bool   // SIGINT was sent: a second one makes some programs stop without cleaning up
	at          moment // when that was

	exit Exit
	err  error
}

// Start begins the process. The caller must call Wait or read Done.
//
// The parent-death signal of Linux is bound to the thread that forked, not to the process, and
// Go ends threads at will; and no-new-privileges is a property of that thread. So each child has a goroutine of
// its own, locked to its thread, which forks it and stays until it is reaped.
func Start(spec Spec) (*Process, error) {
	if !filepath.IsAbs(spec.Path) {
		return nil, errors.New("start process: path " + spec.Path + " is not absolute")
	}
	spec.WaitDelay = cmp.Or(spec.WaitDelay, defaultWaitDelay)
	attr, err := sysProcAttr(spec)
	if err != nil {
		return nil, err
	}
	p := &Process{
		cmd: &exec.Cmd{
			Path:        spec.Path,
			Args:        append([]string{spec.Path}, spec.Args...),
			Env:         append([]string{}, spec.Env...), // never nil: that would hand down the parent's
			Dir:         spec.Dir,
			Stdin:       spec.Stdin,
			Stdout:      spec.Stdout,
			Stderr:      spec.Stderr,
			ExtraFiles:  spec.ExtraFiles,
			SysProcAttr: attr,
			WaitDelay:   spec.WaitDelay,
		},
		spec: spec,
		done: make(chan struct{}),
	}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// live starts the child and waits for its end, on one thread.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	// A thread that cannot gain privileges any more is not given back: the goroutine ends while
	// locked, and the runtime ends the thread.
	changed, err := prepareThread(p.spec)
	if !changed {
		defer runtime.UnlockOSThread()
	}
	if err != nil {
		started <- err
		return
	}
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	if err := limit(p.cmd.Process.Pid, p.spec.Limits); err != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		_ = p.cmd.Wait()
		started <- err
		return
	}
	started <- nil
	p.reap()
	close(p.done)
}

// reap waits for the leader's end, kills the rest of its group while the group's number is still
// taken, then reaps, and waits for that rest: once the leader is reaped, the kernel says at once
// whether there is any.
func (p *Process) reap() {
	pid := p.cmd.Process.Pid
	awaitExit(pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	p.mu.Lock()
	p.reaped = true
	p.exit.Interrupted = p.interrupted
	p.mu.Unlock()

	err := p.cmd.Wait()
	p.exit.Left = !groupDied(pid, p.spec.WaitDelay)
	if errors.Is(err, exec.ErrWaitDelay) {
		p.exit.Cut, err = true, nil
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil // an exit code is an outcome, not a failure to run
	}
	p.err = err
	state := p.cmd.ProcessState
	if state == nil {
		p.exit.Code = -1
		return
	}
	p.exit.Code = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Signal = ws.Signal()
	}
}

// PID returns the leader's process id, which is also the number of its group and, with NewSession,
// of its session.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and Wait will not block.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end. The error is nil however the process ended; it says that its output
// could not be taken, or that waiting failed.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Interrupt sends SIGINT to the group, once, because a second interrupt makes programs such as terraform stop without
// cleaning up. A further call sends it only to the members that missed the first one (Linux): a shell passes over it
// in a command that it has just forked, before that becomes its own program.
func (p *Process) Interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.reaped:
	case p.signalled:
		interruptMissed(p.PID(), p.at)
	default:
		p.interrupted, p.signalled = true, true
		p.at = now() // and not after it: a handler may have started a process by then
		_ = syscall.Kill(-p.PID(), syscall.SIGINT)
	}
}

// Signal sends a signal to the leader alone, which may pass it on.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	p.interrupted = true
	_ = syscall.Kill(p.PID(), s)
}

// Kill sends SIGKILL to the group.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	p.interrupted = true
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
}
