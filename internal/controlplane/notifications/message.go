package notifications

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Message is the content of a notification.
type Message struct {
	ID           string // of the delivery
	Organization string
	Project      string // empty if the workspace was deleted
	Event        record.OutboxEvent
	Address      string // where people reach the console; empty means that no link is made
}

// Bounds of the texts in a message, in bytes.
const (
	maxDetail = 500
	maxSlack  = 2500 // Slack cuts a text at 40,000 characters: nobody reads that
)

// body is the body of format dayfly.
type body struct {
	ID           string             `json:"id"`
	Type         string             `json:"type"` // run.failed, run.stuck, plan.waiting or drift.found
	At           time.Time          `json:"at"`
	Organization string             `json:"organization"`
	Project      string             `json:"project,omitempty"`
	Workspace    string             `json:"workspace"`
	Workflow     string             `json:"workflow"`
	RunType      workflow.Type      `json:"run_type"`
	Operation    workflow.Operation `json:"operation,omitempty"`
	SubmittedBy  string             `json:"submitted_by,omitempty"`
	State        string             `json:"state"`
	Reason       workflow.Reason    `json:"reason,omitempty"`
	Detail       string             `json:"detail,omitempty"`
	Changes      *counts            `json:"changes,omitempty"`
	URL          string             `json:"url,omitempty"`
	Command      string             `json:"command"`
	Text         string             `json:"text"`
}

// counts are the numbers of changes, without the names of resources.
type counts struct {
	Add     int `json:"add"`
	Change  int `json:"change"`
	Destroy int `json:"destroy"`
	Drift   int `json:"drift"`
	Replace int `json:"replace"`
	Import  int `json:"import"`
	Move    int `json:"move"`
	Forget  int `json:"forget"`
}

func countsOf(c *api.Changes) *counts {
	if c == nil {
		return nil
	}
	return &counts{Add: c.Add, Change: c.Change, Destroy: c.Destroy, Drift: c.Drift, Replace: c.Replace, Import: c.Import, Move: c.Move, Forget: c.Forget}
}

// summary is an event in short: its type and state for programs, a sentence and the next command for people.
type summary struct{ kind, state, sentence, command string }

func summaryOf(m Message) summary {
	n := m.Event
	run := runtext.What(api.Workflow{Type: n.Type, Operation: n.Op})
	switch n.Event {
	case api.EventApproval:
		return summary{"plan.waiting", string(workflow.Succeeded), fmt.Sprintf("The plan of workspace %s waits for an approval", n.Workspace), "dayfly workflow approve " + n.Workflow}
	case api.EventDrift:
		drifted := 0
		if n.Changes != nil {
			drifted = n.Changes.Drift
		}
		return summary{"drift.found", string(workflow.Succeeded), fmt.Sprintf("Workspace %s has drifted: %s", n.Workspace, runtext.Drift(drifted)), "dayfly run " + n.Workspace + " --op update"}
	case api.EventStuck:
		return summary{"run.stuck", "waiting", fmt.Sprintf("The %s of workspace %s has waited for more than half an hour", run, n.Workspace), "dayfly why " + n.Workflow}
	}
	return summary{"run.failed", string(workflow.Failed), fmt.Sprintf("The %s of workspace %s has failed", run, n.Workspace), "dayfly why " + n.Workflow}
}

// Body is the body of a notification in a format. It is a pure function, and its size is bounded.
func Body(format string, m Message) string {
	s, n := summaryOf(m), m.Event
	detail := text.Middle(text.WithoutEscapes(n.Detail), maxDetail)
	link := ""
	if m.Address != "" {
		link = strings.TrimSuffix(m.Address, "/") + "/runs/" + n.Workflow
	}
	if format == api.FormatSlack {
		return encode(map[string]string{"text": slack(s, m, detail, link)})
	}
	return encode(body{
		ID: m.ID, Type: s.kind, At: n.At, Organization: m.Organization, Project: m.Project, Workspace: n.Workspace, Workflow: n.Workflow,
		RunType: n.Type, Operation: n.Op, SubmittedBy: text.Cut(n.By, 200), State: s.state, Reason: n.Reason, Detail: detail, Changes: countsOf(n.Changes),
		URL: link, Command: s.command, Text: s.sentence,
	})
}

// escape makes text for Slack in which no part is a link, a mention or a format.
// https://docs.slack.dev/messaging/formatting-message-text#escaping
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "`", "'", "\n", " ", "\r", " ")

// slack is the text of a message in Slack's form. Texts of others appear as they were written, and make no link:
// neither with <...>, which is escaped, nor as an address that Slack finds by itself, because they are code.
func slack(s summary, m Message, detail, link string) string {
	n := m.Event
	lines := []string{escape.Replace(s.sentence)}
	var facts []string
	if n.Reason != "" {
		facts = append(facts, runtext.Reason(n.Reason))
	}
	did := api.Workflow{Type: n.Type, Operation: n.Op, State: workflow.State(s.state), Changes: n.Changes}
	if changed := runtext.Changed(did); changed != "" {
		facts = append(facts, changed)
	}
	if n.By != "" {
		facts = append(facts, "submitted by "+code(text.Cut(n.By, 100)))
	}
	if len(facts) > 0 {
		lines[0] += " (" + strings.Join(facts, "; ") + ")"
	}
	if detail != "" {
		lines = append(lines, code(detail))
	}
	next := code(s.command)
	if link != "" {
		next += "  <" + escape.Replace(link) + "|" + n.Workflow + ">"
	}
	return text.Cut(strings.Join(append(lines, next), "\n"), maxSlack)
}

// code shows a text of others as it was written.
func code(s string) string { return "`" + escape.Replace(s) + "`" }

func encode(v any) string {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // types of this file always encode
	return strings.TrimSuffix(out.String(), "\n")
}
