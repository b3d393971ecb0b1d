package controlplane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// stateAt is a state in a place of one letter.
func stateAt(place, lineage string) api.StateRef {
	return api.StateRef{Place: strings.Repeat(place, 64), Lineage: lineage}
}

// whose asks in a run of a workspace whose states are, and ends the run. If it was refused some, it fails. leaves is
// the lineage of the state in the place of the first of them; empty: none.
func (w *world) whose(workspace string, op workflow.Operation, leaves string, states ...api.StateRef) (id string, others []string) {
	w.t.Helper()
	id = w.submit(workspace, op).ID
	job, r := w.started()
	out, err := w.plane.WhoseStates(w.ctx(), job.Token, r, api.StateRefs{States: states})
	w.must(err)
	for _, o := range out.Others {
		others = append(others, o.Workspace)
	}
	in := api.Result{Outcome: workflow.Succeeded}
	switch {
	case len(others) > 0 && op != workflow.Preview:
		in.Outcome, in.Reason = workflow.Failed, workflow.ReasonStateOwned
	case leaves != "":
		in.State = &api.StateFound{Backend: "s3", Place: states[0].Place, Lineage: leaves, Serial: 1}
	}
	_, err = w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in})
	w.must(err)
	return id, others
}

// owned wants the answer of whose.
func (w *world) owned(workspace string, op workflow.Operation, leaves string, s api.StateRef, want ...string) (id string) {
	w.t.Helper()
	id, others := w.whose(workspace, op, leaves, s)
	if d := cmp.Diff(want, others); d != "" {
		w.t.Errorf("%s of %s (-want +got):\n%s", op, workspace, d)
	}
	return id
}

// R15: a state that lies in two places after it was taken over, or a place that two workspaces name, has one workspace.
func TestOwner_AStateHasOneWorkspace(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.madeProject("shop", "")
		w.workspace("net")
		w.workspace("web")
		w.workspace("cart", inProject("shop"))
		const update, preview = workflow.Update, workflow.Preview

		w.owned("net", preview, "", stateAt("a", "prod")) // claims nothing
		w.owned("web", update, "prod", stateAt("b", "prod"))
		w.owned("web", update, "prod", stateAt("b", "prod"))
		w.owned("net", update, "", stateAt("a", "prod"), "web")
		w.owned("net", preview, "", stateAt("a", "prod"), "web")
		w.owned("cart", update, "", stateAt("c", "prod"), "") // who sees a run of project shop does not see web
		w.owned("web", update, "", stateAt("b", ""))          // it begins anew

		// Nobody else begins in a place where a run has left no state yet, or goes on with what it is making there.
		w.owned("net", update, "", stateAt("d", ""))
		w.owned("web", update, "", stateAt("d", ""), "net")
		w.owned("web", update, "", stateAt("d", "fresh"), "net")
		w.owned("net", update, "fresh", stateAt("d", ""))
		w.owned("web", update, "", stateAt("e", "fresh"), "net") // a copy of the run's state
		w.owned("web", update, "", stateAt("d", "else"))         // another server, whose place looks the same
		w.owned("net", update, "", stateAt("d", "fresh"))

		// Deleting a workspace frees its states, and its name is no right to them.
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
		w.workspace("net")
		w.owned("cart", update, "", stateAt("d", "fresh"))
		w.owned("net", update, "", stateAt("d", "fresh"), "cart") // whose project is below that of net
	})
}

// A lineage is no secret: who makes a state with that of another workspace takes nothing from it.
func TestOwner_AForgedLineageTakesNothing(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.workspace("web")
		w.owned("net", workflow.Update, "", stateAt("a", "")) // its run fails before it makes anything
		w.owned("web", workflow.Update, "", stateAt("b", "lineage"))
		w.owned("net", workflow.Update, "lineage", stateAt("a", "")) // it makes a state, of a lineage that is known to others already
		w.owned("net", workflow.Update, "", stateAt("a", "lineage"))
		w.owned("net", workflow.Destroy, "", stateAt("a", "lineage"))
	})
}

