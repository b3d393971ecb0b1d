package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Workspace reads a workspace into the change.
func Workspace(ctx context.Context, c *ledger.Change, org, name string) (record.Workspace, error) {
	gone := workflow.Refuse(workflow.ErrNotFound, "workspace", "there is no workspace %q", text.Cut(name, 64))
	if workflow.CheckWorkspaceName(name) != nil {
		return record.Workspace{}, gone
	}
	ws, ok, err := ledger.Load[record.Workspace](ctx, c, record.WorkspaceKey(org, name))
	if err == nil && !ok {
		return ws, gone
	}
	return ws, err
}

func (p *Calls) view(r record.Workspace, version int64) api.Workspace {
	w := r.W
	w.ID, w.Version = r.ID, version
	if w.State != nil { // the record of a change that was refused has none
		state := showState(*w.State)
		w.State = &state
	}
	return w
}

// PutWorkspace makes or replaces a workspace. Workflows that are already submitted keep the settings that they were
// submitted with.
func (p *Calls) PutWorkspace(ctx context.Context, who identity.Principal, in api.Workspace) (w api.Workspace, outcome api.Outcome, err error) {
	return p.putWorkspace(ctx, who, in, nil)
}

// errOnlyChecked ends a decision that is not to be committed.
var errOnlyChecked = errors.New("only checked")

// CheckWorkspace answers, or refuses, as PutWorkspace would, and changes nothing.
func (p *Calls) CheckWorkspace(ctx context.Context, who identity.Principal, in api.Workspace) (w api.Workspace, outcome api.Outcome, err error) {
	return p.putWorkspace(ctx, who, in, errOnlyChecked)
}

// putWorkspace is both of them. instead, where given, ends the change in place of its commit.
func (p *Calls) putWorkspace(ctx context.Context, who identity.Principal, in api.Workspace, instead error) (w api.Workspace, outcome api.Outcome, err error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleOperator, "workspace.apply", in.Name, p.InApplied(who.Organization, in)); err != nil {
		return api.Workspace{}, "", err
	}
	if err := p.Check(&in); err != nil {
		return api.Workspace{}, "", err
	}
	var put Put
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) (err error) {
		if put, err = p.Apply(ctx, c, who, in); err != nil {
			return err
		}
		return instead
	})
	if instead != nil && errors.Is(err, instead) {
		return p.view(put.Record, put.Version), put.Outcome, nil
	}
	if err == nil && put.Outcome == api.OutcomeChanged {
		err = p.promoteRest(ctx, put.Record.ID)
		if put.rerouted {
			p.RerouteAll(ctx, who.Organization)
		}
	}
	return p.view(put.Record, put.Version), put.Outcome, identity.Refused(ctx, p.ledger, who, "workspace.apply", in.Name, err)
}

// Check refuses settings that could not run, and fills in defaults.
func (p *Calls) Check(in *api.Workspace) error {
	if err := checkWorkspace(in); err != nil {
		return err
	}
	if p.cfg.NoRoles && pathOfRoles(*in) != "" {
		field := "role"
		if in.Role == "" {
			field = "preview_role"
		}
		return workflow.Refuse(workflow.ErrUnsupported, field,
			"dayfly up has no cloud identity and cannot assume a role: leave role and preview_role out, and name credentials under secrets, or run the workspace in a pool on AWS")
	}
	return nil
}

// Put is a workspace as it is after a change.
type Put struct {
	Record  record.Workspace
	Version int64
	Outcome api.Outcome

	rerouted bool // not all of its claimable runs fitted into the commit
}

