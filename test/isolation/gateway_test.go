package isolation_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// L9: where a socket of this machine cannot be mounted, a whole job goes to its relay by the host's address on the
// containers' network.
func TestGateway_AWholeJobReportsByAnAddress(t *testing.T) {
	needs(t, config.TargetDocker)
	s := newSite(t)
	s.open(config.TargetDocker, func(cfg *embedded.UpConfig) {
		cfg.Agent.WithoutSockets, cfg.Agent.Settings.RunnerNetwork = true, config.NetworkOutbound
	})
	if said := strings.Join(s.Up.Describe(), "\n"); !strings.Contains(said, "their relay at http://") {
		t.Fatalf("it does not take an address: %s", said)
	}
	s.put("gateway", "once 10ms", func(w *api.Workspace) { w.State = &api.State{Kind: api.StateDirectory} })
	id := s.Update("gateway")
	if wf, n := s.Over(id), s.effects("gateway"); wf.State != workflow.Succeeded || n != 1 {
		t.Errorf("it is %s (%s: %s) and ran %d times", wf.State, wf.Reason, wf.Detail, n)
	}
}
