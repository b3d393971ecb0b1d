package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// takes makes a workspace take outputs of others: "network.subnet_id", or "network.subnet_id=subnet", with ! behind it a
// sensitive one.
func takes(inputs ...string) func(*api.Workspace) {
	return func(ws *api.Workspace) {
		for _, in := range inputs {
			in, sensitive := strings.CutSuffix(in, "!")
			from, variable, _ := strings.Cut(in, "=")
			workspace, output, _ := strings.Cut(from, ".")
			ws.Inputs = append(ws.Inputs, api.WorkspaceInput{Workspace: workspace, Output: output, Variable: variable, Sensitive: sensitive})
		}
	}
}

func after(names ...string) func(*api.Workspace) {
	return func(ws *api.Workspace) { ws.After = names }
}

// updates runs an update of a workspace that leaves outputs.
func (w *world) updates(workspace string, outputs ...api.Output) api.Workflow {
	w.t.Helper()
	wf := w.submit(workspace, workflow.Update)
	job, r := w.started()
	_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 1}, Outputs: outputs}})
	w.must(err)
	return w.is(wf.ID, workflow.Succeeded, "")
}

// put applies a command workspace and returns what is wrong with it.
func (w *world) put(who controlplane.Principal, name string, change ...func(*api.Workspace)) error {
	ws := api.Workspace{Name: name, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true", "update": "true", "refresh": "true", "destroy": "true"}}}
	for _, c := range change {
		c(&ws)
	}
	_, _, err := w.plane.PutWorkspace(w.ctx(), who, ws)
	return err
}

func TestGraph_ACycleIsRefusedAndShown(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("a")
		w.workspace("b", takes("a.x"))
		w.workspace("c", after("b"))
		err := w.put(w.admin, "a", after("c"))
		wantErr(t, err, workflow.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "a -> c -> b -> a") {
			t.Errorf("the refusal does not show the cycle: %v", err)
		}
		wantErr(t, w.put(w.admin, "a", after("a")), workflow.ErrInvalid)
		wantErr(t, w.put(w.admin, "d", after("nosuch")), workflow.ErrNotFound)
		graph, err := w.plane.Graph(w.ctx(), w.admin)
		w.must(err)
		want := api.Graph{Workspaces: []string{"a", "b", "c"}, Dependencies: []api.Dependency{{Workspace: "b", On: "a", Outputs: []string{"x"}}, {Workspace: "c", On: "b"}}}
		if d := cmp.Diff(want, graph); d != "" {
			t.Error(d)
		}
	})
}

func TestGraph_OfTwoPutsAtOnceOneMakesNoCycle(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("a")
		w.workspace("b")
		errs := make(chan error, 2)
		for name, on := range map[string]string{"a": "b", "b": "a"} {
			go func() { errs <- w.put(w.admin, name, after(on)) }()
		}
		one, two := <-errs, <-errs
		if (one == nil) == (two == nil) {
			t.Errorf("got %v and %v, want one of them refused", one, two)
		}
	})
}

func TestGraph_AWorkspaceThatOthersDependOnIsNotDeleted(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("network")
		w.workspace("cluster", takes("network.subnet_id"))
		err := w.plane.DeleteWorkspace(w.ctx(), w.admin, "network")
		wantErr(t, err, workflow.ErrInUse)
		if err == nil || !strings.Contains(err.Error(), "cluster") {
			t.Errorf("the refusal does not name who depends on it: %v", err)
		}
		w.workspace("cluster")
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "network"))
		wantErr(t, w.put(w.admin, "cluster", after("network")), workflow.ErrNotFound)
	})
}

func TestInputs_AreGivenAtTheStartAsTheyWereLeft(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("network")
		w.workspace("cluster", takes("network.subnet_id", "network.zones=where"), func(ws *api.Workspace) { ws.Variables = map[string]any{"size": 3.0} })
		first := w.submit("cluster", workflow.Update)
		job := w.claimOne()
		w.launch(job, "t")
		_, err := w.plane.Start(w.ctx(), job.Token, run(job, "t", 'a'), api.Start{Knows: api.RunnerKnows()})
		wantErr(t, err, workflow.ErrOver)
		wf := w.is(first.ID, workflow.Failed, workflow.ReasonInputMissing)
		if want := "output subnet_id of workspace network is missing: no run has produced outputs yet; run an update of network once"; wf.Detail != want {
			t.Errorf("detail is %q, want %q", wf.Detail, want)
		}
		w.updates("network", api.Output{Name: "subnet_id", Value: "subnet-1"}, api.Output{Name: "zones", Value: []any{"a", "b"}})
		w.submit("cluster", workflow.Update)
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		want := api.Values{"size": json.Number("3"), "subnet_id": "subnet-1", "where": []any{"a", "b"}}
		if d := cmp.Diff(want, spec.Variables); d != "" {
			t.Error(d)
		}
		w.updates("network", api.Output{Name: "subnet_id", Value: "subnet-2"}, api.Output{Name: "zones", Value: []any{}})
		if spec, err = w.plane.Spec(w.ctx(), job.Token, r); err != nil || spec.Variables["subnet_id"] != "subnet-1" {
			t.Errorf("a run that has started is given %v, %v", spec.Variables, err)
		}
	})
}

