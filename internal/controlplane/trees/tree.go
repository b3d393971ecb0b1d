package trees

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// # Consistency model
//
// A tree has one record. Each step reads it with its runs and with the graph of dependencies, decides purely (rules),
// and commits on the versions that it read. The commit that submits the run of a node is the one that notes it, so a
// node never has two runs and none is lost, in any process and after any crash. Steps are taken when a tree is made
// or cancelled, and when a run of it ends or the review of its plan is decided; the pass takes those that were
// missed.

// maxOpenTrees is how many trees of an organization may be open: the pass looks at each of them.
const maxOpenTrees = 100

// errMoved says that a node is no longer due.
var errMoved = errors.New("the tree has moved meanwhile")

// SubmitTree asks for runs of a workspace and of all that depend on it, in order. The same key with the same request
// returns the same tree.
func (p *Calls) SubmitTree(ctx context.Context, who identity.Principal, key string, in api.NewTree) (api.Tree, error) {
	const action = "tree.submit"
	org := who.Organization
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleOperator, action, in.Workspace, p.catalog.InWorkspace(org, in.Workspace)); err != nil {
		return api.Tree{}, err
	}
	if err := workflow.CheckText("message", in.Message, 200); err != nil {
		return api.Tree{}, err
	}
	switch {
	case in.Operation != workflow.Update && in.Operation != workflow.Destroy:
		return api.Tree{}, workflow.Invalid("operation", "a tree runs update or destroy, not %q", text.Cut(string(in.Operation), 40))
	case len(key) > 128:
		return api.Tree{}, workflow.Invalid("Idempotency-Key", "an idempotency key has at most 128 characters")
	}
	request := record.Hash(fmt.Sprintf("tree %q %q %t %q", in.Workspace, in.Operation, in.Every, in.Message))
	id := record.NewID(record.RunTreeIDs, p.ledger.Now())
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		before, err := c.Once(ctx, org, who.ID, key, request, id)
		if err != nil {
			return err
		}
		if before != "" {
			id = before
			return nil
		}
		t := record.RunTree{
			ID: id, Org: org, Workspace: in.Workspace, Op: in.Operation, Every: in.Every, Message: in.Message, By: who.Name, ByID: who.ID,
			Submitters: rules.Submitters(who.Pipeline.Submitter()), Strangers: who.Pipeline != nil, State: api.TreeRunning, Submitted: c.Now,
		}
		if t.Nodes, err = p.nodesOf(ctx, c, who, in.Workspace); err != nil {
			return err
		}
		c.Create(record.RunTreeKey(org, id), t)
		c.Create(record.OpenTreeKey(org, id), record.Name{ID: id})
		identity.Audit(c, who, action, id, "done", fmt.Sprintf("%s of %s and its dependents: %s", in.Operation, in.Workspace, text.Count(len(t.Nodes), "workspace")))
		return nil
	})
	if err != nil {
		return api.Tree{}, identity.Refused(ctx, p.ledger, who, action, in.Workspace, err)
	}
	p.moveTree(ctx, org, id)
	return p.Tree(ctx, who, id)
}

// nodesOf are the nodes of a tree that begins at a workspace. The asker must be allowed to run all of them.
func (p *Calls) nodesOf(ctx context.Context, c *ledger.Change, who identity.Principal, root string) (out []record.TreeNode, err error) {
	edges, err := edgesOf(ctx, c, who.Organization)
	if err != nil {
		return nil, err
	}
	names := rules.TreeOf(root, edges)
	if len(names) > record.MaxTree {
		return nil, workflow.Refuse(workflow.ErrTooLarge, "workspace", "%d workspaces depend on %s, and a tree has at most %d: begin trees at some of those that depend on it", len(names)-1, root, record.MaxTree)
	}
	open, err := c.Range(ctx, store.Scan{Part: record.OpenTreePart(who.Organization), Limit: maxOpenTrees})
	if err != nil {
		return nil, err
	}
	if len(open.Records) >= maxOpenTrees {
		return nil, workflow.Refuse(workflow.ErrConflict, "", "%d trees of the organization have not ended: wait, or cancel some with dayfly tree cancel", len(open.Records))
	}
	if err := mayRun(ctx, c, who, names); err != nil {
		return nil, err
	}
	for _, name := range names {
		ws, err := catalog.Workspace(ctx, c, who.Organization, name)
		if err != nil {
			return nil, err
		}
		out = append(out, record.TreeNode{Workspace: name, WorkspaceID: ws.ID, State: api.TreeWaiting})
	}
	return out, nil
}