// Apply creates a workspace in a change, or updates it. The workspace was checked.
func (p *Calls) Apply(ctx context.Context, c *ledger.Change, who identity.Principal, in api.Workspace) (Put, error) {
	k := record.WorkspaceKey(who.Organization, in.Name)
	before, ok, err := ledger.Load[record.Workspace](ctx, c, k)
	if err != nil {
		return Put{}, err
	}
	created, version := !ok, c.Version(k)
	if err := checkExpected(in, before.ID, version); err != nil {
		return Put{}, err
	}
	pool, err := poolOf(ctx, c, who.Organization, in)
	if err == nil {
		err = checkRoleOfPool(pool, in)
	}
	if err != nil {
		return Put{}, err
	}

	rec := record.Workspace{ID: before.ID, Created: before.Created, W: in, By: before.By, ByID: before.ByID}
	rec.W.ID, rec.W.Version, rec.W.Applied = "", 0, nil // the record has its own id and version, and the applied commit has its own record
	put := Put{Version: version, Outcome: api.OutcomeChanged}
	var kept *api.State
	if created {
		rec.ID, rec.Created = record.NewID("ws_", c.Now), c.Now
		put.Outcome = api.OutcomeCreated
	} else {
		kept = before.W.State
	}
	if err := checkState(&in, kept); err != nil {
		return Put{}, err
	}
	rec.W.State = keepState(kept, in.State, rec.ID, p.cfg.DefaultState)
	if !created && same(before.W, rec.W) {
		put.Record, put.Outcome = rec, api.OutcomeUnchanged
		return put, nil // nothing to change, nothing to audit
	}
	if rec.Settings() != before.Settings() {
		rec.By, rec.ByID = who.Name, who.ID
	}

	was := before.W
	was.ID = before.ID
	if named, err := namedAnew(ctx, c, who.Organization, was, in, pool); err != nil {
		return Put{}, err
	} else if !named {
		was.Pool = in.Pool
	}
	if err := mayApply(ctx, c, who, was, in, pool); err != nil {
		return Put{}, err
	}
	if err := updateGraph(ctx, c, who, before.W, in); err != nil {
		return Put{}, err
	}
	if put.rerouted, err = updateRoute(ctx, c, who.Organization, before.W, rec); err != nil {
		return Put{}, err
	}
	if !created && before.W.MaxActive != in.MaxActive {
		if err := updateQueue(ctx, c, rec); err != nil {
			return Put{}, err
		}
	}

	c.Put(k, rec)
	put.Record, put.Version = rec, version+1
	text := ""
	if !reflect.DeepEqual(was.Approval, in.Approval) {
		text = "approval " + in.Approval.Text()
	}
	identity.Audit(c, who, "workspace.apply", in.Name, "done", text)
	return put, nil
}

// checkExpected refuses a change of a workspace that is not the one, or not as it was, when the caller read it.
func checkExpected(in api.Workspace, id string, version int64) error {
	if in.Version != 0 && in.Version != version {
		return workflow.Refuse(workflow.ErrConflict, "version", "workspace %s is at version %d, not %d: somebody changed it; read it again", in.Name, version, in.Version)
	}
	if in.ID != "" && in.ID != id {
		return workflow.Refuse(workflow.ErrConflict, "id", "workspace %s has another id: it was deleted and made again, or it is another workspace; read it again, or leave the id out", in.Name)
	}
	return nil
}

// namedAnew says whether a change names a pool to which the workspace would not lead anyway.
func namedAnew(ctx context.Context, c *ledger.Change, org string, before, in api.Workspace, pool record.Pool) (bool, error) {
	if before.Pool == in.Pool {
		return false, nil
	}
	in.Pool = before.Pool
	choice, err := ChoiceOf(ctx, c, org, record.Workspace{W: in})
	return choice.PoolID != pool.ID, err
}

