package controlplane_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A function is ended at its deadline: its pass stops before that, says so, and the next one goes on.
func TestPass_EndsBeforeItsDeadlineAndTheNextGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		const n = 3
		for i := range n {
			name := fmt.Sprintf("net%d", i)
			w.workspace(name)
			w.submit(name, workflow.Update)
		}
		w.clock.advance(workflow.QueueTimeout + time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // less than the margin
		defer cancel()
		sum, err := w.plane.Pass(ctx)
		w.must(err)
		if sum.Looked != 0 || !sum.Left {
			t.Errorf("without time: %+v", sum)
		}
		sum, err = w.plane.Pass(t.Context())
		w.must(err)
		if sum.Moved != n || sum.Left {
			t.Errorf("the next: %+v", sum)
		}
	})
}
