package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// L6: a workspace that a lost run holds is freed by a person who knows that its task is gone, after a look at it.
func TestRepairUnlock_ShowsWhoHoldsTheWorkspaceAndAsks(t *testing.T) {
	w := newWorld(t)
	w.shift.Store(int64(-45 * time.Minute))
	w.workspace("net")
	refused := func(says string) {
		t.Helper()
		got := w.run("repair", "unlock", "net", "--yes")
		if got.code != cli.ExitRefused || got.stdout != "" || !strings.Contains(got.stderr, says) {
			t.Errorf("got %+v, want a refusal with %q", got, says)
		}
	}
	refused("workspace net is free: no run holds it")
	id := strings.TrimSpace(w.ok("run", "net", "--op", "update", "--yes"))
	w.claim()
	refused("cancel that (dayfly workflow cancel " + id + ")")

	for range 45 { // the control plane was up all the while, and nobody called for the pool
		if _, err := w.plane.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.shift.Add(int64(time.Minute))
	}
	if _, err := w.plane.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, "show", w.ok("workflow", "show", id), "dayfly repair unlock net")
	has(t, "why", w.ok("why", id), "at the latest at", "dayfly repair unlock net", "half changed")
	got := w.run("repair", "unlock", "net")
	if got.code != cli.ExitUsage || strings.Contains(got.stderr, "STILL ALIVE") {
		t.Errorf("nobody was asked: got %+v", got)
	}
	has(t, "what it would do", got.stderr, id, "update, failed (runner_lost)", "task-1 of pool default", "last sign of life  20", "(45m", "use --yes")
	if w := value[api.Workflow](w, "workflow", "show", id); !w.SlotHeld {
		t.Error("it is unlocked")
	}
	has(t, "unlock", w.ok("repair", "unlock", "net", "--yes"), "workspace net is free", "half changed")
	if w := value[api.Workflow](w, "workflow", "show", id); w.SlotHeld || w.State != workflow.Failed {
		t.Errorf("after it: %+v", w)
	}
	has(t, "timeline", w.ok("why", id), "UNLOCKED by admin")
}

// R15: an admin of both workspaces sees whose the states are before saying which of the two has them.
func TestRepairOwn_GivesTheStatesThatARunWasRefused(t *testing.T) {
	w := newWorld(t)
	refusedRun := func() string {
		id := strings.TrimSpace(w.ok("run", "net", "--op", "update", "--yes"))
		_, runner := w.claim()
		state := api.StateRef{Place: strings.Repeat("b", 64), Lineage: "prod"}
		if out, err := runner.WhoseStates(t.Context(), api.StateRefs{States: []api.StateRef{state}}); err != nil || len(out.Others) != 1 {
			t.Fatalf("got %+v, %v", out, err)
		}
		in := api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStateOwned, Detail: "the state (lineage prod) is that of workspace web"}
		if _, err := runner.Result(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		return id
	}
	w.workspace("web")
	w.workspace("net")
	first := strings.TrimSpace(w.ok("run", "web", "--op", "update", "--yes"))
	_, runner := w.claim()
	if _, err := runner.WhoseStates(t.Context(), api.StateRefs{States: []api.StateRef{{Place: strings.Repeat("a", 64), Lineage: "prod"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if got := w.run("repair", "own", first, "--yes"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "was refused no state") {
		t.Errorf("of a run that was refused nothing: %+v", got)
	}
	id := refusedRun()
	got := w.run("repair", "own", id)
	if got.code != cli.ExitUsage {
		t.Errorf("nobody was asked: got %+v", got)
	}
	has(t, "what it would do", got.stderr, "is that of workspace web", "gives the states to workspace net", "use --yes")
	has(t, "copy", w.ok("repair", "own", id, "--copy", "--yes"), "1 state of web", "workspace net may change its own copy", "dayfly workflow retry "+id)
	if got := w.run("repair", "own", id, "--yes"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "run it again") {
		t.Errorf("again: %+v", got)
	}
	w.ok("workspace", "delete", "net", "--yes")
	w.workspace("net")
	id = refusedRun()
	has(t, "own", w.ok("repair", "own", id, "--yes"), "1 state of web belongs to workspace net now")
}

// R15: before a state that a run could not write is given up, the command says that it can be pushed, and the effect.
func TestRepairUnlock_GivesUpAStateThatWasNotWritten(t *testing.T) {
	w := newWorld(t)
	w.workspace("net")
	id := strings.TrimSpace(w.ok("run", "net", "--op", "update", "--yes"))
	_, runner := w.claim()
	for _, in := range []api.NewArtifacts{
		{Artifacts: []api.NewArtifact{{Name: api.ErroredName, Kind: api.ArtifactState, Size: 3, SHA256: strings.Repeat("ab", 32)}}, Place: &api.Place{Kind: api.PlaceDirectory}},
		{Placed: []string{api.ErroredName}},
	} {
		if _, err := runner.Artifacts(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed}); err != nil {
		t.Fatal(err)
	}
	next := strings.TrimSpace(w.ok("run", "net", "--op", "update", "--yes"))
	has(t, "why", w.ok("why", next), "the state that workflow "+id+" could not write", "dayfly state push net")
	got := w.run("repair", "unlock", "net")
	if got.code != cli.ExitUsage {
		t.Errorf("nobody was asked: got %+v", got)
	}
	has(t, "what it would do", got.stderr, "workflow "+id+" could not write its state", "dayfly state push net", "creates the same resources again", "use --yes")
	has(t, "unlock", w.ok("repair", "unlock", "net", "--yes"), "workspace net is free")
	if job, _ := w.claim(); job.ID != next {
		t.Errorf("claimed %s, want %s", job.ID, next)
	}
}