func TestOwner_ManyStatesAreTakenTogetherOrNotAtAll(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.workspace("web")
		var units []api.StateRef
		for i := range api.MaxStates {
			units = append(units, api.StateRef{Place: fmt.Sprintf("%064x", i), Unit: fmt.Sprint("unit", i)})
		}
		if _, others := w.whose("net", workflow.Update, "", units[3]); len(others) > 0 {
			t.Fatalf("it is of %q", others)
		}
		if _, others := w.whose("web", workflow.Update, "", units...); len(others) != 1 || others[0] != "net" {
			t.Fatalf("they are of %q, want one of net", others)
		}
		if _, others := w.whose("net", workflow.Update, "", append(units, units[0])[1:]...); len(others) > 0 {
			t.Errorf("they are of %q: some were taken", others)
		}
		w.submit("net", workflow.Update)
		job, r := w.started()
		for _, n := range []int{0, api.MaxStates + 1} {
			_, err := w.plane.WhoseStates(w.ctx(), job.Token, r, api.StateRefs{States: append(units, units...)[:n]})
			wantErr(t, err, workflow.ErrInvalid)
		}
	})
}

func TestRace_TwoWorkspacesTakeOneState(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.workspace("web")
		for i := range rounds {
			var asks []func() error
			var ends []func()
			refused := make([]bool, 2)
			for n, name := range []string{"net", "web"} {
				w.submit(name, workflow.Update)
				job, r := w.started()
				asks = append(asks, func() error {
					out, err := w.plane.WhoseStates(w.ctx(), job.Token, r, api.StateRefs{States: []api.StateRef{stateAt(string(rune('a'+n)), fmt.Sprint("lineage", i))}})
					refused[n] = len(out.Others) > 0
					return err
				})
				ends = append(ends, func() { w.must(w.result(job, r, workflow.Succeeded)) })
			}
			w.must(errors.Join(race(asks...)...))
			if refused[0] == refused[1] {
				t.Fatalf("refused: %v, want one of the two", refused)
			}
			for _, end := range ends {
				end()
			}
		}
	})
}

