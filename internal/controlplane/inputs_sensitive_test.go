package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var (
	hiddenToken = api.Output{Name: "token", Sensitive: true}
	takesToken  = takes("network.token!")
)

// leavesToken runs an update of network that leaves a sensitive output, in an artifact with this SHA-256.
func (w *world) leavesToken(sum string, changes api.Changes) api.Workflow {
	w.t.Helper()
	wf := w.submit("network", workflow.Update)
	job, r := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	in := api.Result{Outcome: workflow.Succeeded, Changes: &changes, Outputs: []api.Output{hiddenToken}}
	if spec.ShareOutputs {
		a := leaves(api.ArtifactOutputs, api.OutputsName)
		a.SHA256 = sum
		_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(a))
		w.must(err)
		_, err = w.plane.Announce(w.ctx(), job.Token, r, api.NewArtifacts{Placed: []string{a.Name}})
		w.must(err)
		in.SensitiveOutputs = &api.SensitiveOutputs{Artifact: a.Name, Size: a.Size, SHA256: a.SHA256}
	}
	_, err = w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: in})
	w.must(err)
	return w.is(wf.ID, workflow.Succeeded, "")
}

// missing runs a preview of cluster that ends at its start, and returns the reason in words.
func (w *world) missing() string {
	w.t.Helper()
	wf := w.submit("cluster", workflow.Preview)
	_, err := w.starts()
	wantErr(w.t, err, workflow.ErrOver)
	return w.is(wf.ID, workflow.Failed, workflow.ReasonInputMissing).Detail
}

func TestSensitiveInput_IsNamedOnlyToItsReader(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("network")
		w.leavesToken(bundleSum, one) // nobody takes it: nothing is left
		w.workspace("cluster", takesToken)
		if got := w.missing(); !strings.Contains(got, "did not upload the values of its sensitive outputs") || !strings.Contains(got, "run an update of network once") {
			t.Errorf("it gets %q", got)
		}
		left := w.leavesToken(bundleSum, api.Changes{}) // nothing changes, and the values are left all the same
		w.submit("cluster", workflow.Update)
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		if len(spec.Inputs) != 1 || spec.Inputs[0].Output != "token" || len(spec.Variables) != 0 {
			t.Errorf("the spec has %+v and %v", spec.Inputs, spec.Variables)
		}
		in, err := w.plane.InputOf(w.ctx(), job.Token, r, 0)
		w.must(err)
		if a := in.Artifact; a.Kind != api.ArtifactOutputs || a.SHA256 != bundleSum || !strings.HasSuffix(a.Place.Key, "/"+left.ID+"/1/plan/outputs.json") || a.Place.Pool != "default" {
			t.Errorf("the input is %+v", a)
		}
		_, err = w.plane.InputOf(w.ctx(), job.Token, r, 1)
		wantErr(t, err, workflow.ErrInvalid)
		_, err = w.plane.Input(w.ctx(), job.Token, r)
		wantErr(t, err, workflow.ErrInvalid)
		w.must(w.result(job, r, workflow.Succeeded))
		w.clock.advance(91 * 24 * time.Hour)
		if got := w.missing(); !strings.Contains(got, "past their retention") {
			t.Errorf("later it gets %q", got)
		}
	})
}

func TestSensitiveInput_OfAnotherMachineIsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.workspace("cluster", takesToken)
	w.leavesToken(bundleSum, one)
	ws, err := w.plane.Workspace(w.ctx(), w.admin, "network")
	w.must(err)
	amend(w, record.ProducedKey("default", ws.ID), func(p *record.Produced) { p.Sensitive.Place.Instance = "two" })
	if got := w.missing(); !strings.Contains(got, "is with agent two, and this run is on one") {
		t.Errorf("it gets %q", got)
	}
}