func TestInputs_ARunMaySetWhatItCannotBeGiven(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.workspace("cluster", takes("network.subnet_id"), func(ws *api.Workspace) { ws.Engine, ws.Commands = api.EngineTofu, nil })
	_, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "cluster", Operation: workflow.Destroy, Options: &api.Options{Variables: map[string]any{"subnet_id": "gone"}}})
	w.must(err)
	job, r := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	if len(spec.Variables) != 0 || spec.Options.Variables["subnet_id"] != "gone" {
		t.Errorf("it is given %v beside what it sets itself", spec.Variables)
	}
}

func TestGraph_ADeletionAndADependencyAtOnce(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		for range 5 {
			w.workspace("network")
			w.workspace("cluster")
			errs := make(chan error, 2)
			go func() { errs <- w.plane.DeleteWorkspace(w.ctx(), w.admin, "network") }()
			go func() { errs <- w.put(w.admin, "cluster", after("network")) }()
			one, two := <-errs, <-errs
			if (one == nil) == (two == nil) {
				t.Errorf("got %v and %v, want one of them refused", one, two)
			}
			w.must(w.put(w.admin, "cluster"))
		}
	})
}

// once does something the first time that a commit has a record of this sort key.
type once struct {
	store.Store
	sort string
	do   func()
}

func (o *once) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if do := o.do; do != nil && slices.ContainsFunc(ops, func(op store.Op) bool { return op.Key().Sort == o.sort }) {
		o.do = nil
		do()
	}
	return o.Store.Commit(ctx, id, ops...)
}

func TestInputs_ASuccessDuringAStartIsSeen(t *testing.T) {
	between := &once{Store: memory.New(), sort: "given/0001"}
	w := newWorld(t, between)
	w.workspace("network")
	w.workspace("cluster", takes("network.id"))
	w.updates("network", api.Output{Name: "id", Value: "before"})
	wf := w.submit("cluster", workflow.Update)
	job := w.claimOne()
	w.launch(job, "t")
	between.do = func() { w.updates("network", api.Output{Name: "id", Value: "after"}) }
	r := run(job, "t", 'a')
	_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
	w.must(err)
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	if between.do != nil || spec.Variables["id"] != "after" {
		t.Errorf("workflow %s is given %v", wf.ID, spec.Variables)
	}
}

func TestGraph_OfManyDependenciesAreBounded(t *testing.T) {
	w := newWorld(t, memory.New())
	var all []string
	for i := range 50 {
		all = append(all, fmt.Sprintf("base-%02d", i))
		w.workspace(all[i])
	}
	for i := range record.MaxDependencies / 50 {
		w.workspace(fmt.Sprintf("top-%02d", i), after(all...))
	}
	err := w.put(w.admin, "one-more", after("base-00"))
	wantErr(t, err, workflow.ErrTooLarge)
	if err == nil || !strings.Contains(err.Error(), "2000 dependencies") {
		t.Errorf("the refusal does not name the limit: %v", err)
	}
	w.must(w.put(w.admin, "top-00"))
	w.must(w.put(w.admin, "one-more", after("base-00")))
}

func TestWorkspace_MistakesInInputsNameTheirField(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	in := func(one api.WorkspaceInput) func(*api.Workspace) {
		return func(ws *api.Workspace) { ws.Inputs = append(ws.Inputs, one) }
	}
	for field, change := range map[string]func(*api.Workspace){
		"inputs[0].workspace": in(api.WorkspaceInput{Workspace: "../x", Output: "a"}),
		"inputs[0].output":    in(api.WorkspaceInput{Workspace: "network"}),
		"inputs[0].variable":  in(api.WorkspaceInput{Workspace: "network", Output: "a b"}),
		"inputs[1].variable": func(ws *api.Workspace) {
			takes("network.a", "network.b=a")(ws)
		},
		"inputs[0].preview": in(api.WorkspaceInput{Workspace: "network", Output: "a", Preview: true}),
		"inputs[2].variable": func(ws *api.Workspace) {
			takes("network.a", "network.b", "network.c")(ws)
			ws.Variables = map[string]any{"c": 1}
		},
		"after[1]": after("network", "network"),
		"inputs":   func(ws *api.Workspace) { ws.Inputs = make([]api.WorkspaceInput, 51) },
		"after":    func(ws *api.Workspace) { ws.After = make([]string, 51) },
	} {
		err := w.put(w.admin, "cluster", change)
		if e, ok := errors.AsType[*workflow.Error](err); !ok || e.Field != field {
			t.Errorf("got %v, want a refusal of %s", err, field)
		}
	}
}

func TestInputs_PulumiTakesSensitiveOnes(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.must(w.put(w.admin, "cluster", takes("network.a!"), func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.State = api.EnginePulumi, nil, &api.State{Workspace: "dev"}
	}))
}

// A number reaches the code as it was written, from a workspace's variables and from another workspace's outputs.
func TestInputs_NumbersKeepTheirText(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		const long = json.Number("123456789012345678901.50")
		w.workspace("network")
		w.workspace("cluster", takes("network.id"), func(ws *api.Workspace) {
			ws.Variables = api.Values{"account": long, "list": []any{map[string]any{"n": long}}}
		})
		w.updates("network", api.Output{Name: "id", Value: []any{long}})
		w.submit("cluster", workflow.Update)
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		want := api.Values{"account": long, "list": []any{map[string]any{"n": long}}, "id": []any{long}}
		if d := cmp.Diff(want, spec.Variables); d != "" {
			t.Errorf("variables (-want +got):\n%s", d)
		}
	})
}
