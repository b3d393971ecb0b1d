package runner

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// fakeRelay is a relay that serves a place. Each error is the answer to one call, in their order.
type fakeRelay struct {
	Relay
	announce, upload, download []error

	calls int
	kept  map[string]string
	done  []string
	has   string // what a download gives
	says  api.Artifact
}

func next(errs *[]error) (err error) {
	if len(*errs) > 0 {
		err, *errs = (*errs)[0], (*errs)[1:]
	}
	return err
}

func (l *fakeRelay) Artifacts(_ context.Context, in api.NewArtifacts) (out api.ArtifactsTaken, err error) {
	l.calls++
	if err := next(&l.announce); err != nil {
		return out, err
	}
	l.done = append(l.done, in.Placed...)
	out.Uploads = make([]api.Transfer, len(in.Artifacts))
	return out, nil
}

func (l *fakeRelay) Upload(_ context.Context, _ api.Transfer, name string, _ int64, body io.ReadSeeker) error {
	all, err := io.ReadAll(body)
	if err := next(&l.upload); err != nil {
		return err
	}
	l.kept[name] = string(all)
	return err
}

func (l *fakeRelay) Input(context.Context) (api.Input, error) {
	l.calls++
	return api.Input{Artifact: l.says, Download: &api.Transfer{}}, nil
}

func (l *fakeRelay) Download(_ context.Context, _ api.Transfer, to io.Writer, _ int64) error {
	err := next(&l.download)
	has := l.has
	if err != nil {
		has = "half"
	}
	_, _ = io.WriteString(to, has)
	return err
}

func hostOf(t *testing.T, l *fakeRelay, spec api.Spec) *host {
	t.Helper()
	l.kept = map[string]string{}
	return &host{spec: spec, r: &run{cfg: Config{Relay: l}, log: slog.New(slog.DiscardHandler), clock: bootClock(), dirs: dirs{work: t.TempDir()}}}
}

func sum(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

func repeated(err error, n int) (out []error) {
	for range n {
		out = append(out, err)
	}
	return out
}

var (
	errAway = workflow.Refuse(workflow.ErrBusy, "", "away")
	errRace = workflow.Refuse(workflow.ErrConflict, "", "a race")
)

func TestHost_KeepPlacesAnArtifact(t *testing.T) {
	for name, c := range map[string]struct {
		announce, upload []error
		calls            int
		says             string // an error with this; empty: none
	}{
		"at once":              {nil, nil, 2, ""},
		"after some failures":  {repeated(errAway, 3), repeated(errAway, 3), 8, ""},
		"after lost races":     {nil, repeated(errRace, 4), 6, ""},
		"refused":              {repeated(workflow.Refuse(workflow.ErrExists, "name", "there is another"), 1), nil, 1, "there is another"},
		"no race":              {nil, repeated(errRace, 5), 5, "a race"},
		"away for too long":    {nil, repeated(errAway, 1000), -1, "tried for too long: send plan/bundle.tar: away"},
		"said to be not there": {repeated(workflow.ErrNotFound, 1), nil, 1, "not found"},
		"a run that is over":   {repeated(workflow.ErrOver, 1), nil, 1, "over"},
		"a place with a fault": {nil, repeated(workflow.Refuse(workflow.ErrInvalid, "sha256", "other bytes"), 1), 1, "other bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &fakeRelay{announce: c.announce, upload: c.upload}
				h := hostOf(t, l, api.Spec{})
				body := strings.NewReader("bundle")
				_, _ = body.Seek(3, io.SeekStart)
				size, got, err := h.Keep(t.Context(), "plan/bundle.tar", api.ArtifactPlan, body)
				if c.calls >= 0 && l.calls != c.calls {
					t.Errorf("%d calls, want %d", l.calls, c.calls)
				}
				if c.says != "" {
					f, ok := errors.AsType[*engine.Failure](err)
					if !ok || f.Reason != workflow.ReasonArtifactFailed || !strings.Contains(f.Detail, c.says) || len(l.done) > 0 {
						t.Errorf("got %v after %q", err, l.done)
					}
					return
				}
				if err != nil || size != 6 || got != sum("bundle") || l.kept["plan/bundle.tar"] != "bundle" || len(l.done) != 1 || h.r.kept != 1 {
					t.Errorf("got %d, %s, %v; kept %q, placed %q", size, got, err, l.kept, l.done)
				}
			})
		})
	}
}

