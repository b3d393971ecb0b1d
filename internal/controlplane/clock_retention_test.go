package controlplane_test

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob/files"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const day = 24 * time.Hour

// ranThrough runs a workflow to its end, with two lines in its log.
func (w *world) ranThrough(workspace string, op workflow.Operation) string {
	w.t.Helper()
	id := w.submit(workspace, op).ID
	job, r := w.started()
	_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: []api.LogLine{{Text: "one"}, {Text: "two"}}})
	w.must(err)
	w.must(w.result(job, r, workflow.Succeeded))
	return id
}

// records are all records of a run.
func (w *world) records(id string) (out []store.Record) {
	w.t.Helper()
	for after := ""; ; {
		page, err := w.store.Range(w.ctx(), store.Scan{Part: record.WorkflowKey(id).Part, Limit: 1000, After: after})
		w.must(err)
		out = append(out, page.Records...)
		if after = page.Next; after == "" {
			return out
		}
	}
}

func isLog(r store.Record) bool { return strings.HasPrefix(r.Key.Sort, record.LogsPrefix) }

// passes makes passes until nothing is left to the next one.
func (w *world) passes() {
	w.t.Helper()
	for range 100 {
		sum, err := w.plane.Pass(w.ctx())
		w.must(err)
		if !sum.More {
			return
		}
	}
	w.t.Fatal("the passes do not come to an end")
}

func (w *world) lists(id string) bool {
	w.t.Helper()
	page, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{})
	w.must(err)
	return slices.ContainsFunc(page.Items, func(one api.Workflow) bool { return one.ID == id })
}

func TestRetention_LogsAndThenWorkflowsGo(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		id := w.ranThrough("net", workflow.Update)

		w.clock.advance(89 * day)
		w.passes()
		if page, err := w.plane.Logs(w.ctx(), w.admin, id, 0, 0, 0, 0); err != nil || len(page.Lines) != 2 {
			t.Errorf("after 89 days the log has %d lines (%v), want 2", len(page.Lines), err)
		}

		w.clock.advance(2 * day)
		_, err := w.plane.Logs(w.ctx(), w.admin, id, 0, 0, 0, 0) // before any pass
		wantErr(t, err, workflow.ErrExpired)
		w.passes()
		_, err = w.plane.Logs(w.ctx(), w.admin, id, 0, 0, 0, 0)
		wantErr(t, err, workflow.ErrExpired)
		for range 50 { // the list of runs may lag
			w.passes()
		}
		if slices.ContainsFunc(w.records(id), isLog) {
			t.Error("lines are left after 91 days")
		}
		if w.show(id).Result == nil || !w.lists(id) {
			t.Error("after 91 days the workflow has lost more than its log")
		}

		w.clock.advance(310 * day)
		wantGone := func() {
			t.Helper()
			_, err := w.plane.Workflow(w.ctx(), w.admin, id)
			wantErr(t, err, workflow.ErrNotFound)
			_, err = w.plane.Why(w.ctx(), w.admin, id)
			wantErr(t, err, workflow.ErrNotFound)
			_, err = w.plane.Retry(w.ctx(), w.admin, "", id, api.WithReason{})
			wantErr(t, err, workflow.ErrNotFound)
			_, err = w.plane.Logs(w.ctx(), w.admin, id, 0, 0, 0, 0)
			wantErr(t, err, workflow.ErrNotFound)
			if w.lists(id) {
				t.Error("a workflow that is past its retention is listed")
			}
		}
		wantGone()
		w.passes()
		wantGone()
		if left := w.records(id); len(left) > 0 {
			t.Errorf("%d records are left after 401 days", len(left))
		}

		// The workflow's records in its workspace stay.
		w.ranThrough("net", workflow.Update)
	})
}

// lagging is a store whose index shows some records as they were.
type lagging struct {
	store.Store
	were map[store.Key]store.Record
}

func (l *lagging) Query(ctx context.Context, index store.Index, scan store.Scan) (store.Page, error) {
	page, err := l.Store.Query(ctx, index, scan)
	for i, r := range page.Records {
		if was, ok := l.were[r.Key]; ok {
			page.Records[i] = was
		}
	}
	return page, err
}