// mayRun refuses workspaces that who may not run, and names them. It passes over deleted ones.
func mayRun(ctx context.Context, c *ledger.Change, who identity.Principal, names []string) error {
	keys := make([]store.Key, len(names))
	for i, name := range names {
		keys[i] = record.WorkspaceKey(who.Organization, name)
	}
	if err := c.Load(ctx, keys...); err != nil || who.Has(api.RoleOperator) {
		return err
	}
	var not []string
	for i, name := range names {
		ws, ok, err := ledger.Get[record.Workspace](c.Read, keys[i])
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		chain, err := catalog.Chain(ctx, c, who.Organization, ws.W.Project)
		if err != nil {
			return err
		}
		if !who.Has(api.RoleOperator, chain...) {
			not = append(not, fmt.Sprintf("%s (project %s)", name, chain[0]))
		}
	}
	if len(not) > 0 {
		return workflow.Refuse(workflow.ErrForbidden, "workspace", "a tree needs the role operator in the project of each of its workspaces, and you do not have it for %s", strings.Join(not, ", "))
	}
	return nil
}

// CancelTree cancels the waiting nodes of a tree, and its runs that have not ended.
func (p *Calls) CancelTree(ctx context.Context, who identity.Principal, id string, in api.WithReason) (api.Tree, error) {
	const action = "tree.cancel"
	org := who.Organization
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleOperator, action, id, p.inTree(org, id)); err != nil {
		return api.Tree{}, err
	}
	if err := in.Check(); err != nil {
		return api.Tree{}, err
	}
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		t, err := p.treeOf(ctx, c, org, id)
		switch {
		case err != nil:
			return err
		case t.Over():
			return workflow.Refuse(workflow.ErrConflict, "id", "tree %s has ended: it is %s", id, t.State)
		case t.Cancelled != nil:
			return nil
		}
		if err := mayRun(ctx, c, who, append(t.In(api.TreeWaiting), t.In(api.TreeRunning)...)); err != nil {
			return err
		}
		t.Cancelled = &record.TreeCancel{By: who.Name, ByID: who.ID, Reason: in.Reason}
		c.Put(record.RunTreeKey(org, id), t)
		identity.Audit(c, who, action, id, "done", t.Workspace+rules.Because(in.Reason))
		return nil
	})
	if err != nil {
		return api.Tree{}, identity.Refused(ctx, p.ledger, who, action, id, err)
	}
	p.moveTree(ctx, org, id)
	if err := p.cancelRuns(ctx, org, id); err != nil {
		p.ledger.Log.Warn("runs of a tree not cancelled yet; the pass cancels them", "tree", id, "err", err)
	}
	return p.Tree(ctx, who, id)
}

// treeOf reads a tree. One that is past the retention of its runs is not found, whether or not it is deleted by now.
func (p *Calls) treeOf(ctx context.Context, c *ledger.Change, org, id string) (record.RunTree, error) {
	if err := record.CheckID(id); err != nil {
		return record.RunTree{}, noTree(id)
	}
	t, ok, err := ledger.Load[record.RunTree](ctx, c, record.RunTreeKey(org, id))
	if err != nil {
		return t, err
	}
	days, err := p.ledger.Retention(ctx, org)
	if err == nil && (!ok || t.Over() && t.Submitted.Before(record.Before(c.Now, days.Workflows))) {
		err = noTree(id)
	}
	return t, err
}

func noTree(id string) error {
	return workflow.Refuse(workflow.ErrNotFound, "id", "there is no tree %s", text.Cut(id, 64))
}

// AdvanceTrees advances open trees of an organization, some after a place: next is the place at which another call
// goes on, or empty. The pass calls it, for steps that were missed before or are due by time.
func (p *Calls) AdvanceTrees(ctx context.Context, org, after string, until time.Time) (next string, err error) {
	page, err := p.ledger.Range(ctx, store.Scan{Part: record.OpenTreePart(org), Limit: 10, After: after})
	if err != nil {
		return "", err
	}
	var failures []error
	for _, r := range page.Records {
		if ctx.Err() != nil || !p.ledger.Now().Before(until) {
			return "", errors.Join(failures...)
		}
		if err := errors.Join(p.advanceTree(ctx, org, r.Key.Sort), p.cancelRuns(ctx, org, r.Key.Sort)); err != nil {
			failures = append(failures, fmt.Errorf("tree %s: %w", r.Key.Sort, err))
		}
	}
	return page.Next, errors.Join(failures...)
}

