package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const maxRows = 30 // of one page of a list

// runsData is the content of the list of runs.
type runsData struct {
	filter      url.Values
	wrong       string // the value of the filter that does not exist
	runs        []api.Workflow
	first, next string // addresses
}

// choice is an option of a field.
type choice struct{ value, label string }

var (
	stateChoices = []choice{
		{"", "any state"}, {"active", "active"}, {"pending", "pending"}, {"claimed", "claimed"}, {"running", "running"}, {"awaiting_approval", runtext.ToApprove},
		{"succeeded", "succeeded"}, {"failed", "failed"}, {"cancelled", "cancelled"},
	}
	operationChoices = []choice{
		{"", "any operation"}, {"preview", "preview"}, {"update", "update"}, {"refresh", "refresh"}, {"destroy", "destroy"}, {"scan", "scan"},
		{"state_list", "state list"}, {"state_unlock", "state unlock"}, {"state_pull", "state pull"}, {"state_push", "state push"},
	}
	sinceChoices = []choice{{"", "any time"}, {"1h", "the last hour"}, {"24h", "the last day"}, {"7d", "the last week"}, {"30d", "the last month"}}
)

// with are the choices, and the one that is chosen if it is another.
func with(choices []choice, chosen string) []choice {
	for _, c := range choices {
		if c.value == chosen {
			return choices
		}
	}
	return append(append([]choice{}, choices...), choice{chosen, brief(chosen)})
}

// runs lists runs, the newest first, as the address filters them.
func runs(r *http.Request, v *view) (templ.Component, error) {
	v.title, v.tab = "Runs", "runs"
	q := r.URL.Query()
	d := runsData{filter: url.Values{}}
	for _, name := range []string{"state", "operation", "workspace", "pool", "since"} {
		d.filter.Set(name, strings.TrimSpace(q.Get(name)))
	}
	cursor := q.Get("cursor")
	if cursor == "" {
		v.every = 3 * time.Second
	} else {
		d.first = query("/runs", d.filter)
	}
	since, err := sinceOf(d.filter.Get("since"), v.now)
	var page api.Page[api.Workflow]
	if err == nil {
		page, err = v.plane.Workflows(r.Context(), v.who, controlplane.Filter{
			State: d.filter.Get("state"), Operation: d.filter.Get("operation"), Workspace: d.filter.Get("workspace"), Pool: d.filter.Get("pool"),
			Since: since, Cursor: cursor, Limit: maxRows,
		})
	}
	if refusal, ok := errors.AsType[*workflow.Error](err); ok && (errors.Is(err, workflow.ErrInvalid) || errors.Is(err, workflow.ErrNotFound)) {
		d.wrong = refusal.Message
	} else if err != nil {
		return nil, err
	}
	d.runs = page.Items
	if page.Next != "" {
		further := url.Values{"cursor": {page.Next}}
		for name, values := range d.filter {
			further[name] = values
		}
		d.next = query("/runs", further)
	}
	return runsPage(v, d), nil
}

// sinceOf reads a time, or how long ago it was: 2h, 7d or an RFC 3339 time.
func sinceOf(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	ago, ok := text.Ago(s)
	if !ok {
		return time.Time{}, workflow.Refuse(workflow.ErrInvalid, "since", "since is a time such as 2026-11-01T00:00:00Z, or how long ago, such as 2h or 7d; not %s", text.Quote(s, 40))
	}
	return now.Add(-ago), nil
}

// find goes to the result of a search: a run by its id, a workspace by its name, else all workspaces that have it in
// their names.
func (c *Console) find(w http.ResponseWriter, r *http.Request) {
	v, ok := c.enter(w, r)
	if !ok {
		return
	}
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	to := v.to(query("/workspaces", url.Values{"name": {text.Head(q, 64)}}))
	if strings.HasPrefix(q, "wf_") {
		to = v.toRun(text.Head(q, 64))
	} else if _, err := v.plane.Workspace(r.Context(), v.who, q); err == nil {
		to = v.toWorkspace(q)
	}
	http.Redirect(w, r, string(to), http.StatusSeeOther) //nolint:gosec // it begins with the path of one of our pages
}
