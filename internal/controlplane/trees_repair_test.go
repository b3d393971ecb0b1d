package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// off is a store that takes no commits about a partition for a while, or only some of them.
type off struct {
	store.Store

	part string
	off  func(ops []store.Op) bool
}

func (s *off) Commit(ctx context.Context, id string, ops ...store.Op) error {
	of := func(op store.Op) bool { return op.Key().Part == s.part }
	if s.off != nil && slices.ContainsFunc(ops, of) && s.off(ops) {
		return errors.New("down")
	}
	return s.Store.Commit(ctx, id, ops...)
}

// The control plane dies between the end of a run and what follows from it: the pass takes the tree on.
func TestTree_WhatDiesBetweenIsRepairedByThePass(t *testing.T) {
	st := &off{Store: memory.New(), part: record.RunTreePart("default")}
	f := newForest(newWorld(t, st), "net", "db net", "dns net", "app db,dns")
	made := f.grow("net")
	f.take()
	st.off = func([]store.Op) bool { return true }
	f.done("net")
	f.wantTaken()
	if _, err := f.plane.Pass(f.ctx()); err == nil {
		t.Error("the pass does not say that the tree is left")
	}
	// It dies after the first of two runs was submitted.
	begun := 0
	st.off = func(ops []store.Op) bool {
		if slices.ContainsFunc(ops, func(op store.Op) bool { return op.IsPut() && op.Key().Sort == "wf" && op.Expect() == store.Absent }) {
			begun++
		}
		return begun > 1
	}
	if _, err := f.plane.Pass(f.ctx()); err == nil {
		t.Error("the pass does not say that the second run is left")
	}
	if n := len(f.take()); n != 1 {
		t.Errorf("%d runs were submitted, want 1", n)
	}
	st.off = nil
	f.pass()
	f.pass()
	f.take()
	f.wantTree(made.ID, api.TreeRunning, "net succeeded", "db running", "dns running", "app waiting for db,dns")
	if n := len(f.all()); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
	// A cancel is noted, and dies before any run is cancelled.
	noted := false
	st.off = func([]store.Op) bool { was := noted; noted = true; return was }
	_, err := f.plane.CancelTree(f.ctx(), f.admin, made.ID, api.WithReason{})
	f.must(err)
	st.off = nil
	f.pass()
	for _, n := range f.tree(made.ID).Nodes[1:3] {
		if wf := f.show(n.Workflow); !wf.CancelRequested {
			t.Errorf("%s is not cancelled: %+v", n.Workspace, wf)
		}
	}
}

// However many advance a tree at the same moment, a node has one run.
func TestTree_TwoAdvancesAtOnceSubmitOnce(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		f := newForest(w, "net", "db net", "dns net", "app db,dns")
		made := f.grow("net")
		f.take()
		f.done("net")
		f.take()
		step := func() error {
			_, err := f.plane.Pass(f.ctx())
			return err
		}
		for _, err := range race(step, step, func() error { f.done("db"); return nil }, func() error { f.done("dns"); return nil }, step) {
			f.must(err)
		}
		f.pass()
		f.wantTaken("app")
		f.done("app")
		f.wantTree(made.ID, api.TreeSucceeded, "net succeeded", "db succeeded", "dns succeeded", "app succeeded")
		if n := len(f.all()); n != 4 {
			t.Errorf("%d runs, want 4", n)
		}
	})
}

// A cancel and the submission of the next run are one after the other: nothing begins after the cancel. Each of them comes
// between what the other one reads and commits.
func TestTree_NothingBeginsAfterACancel(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		st := &between{Store: w.store}
		w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now})
		other := controlplane.New(w.store, controlplane.Config{Now: w.clock.now})
		f := newForest(w, "net", "db net")
		over := func(id, want string) {
			t.Helper()
			f.pass()
			if got := f.tree(id); got.State != want || st.beforeCommit != nil {
				t.Fatalf("it is not %s, or nothing came between: %+v", want, got)
			}
			f.wantTaken()
		}
		made := f.grow("net")
		f.take()
		st.beforeCommit = func(ops []store.Op) func() {
			if !slices.ContainsFunc(ops, func(op store.Op) bool { return op.Key().Sort == record.SpecKey("").Sort }) {
				return nil
			}
			return func() { // before db is submitted
				_, err := other.CancelTree(f.ctx(), f.admin, made.ID, api.WithReason{})
				f.must(err)
			}
		}
		f.done("net")
		over(made.ID, api.TreeCancelled)

		made = f.grow("net")
		f.take()
		st.beforeCommit = writing(record.RunTreeKey("default", made.ID), "", func() {
			was := f.plane
			f.plane = other
			f.done("net") // db is submitted
			f.plane = was
		})
		_, err := f.plane.CancelTree(f.ctx(), f.admin, made.ID, api.WithReason{})
		f.must(err)
		over(made.ID, api.TreeCancelled)
	})
}

