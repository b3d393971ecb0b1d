package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestAftermath_IsToldWhereTheStateMayBeHalfChanged(t *testing.T) {
	at := time.Now()
	cut := api.Workflow{Workspace: "net", Type: workflow.Deployment, Operation: workflow.Update, Reason: workflow.ReasonTaskStopped, StartedAt: &at}
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
		if got := w.Aftermath(); strings.Contains(got, "the state of net may be half changed: a preview (dayfly run net)") != c.want || !c.want && got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestChanges_SayWhetherTheyAreDone(t *testing.T) {
	c := api.Changes{Add: 4, Change: 1, Drift: 2}
	if got, want := c.Text(false), "4 to add, 1 to change, 0 to destroy, 2 drifted"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := c.Text(true), "4 added, 1 changed, 0 destroyed, 2 drifted"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
