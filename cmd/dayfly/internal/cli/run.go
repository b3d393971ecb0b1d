package cli

import (
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
)

// Differs reports whether a workflow that succeeded has changes. One that does not count its changes may have some.
func Differs(last api.Workflow) bool {
	c := new(api.Changes{Add: 1})
	if last.Result != nil && last.Result.Changes != nil {
		c = last.Result.Changes
	}
	return c.Any() || c.Drift+len(c.Outputs) > 0
}

// JobLine names a run in a line, with a word about its state.
func JobLine(w api.Workflow, after string) string {
	return fmt.Sprintf("%s %s  %s", runtext.Title(w), after, w.ID)
}
