package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"
	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	lately     = 24 * time.Hour // how old a failure may be that still needs somebody
	maxHome    = 200            // of the newest runs that the page looks at
	maxNeeds   = 20             // of each kind that it shows
	maxSent    = 5              // deliveries that failed
	maxPending = 100            // pending runs that are read
	maxWhy     = 10             // waiting runs that it explains: each costs several reads
)

// homeData is the content of the first page.
type homeData struct {
	needs, running, waiting []homeRow
	active, pending         string // how many there are
	more                    bool   // there are, or may be, more runs that wait
	older                   bool   // so many came since that not all were looked through
	today                   string // runs that ended today, counted
	any                     bool   // there was a run lately
	workspace               string // one that there is, where nothing has run yet
	failed                  []api.Delivery
	failures                string // how many there are
}

// homeRow is one line of it.
type homeRow struct {
	mark   mark
	w      api.Workflow
	says   string
	behind string // the run that must end first
	verb   string // the verb of the time that is shown
	at     stamp
}

// rowOf is a row with the last event of its run.
func rowOf(m mark, w api.Workflow, says string) homeRow {
	verb, when := latest(w)
	return homeRow{mark: m, w: w, says: says, verb: verb, at: when}
}

// home shows running runs, waiting ones with the reason, plans that need an approval, and failures.
func home(r *http.Request, v *view) (templ.Component, error) {
	v.title, v.tab, v.every = "Home", "home", 3*time.Second
	d, err := readHome(r.Context(), v)
	return homePage(v, d), err
}

// homeRuns are the runs from which the first page is made.
type homeRuns struct {
	newest, awaiting, active, pending, failed api.Page[api.Workflow]
}

func readHome(ctx context.Context, v *view) (d homeData, err error) {
	runs, err := readHomeRuns(ctx, v, &d)
	if err != nil {
		return d, err
	}
	if err := d.addNeeds(ctx, v, runs); err != nil {
		return d, err
	}
	for _, w := range runs.active.Items {
		m := markOf(w)
		if w.State == workflow.Running && w.Step != "" && !w.CancelRequested {
			m.word = brief(w.Step)
		}
		d.running = append(d.running, rowOf(m, w, ""))
	}
	d.addWaiting(ctx, v, runs.pending)
	d.active, d.pending = howMany(runs.active), howMany(runs.pending)
	d.today, d.any = endedToday(runs.newest, v.now), len(runs.newest.Items) > 0
	if d.any {
		return d, nil
	}

	some, err := v.plane.Workspaces(ctx, v.who, "", 1)
	if len(some.Items) > 0 {
		d.workspace = some.Items[0].Name
	}
	return d, err
}

// readHomeRuns reads all lists at the same time: no list needs another, and each may take many reads.
func readHomeRuns(ctx context.Context, v *view, d *homeData) (runs homeRuns, err error) {
	var group errgroup.Group
	list := func(to *api.Page[api.Workflow], f controlplane.Filter) {
		group.Go(func() (err error) {
			*to, err = v.plane.Workflows(ctx, v.who, f)
			return err
		})
	}
	list(&runs.failed, controlplane.Filter{State: "failed", Since: v.now.Add(-lately), Limit: 50})
	list(&runs.newest, controlplane.Filter{Limit: maxHome})
	list(&runs.awaiting, controlplane.Filter{State: "awaiting_approval", Limit: maxNeeds})
	list(&runs.active, controlplane.Filter{State: "active", Limit: maxHome})
	list(&runs.pending, controlplane.Filter{State: "pending", Since: v.now.Add(-workflow.QueueTimeout), Limit: maxPending})
	if v.has(api.RoleAdmin) {
		group.Go(func() error {
			list, more, err := v.plane.FailedDeliveries(ctx, v.who, maxSent)
			if d.failed, d.failures = list, fmt.Sprint(len(list)); more {
				d.failures = fmt.Sprintf("more than %d", len(list))
			}
			return err
		})
	}
	return runs, group.Wait()
}

// addNeeds adds the rows that need a person: plans to approve, failures without a later success, drift.
func (d *homeData) addNeeds(ctx context.Context, v *view, runs homeRuns) error {
	for _, w := range runs.awaiting.Items {
		d.needs = append(d.needs, approval(v, w))
	}
	for _, w := range unrepaired(runs.newest.Items, runs.failed.Items) {
		if w.SubmittedAt.Before(oldest(runs.newest)) { // later runs may not be among the newest
			after, err := v.plane.Workflows(ctx, v.who, controlplane.Filter{Workspace: w.Workspace, Operation: string(w.Operation), State: "succeeded", Since: w.SubmittedAt, Limit: 1})
			if err != nil {
				return err
			}
			if len(after.Items) > 0 {
				continue
			}
		}
		d.needs = append(d.needs, rowOf(markOf(w), w, under(w)))
	}
	for _, w := range drifted(runs.newest.Items) {
		d.needs = append(d.needs, rowOf(mark{"warn", "△", "drifted"}, w, runtext.Drift(w.Changes.Drift)))
	}
	return nil
}

