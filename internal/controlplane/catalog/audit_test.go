package catalog_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
)

// C15: the audit trail names each setting of a pool that was given, and nothing else.
func TestAudit_NamesTheSettingsThatAPoolWasGiven(t *testing.T) {
	path, target, off := "/dayfly/main/", "dayfly-wake-main", true
	for want, in := range map[string]api.PoolSettings{
		"role_path": {RolePath: &path}, "is_disabled, wake_target": {IsDisabled: &off, WakeTarget: &target}, "": {},
	} {
		if got := strings.Join(catalog.Changed(in), ", "); got != want {
			t.Errorf("of %q, the audit names %q", want, got)
		}
	}
}
