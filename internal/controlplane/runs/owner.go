package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxCopies is how many workspaces may change copies of one state.
const maxCopies = 50

// WhoseStates names the owners of the states that a run asks about. If none of them belongs to another workspace, a
// run that changes the state of its workspace makes that workspace the owner of all of them. The same call again
// changes nothing.
func (p *Calls) WhoseStates(ctx context.Context, token string, run api.Run, in api.StateRefs) (out api.WhoseStates, err error) {
	if len(in.States) == 0 || len(in.States) > api.MaxStates {
		return out, workflow.Refuse(workflow.ErrInvalid, "states", "ask about 1 to %d states", api.MaxStates)
	}
	_, out.Control, err = p.asHolder(ctx, token, run, nil, func(ctx context.Context, c *ledger.Change) error {
		w, _, err := ledger.Get[record.Workflow](c.Read, record.WorkflowKey(run.Workflow))
		if err != nil {
			return err
		}
		o, err := ownersOf(ctx, c, w.Org, in.States)
		if err != nil {
			return err
		}
		out.Others = nil
		for _, s := range in.States {
			if by := rules.Owner(w.WorkspaceID, s.Lineage, o.of(o.place(s)), o.of(o.lineage(s))); by != nil {
				other := api.OthersState{StateRef: s}
				if other.Workspace, err = o.shown(ctx, &w, by); err != nil {
					return err
				}
				out.Others = append(out.Others, other)
			}
		}
		switch {
		case !w.ChangesState():
			return nil
		case len(out.Others) > 0:
			return refuse(ctx, c, w.ID, out.Others)
		}
		for _, s := range in.States {
			o.take(&w, s)
		}
		o.write()
		return nil
	})
	return out, err
}

// refuse notes states that a run was not to change, beside those of its earlier calls.
func refuse(ctx context.Context, c *ledger.Change, id string, others []api.OthersState) error {
	k := record.RefusedKey(id)
	refused, _, err := ledger.Load[record.Refused](ctx, c, k)
	if err != nil {
		return err
	}
	for _, other := range others {
		if !slices.Contains(refused.States, other.StateRef) {
			refused.States = append(refused.States, other.StateRef)
		}
	}
	c.Put(k, refused)
	return nil
}

// keepState notes the lineage of a state that a run wrote to a place of its workspace: the first run finds no state
// there.
func keepState(ctx context.Context, c *ledger.Change, w *record.Workflow, found api.StateFound) error {
	s := api.StateRef{Place: found.Place, Lineage: found.Lineage}
	o, err := ownersOf(ctx, c, w.Org, []api.StateRef{s})
	if err == nil && o.of(o.place(s)).Has(w.WorkspaceID) {
		o.take(w, s)
		o.write()
	}
	return err
}

// owners are the records of the owners of some states. Those of deleted workspaces do not count.
type owners struct {
	c       *ledger.Change
	org     string
	by      map[store.Key]*record.Owner
	holders map[string]record.Workspace // by id
	changed []store.Key
}

// ownersOf reads the owners of states.
func ownersOf(ctx context.Context, c *ledger.Change, org string, states []api.StateRef) (*owners, error) {
	o := &owners{c: c, org: org, by: map[store.Key]*record.Owner{}, holders: map[string]record.Workspace{}}
	var keys []store.Key
	for _, s := range states {
		if keys = append(keys, o.place(s)); s.Lineage != "" {
			keys = append(keys, o.lineage(s))
		}
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, err
	}
	for _, k := range keys {
		by, ok, err := ledger.Get[record.Owner](c.Read, k)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		holder, ok, err := ledger.Load[record.Workspace](ctx, c, record.WorkspaceKey(org, by.Name))
		if err != nil {
			return nil, err
		}
		if ok && holder.ID == by.ID {
			o.by[k], o.holders[by.ID] = &by, holder
		}
	}
	return o, nil
}

func (o *owners) place(s api.StateRef) store.Key { return record.PlaceKey(o.org, s.Place) }

// lineage is the key of a state's lineage; the zero key, which has no record, of one that has none.
func (o *owners) lineage(s api.StateRef) store.Key {
	if s.Lineage == "" {
		return store.Key{}
	}
	return record.LineageKey(o.org, s.Lineage)
}

func (o *owners) of(k store.Key) *record.Owner { return o.by[k] }

// take makes the workspace of a run the owner of a state that belongs to no other workspace.
func (o *owners) take(w *record.Workflow, s api.StateRef) {
	mine := record.Owner{ID: w.WorkspaceID, Name: w.Workspace}
	if place := o.of(o.place(s)); place == nil {
		mine.Lineage = s.Lineage
		o.put(o.place(s), &mine)
	} else if place.ID == mine.ID && place.Lineage != s.Lineage {
		now := *place
		now.Lineage = s.Lineage
		o.put(o.place(s), &now)
	}
	if s.Lineage != "" && o.of(o.lineage(s)) == nil {
		o.put(o.lineage(s), &record.Owner{ID: mine.ID, Name: mine.Name, Place: s.Place})
	}
}

// put plans to write a record, or with nil to remove it.
func (o *owners) put(k store.Key, to *record.Owner) {
	o.by[k] = to
	if !slices.Contains(o.changed, k) {
		o.changed = append(o.changed, k)
	}
}