// A list that still shows a run as running does not make its log stay.
func TestRetention_ALogGoesAlsoIfTheListLags(t *testing.T) {
	st := &lagging{Store: memory.New(), were: map[store.Key]store.Record{}}
	w := newWorld(t, st)
	w.workspace("net")
	id := w.submit("net", workflow.Update).ID
	job, r := w.started()
	_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: []api.LogLine{{Text: "one"}}})
	w.must(err)
	records, err := st.Get(w.ctx(), record.WorkflowKey(id))
	w.must(err)
	w.must(w.result(job, r, workflow.Succeeded))
	w.clock.advance(91 * day)
	st.were[records[0].Key] = records[0]
	w.passes()
	if slices.ContainsFunc(w.records(id), isLog) {
		t.Error("lines are left after 91 days")
	}
}

// Files beside the records are deleted with them, also files that no record names, and no others.
func TestRetention_FilesOfALogGoWithIt(t *testing.T) {
	w := newWorld(t, memory.New())
	dir := filepath.Join(t.TempDir(), "blobs")
	place := files.New(dir)
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Blobs: place})
	w.workspace("net")
	inFiles := func() (n int) {
		w.must(filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				n++
			}
			return err
		}))
		return n
	}
	long := func() string {
		t.Helper()
		id := w.submit("net", workflow.Update).ID
		job, r := w.started()
		for i := range 6 {
			w.send(job, r, 4*i, longLine(4*i, 60<<10), longLine(4*i+1, 60<<10), longLine(4*i+2, 60<<10), longLine(4*i+3, 60<<10))
		}
		w.must(w.result(job, r, workflow.Succeeded))
		w.must(place.Put(w.ctx(), record.BlobName(30, id, 1, []byte("of a writer that lost its race")), []byte("x")))
		return id
	}
	long()
	each := inFiles()
	w.clock.advance(80 * day)
	young := long()
	w.passes()
	if got := inFiles(); each < 2 || got != 2*each {
		t.Fatalf("%d files of one run and %d of two", each, got)
	}
	w.clock.advance(11 * day)
	w.passes()
	if got := inFiles(); got != each {
		t.Errorf("after 91 days %d files are left, want the %d of the younger run", got, each)
	}
	if page, err := w.plane.Logs(w.ctx(), w.admin, young, 0, 0, 100, 0); err != nil || len(page.Lines) != 24 {
		t.Errorf("its log has %d lines (%v)", len(page.Lines), err)
	}
	w.clock.advance(400 * day)
	w.passes()
	if got := inFiles(); got != 0 {
		t.Errorf("%d files are left of no run", got)
	}
}

// Active runs are kept, however long everything stood still.
func TestRetention_NeverTakesWhatIsActive(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.workspace("db")
		w.submit("net", workflow.Update)
		job, r := w.started()
		_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: []api.LogLine{{Text: "one"}}})
		w.must(err)
		lost := w.submit("db", workflow.Update).ID
		lostJob, lostRun := w.started()
		w.live(workflow.Silence + 2*time.Minute) // both are lost and hold their slots

		w.clock.advance(1000 * day) // and then nobody was there
		w.pass()
		for _, id := range []string{job.ID, lost} {
			if wf := w.show(id); !wf.SlotHeld || len(w.records(id)) < 5 {
				t.Errorf("%s: %+v has %d records", id, wf, len(w.records(id)))
			}
		}

		w.lost(lostJob, lostRun, 1) // over at last
		left := w.records(lost)
		for range 50 { // the list of runs may lag
			w.passes()
			if left = w.records(lost); len(left) == 0 {
				break
			}
		}
		if len(left) > 0 {
			t.Errorf("%d records are left of a run that is over", len(left))
		}
		if len(w.records(job.ID)) < 5 {
			t.Error("a run that holds its slot was deleted")
		}
	})
}

// A purge that is cut short, or meets a change, is continued: no record is left that nothing leads to.
func TestRetention_OfManyRunsTakesSeveralPasses(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 100 })
		const n = 60
		var ids []string
		for range n {
			ids = append(ids, w.ranThrough("net", workflow.Preview))
		}
		w.clock.advance(401 * day)
		young := w.ranThrough("net", workflow.Preview)
		w.passes()
		for _, id := range ids {
			if left := w.records(id); len(left) > 0 {
				t.Fatalf("%d records of %s are left", len(left), id)
			}
		}
		if page, err := w.plane.Logs(w.ctx(), w.admin, young, 0, 0, 0, 0); err != nil || len(page.Lines) != 2 {
			t.Errorf("the log of a young run has %d lines (%v)", len(page.Lines), err)
		}
	})
}