// adminsFields refuses a change of the fields that only an admin sets. The pool is the one that the changed workspace
// names.
func adminsFields(before, in api.Workspace, pool record.Pool) error {
	switch {
	case before.Role != in.Role:
		return workflow.Refuse(workflow.ErrForbidden, "role", "the role of a workspace is set by an admin; leave it as it is, or ask one")
	case before.PreviewRole != in.PreviewRole:
		return workflow.Refuse(workflow.ErrForbidden, "preview_role", "the role of a workspace's previews is set by an admin; leave it as it is, or ask one")
	case !slices.Equal(before.Labels, in.Labels), before.Runner != in.Runner:
		return workflow.Refuse(workflow.ErrForbidden, "pool", "labels and runner of a workspace choose its machines and are set by an admin; leave them as they are, or ask one")
	case !sameRefs(before, in):
		return workflow.Refuse(workflow.ErrForbidden, "secrets", "references to secrets, and the settings that they are used with, are set by an admin; leave them as they are, or ask one")
	case !sameSensitive(before, in):
		return workflow.Refuse(workflow.ErrForbidden, "inputs", "sensitive outputs that a workspace takes from others are set by an admin; leave them as they are, or ask one")
	case !rules.Tightens(before.Approval, in.Approval):
		return workflow.Refuse(workflow.ErrForbidden, "approval", "the approval that a workspace requires is taken away, or made less strict, by an admin; leave it as it is, make it stricter, or ask one")
	case before.Pool != in.Pool && !pool.Names(before.ID):
		// A pool is a boundary of trust: it decides which machines and secrets the code can reach.
		return workflow.Refuse(workflow.ErrForbidden, "pool", "the pool of a workspace is set by an admin; leave it as it is, or ask one to set it, or to assign workspace %s to the pool by its name", in.Name)
	}
	return nil
}

// updateQueue applies a new limit to the waiting workflows.
func updateQueue(ctx context.Context, c *ledger.Change, ws record.Workspace) error {
	queue, err := c.Queue(ctx, ws.ID)
	if err != nil {
		return err
	}
	queue.Max = MaxActive(ws.W)
	return c.Promote(ctx, ws.ID)
}

// MaxActive is how many runs of a workspace may be active at once.
func MaxActive(w api.Workspace) int { return cmp.Or(w.MaxActive, ledger.DefaultMaxActive) }

// promoteRest makes the workflows claimable that did not fit into one commit. If it is interrupted, the next commit
// of the workspace continues.
func (p *Calls) promoteRest(ctx context.Context, wsid string) error {
	for more := true; more; {
		err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) (err error) {
			if err := c.Promote(ctx, wsid); err != nil {
				return err
			}
			more = len(c.Ops()) > 0
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two workspaces have the same settings. An empty map equals no map.
func same(a, b api.Workspace) bool {
	one, err := json.Marshal(a)
	two, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(one, two)
}

// sameRefs reports whether two workspaces name the same secrets.
func sameRefs(a, b api.Workspace) bool {
	refs := func(w api.Workspace) []string {
		var out []string
		for _, s := range w.Secrets {
			out = append(out, fmt.Sprintf("%s|%s|%s|%s|%t", s.Env, s.File, s.Ref, strings.Join(s.Steps, ","), s.Preview))
		}
		if g := w.Source.Git; g != nil {
			// A token is sent to the URL and with the user name that are set with it, and a key is used with a host
			// whose key is among the known ones. So they count too. With submodules the code names more addresses.
			if g.TokenRef != "" || g.SSHKeyRef != "" {
				out = append(out, fmt.Sprintf("%s|%s|%s|%s|%s|%t", g.URL, g.TokenRef, g.Username, g.SSHKeyRef, g.KnownHosts, g.Submodules))
			}
		}
		for _, m := range w.Modules {
			out = append(out, fmt.Sprintf("%s|%s|%s|%s|%s|%t", m.Host, m.TokenRef, m.Username, m.SSHKeyRef, m.KnownHosts, m.Preview))
		}
		if x := w.Source.Archive; x != nil && x.TokenRef != "" {
			out = append(out, x.URL+"|"+x.TokenRef)
		}
		return out
	}
	return slices.Equal(refs(a), refs(b))
}

// Workspaces lists the workspaces by name.
func (p *Calls) Workspaces(ctx context.Context, who identity.Principal, cursor string, limit int) (out api.Page[api.Workspace], err error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.list", "", who.AnyProject); err != nil {
		return out, err
	}
	all := record.Under(record.OrganizationPart(who.Organization), "workspace/", ledger.PageSize(limit, 100))
	sees := Sees(ctx, p.ledger.View(), who)
	out, err = ledger.ListWhere(ctx, p.ledger, all, cursor, func(ws record.Workspace) (bool, error) { return sees(ws.W.Project) }, p.view)
	if err == nil {
		err = p.addApplied(ctx, who.Organization, out.Items)
	}
	return out, err
}

// addApplied adds the commit that was applied last to each workspace.
func (p *Calls) addApplied(ctx context.Context, org string, list []api.Workspace) error {
	var keys []store.Key
	for _, w := range list {
		keys = append(keys, record.AppliedKey(org, w.ID))
	}
	r, err := p.ledger.Read(ctx, keys...)
	for i := range list {
		if err != nil {
			return err
		}
		var applied record.Applied
		applied, _, err = ledger.Get[record.Applied](r, keys[i])
		list[i].Applied = applied.Push
	}
	return err
}

// Workspace answers about one workspace.
func (p *Calls) Workspace(ctx context.Context, who identity.Principal, name string) (api.Workspace, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.show", name, p.InWorkspace(who.Organization, name)); err != nil {
		return api.Workspace{}, err
	}
	c := p.ledger.View()
	rec, err := Workspace(ctx, c, who.Organization, name)
	if err != nil {
		return api.Workspace{}, err
	}
	out := []api.Workspace{p.view(rec, c.Version(record.WorkspaceKey(who.Organization, name)))}
	err = p.addApplied(ctx, who.Organization, out)
	return out[0], err
}