func TestTree_NeedsAnOperatorAndShowsOnlyVisibleNodes(t *testing.T) {
	f := newForest(newWorld(t, memory.New()))
	f.madeProject("shop", "")
	f.madeProject("mail", "")
	in := func(project string) func(*api.Workspace) {
		return func(ws *api.Workspace) { ws.Project = project }
	}
	f.plant("net", "", in("shop"))
	f.plant("cart", "net", in("shop"))
	f.plant("smtp", "net", in("mail"))
	f.plant("imap", "smtp", in("mail"))
	ask := api.NewTree{Workspace: "net", Operation: workflow.Update}
	shop := f.in(map[string]string{"shop": api.RoleOperator, "mail": api.RoleViewer})
	_, err := f.plane.SubmitTree(f.ctx(), shop, "", ask)
	wantErr(t, err, workflow.ErrForbidden)
	if err == nil || !strings.Contains(err.Error(), "imap (project mail)") || !strings.Contains(err.Error(), "smtp (project mail)") || strings.Contains(err.Error(), "cart") {
		t.Errorf("it says %v", err)
	}
	_, err = f.plane.SubmitTree(f.ctx(), f.in(map[string]string{"shop": api.RoleViewer}), "", ask)
	wantErr(t, err, workflow.ErrForbidden)
	if n := f.audits("tree.submit", "refused"); n != 2 {
		t.Errorf("%d refusals in the audit trail", n)
	}
	both := f.in(map[string]string{"shop": api.RoleOperator, "mail": api.RoleOperator})
	made, err := f.plane.SubmitTree(f.ctx(), both, "", ask)
	f.must(err)

	mail := f.in(map[string]string{"mail": api.RoleViewer})
	got, err := f.plane.Tree(f.ctx(), mail, made.ID)
	f.must(err)
	if len(got.Nodes) != 2 || got.Nodes[0].Workspace != "smtp" || len(got.Nodes[0].WaitsFor) > 0 || got.Size != 4 {
		t.Errorf("a viewer of one project sees %+v", got)
	}
	_, err = f.plane.CancelTree(f.ctx(), shop, made.ID, api.WithReason{})
	wantErr(t, err, workflow.ErrForbidden)
	f.take()
	f.done("net", fails)
	got, err = f.plane.Tree(f.ctx(), mail, made.ID)
	f.must(err)
	if got.Nodes[0].Note != "a workspace before it failed or was cancelled" {
		t.Errorf("it names a workspace of another project: %+v", got.Nodes[0])
	}
	none := f.in(map[string]string{"global": api.RoleViewer})
	none.Grants = map[string]string{"elsewhere": api.RoleViewer}
	_, err = f.plane.Tree(f.ctx(), none, made.ID)
	wantErr(t, err, workflow.ErrForbidden)
	list, err := f.plane.Trees(f.ctx(), none, "", 0)
	if f.must(err); len(list.Items) > 0 {
		t.Errorf("a list shows %+v", list.Items)
	}
}

func TestTree_IsListedNewestFirstAndAskedForOnce(t *testing.T) {
	f := newForest(newWorld(t, memory.New()), "net", "db net", "app db")
	in := api.NewTree{Workspace: "db", Operation: workflow.Update}
	first, err := f.plane.SubmitTree(f.ctx(), f.admin, "key", in)
	f.must(err)
	again, err := f.plane.SubmitTree(f.ctx(), f.admin, "key", in)
	f.must(err)
	if again.ID != first.ID {
		t.Errorf("asked again: %s, then %s", first.ID, again.ID)
	}
	in.Every = true
	_, err = f.plane.SubmitTree(f.ctx(), f.admin, "key", in)
	wantErr(t, err, workflow.ErrKeyReused)
	f.clock.advance(time.Second)
	second := f.grow("net")
	for _, limit := range []int{0, 1} {
		var got []string
		for cursor, more := "", true; more; more = cursor != "" {
			page, err := f.plane.Trees(f.ctx(), f.admin, cursor, limit)
			f.must(err)
			for _, one := range page.Items {
				got = append(got, one.ID)
			}
			cursor = page.Next
		}
		if !slices.Equal(got, []string{second.ID, first.ID}) {
			t.Errorf("listed with limit %d: %v", limit, got)
		}
	}
}

