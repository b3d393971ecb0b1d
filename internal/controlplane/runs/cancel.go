package runs

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Cancel ends a workflow that waits, and asks a running one to end. A preview that has ended and whose plan waits for
// an approval is withdrawn: that is a rejection.
func (p *Calls) Cancel(ctx context.Context, who identity.Principal, id string, in api.WithReason) (api.Workflow, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleOperator, "workflow.cancel", id, p.inWorkflow(who.Organization, id)); err != nil {
		return api.Workflow{}, err
	}
	if err := in.Check(); err != nil {
		return api.Workflow{}, err
	}
	var poolID string
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		w, err := c.Workflow(ctx, who.Organization, id)
		if err != nil {
			return err
		}
		if err := who.Confine("workflow.cancel of "+id, ownPull(who, w)); err != nil {
			return err
		}
		poolID = w.PoolID
		if w.State == workflow.Succeeded && w.For != "" {
			if waits, err := p.withdraw(ctx, c, who, w, in.Reason); waits || err != nil {
				return err
			}
		}
		out, err := rules.Cancel(w, who.Name, in.Reason, c.Now)
		if err != nil || len(out.Notes) == 0 {
			return err
		}
		identity.Audit(c, who, "workflow.cancel", id, "done", in.Reason)
		return c.Apply(ctx, w, out)
	})
	if err != nil {
		return api.Workflow{}, identity.Refused(ctx, p.ledger, who, "workflow.cancel", id, err)
	}
	p.ledger.Notify(ledger.StatesOf(poolID))
	return p.Workflow(ctx, who, id)
}

// Unlock frees a workspace whose slot is held by a run that has ended but is not proven over. It frees the workspace
// only if the named workflow holds the slot.
func (p *Calls) Unlock(ctx context.Context, who identity.Principal, name string, in api.Unlock) (api.Workflow, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleAdmin, "workspace.unlock", name, p.catalog.InWorkspace(who.Organization, name)); err != nil {
		return api.Workflow{}, err
	}
	var poolID string
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		ws, err := catalog.Workspace(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		holder, err := c.Holder(ctx, who.Organization, ws.ID)
		if err != nil {
			return err
		}
		queue, err := c.Queue(ctx, ws.ID)
		if err != nil {
			return err
		}
		if holder == nil && queue.Unsaved != "" {
			poolID = ""
			return p.giveUp(ctx, c, who, ws, queue, in.Workflow)
		}
		out, err := rules.Unlock(name, holder, in.Workflow, who.Name)
		if err != nil {
			return err
		}
		poolID = holder.PoolID
		identity.Audit(c, who, "workspace.unlock", name, "done", "held by workflow "+holder.ID+", task "+holder.Holder.Task)
		return c.Apply(ctx, holder, out)
	})
	if err != nil {
		return api.Workflow{}, err
	}
	p.ledger.Log.Warn("workspace unlocked", "workspace", name, "job_id", in.Workflow, "by", who.Name)
	p.ledger.Notify(ledger.StatesOf(poolID))
	return p.Workflow(ctx, who, in.Workflow)
}

// giveUp lets runs change the state of a workspace again, without a push of the state that a run could not write.
func (p *Calls) giveUp(ctx context.Context, c *ledger.Change, who identity.Principal, ws record.Workspace, queue *record.Queue, id string) error {
	if queue.Unsaved != id {
		return workflow.Refuse(workflow.ErrConflict, "", "the state that could not be written is that of workflow %s, not of %s: look again", queue.Unsaved, text.Cut(id, 64))
	}
	identity.Audit(c, who, "workspace.unlock", ws.W.Name, "done", "gives up the state that workflow "+id+" could not write")
	gone := rules.Note{Kind: "given_up", Text: who.Name + " gives up the state that it could not write: the next run starts from the previous state, and may create the same resources again", Actor: who.Name}
	if err := c.Decided(ctx, queue, gone); err != nil {
		return err
	}
	return c.Promote(ctx, ws.ID)
}

// Slot says which run holds a workspace's slot, and whether the caller may unlock it.
func (p *Calls) Slot(ctx context.Context, who identity.Principal, name string) (api.Slot, error) {
	out := api.Slot{Workspace: name}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.slot", name, p.catalog.InWorkspace(who.Organization, name)); err != nil {
		return out, err
	}
	c := p.ledger.View()
	ws, err := catalog.Workspace(ctx, c, who.Organization, name)
	if err != nil {
		return out, err
	}
	w, err := c.Holder(ctx, who.Organization, ws.ID)
	if err != nil {
		return out, err
	}
	queue, err := c.Queue(ctx, ws.ID)
	if err != nil {
		return out, err
	}
	if w == nil && queue.Unsaved != "" {
		if w, err = c.Workflow(ctx, who.Organization, queue.Unsaved); err == nil {
			out.IsUnsaved = true
			out.Holder, err = p.holder(ctx, c, w)
		}
		return out, err
	}
	id := ""
	if w != nil {
		id = w.ID
		if out.Holder, err = p.holder(ctx, c, w); err != nil {
			return out, err
		}
		beat, err := c.Beat(id)
		if err != nil {
			return out, err
		}
		if sign := rules.Latest(beat.At, w.Started); !sign.IsZero() {
			out.LastSign = &sign
		}
		if w.State.Terminal() {
			now, err := c.Time(ctx, w.PoolID)
			if err != nil {
				return out, err
			}
			free := now.Wall(rules.SlotEnds(w))
			out.FreeAt = &free
		}
	}
	if _, err := rules.Unlock(name, w, id, who.Name); err != nil {
		out.Refusal = err.Error()
	}
	return out, nil
}

// holder is a run as the slot shows it.
func (p *Calls) holder(ctx context.Context, c *ledger.Change, w *record.Workflow) (*api.Workflow, error) {
	names, err := catalog.Names(ctx, p.ledger, w.Org, w.PoolID)
	out := view(w, names[w.PoolID], c.Version(record.WorkflowKey(w.ID)))
	return &out, err
}
