package lambdahost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Config is what all functions of a host share.
type Config struct {
	Account string // empty means 123456789012
	Region  string // empty means us-east-1
	// Concurrency is the account's: what functions without a reservation share, less all
	// reservations. 0 means 1000.
	Concurrency int
	InitTimeout time.Duration // of a process until it asks for an event; 0 means 10 s
	IdleAfter   time.Duration // how long a warm environment is kept; 0 means 10 min
	Clock       Clock         // nil means SystemClock
	Latency     Latency
	Log         func(function, line string) // what functions write; nil drops it. Called from several goroutines
	Observe     func(Report)                // told of each invocation; nil is not. Called from several goroutines
	// Step is told when a process is about to be given an event, and when it has answered and its caller is about to
	// get that. It may take time: that is the environment's. Nil is not called; it is called from several goroutines.
	Step func(p Process, answered bool)
}

// Process is the process of an environment, for those who measure it.
type Process struct {
	Function string
	MemoryMB int
	PID      int
}

// Host runs functions. Its methods may be called concurrently. Close must be called.
type Host struct {
	cfg    Config
	ctx    context.Context // ended by Close: the only thing that ends what callers do not wait for
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	functions map[string]*function
	schedules map[string]Schedule
	rules     []Rule
}

// function is what the host knows of one function.
type function struct {
	name       string
	spec       Function
	generation int // raised by each Put: environments of an older one are not used again
	arn        string
	idle       []*environment // the warm ones, the latest last
	all        map[*environment]bool
	busy       int // invocations that hold a place
	// settling are those of them whose caller has its answer and whose environment is about to
	// ask for more. settled is closed and replaced whenever one has.
	settling   int
	waiting    int // callers that wait for one of them
	settled    chan struct{}
	faults     []*Fault
	duplicates int
	stats      Stats
}

// Stats counts what became of a function's invocations since it was first put.
type Stats struct {
	Invocations int // that began
	ColdStarts  int
	Errors      int // answered with an error of the function, time-outs and deaths among them
	TimedOut    int
	Died        int   // environments that ended while they had an event
	Throttled   int   // refused because of too little concurrency, attempts for asynchronous events among them
	Reaped      int   // environments ended because they were idle
	PeakMemory  int64 // bytes, the most of any environment
}

var errClosed = errors.New("the host is closed")

// New returns a host without functions.
func New(cfg Config) *Host {
	cfg.Account, cfg.Region = cmp.Or(cfg.Account, "123456789012"), cmp.Or(cfg.Region, "us-east-1")
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 1000)
	cfg.InitTimeout, cfg.IdleAfter = cmp.Or(cfg.InitTimeout, 10*time.Second), cmp.Or(cfg.IdleAfter, 10*time.Minute)
	if cfg.Clock == nil {
		cfg.Clock = SystemClock{}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Host{cfg: cfg, ctx: ctx, cancel: cancel, functions: map[string]*function{}, schedules: map[string]Schedule{}}
}

// ARN is the name of a function in this host's account and region.
func (h *Host) ARN(name string) string {
	return fmt.Sprintf("arn:aws:lambda:%s:%s:function:%s", h.cfg.Region, h.cfg.Account, resolve(name))
}

// Put deploys a function, or a new version of it: environments of the old one finish what they have
// and are not used again.
func (h *Host) Put(spec Function) error {
	if err := spec.check(); err != nil {
		return err
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return errClosed
	}
	f := h.functions[spec.Name]
	if f == nil {
		f = &function{name: spec.Name, all: map[*environment]bool{}, settled: make(chan struct{}), arn: h.ARN(spec.Name)}
		h.functions[spec.Name] = f
	}
	f.spec = spec
	f.generation++
	old := f.idle
	f.idle = nil
	h.mu.Unlock()
	for _, e := range old {
		h.discard(f, e)
	}
	return nil
}

// Close ends every process and waits for all that goes on. Events that wait are dropped.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	h.cancel(errClosed)
	names := make([]string, 0, len(h.functions))
	for name := range h.functions {
		names = append(names, name)
	}
	h.mu.Unlock()
	for _, name := range names {
		h.Kill(name)
	}
	h.work.Wait()
}