// zeros is a file of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error)     { clear(p); return len(p), nil }
func (zeros) Seek(int64, int) (int64, error) { return 0, nil }

func TestHost_KeepIsBounded(t *testing.T) {
	l := &fakeRelay{}
	_, _, err := hostOf(t, l, api.Spec{}).Keep(t.Context(), "plan/x", api.ArtifactState, zeros{})
	if err == nil || !strings.Contains(err.Error(), "more than 256 MiB") || l.calls > 0 {
		t.Errorf("got %v after %d calls", err, l.calls)
	}
}

func TestHost_InputIsTheWholeOrNothing(t *testing.T) {
	const plan = "the bundle"
	made := api.PlanMade{Size: int64(len(plan)), SHA256: sum(plan)}
	right := api.Artifact{Size: made.Size, SHA256: made.SHA256}
	both := api.Spec{Plan: &api.PlanRef{PlanMade: made}, Push: &api.PushedState{Size: 1, SHA256: sum("x")}}
	for name, c := range map[string]struct {
		spec api.Spec
		l    fakeRelay
		says string
	}{
		"a plan":            {both, fakeRelay{says: right, has: plan}, ""},
		"a state":           {api.Spec{Push: &api.PushedState{Size: made.Size, SHA256: made.SHA256}}, fakeRelay{says: right, has: plan}, ""},
		"at the second try": {both, fakeRelay{says: right, has: plan, download: []error{errAway}}, ""},
		"other bytes":       {both, fakeRelay{says: right, has: "the bundlf"}, "they were replaced"},
		"fewer bytes":       {both, fakeRelay{says: right, has: "the"}, "they were replaced"},
		"more bytes":        {both, fakeRelay{says: right, has: plan + "x"}, "they were replaced"},
		"another artifact":  {both, fakeRelay{says: api.Artifact{Size: made.Size, SHA256: sum("x")}, has: "x"}, "another artifact"},
		"gone":              {both, fakeRelay{says: right, download: repeated(errRace, 5)}, "a race"},
		"nothing is named":  {api.Spec{}, fakeRelay{}, "names no plan"},
		"too large":         {api.Spec{Push: &api.PushedState{Size: api.MaxArtifactSize + 1}}, fakeRelay{}, "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := hostOf(t, &c.l, c.spec)
				var to strings.Builder
				err := h.Input(t.Context(), &to)
				f, _ := errors.AsType[*engine.Failure](err)
				switch {
				case c.says == "" && (err != nil || to.String() != plan):
					t.Errorf("got %q, %v", to.String(), err)
				case c.says != "" && (f == nil || f.Reason != workflow.ReasonArtifactFailed || !strings.Contains(f.Detail, c.says) || to.Len() > 0):
					t.Errorf("got %q, %v", to.String(), err)
				}
				if left, _ := os.ReadDir(h.r.dirs.work); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

// Between two commands nothing is waited for; a command that runs would lose its exit code.
func TestHost_StillRefusesWhileACommandRuns(t *testing.T) {
	h := hostOf(t, &fakeRelay{}, api.Spec{})
	if err := h.EndProcesses(t.Context()); err != nil {
		t.Errorf("where no orphans are adopted: got %v", err)
	}
	h.r.cfg.Orphans, h.r.pids = true, map[int]bool{os.Getpid(): true}
	if err := h.EndProcesses(t.Context()); err == nil {
		t.Error("got nil while a command runs")
	}
}

func TestLeftFiles_RefuseWhatChangesAndWhatIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(at, name string, c fileCollector) string {
		t.Helper()
		root, err := os.OpenRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		c.root = root
		defer c.close()
		return c.file(name)
	}
	for want, got := range map[string]string{
		"":           look(dir, "file", fileCollector{owner: os.Getuid()}),
		"user of":    look(dir, "file", fileCollector{owner: os.Getuid() + 1}),
		"1024 MiB":   look(dir, "file", fileCollector{bytes: api.MaxArtifactBytes}),
		"no such":    look(dir, "none", fileCollector{}),
		"it changed": look("/proc/self", "status", fileCollector{}), // it says that it has no bytes, and has some
	} {
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPlanned_IsTheSourceOfThePlan(t *testing.T) {
	git := &api.GitSource{URL: "https://git.example.com/a.git", Version: "~> 1.0"}
	spec := api.Spec{RunSettings: api.RunSettings{Source: api.Source{Git: git}}, Plan: &api.PlanRef{PlanMade: api.PlanMade{Source: "c0ffee"}}}
	if got := planned(spec); got.Git.Ref != "c0ffee" || got.Git.Version != "" || git.Ref != "" {
		t.Errorf("got %+v of %+v", got.Git, git)
	}
	spec.Plan = nil
	if got := planned(spec); got.Git.Version != "~> 1.0" {
		t.Errorf("without a plan: got %+v", got.Git)
	}
	lost := fmt.Errorf("fetch: %w", workflow.Refuse(workflow.ErrNotFound, "source.git.ref", "no such commit"))
	other := workflow.Refuse(workflow.ErrNotFound, "source.git.url", "no such repository")
	for name, c := range map[string]struct {
		want, fetched string
		err           error
		stale         bool
	}{
		"the same":      {"a", "a", nil, false},
		"moved":         {"a", "b", nil, true},
		"unknown":       {"", "b", nil, true},
		"not there":     {"a", "", nil, true},
		"lost":          {"a", "", lost, true},
		"not reachable": {"a", "", other, false},
	} {
		if got := fits(c.want, c.fetched, c.err); errors.Is(got, errStale) != c.stale || !c.stale && !errors.Is(got, c.err) {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestHide_MasksEveryTextOfAPlan(t *testing.T) {
	const secret = "hunter2-correct-horse"
	r := &run{}
	r.hidden.Add(secret)
	in := api.Changes{
		Resources: []api.ResourceChange{{Address: `a["` + secret + `"]`, Provider: secret, From: secret, Changed: []string{secret}, Forces: []string{secret}}},
		Outputs:   []api.OutputChange{{Name: secret}},
	}
	checks := api.Checks{Failing: 1, Names: []string{"check." + secret}}
	omitted := []string{secret}
	before, _ := json.Marshal([]any{in, checks, omitted})
	got, _ := json.Marshal(r.hide(api.Result{Changes: &in, Units: []api.UnitResult{{Unit: secret, Result: secret}}, Checks: &checks, OmittedOutputs: omitted}))
	if strings.Contains(string(got), secret) {
		t.Errorf("got %s", got)
	}
	if after, _ := json.Marshal([]any{in, checks, omitted}); cmp.Diff(before, after) != "" {
		t.Errorf("what the engine gave was changed: %s", after)
	}
}

func (l *fakeRelay) WhoseStates(_ context.Context, in api.StateRefs) (out api.WhoseStates, err error) {
	l.calls++
	for _, s := range in.States {
		l.done = append(l.done, s.Unit)
		if s.Unit == "taken" {
			out.Others = append(out.Others, api.OthersState{StateRef: s, Workspace: "web"})
		}
	}
	return out, next(&l.announce)
}

// A run that gets no answer changes nothing, and asks again.
func TestHost_AsksWhoseStatesAreUntilItIsTold(t *testing.T) {
	var many []api.StateRef
	for i := range 2*api.MaxStates + 1 {
		many = append(many, api.StateRef{Unit: fmt.Sprint(i)})
	}
	many[3].Unit, many[2*api.MaxStates].Unit = "taken", "taken"
	synctest.Test(t, func(t *testing.T) {
		l := &fakeRelay{announce: append(repeated(errAway, 40), errRace)}
		others, err := hostOf(t, l, api.Spec{}).WhoseStates(t.Context(), many)
		if err != nil || len(others) != 2 || l.calls != 41+3 {
			t.Errorf("got %+v, %v after %d calls", others, err, l.calls)
		}
		for _, refused := range []error{workflow.ErrNotFound, workflow.ErrOver} {
			l := &fakeRelay{announce: repeated(refused, 1)}
			_, err := hostOf(t, l, api.Spec{}).WhoseStates(t.Context(), many)
			if f, ok := errors.AsType[*engine.Failure](err); !ok || f.Reason != workflow.ReasonRunnerError || !errors.Is(err, refused) || l.calls != 1 {
				t.Errorf("%v: got %v after %d calls", refused, err, l.calls)
			}
		}
	})
}
