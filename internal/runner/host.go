package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runner/logstream"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	reapEvery = 30 * time.Second
	killCheck = time.Second // between two looks at a stopped engine's time, see watchEvery
)

// host is the run as the engine sees it.
type host struct {
	r    *run
	spec api.Spec
	env  []string // of every command of the step; outside of steps it has no secret

	forwarded []string   // variables of the machine
	secrets   []resolved // of all steps
	root      string     // the root module; empty before it is there
	modules   modules    // credentials for modules and providers
	hookEnv   []string   // variables of the engine for hooks; nil before init
	plan      string     // as JSON, for hooks; empty: there is none yet
	early     bool       // the hooks before init have run
	late      error      // a hook that failed after a step with lasting changes

	roleEnv []string // variables of every command of the step, with the address of the role's credentials

	exit *int // of the last command in that step, if it was not 0
}

// step runs fn as a step of its own, without hooks and secrets.
func (h *host) step(ctx context.Context, name string, fn func(ctx context.Context) (string, error)) error {
	seq := h.r.steps.begin(name)
	if ctx.Err() != nil {
		h.r.steps.finish(seq, workflow.StepSkipped, h.r.hidden.String(context.Cause(ctx).Error()), nil)
		return context.Cause(ctx)
	}
	before := h.r.enter(name)
	defer h.r.enter(before)
	h.exit = nil
	if h.r.role != nil {
		outer := h.roleEnv
		env, end := h.r.role.credentials.Step()
		h.roleEnv = env
		defer func() { h.roleEnv = outer; end() }()
	}
	text, err := fn(ctx)
	h.r.own.Flush()
	status := workflow.StepSucceeded
	if err != nil {
		status, text = workflow.StepFailed, err.Error()
	}
	h.r.steps.finish(seq, status, h.r.hidden.String(text), h.exit)
	h.r.logs.EndStep()
	return err
}

// Skip implements engine.Host.
func (h *host) Skip(_ context.Context, name, text string) error {
	h.r.steps.finish(h.r.steps.begin(name), workflow.StepSkipped, h.r.hidden.String(text), nil)
	return nil
}

// Logf implements engine.Host.
func (h *host) Logf(format string, args ...any) { h.r.logf(format, args...) }

// logf writes a line of the runner's own to the log: one that begins with api.RunnerLine or api.CommandLine. Text
// that it quotes may come from the engine, and cannot make another such line.
func (r *run) logf(format string, args ...any) {
	begins, said := api.RunnerLine, fmt.Sprintf(format, args...)
	if command, ok := strings.CutPrefix(said, api.CommandLine); ok {
		begins, said = api.CommandLine, command
	}
	lines := strings.Split(said, "\n")
	for i, line := range lines {
		lines[i] = logstream.Foreign(line)
	}
	_, _ = fmt.Fprintf(r.own, "%s%s\n", begins, strings.Join(lines, "\n"))
}

// Mask implements engine.Host.
func (h *host) Mask(values ...string) { h.r.mask(values...) }

// mask hides values in everything that the runner sends from now on, and says in the log which are too short for
// that.
func (r *run) mask(values ...string) {
	if n := r.hidden.Add(values...); n > 0 {
		r.log.Warn("values are too short to be masked", "count", n)
		r.logf("%s not masked: shorter than %d characters", text.Are(n, "sensitive value"), mask.MinLength)
	}
}

// LogWriter implements engine.Host.
func (h *host) LogWriter() io.WriteCloser { return h.r.stream() }

// stream writes to the log. The text is in the log's file when the call returns.
type stream struct {
	*mask.Writer
	logs *logstream.Stream
}

// Write implements io.Writer.
func (s stream) Write(p []byte) (int, error) {
	defer s.logs.Sync()
	return s.Writer.Write(p)
}

// Flush writes a line that has no end yet.
func (s stream) Flush() {
	s.Writer.Flush()
	s.logs.Sync()
}

// Close is Flush.
func (s stream) Close() error {
	s.Flush()
	return nil
}

func (r *run) stream() stream {
	step := r.stepName()
	return stream{mask.NewWriter(&r.hidden, func(text string, more bool) { r.logs.Add(step, text, more) }), r.logs}
}