// Kill ends every environment of a function at once, whatever it is doing, and returns how many
// there were when all of them are gone.
func (h *Host) Kill(name string) int {
	h.mu.Lock()
	f := h.functions[resolve(name)]
	if f == nil {
		h.mu.Unlock()
		return 0
	}
	var victims []*environment
	for e := range f.all {
		victims = append(victims, e)
	}
	f.idle = nil
	h.mu.Unlock()
	for _, e := range victims {
		h.discard(f, e)
	}
	return len(victims)
}

// Inject makes environments of a function die. Faults of a function wait for their turn side by side.
func (h *Host) Inject(name string, fault Fault) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.functions[resolve(name)]
	if f == nil {
		return notFound(h.ARN(name))
	}
	fault.Times = cmp.Or(fault.Times, 1)
	f.faults = append(f.faults, &fault)
	return nil
}

// Stats returns the counts of a function.
func (h *Host) Stats(name string) Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.functions[resolve(name)]; f != nil {
		return f.stats
	}
	return Stats{}
}

// Environment is a look at one process of a function.
type Environment struct {
	PID   int
	State State
}

// Environments lists the processes of a function, in the order of their numbers.
func (h *Host) Environments(name string) (out []Environment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.functions[resolve(name)]
	if f == nil {
		return nil
	}
	for e := range f.all {
		e.mu.Lock()
		out = append(out, Environment{PID: e.proc.pid(), State: e.state})
		e.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Environment) int { return a.PID - b.PID })
	return out
}

// discard ends an environment and forgets it.
func (h *Host) discard(f *function, e *environment) {
	e.end()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(f.all, e)
	f.stats.PeakMemory = max(f.stats.PeakMemory, e.peakMemory())
	if i := slices.Index(f.idle, e); i >= 0 {
		f.idle = slices.Delete(f.idle, i, i+1)
	}
}

// launch starts a process and enters it, unless the host was closed meanwhile.
func (h *Host) launch(f *function) (*environment, error) {
	h.mu.Lock()
	spec, generation := f.spec, f.generation
	h.mu.Unlock()
	e, err := start(h.ctx, h.cfg, spec, generation)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	f.all[e] = true
	closed := h.closed
	h.mu.Unlock()
	if closed {
		h.discard(f, e)
		return nil, errClosed
	}
	return e, nil
}

// keep puts a frozen environment among the warm ones, where it stays until it is idle for too long.
// It reports false for one that is not to be used again.
func (h *Host) keep(f *function, e *environment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || e.generation != f.generation || !f.all[e] {
		return false
	}
	f.idle = append(f.idle, e)
	stop := h.cfg.Clock.AfterFunc(h.cfg.IdleAfter, func() { h.reap(f, e) })
	e.mu.Lock()
	e.stopIdle = stop
	e.mu.Unlock()
	return true
}

// reap ends an environment that was not used for too long.
func (h *Host) reap(f *function, e *environment) {
	h.mu.Lock()
	i := slices.Index(f.idle, e)
	if i < 0 {
		h.mu.Unlock()
		return
	}
	f.idle = slices.Delete(f.idle, i, i+1)
	f.stats.Reaped++
	h.mu.Unlock()
	h.discard(f, e)
}

// Init is how an environment began.
type Init struct {
	Duration   time.Duration // from the start of the process to its first request for an event
	PeakMemory int64         // bytes, then; 0 where it cannot be known
}

// Warm starts an environment before there is an event for it, as Lambda does now and then, and returns when it is
// warm and frozen.
func (h *Host) Warm(ctx context.Context, name string) (Init, error) {
	h.mu.Lock()
	f := h.functions[resolve(name)]
	h.mu.Unlock()
	if f == nil {
		return Init{}, notFound(h.ARN(name))
	}
	e, err := h.launch(f)
	if err != nil {
		return Init{}, err
	}
	limit := time.NewTimer(h.cfg.InitTimeout)
	defer limit.Stop()
	stop := context.AfterFunc(ctx, e.proc.kill)
	defer stop()
	how := e.await(limit.C)
	if how != ready {
		h.discard(f, e)
		if how == tooSlow {
			return Init{}, fmt.Errorf("warm %s: its init took longer than %s", name, h.cfg.InitTimeout)
		}
		return Init{}, errors.Join(fmt.Errorf("warm %s: %s", name, e.obituary()), context.Cause(ctx))
	}
	e.freeze()
	if !h.keep(f, e) {
		h.discard(f, e)
	}
	took, peak := e.initialised()
	return Init{Duration: took, PeakMemory: peak}, nil
}
