package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// worker runs workflows until it is stopped.
type worker interface {
	Run(ctx context.Context) error
	Drain()
	Abort()
	Close() error
}

// stage is how far the end of a worker has come.
type stage int

const (
	working      stage = iota
	draining           // takes no more work, and waits for the running jobs
	interrupting       // interrupts the running jobs, and gives them time
	killing            // waits no longer
)

// after is the stage that a signal leads to. An interrupt comes from a person, who can send more of them; a
// SIGTERM from a service manager, which waits for a while and then kills.
func (s stage) after(sig os.Signal) stage {
	if sig == syscall.SIGTERM {
		return min(max(s+1, interrupting), killing)
	}
	return min(s+1, killing)
}

// work opens a worker and runs it until it ends, by itself or in stages. later says what happens to
// workflows that are no longer claimed.
func work(a *cli.App, later string, open func(context.Context) (worker, error)) error {
	opening, stop := signal.NotifyContext(a.Ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(opening, stop) // a second signal ends the process, as if it were not caught
	w, err := open(opening)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	switch {
	case err == nil && opening.Err() != nil: // nothing has begun yet
		return w.Close()
	case opening.Err() != nil:
		return &cli.ExitError{Code: cli.ExitInterrupted, Err: errors.New("interrupted during the start")}
	case err != nil:
		return err
	}
	stop()

	ctx, interrupt := context.WithCancel(a.Ctx)
	defer interrupt()
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(w.Run(ctx), w.Close()) }()
	for now := working; ; {
		select {
		case err := <-ended:
			return err
		case sig := <-signals:
			now = now.after(sig)
		}
		switch now {
		case working:
		case draining:
			a.Say("draining: no new work is taken; %s. A second interrupt stops the running jobs, a third kills them", later)
			w.Drain()
		case interrupting:
			a.Say("stopping: running jobs are interrupted and get time to end; another interrupt kills them")
			interrupt()
		case killing:
			a.Say("killing the running jobs")
			signal.Stop(signals) // the next one ends the process
			interrupt()
			w.Abort()
		}
	}
}

// waiting lists the runs that a drain waits for, in one write: others write there too.
func waiting(a *cli.App, runs []agent.Run) {
	said := "waiting for 1 run to end:"
	if len(runs) > 1 {
		said = fmt.Sprintf("waiting for %d runs to end:", len(runs))
	}
	for _, r := range runs {
		title := "a run from before this start"
		if r.Workspace != "" {
			title = runtext.Title(api.Workflow{Type: r.Type, Operation: r.Operation, Workspace: r.Workspace})
		}
		said += fmt.Sprintf("\n  %s  %s, since %s (%s)", r.Workflow, title, term.Time(r.Since), text.Duration(time.Since(r.Since)))
	}
	a.Say("%s", said)
}
