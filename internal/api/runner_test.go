package api_test

import (
	"slices"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// A runner that does not know such paths would refuse the run as its own mistake.
func TestNeeds_FilesAboveTheRootModule(t *testing.T) {
	for file, want := range map[string]bool{"../prod.tfvars": true, "env/prod.tfvars": false} {
		spec := api.Spec{RunSettings: api.RunSettings{Engine: api.EngineTofu, VarFiles: []string{file}}}
		asked := api.Spec{Options: &api.Options{VarFiles: []string{file}}}
		for _, s := range []api.Spec{spec, asked} {
			if got := slices.Contains(s.Needs(), "var_files_above"); got != want {
				t.Errorf("%s: got %v", file, got)
			}
		}
	}
}