func TestRetention_IsSetByAdminsWithinBounds(t *testing.T) {
	w := newWorld(t, memory.New())
	of := func(workflows, logs, audit int) api.OrganizationSettings {
		return api.OrganizationSettings{WorkflowRetention: &workflows, LogRetention: &logs, AuditRetention: &audit}
	}
	o, err := w.plane.Organization(w.ctx(), w.admin)
	if w.must(err); o.WorkflowRetention != 400 || o.LogRetention != 90 || o.AuditRetention != 0 {
		t.Errorf("the defaults are %+v", o)
	}
	for _, in := range []api.OrganizationSettings{of(29, 7, 0), of(3651, 7, 0), of(400, 8, 0), of(400, 0, 0), of(60, 90, 0), of(400, 90, -1)} {
		_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, in)
		wantErr(t, err, workflow.ErrInvalid)
	}
	operator := w.admin
	operator.Role = api.RoleOperator
	_, err = w.plane.UpdateOrganization(w.ctx(), operator, of(30, 7, 0))
	wantErr(t, err, workflow.ErrForbidden)

	w.workspace("net")
	id := w.ranThrough("net", workflow.Update)
	days := 30
	_, err = w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{WorkflowRetention: &days})
	wantErr(t, err, workflow.ErrInvalid) // logs would be kept longer
	o, err = w.plane.UpdateOrganization(w.ctx(), w.admin, of(30, 7, 10))
	if w.must(err); o.WorkflowRetention != 30 || o.LogRetention != 7 || o.AuditRetention != 10 {
		t.Errorf("set to 30, 7 and 10 days: %+v", o)
	}
	audit, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 1})
	if w.must(err); audit.Items[0].Action != "organization.update" || !strings.Contains(audit.Items[0].Detail, "log_retention_days 7") {
		t.Errorf("the audit trail says %+v", audit.Items[0])
	}

	w.clock.advance(8 * day)
	_, err = w.plane.Logs(w.ctx(), w.admin, id, 0, 0, 0, 0)
	wantErr(t, err, workflow.ErrExpired)
	w.passes()
	w.show(id)
	w.clock.advance(23 * day)
	w.passes()
	_, err = w.plane.Workflow(w.ctx(), w.admin, id)
	wantErr(t, err, workflow.ErrNotFound)
	audit, err = w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 100})
	if w.must(err); len(audit.Items) > 0 {
		t.Errorf("the audit trail still has %d lines after 31 days, of 10", len(audit.Items))
	}
}

// Where the store deletes expired records, all of a run have their times: its own record once it is over.
func TestRetention_TimesAreGivenToAStoreThatDeletes(t *testing.T) {
	st := memory.New()
	w := newWorld(t, st)
	w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Expires: true})
	w.workspace("net")
	days := func(id string) map[string]int {
		out := map[string]int{}
		submitted := w.show(id).SubmittedAt
		for _, r := range w.records(id) {
			out[r.Key.Sort] = -1
			if r.Expires != 0 {
				out[r.Key.Sort] = int(time.Unix(r.Expires, 0).Sub(submitted).Round(day) / day)
			}
		}
		return out
	}
	w.submit("net", workflow.Update)
	job, r := w.started()
	_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: []api.LogLine{{Text: "one"}}})
	w.must(err)
	_, err = w.plane.Steps(w.ctx(), job.Token, r, api.Steps{Steps: []api.Step{{Seq: 1, Name: "plan", Status: workflow.StepRunning}}})
	w.must(err)
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactState, api.ErroredName)))
	w.must(err)
	want := func(state string, own int) {
		t.Helper()
		found := days(job.ID)
		if len(found) < 8 {
			t.Fatalf("%s: there are only %v", state, found)
		}
		for k, got := range found {
			want := 400
			switch {
			case k == "wf":
				want = own
			case strings.HasPrefix(k, record.LogsPrefix):
				want = 90
			case strings.HasSuffix(k, api.ErroredName):
				want = api.ErroredDays
			}
			if got != want {
				t.Errorf("%s: %s expires after %d days, want %d", state, k, got, want)
			}
		}
	}
	want("running", -1)
	w.live(workflow.Silence + 2*time.Minute)
	want("lost, and holds its slot", -1)
	w.lost(job, r, 1)
	want("over, with a state that is not decided on", -1)
	_, err = w.plane.Unlock(w.ctx(), w.admin, "net", api.Unlock{Workflow: job.ID})
	w.must(err)
	want("over", 400)

	// The store is given a week for it. Then the purge deletes what the store forgot.
	w.clock.advance(402 * day)
	w.passes()
	if len(w.records(job.ID)) == 0 {
		t.Error("the purge deleted records that the store expires for nothing")
	}
	w.clock.advance(6 * day)
	w.passes()
	if left := w.records(job.ID); len(left) > 0 {
		t.Errorf("%d records are left", len(left))
	}
}

