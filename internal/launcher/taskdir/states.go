// Package taskdir is the directory of a launcher whose tasks run on its own machine: one launcher at a time, one task for
// each workflow, attempt and placement, a record of it on disk before it may act, and the log that its runner left. It
// starts and ends nothing.
package taskdir

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Olds are the other directories of states that a request names and that are there, below the root of all states.
func Olds(r launcher.Request, root string) []string {
	var out []string
	for _, old := range r.States.Olds {
		dir := filepath.Join(root, old)
		if info, err := os.Lstat(dir); root != "" && err == nil && info.IsDir() {
			out = append(out, dir)
		}
	}
	return out
}

// CheckStates refuses for good what names no directory below a root, or needs one where there is no root.
func CheckStates(r launcher.Request, root string) error {
	if root == "" && r.States.Required {
		return launcher.Never("this launcher keeps no states: state kind directory cannot be used here")
	}
	for _, dir := range append([]string{r.States.Own}, r.States.Olds...) {
		organization, key, _ := strings.Cut(dir, "/")
		if dir != "" && (workflow.CheckWorkspaceName(organization) != nil || workflow.CheckWorkspaceName(key) != nil) {
			return launcher.Never("%q does not name a directory for a state", dir)
		}
	}
	return nil
}