// DeleteWorkspace removes a workspace if none of its workflows waits or runs. It does not touch the engine's state or
// the resources in it.
func (p *Calls) DeleteWorkspace(ctx context.Context, who identity.Principal, name string) error {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleAdmin, "workspace.delete", name, p.InWorkspace(who.Organization, name)); err != nil {
		return err
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		// No pool is assigned to it meanwhile.
		if err := c.Tree(ctx, who.Organization); err != nil {
			return err
		}
		rec, err := Workspace(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		queue, _, err := ledger.Load[record.Queue](ctx, c, record.QueueKey(rec.ID))
		if err != nil {
			return err
		}
		if queue.Unsaved != "" {
			get, push := api.PushErrored(queue.Unsaved, name, rec.W.Engine)
			return workflow.Refuse(workflow.ErrInUse, "workspace", "the state that workflow %s could not write is not pushed yet: push it (%s, then %s), or give it up (dayfly repair unlock %s)", queue.Unsaved, get, push, name)
		}
		if !queue.Empty() {
			return workflow.Refuse(workflow.ErrInUse, "workspace", "workflows of workspace %s are waiting or active; cancel them or let them end", name)
		}
		if err := count(ctx, c, who.Organization, rec.W, api.Workspace{}); err != nil {
			return err
		}
		if err := leaveGraph(ctx, c, who.Organization, name); err != nil {
			return err
		}
		if err := unwaived(ctx, c, who.Organization, name); err != nil {
			return err
		}
		if err := unscheduled(ctx, c, who.Organization, "workspace", name); err != nil {
			return err
		}
		if err := unassign(ctx, c, who.Organization, rec.ID); err != nil {
			return err
		}
		in, err := Projects(ctx, c, who.Organization, rec.W.Project)
		if err != nil {
			return err
		}
		produced := record.ProducedKey(who.Organization, rec.ID)
		if err := c.Load(ctx, produced); err != nil {
			return err
		}
		c.Remove(produced)
		c.Remove(record.QueueKey(rec.ID))
		c.Remove(record.WorkspaceKey(who.Organization, name))
		c.Create(record.DeletedKey(who.Organization, name, c.Now, rec.ID), record.Deleted{
			ID: rec.ID, Name: name, Project: rec.W.Project, ProjectID: in[0].ID, State: *rec.W.State, At: c.Now, By: who.Name,
		})
		identity.Audit(c, who, "workspace.delete", name, "done", "")
		return nil
	})
}

