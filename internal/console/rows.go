package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// toRun and toWorkspace are the addresses of their pages.
func (v *view) toRun(id string) templ.SafeURL { return v.to("/runs/" + url.PathEscape(id)) }
func (v *view) toWorkspace(name string) templ.SafeURL {
	return v.to("/workspaces/" + url.PathEscape(name))
}

// has says whether a button is worth showing: whether who is signed in has a role in the organization, or in any
// project. The rules decide.
func (v *view) has(role string) bool {
	return v.who.Has(role, slices.Collect(maps.Keys(v.who.Grants))...)
}

// doing is what a run does, in few words.
func doing(w api.Workflow) string {
	switch {
	case w.Type == workflow.InsightsScan:
		return "scan"
	case w.Type == workflow.PolicyEvaluation:
		return "policy evaluation"
	case w.Applies != "":
		return string(w.Operation) + " as approved"
	case w.For != "":
		return "preview for " + string(w.For)
	}
	return strings.ReplaceAll(string(w.Operation), "_", " ")
}

// inNumbers says what the plan of a run would do, or what the run did; "" where that is not known.
func inNumbers(w api.Workflow) string {
	if w.Changes == nil || !w.State.Terminal() {
		return ""
	}
	c, to, done := *w.Changes, "to ", [5]string{"add", "change", "replace", "destroy", "import"}
	if workflow.ChangesState(w.Type, w.Operation) {
		to, done = "", [5]string{"added", "changed", "replaced", "destroyed", "imported"}
	}
	var out []string
	for i, n := range []int{c.Add - c.Replace, c.Change, c.Replace, c.Destroy - c.Replace, c.Import} {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s%s", n, to, done[i]))
		}
	}
	if c.Drift > 0 {
		out = append(out, fmt.Sprintf("%d drifted", c.Drift))
	}
	switch {
	case len(out) > 0:
		return strings.Join(out, ", ")
	case w.State != workflow.Succeeded:
		return ""
	case w.Type == workflow.InsightsScan:
		return "no drift"
	}
	return "no changes"
}

// under is the line below a run in a list: why it failed, where it is, or what it did.
func under(w api.Workflow) string {
	switch {
	case w.State == workflow.Failed:
		return brief(cmp.Or(w.Detail, strings.ReplaceAll(string(w.Reason), "_", " ")))
	case w.State == workflow.Running && w.Step != "":
		return "in step " + brief(w.Step)
	}
	return inNumbers(w)
}

// brief is foreign text that is to stand in one line.
func brief(s string) string {
	return clean(text.Middle(strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " "), 240))
}

// last is when the latest happened to a run.
func last(w api.Workflow) stamp {
	for _, t := range []*time.Time{w.EndedAt, w.StartedAt, w.ClaimedAt} {
		if t != nil {
			return stamp{*t}
		}
	}
	return stamp{w.SubmittedAt}
}

// lasted is how long a run has run, or ran; "" before its start.
func lasted(v *view, w api.Workflow) string {
	if w.StartedAt == nil {
		return ""
	}
	return text.Duration(cmp.Or(valueOf(w.EndedAt), v.now).Sub(*w.StartedAt))
}

func valueOf(t *time.Time) (out time.Time) {
	if t != nil {
		out = *t
	}
	return out
}

// query is an address with those of its fields that are not empty.
func query(path string, fields url.Values) string {
	q := url.Values{}
	for name, values := range fields {
		if len(values) > 0 && values[0] != "" {
			q.Set(name, values[0])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
