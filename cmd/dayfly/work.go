package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/agent"
)

// worker is what runs workflows until it is told to end.
type worker interface {
	Run(ctx context.Context) error
	Drain()
	Abort()
	Close() error
}

// drains marks the commands that end in stages.
func (settings) drains() {}

// stage is how far the end of a worker has come.
type stage int

const (
	working      stage = iota
	draining           // takes nothing more, and waits for what runs
	interrupting       // interrupts what runs, and gives it time
	killing            // waits no longer
)

// after is the stage that a signal leads to. An interrupt comes from a person, who can say more; a
// SIGTERM from a service manager, which waits for a while and then kills.
func (s stage) after(sig os.Signal) stage {
	if sig == syscall.SIGTERM {
		return min(max(s+1, interrupting), killing)
	}
	return min(s+1, killing)
}

// work opens a worker and lets it work until it ends, by itself or in stages. later says what becomes
// of workflows that nobody takes any more.
func (a *app) work(later string, open func(context.Context) (worker, error)) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, interrupt := context.WithCancel(a.ctx)
	defer interrupt()
	opened, ended := make(chan worker, 1), make(chan error, 1)
	go func() {
		w, err := open(ctx)
		switch {
		case err == nil && ctx.Err() == nil:
			opened <- w
			err = errors.Join(w.Run(ctx), w.Close())
		case err == nil:
			err = w.Close()
		case ctx.Err() != nil:
			err = &exitError{code: exitInterrupted, err: errors.New("interrupted before it served")}
		}
		ended <- err
	}()
	var w worker
	for now := working; ; {
		select {
		case err := <-ended:
			return err
		case w = <-opened:
		case sig := <-signals:
			if w == nil {
				select {
				case w = <-opened:
				default: // nothing has begun yet: this ends it, and the next one the process
					now = interrupting
				}
			}
			now = now.after(sig)
			a.enter(now, w, later, interrupt)
			if now == killing {
				signal.Stop(signals) // the next one ends the process
			}
		}
	}
}

// enter begins a stage of a worker's end.
func (a *app) enter(now stage, w worker, later string, interrupt func()) {
	switch {
	case w == nil:
		interrupt()
	case now == draining:
		a.say("draining: nothing more is taken; %s. A second interrupt interrupts what runs, a third kills it", later)
		w.Drain()
	case now == interrupting:
		a.say("stopping: what runs is interrupted and gets time to end; once more kills it")
		interrupt()
	case now == killing:
		a.say("killing what runs")
		interrupt()
		w.Abort()
	}
}

// waiting says what a drain waits for.
func (a *app) waiting(runs []agent.Run) {
	word := "runs"
	if len(runs) == 1 {
		word = "run"
	}
	a.say("waiting for %d %s to end:", len(runs), word)
	for _, r := range runs {
		what := "a run of before the start"
		if r.Workspace != "" {
			what = fmt.Sprintf("%s of %s", kind(r.Type, r.Operation), r.Workspace)
		}
		a.say("  %s  %s, since %s (%s)", r.Workflow, what, term.Time(r.Since), term.Duration(time.Since(r.Since)))
	}
}