// With a constant number of runs each day, the table does not grow, whatever its size was before.
func TestRetention_TableIsFlatAtAConstantRate(t *testing.T) {
	for name, open := range stores() {
		if name != "memory" && name != "sqlite" {
			continue // 10,000 runs take long over the others
		}
		t.Run(name, func(t *testing.T) {
			table := &counted{Store: open(t)}
			w := newWorld(t, table)
			w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 100 })
			w.ofOldRuns(10_000)
			before := table.records
			w.passes()
			if left := table.records; before < 10_000 || left > 100 {
				t.Errorf("of %d records %d are left, want those that are no runs", before, left)
			}
			days := 30
			logs := 7
			_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{WorkflowRetention: &days, LogRetention: &logs, AuditRetention: &days})
			w.must(err)
			var counts []int
			for range 75 {
				for range 2 {
					w.ranThrough("net", workflow.Preview)
				}
				w.clock.advance(day)
				w.passes()
				counts = append(counts, table.records)
			}
			early, late := slices.Max(counts[31:53]), slices.Max(counts[53:])
			if late > early || counts[10] >= counts[25] {
				t.Errorf("the records after each day: %v", counts)
			}
		})
	}
}

// ofOldRuns fills the store with the records of old runs that it did not delete by itself, some 10 of each.
func (w *world) ofOldRuns(records int) {
	w.t.Helper()
	for n := 0; n < records; {
		var ops []store.Op
		for range 9 {
			at := w.clock.now().Add(-500 * day).Add(time.Duration(n) * time.Second)
			wf := &record.Workflow{
				ID: record.NewID("wf_", at), Org: "default", Workspace: "net", WorkspaceID: "old", PoolID: "pool", Type: workflow.Deployment, Op: workflow.Preview,
				State: workflow.Succeeded, Submitted: at, Since: at, Ended: at, Attempt: 1, Seq: 6,
			}
			ops = append(ops, store.Put(record.EncodeWorkflow(wf), store.Absent), store.Put(record.Encode(record.SpecKey(wf.ID), api.Spec{}), store.Absent),
				store.Put(record.Encode(record.AttemptKey(wf.ID, 1), record.Attempt{}), store.Absent), store.Append(record.Chunk{Next: 1, Lines: record.PackLines([]api.LogLine{{Text: fmt.Sprint(n)}})}.Encode(wf.ID, 1)))
			for i := range 6 {
				ops = append(ops, store.Put(record.Encode(record.EventKey(wf.ID, int64(i+1)), api.Event{Text: "something happened"}), store.Absent))
			}
			n += 10
		}
		w.must(w.store.Commit(w.ctx(), record.Random(18), ops...))
	}
}

// counted is a store that knows how many records it holds, and how often it was written to.
type counted struct {
	store.Store
	records, commits int
}

// Commit implements store.Store.
func (c *counted) Commit(ctx context.Context, id string, ops ...store.Op) error {
	c.commits++
	err := c.Store.Commit(ctx, id, ops...)
	for _, op := range ops {
		switch {
		case err != nil:
		case op.IsPut() && op.Expect() == store.Absent:
			c.records++
		case op.IsDelete():
			c.records--
		}
	}
	return err
}

// Wherever a pass dies while it deletes runs, the next one finds the remaining records.
func TestRetention_NextPassFinishesACutDeletion(t *testing.T) {
	t.Parallel()
	died, inside := true, 0
	for dies := 0; died; dies++ {
		st := &dying{memory.New(), 1 << 30}
		w := newWorld(t, st)
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 100 })
		whole := map[string]int{}
		for range 7 {
			id := w.ranThrough("net", workflow.Preview)
			whole[id] = len(w.records(id))
		}
		w.clock.advance(401 * day)
		st.left = dies
		_, _ = w.plane.Pass(w.ctx())
		died, st.left = st.left < 0, 1<<30
		for id, n := range whole {
			if left := len(w.records(id)); 0 < left && left < n {
				inside++
			}
		}
		w.passes()
		for id := range whole {
			if left := w.records(id); len(left) > 0 {
				t.Fatalf("died at commit %d: %d records of %s are left, the first is %s", dies, len(left), id, left[0].Key.Sort)
			}
		}
	}
	if inside == 0 {
		t.Error("no pass died in the middle of a run")
	}
}
