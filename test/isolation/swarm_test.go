package isolation_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A job that starts processes without end takes all that its container may have, the runner's threads included. The
// runner lives, ends the job and says why.
func TestSwarm_EndsItsJobWithTheReason(t *testing.T) {
	needs(t, config.TargetDocker)
	s := newSite(t)
	s.open(config.TargetDocker)
	s.put("swarm", "swarm")
	id := s.submit("swarm", workflow.Update)
	until(t, "the job is over", func() bool { wf := s.show(id); return wf.State.Terminal() && !wf.SlotHeld })
	wf := s.show(id)
	if wf.State != workflow.Failed || wf.Reason != workflow.ReasonStepFailed || wf.Attempt != 1 ||
		!strings.Contains(wf.Detail, "more processes than its size allows (1024)") {
		t.Errorf("got %s (%s: %s), attempt %d; want that its processes are the reason", wf.State, wf.Reason, wf.Detail, wf.Attempt)
	}
}
