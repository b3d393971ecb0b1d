package runtext_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestReason_EachHasWords(t *testing.T) {
	for _, r := range workflow.Reasons() {
		if runtext.Reason(r) == string(r) {
			t.Errorf("%s has none", r)
		}
	}
}

// A control plane of a later version has others.
func TestReason_UnknownOnesAreShown(t *testing.T) {
	w := api.Workflow{ID: "wf_1", Workspace: "net", State: workflow.Failed, Reason: "moonlight"}
	if got := runtext.Cause(w) + runtext.Ended(string(w.State), w.Reason) + runtext.ToDo(w); got != "moonlightfailed (moonlight)" {
		t.Errorf("got %q", got)
	}
}

func TestToDo_NamesTheRun(t *testing.T) {
	w := api.Workflow{ID: "wf_1", Workspace: "net", State: workflow.Failed, Type: workflow.Deployment, Operation: workflow.Preview, Reason: workflow.ReasonStateElsewhere}
	if got := runtext.ToDo(w); !strings.Contains(got, "dayfly run net --op update --take-over") || strings.Contains(got, "WORK") {
		t.Errorf("got %q", got)
	}
	w.Reason = workflow.ReasonNeverStarted
	if got := runtext.ToDo(w); !strings.Contains(got, "dayfly why wf_1") {
		t.Errorf("got %q", got)
	}
	if w.State = workflow.Cancelled; runtext.ToDo(w) != "" {
		t.Error("a run that was cancelled has something to do")
	}
}

func TestToDo_WhereTheStateMayBeHalfChanged(t *testing.T) {
	at := time.Now()
	cut := api.Workflow{Workspace: "net", State: workflow.Failed, Type: workflow.Deployment, Operation: workflow.Update, Reason: workflow.ReasonTaskStopped, StartedAt: &at}
	for name, c := range map[string]struct {
		change func(*api.Workflow)
		want   bool
	}{
		"its task stopped":    {func(*api.Workflow) {}, true},
		"it fell silent":      {func(w *api.Workflow) { w.Reason = workflow.ReasonRunnerLost }, true},
		"its result is gone":  {func(w *api.Workflow) { w.Reason = workflow.ReasonResultMissing }, true},
		"a destroy took long": {func(w *api.Workflow) { w.Operation, w.Reason = workflow.Destroy, workflow.ReasonDeadline }, true},
		"a step failed":       {func(w *api.Workflow) { w.Reason = workflow.ReasonStepFailed }, false},
		"a preview":           {func(w *api.Workflow) { w.Operation = workflow.Preview }, false},
		"it never started":    {func(w *api.Workflow) { w.StartedAt = nil }, false},
		"nothing went wrong":  {func(w *api.Workflow) { w.Reason = workflow.ReasonNone }, false},
	} {
		w := cut
		c.change(&w)
		got := runtext.Aftermath(w)
		if strings.Contains(got, "the state of net may be half changed, and lack what was made in its last 20 seconds: compare a preview (dayfly run net)") != c.want || !c.want && got != "" {
			t.Errorf("%s: got %q", name, got)
		}
		if c.want && runtext.ToDo(w) != got {
			t.Errorf("%s: the advice is %q", name, runtext.ToDo(w))
		}
	}
}

func TestChanges_TheDangerousFirst(t *testing.T) {
	for want, c := range map[string]struct {
		of  api.Changes
		did bool
	}{
		"no changes":                       {},
		"4 to add, 2 drifted":              {api.Changes{Add: 4, Drift: 2}, false},
		"4 added, 1 output changed":        {api.Changes{Add: 4, Outputs: make([]api.OutputChange, 1)}, true},
		"1 to destroy, 1 to replace":       {api.Changes{Add: 1, Destroy: 2, Replace: 1}, false},
		"1 imported, 2 moved, 3 forgotten": {api.Changes{Import: 1, Move: 2, Forget: 3}, true},
		"2 outputs to change":              {api.Changes{Outputs: make([]api.OutputChange, 2)}, false},
	} {
		if got := runtext.Changes(c.of, c.did); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestChanged_ARunThatFailedSaysWhatItDid(t *testing.T) {
	for want, c := range map[string]struct {
		state workflow.State
		op    workflow.Operation
		of    api.Changes
	}{
		"2 added":                  {workflow.Succeeded, workflow.Update, api.Changes{Add: 2}},
		"2 added before it failed": {workflow.Failed, workflow.Update, api.Changes{Add: 2}},
		"1 destroyed before it failed; 2 drifted": {workflow.Failed, workflow.Destroy, api.Changes{Destroy: 1, Drift: 2}},
		"1 imported, 1 moved, 2 forgotten before it was cancelled": {
			workflow.Cancelled, workflow.Update, api.Changes{Import: 1, Move: 1, Forget: 2},
		},
		"2 drifted": {workflow.Failed, workflow.Refresh, api.Changes{Drift: 2}},
		"3 to add":  {workflow.Failed, workflow.Preview, api.Changes{Add: 3}},
		"":          {workflow.Failed, workflow.Update, api.Changes{}},
	} {
		w := api.Workflow{Type: workflow.Deployment, Operation: c.op, State: c.state, Changes: &c.of}
		if got := runtext.Changed(w); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Pulumi has no lineage, so none is shown.
func TestWhichState_ThatOfPulumiIsItsStack(t *testing.T) {
	for want, got := range map[string]string{
		"lineage 0815-4711, serial 7":                     runtext.WhichState("0815-4711", 7),
		"stack demo/dev, changed 2026-11-24 14:42:42 UTC": runtext.WhichState("demo/dev", 1795531362437),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestColumn_IsNarrow(t *testing.T) {
	for want, changes := range map[string]*api.Changes{
		"": nil, "none": {}, "+1 ~2 -3": {Add: 1, Change: 2, Destroy: 3, Drift: 4}, "4 drifted": {Drift: 4},
		"1 import, 2 move, 3 forget": {Import: 1, Move: 2, Forget: 3}, "+1 ~0 -0, 2 forget": {Add: 1, Forget: 2}, "1 move": {Move: 1, Drift: 1},
	} {
		if got := runtext.Column(changes); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestOutput_AValueOfSeveralLinesStandsInOne(t *testing.T) {
	for want, value := range map[string]any{
		`plain "text" é`: `plain "text" é`, `"-----BEGIN\nabc\n"`: "-----BEGIN\nabc\n", `"a\x1b[2Jb"`: "a\x1b[2Jb", `{"k":"a\nb"}`: map[string]any{"k": "a\nb"},
	} {
		if got := runtext.Output(api.Output{Value: value}); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

func TestUnit_ResultAndChanges(t *testing.T) {
	one := &api.Changes{Add: 1}
	for want, u := range map[string]api.UnitResult{
		"1 added":             {Result: "succeeded", Changes: one},
		"1 added, as planned": {Result: "succeeded", Changes: one, Planned: true},
		"failed, 1 added":     {Result: "failed", Changes: one},
		"2 outputs changed":   {Result: "succeeded", Changes: &api.Changes{}, Outputs: 2},
		"excluded":            {Result: "excluded"},
		"no result, 1 added":  {Changes: one},
	} {
		if got := runtext.Unit(u, true); got != want {
			t.Errorf("%+v: got %q, want %q", u, got, want)
		}
	}
	if got, want := runtext.Unit(api.UnitResult{Result: "succeeded", Changes: one}, false), "1 to add"; got != want {
		t.Errorf("a plan: got %q, want %q", got, want)
	}
}
