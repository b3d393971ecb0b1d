package runs

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestFollow_TheLiveLineSaysWhatIsChangedNow(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := &follower{}
	for _, tc := range []struct{ step, said, want string }{
		{"plan", "Plan: 1 to import, 2 to add, 1 to change, 0 to destroy.", ""},
		{"apply", "an engine: speaks", ""},
		{"apply", "module.a[\"x: y\"].aws_vpc.main: Creating...", ", 0 of 3 done, module.a[\"x: y\"].aws_vpc.main 10s"},
		{"apply", "\x1b[1maws_eip.one: Modifying... [id=eip-1]", ", 0 of 3 done, aws_eip.one 10s and 1 more"},
		{"apply", "aws_eip.one: Still modifying... [id=eip-1, 10s elapsed]", ", 0 of 3 done, aws_eip.one 10s and 1 more"},
		{"apply", "aws_eip.one: Modifications complete after 11s [id=eip-1]", ", 1 of 3 done, module.a[\"x: y\"].aws_vpc.main 10s"},
		{"apply", "module.a[\"x: y\"].aws_vpc.main: Creation complete after 12s [id=vpc-1]", ", 2 of 3 done"},
		{"apply", "aws_old.x: Destroying... [id=1]", ", 2 of 3 done, aws_old.x 10s"},
		{"apply", "aws_old.x: Destruction complete after 0s", ", 3 of 3 done"},
	} {
		f.changes.read(api.LogLine{At: at, Step: tc.step, Text: tc.said})
		w := api.Workflow{ID: "wf_1", State: workflow.Running, Steps: []api.Step{{Name: "apply", Status: workflow.StepRunning, StartedAt: at}}}
		got := f.status(w, 0, at.Add(10*time.Second))
		if want := " wf_1 running, apply for 10s" + tc.want; !strings.HasSuffix(got, want) {
			t.Errorf("after %q: got %q, want %q", tc.said, got, want)
		}
	}
	if got := f.changes.text("output", at); got != "" {
		t.Errorf("of another step: got %q", got)
	}
}
