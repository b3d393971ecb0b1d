package console

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// workspacesData is the content of the list of workspaces.
type workspacesData struct {
	name        string // that it is filtered by
	list        []api.Activity
	first, next string
}

// workspaces lists workspaces by name, with their activity.
func workspaces(r *http.Request, v *view) (templ.Component, error) {
	v.title, v.tab = "Workspaces", "workspaces"
	q := r.URL.Query()
	d := workspacesData{name: strings.TrimSpace(q.Get("name"))}
	cursor := q.Get("cursor")
	if cursor == "" {
		v.every = 5 * time.Second
	} else {
		d.first = query("/workspaces", url.Values{"name": {d.name}})
	}
	page, err := v.plane.Activities(r.Context(), v.who, d.name, cursor, maxRows)
	if err != nil {
		return nil, err
	}
	if d.list = page.Items; page.Next != "" {
		d.next = query("/workspaces", url.Values{"name": {d.name}, "cursor": {page.Next}})
	}
	return workspacesPage(v, d), nil
}

const maxLast = 10 // of a workspace's runs that its page shows

// workspaceData is the content of the page of a workspace.
type workspaceData struct {
	w        api.Workspace
	activity api.Activity
	slot     api.Slot
	waiting  []api.Workflow // the next first
	why      api.Why        // the first of them waits
	runs     []api.Workflow // the newest first
	lock     *api.Lock      // that was still held when the last run ended
	pools    []api.PoolVerdict
	settings []setting
	form     runForm

	schedules []api.ScheduledRun
}

// setting is one setting of a workspace, by its place in the workspace file.
type setting struct{ name, value string }

// runForm is the form of a new run, as it was sent or as it is at first.
type runForm struct {
	key string // of the submission: sent twice, the form makes one run
	url.Values
	operations []operation
}

// operation is a choice for a new run, with its meaning.
type operation struct{ name, does string }

var operations = []operation{
	{"preview", "Shows the changes of an update. It changes nothing."},
	{"update", "Makes the real thing as the code says. Where approvals are required, it makes a plan first."},
	{"refresh", "Reads the real resources into the state. It changes the state alone."},
	{"scan", "Looks for changes outside the code. It changes nothing."},
	{"destroy", "Destroys everything that the state has."},
}

// dangerous says whether an operation changes the real thing, so that the form wants a confirmation.
func dangerous(op string) bool { return op == "update" || op == "destroy" }