func TestSensitiveInput_NeedsARunnerThatKnowsOfThem(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.workspace("cluster", takesToken)
	w.leavesToken(bundleSum, one)
	wf := w.submit("cluster", workflow.Preview)
	job := w.claimOne()
	w.launch(job, "t")
	var older []string
	for _, what := range api.RunnerKnows() {
		if what != "inputs" {
			older = append(older, what)
		}
	}
	_, err := w.plane.Start(w.ctx(), job.Token, run(job, "t", 'a'), api.Start{Knows: older})
	wantErr(t, err, workflow.ErrOver)
	w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerTooOld)
}

// The reported outputs count only as the artifact that the run has stored.
func TestSensitiveInput_WhatDidNotArriveIsNotLeft(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.workspace("cluster", takesToken)
	w.submit("network", workflow.Update)
	job, r := w.started()
	a := leaves(api.ArtifactOutputs, api.OutputsName)
	_, err := w.plane.Announce(w.ctx(), job.Token, r, announced(a))
	w.must(err)
	_, err = w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{
		Outcome: workflow.Succeeded, Outputs: []api.Output{hiddenToken}, SensitiveOutputs: &api.SensitiveOutputs{Artifact: a.Name, Size: a.Size, SHA256: a.SHA256},
	}})
	w.must(err)
	if got := w.missing(); !strings.Contains(got, "did not upload the values of its") {
		t.Errorf("it gets %q", got)
	}
	w.submit("cluster", workflow.Preview)
	if _, err = w.starts(); err == nil {
		t.Error("it was started")
	}
	// Only what changes a state may leave outputs, and only under their name.
	w.workspace("plain")
	w.submit("plain", workflow.Preview)
	job, r = w.started()
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(a))
	wantErr(t, err, workflow.ErrInvalid)
	w.must(w.result(job, r, workflow.Succeeded))
	w.submit("plain", workflow.Update)
	job, r = w.started()
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactOutputs, "plan/other.json")))
	wantErr(t, err, workflow.ErrInvalid)
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactOutputs, "files/outputs.json")))
	wantErr(t, err, workflow.ErrInvalid)
}

func TestSensitiveInput_IsGivenByAnAdminOfBoth(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("nets", "global")
	w.madeProject("apps", "global")
	w.workspace("network", inProject("nets"))
	w.workspace("cluster", inProject("apps"))
	for name, c := range map[string]struct {
		grants    map[string]string
		sensitive bool
		want      error
	}{
		"sees it":                       {map[string]string{"apps": api.RoleOperator, "nets": api.RoleViewer}, false, nil},
		"does not see it":               {map[string]string{"apps": api.RoleAdmin}, false, workflow.ErrNotFound},
		"an operator here, admin there": {map[string]string{"apps": api.RoleOperator, "nets": api.RoleAdmin}, true, workflow.ErrForbidden},
		"an admin here, operator there": {map[string]string{"apps": api.RoleAdmin, "nets": api.RoleOperator}, true, workflow.ErrForbidden},
		"an admin of both":              {map[string]string{"apps": api.RoleAdmin, "nets": api.RoleAdmin}, true, nil},
	} {
		w.workspace("cluster", inProject("apps"))
		change := takes("network.token")
		if c.sensitive {
			change = takesToken
		}
		if err := w.put(w.in(c.grants), "cluster", inProject("apps"), change); c.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.want != nil {
			wantErr(t, err, c.want)
		}
	}
	w.workspace("cluster", inProject("apps"), takesToken)
	operator := w.in(map[string]string{"apps": api.RoleOperator, "nets": api.RoleAdmin})
	wantErr(t, w.put(operator, "cluster", inProject("apps")), workflow.ErrForbidden)
	wantErr(t, w.put(operator, "cluster", inProject("apps"), takesToken, func(ws *api.Workspace) { ws.Inputs[0].Preview = true }), workflow.ErrForbidden)
	w.must(w.put(operator, "cluster", inProject("apps"), takesToken, func(ws *api.Workspace) { ws.Description = "the cluster" }))
	graph, err := w.plane.Graph(w.ctx(), w.in(map[string]string{"apps": api.RoleViewer}))
	w.must(err)
	if len(graph.Dependencies) != 0 || len(graph.Workspaces) != 0 {
		t.Errorf("somebody who may not see network is shown %+v", graph)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestSensitiveInput_OfAPullRequestIsMarkedForThat(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.reviewed(nil, takesToken)
	by := runs.Triggered{Trigger: record.Trigger{Kind: api.TriggerPullRequest, Name: "forge", Repository: "example/infra", Commit: strings.Repeat("1", 40), Number: 17}}
	_, err := w.plane.SubmitFor(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Preview}, by)
	wantErr(t, err, workflow.ErrForbidden)
	if !strings.Contains(errText(err), "preview: true") {
		t.Errorf("the refusal does not say what to do: %v", err)
	}
	w.reviewed(nil, takesToken, func(ws *api.Workspace) { ws.Inputs[0].Preview = true })
	_, err = w.plane.SubmitFor(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Preview}, by)
	w.must(err)
}

