package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// What changes in the same moment is one report, and the last one waits for nothing.
func TestSteps_GatherWhatChangesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports [][]workflow.StepStatus
		s := newSteps(func(_ context.Context, in api.Steps) error {
			var all []workflow.StepStatus
			for _, step := range in.Steps {
				all = append(all, step.Status)
			}
			reports = append(reports, all)
			return nil
		}, func() int64 { return 0 })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.run(ctx) }()

		source := s.begin("source")
		<-time.After(time.Millisecond)
		s.finish(source, workflow.StepSucceeded, "", nil)
		plan := s.begin("plan")
		<-time.After(gather)
		synctest.Wait()
		want := [][]workflow.StepStatus{{workflow.StepSucceeded, workflow.StepRunning}}
		if d := cmp.Diff(want, reports); d != "" {
			t.Errorf("reports of one moment (-want +got):\n%s", d)
		}

		<-time.After(time.Minute)
		s.finish(plan, workflow.StepSucceeded, "", nil)
		began := time.Now()
		if err := s.flush(ctx); err != nil || !time.Now().Equal(began) {
			t.Errorf("flushed after %s: %v", time.Since(began), err)
		}
		s.begin("apply")
		if err := s.flush(ctx); err != nil || !time.Now().Equal(began) {
			t.Errorf("flushed again after %s: %v", time.Since(began), err)
		}
		want = append(want, []workflow.StepStatus{workflow.StepSucceeded}, []workflow.StepStatus{workflow.StepRunning})
		if d := cmp.Diff(want, reports); d != "" {
			t.Errorf("reports (-want +got):\n%s", d)
		}
		cancel()
		<-done
	})
}