func TestTree_RefusesWhatItCannotDo(t *testing.T) {
	f := newForest(newWorld(t, memory.New()), "net", "alone")
	for name, c := range map[string]struct {
		in   api.NewTree
		want error
		says string
	}{
		"a preview":    {api.NewTree{Workspace: "net", Operation: workflow.Preview}, workflow.ErrInvalid, "update or destroy"},
		"no workspace": {api.NewTree{Workspace: "nowhere", Operation: workflow.Update}, workflow.ErrNotFound, "nowhere"},
		"a long text":  {api.NewTree{Workspace: "net", Operation: workflow.Update, Message: strings.Repeat("x", 201)}, workflow.ErrInvalid, "200"},
	} {
		_, err := f.plane.SubmitTree(f.ctx(), f.admin, "", c.in)
		if wantErr(t, err, c.want); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"tree_1", "../x", ""} {
		_, err := f.plane.Tree(f.ctx(), f.admin, id)
		wantErr(t, err, workflow.ErrNotFound)
	}
	made := f.grow("alone") // a tree of one
	f.take()
	f.done("alone")
	f.wantTree(made.ID, api.TreeSucceeded, "alone succeeded")
	for i := range record.MaxTree {
		f.plant(fmt.Sprintf("w%03d", i), "net")
	}
	_, err := f.plane.SubmitTree(f.ctx(), f.admin, "", api.NewTree{Workspace: "net", Operation: workflow.Update})
	if wantErr(t, err, workflow.ErrTooLarge); err == nil || !strings.Contains(err.Error(), "200 workspaces depend on net") {
		t.Errorf("it says %v", err)
	}
	f.plant("w000", "alone")
	f.grow("net") // as many as there may be
	if n := len(f.all()); n != 2 {
		t.Errorf("%d runs", n)
	}
}

func TestTree_AsManyAsThePassLooksAt(t *testing.T) {
	f := newForest(newWorld(t, memory.New()), "net")
	for range 100 {
		f.grow("net")
	}
	_, err := f.plane.SubmitTree(f.ctx(), f.admin, "", api.NewTree{Workspace: "net", Operation: workflow.Update})
	if wantErr(t, err, workflow.ErrConflict); err == nil || !strings.Contains(err.Error(), "100 trees") {
		t.Errorf("it says %v", err)
	}
}

// A submission that the control plane is too busy for comes later, and holds back no other.
func TestTree_RefusedNodesFailAloneAndBusyOnesRetry(t *testing.T) {
	st := &off{Store: memory.New(), part: record.RunTreePart("default")}
	f := newForest(newWorld(t, st), "net", "db net", "dns net", "app net")
	f.plant("db", "net", func(ws *api.Workspace) { delete(ws.Commands, "update") })
	made := f.grow("net")
	f.take()
	dns := f.idOf("dns")
	st.off = func(ops []store.Op) bool {
		return slices.ContainsFunc(ops, func(op store.Op) bool { return op.Key() == record.QueueKey(dns) })
	}
	f.done("net")
	f.wantTaken("app")
	f.wantTree(made.ID, api.TreeRunning, "net succeeded", "app running",
		"db failed: its run was refused: workspace db has no command for update; add commands.update to it", "dns waiting")
	st.off = nil
	f.pass()
	f.wantTaken("dns")
}

func TestTree_IsKeptAsLongAsItsRuns(t *testing.T) {
	f := newForest(newWorld(t, memory.New()), "net", "db net")
	ended, open := f.grow("net"), f.grow("net")
	_, err := f.plane.CancelTree(f.ctx(), f.admin, ended.ID, api.WithReason{})
	f.must(err)
	stays := func(id string) bool {
		page, err := f.store.Range(f.ctx(), store.Scan{Part: record.RunTreePart("default"), Limit: 10})
		f.must(err)
		return slices.ContainsFunc(page.Records, func(r store.Record) bool { return r.Key.Sort == id })
	}
	f.clock.advance(399 * record.Day)
	if !stays(ended.ID) {
		t.Error("it is gone before its time")
	}
	f.clock.advance(2 * record.Day)
	_, err = f.plane.Tree(f.ctx(), f.admin, ended.ID)
	wantErr(t, err, workflow.ErrNotFound)
	f.wantTree(open.ID, api.TreeRunning, "net running", "db waiting for net") // nothing that goes on is deleted
	f.passes()
	f.passes()
	if stays(ended.ID) || stays(open.ID) { // whose run has expired in the queue
		t.Errorf("they stay: %t, %t", stays(ended.ID), stays(open.ID))
	}
}
