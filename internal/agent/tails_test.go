package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// keeping is a theatre that keeps what runners leave.
type keeping struct {
	*theatre
	*taskdir.SpoolDir
}

func keeps(t *testing.T, s *site) keeping {
	return keeping{s.theatre, &taskdir.SpoolDir{Dir: t.TempDir(), Owner: os.Geteuid(), Now: time.Now}}
}

// leave is a crash of a runner that leaves something.
func (k keeping) leave(t *testing.T, spool []byte) func(context.Context, *actor) error {
	return func(_ context.Context, a *actor) error {
		if err := os.WriteFile(filepath.Join(k.Dir, a.task.Ref), spool, 0o600); err != nil {
			t.Error(err)
		}
		return errCrash
	}
}

// told is an upstream that keeps the order of what it is told of ends, and refuses some of it.
type told struct {
	agent.Upstream
	mu     sync.Mutex
	order  []string
	refuse func(n int) error // a tail, by how many there were before
}

func (u *told) Tail(ctx context.Context, id string, in api.Tail) (api.TailTaken, error) {
	u.mu.Lock()
	n := len(u.order)
	u.order = append(u.order, fmt.Sprintf("tail %d", len(in.Lines)))
	u.mu.Unlock()
	if u.refuse != nil {
		if err := u.refuse(n); err != nil {
			return api.TailTaken{}, err
		}
	}
	return u.Upstream.Tail(ctx, id, in)
}

func (u *told) Lost(ctx context.Context, id string, in api.Lost) error {
	u.mu.Lock()
	u.order = append(u.order, "lost")
	u.mu.Unlock()
	return u.Upstream.Lost(ctx, id, in)
}

func (s *site) log1(id string) (out []string) {
	s.t.Helper()
	page, err := s.plane.Logs(s.t.Context(), s.admin, id, 1, 0, 0, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range page.Lines {
		out = append(out, l.Text)
	}
	return out
}

func spoolOf(n int) (b []byte, want []string) {
	for i := range n {
		want = append(want, fmt.Sprintf("line %d", i))
		b = api.LogLine{At: time.Unix(int64(i), 0), Step: "apply", Text: want[i]}.Append(b)
	}
	return b, want
}

// O15: a run's log is whole before its end is known, also where the control plane is away for a while.
func TestTails_AreDeliveredBeforeTheEndIsReported(t *testing.T) {
	for name, away := range map[string]int{"at once": 0, "away at first": 3} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, memory.Config{})
			s.workspace("net")
			k := keeps(t, s)
			spool, want := spoolOf(900)
			spool = append(spool, spool[:5]...) // it was killed while it wrote
			s.theatre.engine = k.leave(t, spool)
			id := s.submit("net", workflow.Update)
			up := &told{Upstream: s.client, refuse: func(n int) error {
				if n < away {
					return &workflow.Error{Kind: workflow.ErrBusy, Message: "not now"}
				}
				return nil
			}}
			cfg := s.config()
			cfg.Launcher, cfg.Upstream = k, up
			_, end := s.run(cfg)
			s.awaitState(id, workflow.Failed)
			if got := s.log1(id); !slices.Equal(got, want) {
				t.Errorf("got %d lines, want %d", len(got), len(want))
			}
			if err := end(); err != nil {
				t.Error(err)
			}
			if refs, err := k.Spools(); err != nil || len(refs) != 0 {
				t.Errorf("left: %v, %v", refs, err)
			}
			if i := slices.Index(up.order, "lost"); i != away+2 || !slices.Equal(up.order[away:i], []string{"tail 0", "tail 900"}) {
				t.Errorf("told %v", up.order)
			}
		})
	}
}

// What the control plane will never take must not keep a run from its end.
func TestTails_ThatAreRefusedForGoodAreDropped(t *testing.T) {
	good, _ := spoolOf(3)
	for name, c := range map[string]struct {
		spool  []byte
		refuse error
		want   []string
	}{
		"over":           {good, workflow.Refuse(workflow.ErrOver, "", "too late"), nil},
		"no such call":   {good, workflow.Refuse(workflow.ErrInvalid, "", "there is nothing at this address"), nil},
		"no log":         {bytes.Repeat([]byte{0xff}, 1000), nil, nil},
		"a log and junk": {append(slices.Clone(good), bytes.Repeat([]byte{0xff}, 1000)...), nil, []string{"line 0", "line 1", "line 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, memory.Config{})
			s.workspace("net")
			k := keeps(t, s)
			s.theatre.engine = k.leave(t, c.spool)
			id := s.submit("net", workflow.Update)
			cfg := s.config()
			cfg.Launcher, cfg.Upstream = k, &told{Upstream: s.client, refuse: func(int) error { return c.refuse }}
			_, end := s.run(cfg)
			s.awaitState(id, workflow.Failed)
			if err := end(); err != nil {
				t.Error(err)
			}
			if got := s.log1(id); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if refs, err := k.Spools(); err != nil || len(refs) != 0 {
				t.Errorf("left: %v, %v", refs, err)
			}
		})
	}
}