// workspace shows one workspace.
func workspace(r *http.Request, v *view) (templ.Component, error) {
	name, ctx := r.PathValue("name"), r.Context()
	v.title, v.tab, v.every = clean(name), "workspaces", 5*time.Second
	d, verdicts, clock, err := workspaceData{}, api.Page[api.PoolVerdict]{}, api.Page[api.ScheduledRun]{}, error(nil)
	runs := func(f controlplane.Filter) (_ []api.Workflow, err error) {
		f.Workspace = name
		page, err := v.plane.Workflows(ctx, v.who, f)
		return page.Items, err
	}
	for _, read := range []func(){
		func() { d.w, err = v.plane.Workspace(ctx, v.who, name) },
		func() { d.activity, err = v.plane.Activity(ctx, v.who, name) },
		func() { d.slot, err = v.plane.Slot(ctx, v.who, name) },
		func() { clock, err = v.plane.WorkspaceSchedules(ctx, v.who, name) },
		func() { d.runs, err = runs(controlplane.Filter{Limit: maxLast}) },
		func() {
			d.waiting, err = runs(controlplane.Filter{State: "pending", Since: v.now.Add(-workflow.QueueTimeout), Limit: maxNeeds})
		},
		func() {
			verdicts, err = v.plane.ExplainPools(ctx, v.who, api.ExplainPools{Workspace: name, Limit: maxRows})
		},
	} {
		if read(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(d.waiting, func(a, b api.Workflow) int {
		if a.Priority != b.Priority {
			return b.Priority - a.Priority
		}
		return a.SubmittedAt.Compare(b.SubmittedAt)
	})
	if len(d.waiting) > 0 {
		if why, err := v.plane.Why(ctx, v.who, d.waiting[0].ID); err == nil {
			d.why = why
		}
	}
	if i := slices.IndexFunc(d.runs, func(w api.Workflow) bool { return w.State.Terminal() && w.StartedAt != nil }); i >= 0 {
		if w, err := v.plane.Workflow(ctx, v.who, d.runs[i].ID); err == nil && w.Result != nil && w.Operation != workflow.StateUnlock {
			d.lock = w.Result.Lock
		}
	}
	d.pools, d.settings, d.form, d.schedules = verdicts.Items, settingsOf(d.w), formOf(r, d.w), clock.Items
	return workspacePage(v, d), nil
}

// formOf is the form of a new run. A refused one keeps the typed input, but for the key and the confirmation.
func formOf(r *http.Request, w api.Workspace) runForm {
	f := runForm{key: rand.Text(), Values: url.Values{}}
	if r.Method == http.MethodPost && r.PostForm.Get("lock_id") == "" {
		f.Values = r.PostForm
	}
	for _, o := range operations {
		command := o.name
		if o.name == "scan" {
			command = string(workflow.InsightsScan)
		}
		if w.Engine != api.EngineCommand || w.Commands[command] != "" {
			f.operations = append(f.operations, o)
		}
	}
	return f
}

// chosen is the operation that the form has chosen.
func (f runForm) chosen() string {
	if op := f.Get("operation"); op != "" || len(f.operations) == 0 {
		return op
	}
	return f.operations[0].name
}

// newRun submits a run of a workspace.
func newRun(r *http.Request, v *view) (to, notice string, err error) {
	f, in := r.PostForm, api.Submit{
		Workspace: r.PathValue("name"), Type: workflow.Deployment, Operation: workflow.Operation(r.PostForm.Get("operation")),
		Message: strings.TrimSpace(r.PostForm.Get("message")), MaxRuntime: strings.TrimSpace(r.PostForm.Get("max_runtime")), LockID: r.PostForm.Get("lock_id"),
		TakeOver: r.PostForm.Get("state") == "take_over", TakeOverFrom: strings.TrimSpace(r.PostForm.Get("take_over_from")), BeginAnew: r.PostForm.Get("state") == "begin_anew",
	}
	op := f.Get("operation")
	if (dangerous(op) || op == string(workflow.StateUnlock)) && f.Get("confirm") == "" {
		return "", "", workflow.Refuse(workflow.ErrInvalid, "confirm", "tick the box that confirms %s: it changes the real thing, or its state", strings.ReplaceAll(op, "_", " "))
	}
	if op == "scan" {
		in.Type, in.Operation = workflow.InsightsScan, ""
	}
	if p := strings.TrimSpace(f.Get("priority")); p != "" {
		n, err := strconv.Atoi(p)
		if err != nil {
			return "", "", workflow.Refuse(workflow.ErrInvalid, "priority", "a priority is a number from -100 to 100")
		}
		in.Priority = &n
	}
	w, err := v.plane.Submit(r.Context(), v.who, f.Get("key"), in)
	return runPath(w.ID), "", err
}

// unlock frees a workspace whose holder has ended and is not proven over.
func unlock(r *http.Request, v *view) (to, notice string, err error) {
	name := r.PathValue("name")
	_, err = v.plane.Unlock(r.Context(), v.who, name, api.Unlock{Workflow: r.PostForm.Get("workflow")})
	return workspacePath(name), "unlocked", err
}

// settingsOf lists the settings of a workspace by their places in the workspace file. It is a pure function.
func settingsOf(w api.Workspace) (out []setting) {
	w.ID, w.Version, w.Applied = "", 0, nil
	data, err := json.Marshal(w)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil // it came from JSON
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(strings.TrimPrefix(at+"."+name, "."), v[name])
			}
		case []any:
			for i, one := range v {
				walk(fmt.Sprintf("%s[%d]", at, i), one)
			}
		default:
			out = append(out, setting{clean(at), clean(fmt.Sprint(v))})
		}
	}
	walk("", all)
	return out
}