// A plan is applied with the inputs that it was made with, or not at all.
func TestInputs_OfAnApprovedPlanMustBeAsTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		takes func(*api.Workspace)
		then  func(w *world)
		want  string // why it is stale; empty: it is applied
	}{
		"as they were":         {takes("network.id"), func(w *world) { w.updates("network", api.Output{Name: "id", Value: "a"}) }, ""},
		"another value":        {takes("network.id"), func(w *world) { w.updates("network", api.Output{Name: "id", Value: "b"}) }, "output id of workspace network has changed since the plan was made; make a new preview"},
		"sensitive, the same":  {takesToken, func(w *world) { w.leavesToken(summarySum, api.Changes{}) }, ""},
		"sensitive, may be it": {takesToken, func(w *world) { w.leavesToken(bundleSum, one) }, "workspace network has changed since the plan was made, and so may its sensitive outputs; make a new preview"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.workspace("network")
			w.guarded(required(), c.takes)
			if strings.HasPrefix(name, "sensitive") {
				w.leavesToken(bundleSum, one)
			} else {
				w.updates("network", api.Output{Name: "id", Value: "a"})
			}
			made := w.asks(w.person("ada"), workflow.Update)
			w.plans(one)
			c.then(w)
			w.approves(w.person("bob"), made.ID)
			job, err := w.starts()
			if c.want == "" {
				w.must(err)
				return
			}
			wantErr(t, err, workflow.ErrOver)
			if got := w.is(job.ID, workflow.Failed, workflow.ReasonPlanStale).Detail; got != c.want {
				t.Errorf("it gets %q, want %q", got, c.want)
			}
		})
	}
}

func TestInputs_OfAWorkspaceThatWasDestroyedOrPushed(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.workspace("cluster", takes("network.id"))
	w.updates("network", api.Output{Name: "other", Value: 1})
	if got := w.missing(); !strings.Contains(got, "produced other; correct the name") {
		t.Errorf("of another output it gets %q", got)
	}
	w.updates("network", hiddenToken, api.Output{Name: "id", Sensitive: true})
	if got := w.missing(); !strings.Contains(got, "sets sensitive: true") {
		t.Errorf("of a sensitive one it gets %q", got)
	}
	w.updates("network", api.Output{Name: "id", Value: "x-***", Masked: true})
	if got := w.missing(); !strings.Contains(got, "hides a part of it") {
		t.Errorf("of a masked one it gets %q", got)
	}
	destroy := w.submit("network", workflow.Destroy)
	job, r := w.started()
	w.must(w.result(job, r, workflow.Succeeded))
	if got := w.missing(); !strings.Contains(got, destroy.ID+" destroyed it") {
		t.Errorf("after its end it gets %q", got)
	}
}

// A list or scan does not read variables, and waits for nobody.
func TestInputs_AreForWhatPlans(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("network")
	w.guarded(nil, takes("network.id"))
	w.submit("net", workflow.StateList)
	if _, err := w.starts(); err != nil {
		t.Error(err)
	}
}