// write adds the planned operations to the change.
func (o *owners) write() {
	for _, k := range o.changed {
		if to := o.by[k]; to != nil {
			o.c.Put(k, to)
		} else {
			o.c.Remove(k)
		}
	}
}

// shown is the name of an owner if readers of the run may see that workspace: it is in the same project, or below it.
func (o *owners) shown(ctx context.Context, w *record.Workflow, by *record.Owner) (string, error) {
	ws, ok, err := workspaceOf(ctx, o.c, w)
	if err != nil || !ok {
		return "", err
	}
	above, err := catalog.Chain(ctx, o.c, o.org, o.holders[by.ID].W.Project)
	if err != nil || !slices.Contains(above, ws.W.Project) {
		return "", err
	}
	return by.Name, nil
}

// Own decides about states that a run was refused because they are those of other workspaces: they become its
// workspace's, or it may change them as copies. It needs an admin of all those workspaces' projects. One call decides
// about as many states as a runner's call may name; the next call about the next of them.
func (p *Calls) Own(ctx context.Context, who identity.Principal, id string, in api.Own) (out api.Owned, err error) {
	const action = "state.own"
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleAdmin, action, id, p.inWorkflow(who.Organization, id)); err != nil {
		return out, err
	}
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		out.States = []api.OthersState{}
		w, err := c.Workflow(ctx, who.Organization, id, record.RefusedKey(id))
		if err != nil {
			return err
		}
		if _, ok, err := workspaceOf(ctx, c, w); err != nil || !ok {
			return cmp.Or(err, workflow.Refuse(workflow.ErrNotFound, "workspace", "workspace %s of that run is deleted", w.Workspace))
		}
		refused, _, err := ledger.Get[record.Refused](c.Read, record.RefusedKey(id))
		if err != nil {
			return err
		}
		o, err := ownersOf(ctx, c, w.Org, refused.States)
		if err != nil {
			return err
		}
		var names []string
		for _, s := range refused.States {
			if len(out.States) == api.MaxStates {
				break
			}
			from, err := o.transfer(ctx, who, w, s, in.IsCopy)
			if err != nil {
				return err
			}
			if from != "" {
				out.States, names = append(out.States, api.OthersState{StateRef: s, Workspace: from}), append(names, from)
			}
		}
		if len(out.States) == 0 {
			return workflow.Refuse(workflow.ErrConflict, "", "workflow %s was refused no state that is another workspace's now: run it again", id)
		}
		o.write()
		slices.Sort(names)
		identity.Audit(c, who, action, w.Workspace, "done", fmt.Sprintf("%s of %s, refused to workflow %s; as a copy: %t",
			text.Count(len(out.States), "state"), text.Some(slices.Compact(names), 5), id, in.IsCopy))
		return nil
	})
	if err != nil {
		return out, identity.Refused(ctx, p.ledger, who, action, id, err)
	}
	p.ledger.Log.Warn("states of other workspaces decided about", "job_id", id, "states", len(out.States), "is_copy", in.IsCopy, "by", who.Name)
	return out, nil
}

// transfer gives a state to the workspace of a run, or lets it have a copy, and returns the name of the previous
// owner; empty if there was none.
func (o *owners) transfer(ctx context.Context, who identity.Principal, w *record.Workflow, s api.StateRef, isCopy bool) (from string, err error) {
	for {
		by := rules.Owner(w.WorkspaceID, s.Lineage, o.of(o.place(s)), o.of(o.lineage(s)))
		if by == nil {
			break
		}
		from = by.Name
		if err := o.mayTransfer(ctx, who, by, isCopy); err != nil {
			return "", err
		}
		for _, k := range []store.Key{o.place(s), o.lineage(s)} {
			switch is := o.of(k); {
			case is != by:
			case !isCopy:
				o.put(k, nil)
			case len(is.Copies) >= maxCopies:
				return "", workflow.Refuse(workflow.ErrTooLarge, "is_copy", "%d workspaces change copies of that state already", maxCopies)
			default:
				now := *is
				now.Copies = append(slices.Clone(is.Copies), w.WorkspaceID)
				o.put(k, &now)
			}
		}
		// The previous owner of the lineage does not keep its place either.
		if by.Place != "" && !isCopy {
			k := record.PlaceKey(o.org, by.Place)
			held, ok, err := ledger.Load[record.Owner](ctx, o.c, k)
			if err != nil {
				return "", err
			}
			if ok && held.ID == by.ID {
				o.put(k, nil)
			}
		}
	}
	if from != "" {
		o.take(w, s)
	}
	return from, nil
}

// mayTransfer refuses a caller who is not an admin of the workspace that owns a state, and the transfer of a state
// while a run may be changing it.
func (o *owners) mayTransfer(ctx context.Context, who identity.Principal, by *record.Owner, isCopy bool) error {
	scope, err := catalog.Chain(ctx, o.c, o.org, o.holders[by.ID].W.Project)
	if err != nil {
		return err
	}
	if !who.Has(api.RoleAdmin, scope...) {
		return workflow.Refuse(workflow.ErrForbidden, "", "the state is that of a workspace in another project: it takes an admin of both")
	}
	if isCopy {
		return nil
	}
	run, err := o.c.Holder(ctx, o.org, by.ID)
	if err == nil && run != nil {
		err = workflow.Refuse(workflow.ErrInUse, "workspace", "workflow %s may be changing the state of workspace %s: let it end first", run.ID, by.Name)
	}
	return err
}
