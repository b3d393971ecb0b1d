package notifications_test

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/notifications"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/runtable"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The texts of notifications about runs are those of the golden file.
func TestWords_OfRuns(t *testing.T) {
	runtable.Golden(t, *update, func(r runtable.Run) string {
		w := r.Why.Workflow
		event := api.EventFailed
		switch {
		case w.State == workflow.Pending:
			event = api.EventStuck
		case w.ToApprove:
			event = api.EventApproval
		case w.State == workflow.Succeeded && w.Changes != nil && w.Changes.Drift > 0:
			event = api.EventDrift
		case w.State != workflow.Failed:
			return "none"
		}
		m := notifications.Message{ID: "dlv_1", Organization: "default", Event: record.OutboxEvent{
			Event: event, Workflow: w.ID, Workspace: w.Workspace, Type: w.Type, Op: w.Operation, Reason: w.Reason, Detail: w.Detail, Changes: w.Changes, By: w.SubmittedBy, At: runtable.Now,
		}}
		var slack struct{ Text string }
		if err := json.Unmarshal([]byte(notifications.Body(api.FormatSlack, m)), &slack); err != nil {
			t.Fatal(err)
		}
		return notifications.Body(api.FormatDayfly, m) + "\n" + slack.Text
	})
}