// R6: workflow code may have written what is found: it is hidden again, and cut to what can be sent.
func TestTails_AreMaskedAndBounded(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	k := keeps(t, s)
	var spool []byte
	for _, text := range []string{"with hunter2 in it", strings.Repeat("\x01", api.MaxLogText), "after"} {
		spool = api.LogLine{At: time.Unix(1, 0), Step: "hunter2", Text: text}.Append(spool)
	}
	s.theatre.engine = k.leave(t, spool)
	id := s.submit("net", workflow.Update)
	cfg := s.config()
	cfg.Launcher = k
	cfg.Mask = func(context.Context) (func(string) string, error) {
		return func(line string) string { return strings.ReplaceAll(line, "hunter2", "***") }, nil
	}
	_, end := s.run(cfg)
	s.awaitState(id, workflow.Failed)
	if err := end(); err != nil {
		t.Error(err)
	}
	want := []string{"with *** in it", "[dayfly] a line of 65536 bytes is missing here: it is too large to be sent", "after"}
	if got := s.log1(id); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	page, err := s.plane.Logs(t.Context(), s.admin, id, 1, 0, 0, 0)
	if err != nil || page.Lines[0].Step != "***" {
		t.Errorf("got step %q, %v", page.Lines[0].Step, err)
	}
}

// A store of secrets that cannot be read keeps lines here, and no run from its end.
func TestTails_ThatCannotBeMaskedWait(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	k := keeps(t, s)
	spool, want := spoolOf(10)
	s.theatre.engine = k.leave(t, spool)
	id := s.submit("net", workflow.Update)
	cfg := s.config()
	cfg.Launcher = k
	var readable atomic.Bool
	cfg.Mask = func(context.Context) (func(string) string, error) {
		if !readable.Load() {
			return nil, errors.New("others can read it")
		}
		return func(line string) string { return line }, nil
	}
	_, end := s.run(cfg)
	s.awaitState(id, workflow.Failed)
	if got := s.log1(id); len(got) > 0 {
		t.Errorf("got %q unmasked", got)
	}
	readable.Store(true)
	until(t, "the rest of the log", func() bool { return slices.Equal(s.log1(id), want) })
	if err := end(); err != nil {
		t.Error(err)
	}
}

// What could not be delivered when the task ended, nor with its end, is delivered by a later look.
func TestTails_AreDeliveredByALaterLook(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	k := keeps(t, s)
	spool, want := spoolOf(10)
	var ref string
	s.theatre.engine = func(_ context.Context, a *actor) error { ref = a.task.Ref; return errCrash }
	id := s.submit("net", workflow.Update)
	cfg := s.config()
	cfg.Launcher = k
	_, end := s.run(cfg)
	s.awaitState(id, workflow.Failed)
	whole := filepath.Join(t.TempDir(), ref) // a look may come between its making and its writing
	if err := errors.Join(os.WriteFile(whole, spool, 0o600), os.Rename(whole, filepath.Join(k.Dir, ref))); err != nil {
		t.Fatal(err)
	}
	until(t, "the rest of the log", func() bool { return slices.Equal(s.log1(id), want) })
	if err := end(); err != nil {
		t.Error(err)
	}
}

// The end of a task says nothing new where the control plane has the result of its run.
func TestLost_IsNotReportedWhereTheResultWasTaken(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("works")
	s.workspace("dies")
	s.theatre.engine = func(_ context.Context, a *actor) error {
		if a.request.Workspace == "dies" {
			return errCrash
		}
		return nil
	}
	up := &told{Upstream: s.client}
	cfg := s.config()
	cfg.Upstream = up
	works := s.submit("works", workflow.Update)
	_, end := s.run(cfg)
	s.awaitState(works, workflow.Succeeded)
	until(t, "its end is settled", func() bool {
		tasks, err := s.theatre.List(t.Context())
		return err == nil && len(tasks) == 0
	})
	up.mu.Lock()
	if len(up.order) != 0 {
		t.Errorf("told %v of a run whose result was taken", up.order)
	}
	up.mu.Unlock()
	s.awaitState(s.submit("dies", workflow.Update), workflow.Failed)
	if err := end(); err != nil {
		t.Error(err)
	}
	if !slices.Contains(up.order, "lost") {
		t.Errorf("told %v of one that crashed", up.order)
	}
}