// moveTree advances a tree after an event. If that fails, the pass does it.
func (p *Calls) moveTree(ctx context.Context, org, id string) {
	if err := p.advanceTree(ctx, org, id); err != nil {
		p.ledger.Log.Warn("tree not advanced yet; the pass does it", "tree", id, "err", err)
	}
}

// OnEvent advances the tree of an outbox event, before the event is removed.
func (p *Calls) OnEvent(ctx context.Context, org string, r store.Record) {
	if n, err := record.Decode[record.OutboxEvent](r); err == nil && n.Trigger != nil && n.Trigger.Kind == api.TriggerTree {
		p.moveTree(ctx, org, n.Trigger.Name)
	}
}

// advanceTree advances a tree as far as it can go now. An error about one node does not stop the others.
func (p *Calls) advanceTree(ctx context.Context, org, id string) error {
	var failures []error
	for range record.MaxTree { // each round but the last ends a node
		t, due, err := p.lookAtTree(ctx, org, id)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		again := false
		failures = nil
		for _, name := range due {
			switch err := p.runNode(ctx, t, name); {
			case errors.Is(err, errMoved):
				again = true
			case runs.Refusal(err) != "" && !errors.Is(err, workflow.ErrTooMany):
				again = true
				failures = append(failures, p.failNode(ctx, org, id, name, runs.Refusal(err)))
			case err != nil:
				failures = append(failures, fmt.Errorf("submit a run of %s: %w", name, err))
			}
		}
		if !again || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

// lookAtTree notes the progress of a tree, and returns the nodes that are due for a run.
func (p *Calls) lookAtTree(ctx context.Context, org, id string) (t record.RunTree, due []string, err error) {
	k, open := record.RunTreeKey(org, id), record.OpenTreeKey(org, id)
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		due = nil
		if err := c.Load(ctx, k, open); err != nil {
			return err
		}
		was, ok, err := ledger.Get[record.RunTree](c.Read, k)
		if err != nil {
			return err
		}
		if !ok || was.Over() {
			c.Remove(open)
			return nil
		}
		t = was
		t.Nodes = slices.Clone(was.Nodes)
		if err := followRuns(ctx, c, &t); err != nil {
			return err
		}
		edges, err := edgesOf(ctx, c, org)
		if err != nil {
			return err
		}
		for skipped := true; skipped; {
			t, due = rules.NextOfTree(t, edges, c.Now)
			skipped, due, err = skipUnchanged(ctx, c, &t, due)
			if err != nil {
				return err
			}
		}
		if reflect.DeepEqual(t, was) {
			return nil
		}
		c.Check(record.GraphKey(org))
		if !t.Over() {
			c.Put(k, t)
			return nil
		}
		c.Remove(open)
		return p.keepTree(ctx, c, t)
	})
	return t, due, err
}

// keepTree writes a tree that is over: it is kept as long as its runs.
func (p *Calls) keepTree(ctx context.Context, c *ledger.Change, t record.RunTree) error {
	var until time.Time
	if p.ledger.StoreExpires {
		days, err := p.ledger.Retention(ctx, t.Org)
		if err != nil {
			return err
		}
		until = t.Submitted.Add(time.Duration(days.Workflows) * record.Day)
	}
	c.PutUntil(record.RunTreeKey(t.Org, t.ID), t, until)
	return nil
}

// followRuns notes the progress of the runs of a tree. A preview whose plan is approved leads to the run that applies
// it.
func followRuns(ctx context.Context, c *ledger.Change, t *record.RunTree) error {
	for range 2 {
		var keys []store.Key
		for _, n := range t.Nodes {
			if n.State == api.TreeRunning {
				keys = append(keys, record.WorkflowKey(n.Run), record.ReviewKey(n.Run), record.StateKey(t.Org, n.WorkspaceID))
			}
		}
		if err := c.Load(ctx, keys...); err != nil {
			return err
		}
		for i, n := range t.Nodes {
			if n.State != api.TreeRunning {
				continue
			}
			w, known, err := ledger.Get[record.Workflow](c.Read, record.WorkflowKey(n.Run))
			if err != nil {
				return err
			}
			review, _, err := ledger.Get[record.Review](c.Read, record.ReviewKey(n.Run))
			if err != nil {
				return err
			}
			state, _, err := ledger.Get[api.StateFound](c.Read, record.StateKey(t.Org, n.WorkspaceID))
			if err != nil {
				return err
			}
			t.Nodes[i] = rules.NodeOfTree(*t, n, w, known, review, state, c.Now)
		}
	}
	return nil
}