// addWaiting adds the rows of pending runs, the longest wait first.
func (d *homeData) addWaiting(ctx context.Context, v *view, pending api.Page[api.Workflow]) {
	slices.Reverse(pending.Items)
	for i, w := range pending.Items {
		row := rowOf(markOf(w), w, "")
		if i < maxWhy {
			why, err := v.plane.Why(ctx, v.who, w.ID)
			if err != nil {
				continue // it has just gone
			}
			row.says, row.behind = "waits for "+brief(why.Waiting), why.WaitingForWorkflow
		}
		if len(d.waiting) < maxNeeds {
			d.waiting = append(d.waiting, row)
		}
	}
	d.more = len(pending.Items) > len(d.waiting) || pending.Next != ""
	d.older = pending.Next != "" && len(pending.Items) < maxPending
}

// howMany counts the items of a page, and says where there are more.
func howMany(p api.Page[api.Workflow]) string {
	if p.Next != "" {
		return fmt.Sprintf("more than %d", len(p.Items))
	}
	return fmt.Sprint(len(p.Items))
}

// oldest is the time from which on a page has all runs; zero if it has all that there are.
func oldest(p api.Page[api.Workflow]) (at time.Time) {
	if n := len(p.Items); p.Next != "" && n > 0 {
		at = p.Items[n-1].SubmittedAt
	}
	return at
}

// approval is a plan that waits for somebody: its changes, and whether the viewer may approve it.
func approval(v *view, w api.Workflow) homeRow {
	says := []string{runtext.Changed(w)}
	if says[0] == "" {
		says = nil
	}
	out := homeRow{mark: mark{"warn", "◇", "approve"}, w: w}
	if r := w.Review; r != nil {
		out.verb, out.at = "expires", stamp{r.ExpiresAt}
		approvals := 0
		for _, vote := range r.Votes {
			if !vote.Reject {
				approvals++
			}
		}
		if n := r.Needed - approvals; n > 1 {
			says = append(says, fmt.Sprintf("needs %s more", text.Count(n, "approval")))
		}
		switch {
		case !v.has(api.RoleOperator):
			says = append(says, "an operator can approve it")
		case slices.ContainsFunc(r.Votes, func(vote api.Vote) bool { return vote.ByID == v.who.ID }):
			says = append(says, "you have approved it")
		case r.NotBySubmitter && r.Submitters.Has(v.who.ID):
			says = append(says, "somebody else must approve it: you submitted it or changed its workspace")
		}
	}
	out.says = strings.Join(says, "; ")
	return out
}

// unrepaired are the failures that still need somebody, the newest of each workspace: no run of the same workspace and
// operation has succeeded since. Both lists have the newest first. It is a pure function.
func unrepaired(newest, failed []api.Workflow) (out []api.Workflow) {
	seen, settled := map[string]bool{}, map[string]time.Time{}
	does := func(w api.Workflow) string { return w.Workspace + "|" + runtext.What(w) }
	for _, w := range newest {
		if _, known := settled[does(w)]; w.State == workflow.Succeeded && !known {
			settled[does(w)] = w.SubmittedAt
		}
	}
	for _, w := range failed {
		if seen[w.Workspace] || settled[does(w)].After(w.SubmittedAt) || len(out) == maxNeeds {
			continue
		}
		seen[w.Workspace] = true
		out = append(out, w)
	}
	return out
}

// drifted are the scans that found drift, if neither a later scan nor a later change has settled it. The list has the
// newest first. It is a pure function.
func drifted(newest []api.Workflow) (out []api.Workflow) {
	settled := map[string]bool{}
	for _, w := range newest {
		scan := w.Type == workflow.InsightsScan
		if w.State != workflow.Succeeded || settled[w.Workspace] || !scan && !workflow.ChangesState(w.Type, w.Operation) {
			continue
		}
		settled[w.Workspace] = true
		if scan && w.Changes != nil && w.Changes.Drift > 0 && len(out) < maxNeeds {
			out = append(out, w)
		}
	}
	return out
}

// endedToday counts runs that ended since midnight, in UTC, by their outcome; "" if none did. It is a pure function.
func endedToday(newest api.Page[api.Workflow], now time.Time) string {
	midnight := now.UTC().Truncate(24 * time.Hour)
	n := map[workflow.State]int{}
	for _, w := range newest.Items {
		if w.EndedAt != nil && !w.EndedAt.Before(midnight) {
			n[w.State]++
		}
	}
	var out []string
	for _, s := range []workflow.State{workflow.Succeeded, workflow.Failed, workflow.Cancelled} {
		if n[s] > 0 {
			out = append(out, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	if len(out) > 0 && !oldest(newest).Before(midnight) {
		out = append(out, fmt.Sprintf("of the last %d", len(newest.Items)))
	}
	return strings.Join(out, ", ")
}

// about is the subject of a delivery.
func about(d api.Delivery) string {
	what, of := d.About()
	return strings.TrimSpace(what + " " + clean(of))
}

// failedAt is when a delivery was given up.
func failedAt(d api.Delivery) stamp {
	if d.EndedAt == nil {
		return stamp{d.CreatedAt}
	}
	return stamp{*d.EndedAt}
}

// heading says how many things need somebody.
func (d homeData) heading() string {
	switch n := len(d.needs); n {
	case 0:
		return "Nothing needs you"
	case 1:
		return "1 thing needs you"
	default:
		return fmt.Sprintf("%d things need you", n)
	}
}