// DeletedWorkspaces lists deleted workspaces by name, and where the states of their engines are.
func (p *Calls) DeletedWorkspaces(ctx context.Context, who identity.Principal, cursor string, limit int) (api.Page[api.DeletedWorkspace], error) {
	out := api.Page[api.DeletedWorkspace]{Items: []api.DeletedWorkspace{}}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.list_deleted", "", who.AnyProject); err != nil {
		return out, err
	}
	all := record.Under(record.OrganizationPart(who.Organization), "deleted/", ledger.PageSize(limit, 100))
	c := p.ledger.View()
	sees := func(d record.Deleted) (bool, error) {
		scope, err := GoneFrom(ctx, c, who.Organization, d)
		return err == nil && who.Has(api.RoleViewer, scope...), err
	}
	gone, err := ledger.ListWhere(ctx, p.ledger, all, cursor, sees, ledger.AsStored[record.Deleted])
	if err != nil {
		return out, err
	}
	var keys []store.Key
	for _, d := range gone.Items {
		keys = append(keys, record.StateKey(who.Organization, d.ID))
	}
	found, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return out, err
	}
	for i, d := range gone.Items {
		one := api.DeletedWorkspace{ID: d.ID, Name: d.Name, Project: d.Project, State: showState(d.State), DeletedAt: d.At, DeletedBy: d.By}
		if f, ok, err := ledger.Get[api.StateFound](found, keys[i]); err != nil {
			return out, err
		} else if ok {
			one.Found = &f
		}
		out.Items = append(out.Items, one)
	}
	out.Next = gone.Next
	return out, nil
}

// How many deleted workspaces of the same name are read, and how many of them a run gets.
const (
	maxGone      = 20
	maxNamesakes = 3
)

// Namesakes returns the deleted workspaces that had the name of a workspace, the most recent first, as long as
// nothing is known of its state. Those of another project are only for an admin of both projects (of the
// organization, if the other one is deleted) who asks for the run in person; from anybody else they are withheld.
func Namesakes(ctx context.Context, c *ledger.Change, who identity.Principal, ws record.Workspace, inPerson bool) (shown []api.Namesake, withheld bool, err error) {
	org := who.Organization
	k := record.StateKey(org, ws.ID)
	if err := c.Load(ctx, k); err != nil || c.Version(k) != store.Absent {
		return nil, false, err
	}
	prefix := record.DeletedPrefix(ws.W.Name)
	page, err := c.Range(ctx, store.Scan{Part: record.OrganizationPart(org), From: record.After(prefix), To: prefix, Reverse: true, Limit: maxGone})
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Records {
		gone, err := record.Decode[record.Deleted](r)
		if err != nil {
			return nil, false, err
		}
		may, err := mayInherit(ctx, c, who, ws, gone, inPerson)
		switch {
		case err != nil:
			return nil, false, err
		case !may:
			withheld = true
		case len(shown) < maxNamesakes:
			shown = append(shown, api.Namesake{ID: gone.ID, State: gone.State})
		}
	}
	return shown, withheld, nil
}

// mayInherit says whether a run of a workspace may know the state of a deleted one.
func mayInherit(ctx context.Context, c *ledger.Change, who identity.Principal, ws record.Workspace, gone record.Deleted, inPerson bool) (bool, error) {
	own, err := Projects(ctx, c, who.Organization, ws.W.Project)
	if err != nil || own[0].ID == gone.ProjectID {
		return err == nil, err
	}
	if !inPerson {
		return false, nil
	}
	other, err := GoneFrom(ctx, c, who.Organization, gone)
	return err == nil && who.Has(api.RoleAdmin, names(own)...) && who.Has(api.RoleAdmin, other...), err
}

// GoneFrom reads the names of the project that a deleted workspace was in and of those above it. There are none if
// that project is deleted, also where another one has its name.
func GoneFrom(ctx context.Context, c *ledger.Change, org string, gone record.Deleted) ([]string, error) {
	chain, err := Projects(ctx, c, org, gone.Project)
	switch {
	case errors.Is(err, workflow.ErrNotFound):
		return nil, nil
	case err != nil || chain[0].ID != gone.ProjectID:
		return nil, err
	}
	return names(chain), nil
}
