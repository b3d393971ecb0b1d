package uptest

import (
	"context"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Put registers a workspace of commands by operation.
func (w *World) Put(name string, commands map[string]string, changes ...func(*api.Workspace)) {
	w.T.Helper()
	in := api.Workspace{
		Name: name, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: w.Source}, Commands: commands},
	}
	for _, change := range changes {
		change(&in)
	}
	w.Register(in)
}

// Register registers a workspace.
func (w *World) Register(in api.Workspace) {
	w.T.Helper()
	if _, _, err := w.Client.PutWorkspace(w.T.Context(), in); err != nil {
		w.T.Fatal(err)
	}
}

// Update submits an update of a workspace and returns its id.
func (w *World) Update(workspace string) string {
	w.T.Helper()
	return w.Submit(api.Submit{Workspace: workspace, Operation: workflow.Update})
}

// Submit submits a run and returns its id.
func (w *World) Submit(in api.Submit) string {
	w.T.Helper()
	out, err := w.Client.Submit(w.T.Context(), in)
	if err != nil {
		w.T.Fatal(err)
	}
	return out.ID
}

// Workflow shows a workflow.
func (w *World) Workflow(id string) api.Workflow {
	w.T.Helper()
	out, err := w.Client.Workflow(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	return out
}

func ended(wf api.Workflow) bool { return wf.State.Terminal() && !wf.SlotHeld }

// Until waits until a workflow is as cond wants it. One that ends otherwise fails the test.
func (w *World) Until(id, what string, cond func(api.Workflow) bool) (got api.Workflow) {
	w.T.Helper()
	defer func() {
		if w.T.Failed() {
			w.T.Logf("it is %s, %s: %s; timeline:\n%s", got.State, got.Reason, got.Detail, w.Timeline(id))
		}
	}()
	met := false
	Eventually(w.T, what, func() bool {
		got = w.Workflow(id)
		met = cond(got)
		return met || ended(got)
	})
	if !met {
		w.T.Fatalf("it has ended: %s", what)
	}
	return got
}

// Over waits until a workflow has ended and holds no slot.
func (w *World) Over(id string) api.Workflow {
	w.T.Helper()
	return w.Until(id, "the end of workflow "+id, ended)
}

// Timeline is what happened to a workflow, as text.
func (w *World) Timeline(id string) string {
	page, err := w.Client.Timeline(context.WithoutCancel(w.T.Context()), id, "", 0)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range page.Items {
		_, _ = fmt.Fprintf(&b, "  %s %s: %s\n", e.At.Format("15:04:05.000"), e.Kind, e.Text)
	}
	return b.String()
}

// Log is the log so far of an attempt; of the latest one, if it is 0.
func (w *World) Log(id string, attempt int) string {
	w.T.Helper()
	var b strings.Builder
	for offset := int64(0); ; {
		page, err := w.Client.Logs(w.T.Context(), id, attempt, offset, 0, 0)
		if err != nil {
			w.T.Fatal(err)
		}
		for _, l := range page.Lines {
			b.WriteString(l.Text)
			if !l.More {
				b.WriteString("\n")
			}
		}
		if len(page.Lines) == 0 {
			return b.String()
		}
		offset = page.Next
	}
}
