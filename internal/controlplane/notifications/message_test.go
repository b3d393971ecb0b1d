package notifications_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/notifications"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func message(event string) notifications.Message {
	return notifications.Message{
		ID: "dlv_1", Organization: "default", Project: "shop", Address: "https://dayfly.example.com/",
		Event: record.OutboxEvent{
			Event: event, Workflow: "wf_1", Workspace: "network", WorkspaceID: "ws_1", Type: workflow.Deployment, Op: workflow.Update, Reason: workflow.ReasonStepFailed,
			Detail: "step apply failed", By: "ada", At: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
		},
	}
}

func TestBody_SaysWhatHappenedAndWhatToRunNext(t *testing.T) {
	want := map[string]any{
		"id": "dlv_1", "type": "run.failed", "at": "2026-05-04T12:00:00Z", "organization": "default", "project": "shop", "workspace": "network",
		"workflow": "wf_1", "run_type": "deployment", "operation": "update", "submitted_by": "ada", "state": "failed", "reason": "step_failed",
		"detail": "step apply failed", "url": "https://dayfly.example.com/runs/wf_1", "command": "dayfly why wf_1", "text": "The update of workspace network has failed",
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(notifications.Body(api.FormatDayfly, message(api.EventFailed))), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for event, tt := range map[string]struct{ kind, command, text string }{
		api.EventApproval: {"plan.waiting", "dayfly workflow approve wf_1", "The plan of workspace network waits for an approval"},
		api.EventDrift:    {"drift.found", "dayfly run network --op update", "Workspace network has drifted: 2 resources were changed outside the code"},
		api.EventStuck:    {"run.stuck", "dayfly why wf_1", "The scan of workspace network has waited for more than half an hour"},
	} {
		m := message(event)
		m.Address, m.Event.Type, m.Event.Op, m.Event.Changes = "", workflow.InsightsScan, "", &api.Changes{Drift: 2}
		var got struct {
			Type, Command, Text, URL string
			Changes                  map[string]int
		}
		if err := json.Unmarshal([]byte(notifications.Body(api.FormatDayfly, m)), &got); err != nil {
			t.Fatal(err)
		}
		if got.Type != tt.kind || got.Command != tt.command || got.Text != tt.text || got.URL != "" || got.Changes["drift"] != 2 {
			t.Errorf("%s: %+v", event, got)
		}
	}
}

// A text of others makes no link, no mention and no format in Slack.
func TestBody_OfSlackIsEscaped(t *testing.T) {
	m := message(api.EventFailed)
	m.Event.By = "<!channel> & https://evil.example.com"
	m.Event.Detail = "<https://evil.example.com|click> `*bold*`\n<@U123> \x1b[31mred\x1b[0m"
	var got struct{ Text string }
	if err := json.Unmarshal([]byte(notifications.Body(api.FormatSlack, m)), &got); err != nil {
		t.Fatal(err)
	}
	want := "The update of workspace network has failed (a step failed; submitted by `&lt;!channel&gt; &amp; https://evil.example.com`)\n" +
		"`&lt;https://evil.example.com|click&gt; '*bold*' &lt;@U123&gt; red`\n" +
		"`dayfly why wf_1`  <https://dayfly.example.com/runs/wf_1|wf_1>"
	if diff := cmp.Diff(want, got.Text); diff != "" {
		t.Error(diff)
	}
}

func TestBody_IsBounded(t *testing.T) {
	m := message(api.EventFailed)
	m.Event.By, m.Event.Detail = strings.Repeat("&<", 5000), strings.Repeat("<\"\x00", 5000)
	for _, format := range []string{api.FormatDayfly, api.FormatSlack} {
		body := notifications.Body(format, m)
		if !json.Valid([]byte(body)) || len(body) > 8<<10 {
			t.Errorf("%s: %d bytes, valid: %v", format, len(body), json.Valid([]byte(body)))
		}
	}
}
