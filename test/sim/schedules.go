package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	kept "github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// clockwork is the schedule that some worlds have.
const clockwork = "clockwork"

// metScheduled is said where a schedule has submitted.
const metScheduled = "a schedule submits"

// schedules gives some worlds a schedule, until there are no faults any more.
func (w *world) schedules() {
	r := w.roll("schedules")
	if r.IntN(3) > 0 {
		return
	}
	in := api.Schedule{Name: clockwork, Cron: []string{"*/10 * * * *", "*/25 * * * *", "7 * * * *"}[r.IntN(3)], Spread: []string{"", "0s", "90s"}[r.IntN(3)], Workspaces: w.people.workspaces}
	if r.IntN(2) == 0 {
		in.Type, in.Operation = workflow.Deployment, workflow.Refresh
	}
	_, _, err := w.cp.server().rules.Schedules.Put(w.ctx, w.people.admin, in)
	must(0, err)
	w.after(troubleFor, "no schedule", func() {
		w.people.set("no schedule", func(ctx context.Context, c *controlplane.Plane) error {
			err := c.Schedules.Delete(ctx, w.people.admin, clockwork)
			if errors.Is(err, workflow.ErrNotFound) {
				err = nil // an earlier try has done it
			}
			return err
		})
	})
}

// scheduled says which time of a schedule, in which workspace, has made a run: the key that led to it says so. One that
// no key leads to was made beside it.
func (w *world) scheduled(r *record) string {
	w.met[metScheduled]++
	page, err := w.cp.inner.Range(context.Background(), store.Scan{Part: "idem/default", From: "sch_", To: "sch`", Limit: 1000}) // its id, the workspace's id, the time
	for _, used := range page.Records {
		made, wrong := kept.Decode[kept.Idempotency](used)
		if err = errors.Join(err, wrong); made.Result != r.ID {
			continue
		}
		if parts := strings.Split(used.Key.Sort, "/"); len(parts) == 3 && parts[1] == r.WorkspaceID {
			return fmt.Sprintf("time %s of schedule %s in workspace %s", parts[2], parts[0], r.Workspace)
		}
	}
	w.fail("a schedule submits once", "no time of a schedule has made %s (%v)", r.ID, err)
	return "schedule " + r.ID
}
