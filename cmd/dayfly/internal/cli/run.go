package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Differs reports whether a workflow that succeeded has changes. One that does not count its changes may have some.
func Differs(last api.Workflow) bool {
	c := new(api.Changes{Add: 1})
	if last.Result != nil && last.Result.Changes != nil {
		c = last.Result.Changes
	}
	return c.Any() || c.Drift+len(c.Outputs) > 0
}

// JobLine names a run in a line, with a word on how it stands behind its workspace.
func JobLine(w api.Workflow, after string) string {
	return fmt.Sprintf("%s of %s %s  %s", cmp.Or(string(w.Operation), string(w.Type)), w.Workspace, after, w.ID)
}

// Took is how long a workflow has run, or ran in all.
func Took(w api.Workflow, now time.Time) string {
	if w.StartedAt == nil {
		return "-"
	}
	if w.EndedAt != nil {
		now = *w.EndedAt
	}
	return text.Duration(now.Sub(*w.StartedAt))
}

// KindOf is the type and the operation of a run.
func KindOf(w api.Workflow) string { return RunKind(w.Type, w.Operation) }

// RunKind is a type and an operation as people read them.
func RunKind(t workflow.Type, op workflow.Operation) string {
	if op != "" {
		return string(t) + " " + string(op)
	}
	return string(t)
}
