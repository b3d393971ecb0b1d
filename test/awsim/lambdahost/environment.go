package lambdahost

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// State is what an environment is doing.
type State string

// The states of an environment.
const (
	Initialising State = "initialising"
	Busy         State = "busy"
	Frozen       State = "frozen"
)

// environment is one process of a function and the Runtime API that it talks to. Who runs an
// invocation in it has it for itself; it may be ended by anybody.
type environment struct {
	spec       Function
	generation int
	proc       *process
	server     *http.Server
	served     chan struct{}    // closed when the server has ended
	events     chan *invocation // to the process that waits for one
	asked      chan struct{}    // the process asked for an event
	ending     sync.Once
	began      time.Time
	step       func(answered bool)

	mu        sync.Mutex
	state     State
	current   *invocation
	firstNext time.Time
	initPeak  int64  // bytes, when it asked for its first event
	peak      int64  // bytes
	initError []byte // what the process said of its failed init
	stopIdle  func() bool
}

// how a wait for the process ended.
type outcome int

const (
	ready outcome = iota // it asked for an event
	died
	tooSlow
)

// start begins a process of the function. Its init is not waited for.
func start(ctx context.Context, cfg Config, spec Function, generation int) (*environment, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the runtime of %s: %w", spec.Name, err)
	}
	e := &environment{
		spec: spec, generation: generation, state: Initialising,
		events: make(chan *invocation), asked: make(chan struct{}, 1), served: make(chan struct{}),
		stopIdle: func() bool { return false },
	}
	e.server = &http.Server{Handler: e.runtimeAPI(), ReadHeaderTimeout: time.Minute}
	stream := time.Now().UTC().Format("2006/01/02/[$LATEST]") + newID()
	cmd := exec.Command(spec.Bootstrap) //nolint:noctx // end ends it
	cmd.Dir, cmd.Env = filepath.Dir(spec.Bootstrap), spec.environ(cfg, listener.Addr().String(), stream)
	if cfg.Log != nil {
		out := &lines{say: func(line string) { cfg.Log(spec.Name, line) }}
		cmd.Stdout, cmd.Stderr = out, out
	}
	e.began = time.Now()
	if e.proc, err = begin(cmd); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	e.step = func(answered bool) {
		if cfg.Step != nil {
			cfg.Step(Process{Function: spec.Name, MemoryMB: spec.MemoryMB, PID: e.proc.pid()}, answered)
		}
	}
	// The process may connect before this; the handlers must know it.
	go func() {
		defer close(e.served)
		_ = e.server.Serve(listener) // it ends with ErrServerClosed when end closes it
	}()
	return e, nil
}

// end kills the process, waits until it is gone, and closes its Runtime API.
func (e *environment) end() {
	e.ending.Do(func() {
		e.mu.Lock()
		e.stopIdle()
		e.mu.Unlock()
		e.measure()
		e.proc.kill()
		<-e.proc.done
		_ = e.server.Close()
		<-e.served
	})
}

// await waits until the process asks for an event, dies, or takes too long.
func (e *environment) await(limit <-chan time.Time) outcome {
	select {
	case <-e.asked:
		return ready
	case <-e.proc.done:
		return died
	case <-limit:
		return tooSlow
	}
}

// run takes one event through the process and answers its caller, whatever happens. limit is when the
// function's time is up. The environment may be used again only if it is ready.
func (e *environment) run(inv *invocation, limit <-chan time.Time) outcome {
	if inv.fault != nil {
		switch inv.fault.Moment {
		case BeforeEvent:
			e.end()
		case After:
			defer time.AfterFunc(inv.fault.Delay, e.proc.kill).Stop()
		case BeforeResponse, AfterResponse: // the Runtime API sees to them
		}
	}
	e.mu.Lock()
	e.state, e.current = Busy, inv
	e.mu.Unlock()
	e.thaw()
	how := died
	select {
	case e.events <- inv:
		how = e.await(limit)
	case <-e.proc.done:
	case <-limit:
		how = tooSlow
	}
	switch how {
	case ready:
		e.freeze()
	case died:
		e.end()
		inv.answer(failure("Runtime.ExitError", inv.id, e.obituary()), "Unhandled")
	case tooSlow:
		e.end()
		inv.answer(timedOut(inv.id, e.spec.Timeout), "Unhandled")
	}
	return how
}

// obituary says how the process ended, in Lambda's words.
func (e *environment) obituary() string {
	switch exit := e.proc.exit(); {
	case exit.Signaled():
		return "Runtime exited with error: signal: " + exit.Signal().String()
	case exit.ExitStatus() != 0:
		return fmt.Sprintf("Runtime exited with error: exit status %d", exit.ExitStatus())
	}
	return "Runtime exited without providing a reason"
}

// freeze stops the process and returns when the kernel says that none of its threads runs.
func (e *environment) freeze() {
	e.proc.signal(syscall.SIGSTOP)
	awaitStopped(e.proc.pid(), e.proc.done)
	e.mu.Lock()
	e.state = Frozen
	e.mu.Unlock()
}

func (e *environment) thaw() { e.proc.signal(syscall.SIGCONT) }

// measure reads the most memory that the process has had so far.
func (e *environment) measure() {
	select {
	case <-e.proc.done:
		return // its number may be another's
	default:
	}
	if n, err := peakMemory(e.proc.pid()); err == nil {
		e.mu.Lock()
		e.peak = max(e.peak, n)
		e.mu.Unlock()
	}
}

func (e *environment) peakMemory() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peak
}

// initialised says how long the init took and how much memory it needed.
func (e *environment) initialised() (time.Duration, int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.firstNext.Sub(e.began), e.initPeak
}

// lines passes on whole lines.
type lines struct {
	mu   sync.Mutex
	rest []byte
	say  func(string)
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.say(string(line))
		l.rest = bytes.Clone(rest)
	}
}