// Exec implements engine.Host. If both standard output and standard error go to the log, they share one pipe,
// which keeps their order.
func (h *host) Exec(ctx context.Context, c engine.Command) (int, error) {
	if len(c.Args) == 0 || !filepath.IsAbs(c.Args[0]) {
		return -1, fmt.Errorf("run command: %q is not an absolute path", slices.Concat(c.Args, []string{""})[0])
	}
	if !c.Quiet {
		h.Logf("%s%s", api.CommandLine, commandLine(c.Args))
	}
	log := h.r.stream()
	spec := child.Spec{
		Path: c.Args[0], Args: c.Args[1:], Dir: c.Dir, Env: slices.Concat(h.env, c.Env, h.roleEnv),
		Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		User: h.r.cfg.Engine, NoNewPrivileges: true,
	}
	if spec.Stdout == nil {
		spec.Stdout = log
	}
	if spec.Stderr == nil {
		spec.Stderr = log
	}
	oomBefore := oomKills()
	exit, err := h.r.exec(ctx, spec)
	log.Flush() // before the lines about its end
	if err != nil {
		return -1, err
	}
	if exit.Signal != 0 && exit.Code < 0 {
		exit.Code = 128 + int(exit.Signal) // as a shell reports it
		h.Logf("%s was ended by signal %d (%s)", filepath.Base(c.Args[0]), exit.Signal, exit.Signal)
	}
	if exit.Cut {
		h.Logf("a process that %s left behind kept its output open; its further output is not in this log", filepath.Base(c.Args[0]))
	}
	h.exit = nil
	if exit.Code != 0 {
		h.exit = &exit.Code
		h.r.examine(ctx, oomBefore, exit.Code)
	}
	return exit.Code, nil
}

// exec runs a process until it ends, or until ctx ends and exec ends it. When exec returns, no process of its group
// remains.
func (r *run) exec(ctx context.Context, spec child.Spec) (child.Exit, error) {
	if ctx.Err() != nil {
		return child.Exit{}, context.Cause(ctx)
	}
	r.processes.Lock()
	p, err := child.Start(spec)
	if err == nil {
		r.pids[p.PID()] = true
	}
	r.processes.Unlock()
	if errors.Is(err, syscall.E2BIG) {
		return child.Exit{}, failure(workflow.ReasonStepFailed, tooLong(spec.Env))
	}
	if err != nil {
		return child.Exit{}, fmt.Errorf("run %s: %w", spec.Path, err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		r.endProcess(p)
	}
	exit, err := p.Wait()
	for pause := time.Millisecond; exit.Left && child.GroupLives(p.PID()); pause = min(2*pause, time.Second) {
		r.log.Warn("a killed process of the engine is still there", "pgid", p.PID())
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-r.lost: // the run is not ours any more
			t.Stop()
			return exit, context.Cause(ctx)
		}
	}
	r.processes.Lock()
	delete(r.pids, p.PID())
	r.processes.Unlock()
	if ctx.Err() != nil && exit.Interrupted {
		return exit, context.Cause(ctx)
	}
	if err != nil {
		return exit, fmt.Errorf("run %s: %w", spec.Path, err)
	}
	return exit, nil
}

// tooLong says which variable of an environment is to be blamed that the system did not take.
func tooLong(env []string) error {
	longest, sum := "", 0
	for _, entry := range env {
		if sum += len(entry) + 1; len(entry) > len(longest) {
			longest = entry
		}
	}
	name, value, _ := strings.Cut(longest, "=")
	return fmt.Errorf("the environment is too long for a program: variable %s has %d bytes of %d in all, and the system takes %d of one; shorten it, or put the value into a file with files of the workspace",
		name, len(value), sum, api.MaxEnvironmentEntry)
}

// endProcess interrupts a process and kills its group when its time is over. That is the run's time, or the
// usual grace if only the engine gave this command up.
func (r *run) endProcess(p *child.Process) {
	given := r.clock() + child.DefaultGrace
	for !r.gone.Load() {
		p.Interrupt()
		by := r.killTime()
		if by == 0 {
			by = given
		}
		rest := by - r.clock()
		if rest <= 0 {
			break
		}
		t := time.NewTimer(min(rest, killCheck))
		select {
		case <-p.Done():
			t.Stop()
			return
		case <-r.lost:
		case <-t.C:
		}
		t.Stop()
	}
	p.Kill()
}

// reap reaps orphans that are children of this process, until the run ends.
func (r *run) reap(ctx context.Context) {
	for wait.For(ctx, reapEvery) == nil {
		r.processes.Lock()
		child.ReapOrphans(func(pid int) bool { return r.pids[pid] })
		r.processes.Unlock()
	}
}

// endOrphans ends the processes of the engine that remain outside its groups.
func (r *run) endOrphans(ctx context.Context) {
	if !r.cfg.Orphans {
		return
	}
	r.processes.Lock()
	defer r.processes.Unlock()
	if err := child.EndOrphans(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("processes of the engine remain", "err", err)
	}
}

func (r *run) stepName() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// enter makes a step the current one and returns the one before it.
func (r *run) enter(step string) (before string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.step = r.step, step
	return before
}

// commandLine shows a command as a person would type it.
func commandLine(args []string) string {
	words := slices.Clone(args)
	words[0] = filepath.Base(words[0])
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n\"'\\$`*?[]{}()<>|&;#~!") {
			words[i] = strconv.Quote(w)
		}
	}
	return strings.Join(words, " ")
}

// failure is a failure of the runner's own steps.
func failure(reason workflow.Reason, err error) error {
	if _, ok := errors.AsType[*engine.Failure](err); ok {
		return err
	}
	return &engine.Failure{Reason: reason, Detail: err.Error(), Err: err}
}