// An admin of both workspaces decides which of them has a state, or that there are two.
func TestOwn_AnAdminOfBothDecides(t *testing.T) {
	ofShop := func(w *world) controlplane.Principal {
		who := w.admin
		who.Role, who.Grants = api.RoleViewer, map[string]string{"shop": api.RoleAdmin}
		return who
	}
	setUp := func(t *testing.T) (w *world, id string) {
		w = newWorld(t, memory.New())
		w.madeProject("shop", "")
		w.workspace("net")
		w.workspace("cart", inProject("shop"))
		w.owned("net", workflow.Update, "prod", stateAt("a", "prod"))
		return w, w.owned("cart", workflow.Update, "", stateAt("b", "prod"), "")
	}
	own := func(w *world, who controlplane.Principal, id string, isCopy bool) error {
		w.t.Helper()
		out, err := w.plane.Own(w.ctx(), who, id, api.Own{IsCopy: isCopy})
		if err == nil && (len(out.States) != 1 || out.States[0].Workspace != "net") {
			w.t.Errorf("got %+v, want one state of net", out)
		}
		return err
	}
	t.Run("who is an admin of one only, or no admin, is refused", func(t *testing.T) {
		w, id := setUp(t)
		for _, isCopy := range []bool{false, true} {
			err := own(w, ofShop(w), id, isCopy)
			wantErr(t, err, workflow.ErrForbidden)
			if strings.Contains(err.Error(), "net") {
				t.Errorf("it names a workspace that may not be seen: %v", err)
			}
		}
		who := w.admin
		who.Role = api.RoleOperator
		wantErr(t, own(w, who, id, true), workflow.ErrForbidden)
		w.owned("cart", workflow.Update, "", stateAt("b", "prod"), "")
	})
	t.Run("it is given away", func(t *testing.T) {
		w, id := setUp(t)
		w.submit("net", workflow.Update)
		job, r := w.started()
		wantErr(t, own(w, w.admin, id, false), workflow.ErrInUse)
		w.must(w.result(job, r, workflow.Succeeded))
		w.must(own(w, w.admin, id, false))
		w.owned("cart", workflow.Update, "prod", stateAt("b", "prod"))
		w.owned("net", workflow.Update, "", stateAt("a", "prod"), "cart")
		w.owned("net", workflow.Update, "", stateAt("c", "prod"), "cart")
		w.owned("net", workflow.Update, "", stateAt("a", "")) // it may begin anew in its own place
		wantErr(t, own(w, w.admin, id, false), workflow.ErrConflict)
	})
	t.Run("it is a copy", func(t *testing.T) {
		w, id := setUp(t)
		w.must(own(w, w.admin, id, true))
		for range 2 {
			w.owned("cart", workflow.Update, "prod", stateAt("b", "prod"))
			w.owned("net", workflow.Update, "prod", stateAt("a", "prod"))
		}
		w.workspace("web")
		w.owned("web", workflow.Update, "", stateAt("d", "prod"), "net")
	})
	t.Run("a place that is given away takes the lineage along", func(t *testing.T) {
		w, _ := setUp(t)
		id := w.owned("cart", workflow.Update, "", stateAt("a", "prod"), "")
		w.must(own(w, w.admin, id, false))
		w.owned("cart", workflow.Update, "prod", stateAt("a", "prod"))
		w.owned("net", workflow.Update, "", stateAt("e", "prod"), "cart")
	})
	t.Run("a place that only looks the same", func(t *testing.T) {
		w, _ := setUp(t)
		id := w.owned("cart", workflow.Update, "", stateAt("a", ""), "")
		w.must(own(w, w.admin, id, true))
		w.owned("cart", workflow.Update, "cart", stateAt("a", ""))
		w.owned("cart", workflow.Update, "cart", stateAt("a", "cart"))
		w.owned("net", workflow.Update, "prod", stateAt("a", "prod"))
	})
	t.Run("more states than one call asks for", func(t *testing.T) {
		w := newWorld(t, memory.New())
		w.workspace("net")
		w.workspace("cart")
		var many []api.StateRef
		for i := range api.MaxStates + 5 {
			many = append(many, api.StateRef{Place: fmt.Sprintf("%064x", i), Unit: fmt.Sprint("unit", i)})
		}
		w.submit("net", workflow.Update)
		job, r := w.started()
		for some := range slices.Chunk(many, api.MaxStates) {
			_, err := w.plane.WhoseStates(w.ctx(), job.Token, r, api.StateRefs{States: some})
			w.must(err)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		id := w.submit("cart", workflow.Update).ID
		job, r = w.started()
		for range 2 { // a call whose answer was lost is sent again
			for some := range slices.Chunk(many, api.MaxStates) {
				out, err := w.plane.WhoseStates(w.ctx(), job.Token, r, api.StateRefs{States: some})
				w.must(err)
				if len(out.Others) != len(some) {
					t.Fatalf("got %+v", out.Others)
				}
			}
		}
		w.must(w.result(job, r, workflow.Failed))
		for _, want := range []int{api.MaxStates, 5} {
			out, err := w.plane.Own(w.ctx(), w.admin, id, api.Own{})
			if w.must(err); len(out.States) != want {
				t.Errorf("decided about %d states, want %d", len(out.States), want)
			}
		}
		wantErr(t, own(w, w.admin, id, false), workflow.ErrConflict)
	})
	t.Run("a run that was refused nothing", func(t *testing.T) {
		w, _ := setUp(t)
		wantErr(t, own(w, w.admin, w.submit("cart", workflow.Update).ID, false), workflow.ErrConflict)
	})
}
