package browser_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The page of a workspace shows what a schedule has run and when it runs next, beside the drift that its scan found.
func TestSchedule_IsShownBesideTheDriftThatItFound(t *testing.T) {
	s := up(t)
	s.plays("network")
	b := s.enters()
	b.goes("/workspaces/network")
	b.sees("Free: nothing changes its state")
	_, _, err := s.people.PutSetting(t.Context(), api.Schedule{Name: "drift", Cron: "* * * * *", Spread: "0s", Workspaces: []string{"network"}})
	s.must(err)
	b.sees("drift: next")
	b.sees("no run yet")
	s.begin(s.claimLater()).ends(api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Drift: 2}})
	b.waits(`document.querySelector("[data-part=facts] a[href*='/runs/']")`)
	b.sees("last run succeeded")
	b.sees("2 resources")
}

// claimLater claims the first run of the played pool that a pass submits: passes are a minute apart, and so are the times
// of the schedule.
func (s *server) claimLater() api.Job {
	s.t.Helper()
	for range 9 {
		got, err := s.played.Claim(s.t.Context(), api.Claim{Instance: "build-01", Version: "1.0.0", Max: 1, WaitSeconds: 20})
		s.must(err)
		if len(got.Jobs) > 0 {
			return got.Jobs[0]
		}
	}
	s.t.Fatal("no run was submitted in three minutes")
	return api.Job{}
}