// skipUnchanged skips the nodes that are due and need no run. It returns the others.
func skipUnchanged(ctx context.Context, c *ledger.Change, t *record.RunTree, due []string) (skipped bool, remaining []string, err error) {
	for _, name := range due {
		n := t.Node(name)
		facts, err := factsOf(ctx, c, t, n)
		if err != nil {
			return false, nil, err
		}
		if why := rules.SkippedOfTree(*t, name, facts); why != "" {
			n.State, n.Note, skipped = api.TreeSkipped, why, true
		} else {
			remaining = append(remaining, name)
		}
	}
	return skipped, remaining, nil
}

// runNode submits the run of a node, if it is still due when that is committed.
func (p *Calls) runNode(ctx context.Context, t record.RunTree, name string) error {
	who := identity.Principal{Organization: t.Org, ID: t.ByID, Name: t.By, Audience: identity.User, Kind: api.KindUser, Role: api.RoleOperator}
	by := runs.Triggered{
		Trigger: record.Trigger{Kind: api.TriggerTree, Name: t.ID}, Submitters: t.Submitters, Strangers: t.Strangers,
		Also: func(ctx context.Context, c *ledger.Change, w *record.Workflow) error { return noteRun(ctx, c, t.ID, w) },
	}
	_, err := p.runs.SubmitFor(ctx, who, "", api.Submit{Workspace: name, Type: workflow.Deployment, Operation: t.Op, Message: t.Message}, by)
	return err
}

// noteRun adds to the commit that submits the run of a node that it is the node's run.
func noteRun(ctx context.Context, c *ledger.Change, id string, w *record.Workflow) error {
	k := record.RunTreeKey(w.Org, id)
	t, _, err := ledger.Load[record.RunTree](ctx, c, k)
	if err != nil {
		return err
	}
	edges, err := edgesOf(ctx, c, w.Org)
	if err != nil {
		return err
	}
	t, due := rules.NextOfTree(t, edges, c.Now)
	if !slices.Contains(due, w.Workspace) {
		return errMoved
	}
	n := t.Node(w.Workspace)
	if n.WorkspaceID != w.WorkspaceID {
		return workflow.Refuse(workflow.ErrNotFound, "workspace", "workspace %s was deleted, and another one has its name", w.Workspace)
	}
	n.State, n.Run = api.TreeRunning, w.ID
	c.Put(k, t)
	c.Check(record.GraphKey(w.Org))
	return nil
}

// failNode notes that a node has no run, because its submission was refused.
func (p *Calls) failNode(ctx context.Context, org, id, name, why string) error {
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		k := record.RunTreeKey(org, id)
		t, ok, err := ledger.Load[record.RunTree](ctx, c, k)
		if err != nil || !ok || t.Over() {
			return err
		}
		if n := t.Node(name); n != nil && n.State == api.TreeWaiting {
			n.State, n.Note = api.TreeFailed, text.Middle("its run was refused: "+why, record.MaxDetail)
			c.Put(k, t)
		}
		return nil
	})
}

// cancelRuns cancels the runs of a tree that is cancelled. One that has ended meanwhile may have led to another, so
// it looks again then.
func (p *Calls) cancelRuns(ctx context.Context, org, id string) error {
	for range 3 {
		t, ok, err := ledger.Load[record.RunTree](ctx, p.ledger.View(), record.RunTreeKey(org, id))
		if err != nil || !ok || t.Over() || t.Cancelled == nil {
			return err
		}
		who := identity.Principal{Organization: org, ID: t.Cancelled.ByID, Name: t.Cancelled.By, Audience: identity.User, Kind: api.KindUser, Role: api.RoleOperator}
		reason := api.WithReason{Reason: text.Cut("of tree "+id+rules.Because(t.Cancelled.Reason), 500)}
		again := false
		for _, n := range t.Nodes {
			if n.State != api.TreeRunning {
				continue
			}
			_, err := p.runs.Cancel(ctx, who, n.Run, reason)
			again = again || errors.Is(err, workflow.ErrConflict)
			if err != nil && !errors.Is(err, workflow.ErrConflict) && !errors.Is(err, workflow.ErrNotFound) {
				return err
			}
		}
		if err := p.advanceTree(ctx, org, id); err != nil || !again {
			return err
		}
	}
	return nil
}
