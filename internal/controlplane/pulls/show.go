package pulls

import (
	"context"
	"errors"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// show makes the delivery that shows a pull request as it is now, unless one is under way: that one is then followed
// by another. So the comment is never written by two at once.
func show(ctx context.Context, c *ledger.Change, org string, host record.Settings[api.GitHost], pull *record.Pull) error {
	if under, err := shows(ctx, c, org, pull.Showing); under || err != nil {
		pull.Stale = true
		return err
	}
	d, err := pullDelivery(ctx, c, org, host, api.DeliverShow, record.PullDelivery{HostID: host.ID, Repository: pull.Repository, Number: pull.Number})
	pull.Showing, pull.Stale = d.ID, false
	return err
}

// shows says whether a delivery is still to be done, or under way. One that its pool does not claim in time is given
// up without a write.
func shows(ctx context.Context, c *ledger.Change, org, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	d, ok, err := c.Delivery(ctx, org, id)
	return ok && d.Ended.IsZero() && d.Stands(c.Now) != api.DeliveryFailed, err
}

// pullDelivery makes a delivery about a pull request.
func pullDelivery(ctx context.Context, c *ledger.Change, org string, host record.Settings[api.GitHost], kind string, about record.PullDelivery) (record.Delivery, error) {
	d := record.Delivery{ID: record.NewID(record.DeliveryIDs, c.Now), Org: org, Kind: kind, For: host.V.Name, ForID: host.ID, Created: c.Now, Pull: &about}
	pool, err := catalog.Named(ctx, c, org, host.V.Pool)
	if err == nil {
		err = c.Deliver(ctx, &d, pool)
	}
	return d, err
}

// PullTask is the task of a pool's side for a delivery about a pull request; why says why there is none. The host
// shows the state at the time of the claim.
func (p *Calls) PullTask(ctx context.Context, c *ledger.Change, d *record.Delivery) (call *api.HostCall, why string, err error) {
	host, ok, err := gitHostOf(ctx, c, d.Org, d.Pull.HostID)
	if err != nil || !ok {
		return nil, "git host " + d.For + " was deleted or disabled", err
	}
	call = &api.HostCall{Kind: host.V.Kind, URL: host.V.URL, TokenRef: host.V.TokenRef, Repository: d.Pull.Repository, Number: d.Pull.Number}
	if d.Kind == api.DeliverRead {
		call.Read = &api.ReadPull{}
		if d.Pull.Said != nil {
			call.Read.Comment = d.Pull.Said.Comment
		}
		return call, "", nil
	}
	k := record.PullKey(d.Org, d.Pull.HostID, d.Pull.Repository, d.Pull.Number)
	pull, ok, err := ledger.Load[record.Pull](ctx, c, k)
	if err != nil || !ok {
		return nil, "nothing is known of the pull request any more", err
	}
	if pull.Showing != d.ID { // it was given up, and is replayed
		if under, err := shows(ctx, c, d.Org, pull.Showing); under || err != nil {
			return nil, "a newer delivery shows the pull request", err
		}
	}
	call.Show, d.Pull.Shows, err = p.showOf(ctx, d.Org, host, pull)
	if pull.Stale || pull.Showing != d.ID {
		pull.Showing, pull.Stale = d.ID, false // this one shows it
		c.PutUntil(k, pull, c.Now.Add(record.PullKept))
	}
	return call, "", err
}

// showOf is how a pull request is shown now, and the runs whose plans can be seen in that.
func (p *Calls) showOf(ctx context.Context, org string, host record.Settings[api.GitHost], pull record.Pull) (*api.ShowPull, []string, error) {
	who := itself(org, host, api.RoleViewer)
	out := pullrequest.Comment{
		Organization: org, Key: host.V.Name, Commit: pull.Head, Posted: pull.Comment != 0, Held: pull.Waits, Commands: len(host.V.Members) > 0,
	}
	if pull.Note != "" {
		out.Notes = append(out.Notes, pull.Note)
	}
	if pull.More > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("It concerns %d more workspaces: at most %d are previewed.", pull.More, maxPreviews))
	}
	var shows []string
	for _, one := range pull.Previews {
		seen := pullrequest.Preview{Run: api.Workflow{Workspace: one.Workspace}, Refused: one.Refused}
		if one.Run != "" {
			var err error
			if seen, err = p.seen(ctx, who, one.Run); errors.Is(err, workflow.ErrNotFound) {
				continue // its workspace or its records are gone
			} else if err != nil {
				return nil, nil, err
			}
		}
		if seen.Plan != nil {
			shows = append(shows, one.Run)
		}
		out.Previews = append(out.Previews, seen)
	}
	show := &api.ShowPull{Comment: pull.Comment, Marker: pullrequest.Marker(org, host.V.Name), Commit: pull.Head, Context: "dayfly", Link: p.cfg.Address}
	show.State, show.Description = pullrequest.Status(out)
	if !pullrequest.Silent(out) {
		show.Body = pullrequest.Render(out, pullrequest.Limit(host.V.Kind))
	}
	return show, shows, nil
}

// seen is a run of a pull request as its comment shows it.
func (p *Calls) seen(ctx context.Context, who identity.Principal, id string) (out pullrequest.Preview, err error) {
	if out.Run, err = p.runs.Workflow(ctx, who, id); err != nil {
		return out, err
	}
	if p.cfg.Address != "" {
		out.URL = p.cfg.Address + "/runs/" + id
	}
	plan, err := p.runs.Plan(ctx, who, id)
	switch {
	case err == nil:
		out.Plan = &plan
	case !errors.Is(err, workflow.ErrNotFound) && !errors.Is(err, workflow.ErrConflict):
		return out, err
	}
	if r := out.Run.Review; r != nil && r.Applies != "" {
		applies, err := p.runs.Workflow(ctx, who, r.Applies)
		if err != nil && !errors.Is(err, workflow.ErrNotFound) {
			return out, err
		}
		if err == nil {
			out.Apply = &applies
		}
	}
	return out, nil
}

// Shown notes the comment that the host shows from now on; shown is nil if the comment did not change, or if the
// delivery was given up. Another delivery shows the changes since then.
func Shown(ctx context.Context, c *ledger.Change, d record.Delivery, shown *api.CommentShown) error {
	if d.Kind != api.DeliverShow || d.Pull == nil {
		return nil
	}
	k := record.PullKey(d.Org, d.Pull.HostID, d.Pull.Repository, d.Pull.Number)
	pull, ok, err := ledger.Load[record.Pull](ctx, c, k)
	if err != nil || !ok || pull.Showing != d.ID {
		return err
	}
	pull.Showing = ""
	if shown != nil {
		pull.Comment = shown.ID
		for i, one := range pull.Previews {
			for _, id := range d.Pull.Shows {
				if one.Run == id && one.Shown.IsZero() {
					pull.Previews[i].Shown = shown.At
				}
			}
		}
	}
	if host, ok, err := gitHostOf(ctx, c, d.Org, d.Pull.HostID); err != nil {
		return err
	} else if ok && pull.Stale {
		if err := show(ctx, c, d.Org, host, &pull); err != nil {
			return err
		}
	}
	c.PutUntil(k, pull, c.Now.Add(record.PullKept))
	return nil
}

// OnEvent shows a pull request anew, because one of its runs has ended or a plan of it was decided on.
func OnEvent(ctx context.Context, c *ledger.Change, org string, t record.Trigger) error {
	host, ok, err := ledger.Load[record.Settings[api.GitHost]](ctx, c, record.SettingsKey(org, kind.GitHost, t.Name))
	if err != nil || !ok || host.V.IsDisabled {
		return err
	}
	k := record.PullKey(org, host.ID, t.Repository, t.Number)
	pull, ok, err := ledger.Load[record.Pull](ctx, c, k)
	if err != nil || !ok {
		return err // it is of a pipeline
	}
	if err := show(ctx, c, org, host, &pull); err != nil {
		return err
	}
	c.PutUntil(k, pull, c.Now.Add(record.PullKept))
	return nil
}

// PoolOf is the name of the pool whose side does a delivery about a pull request that is replayed.
func PoolOf(ctx context.Context, c *ledger.Change, d record.Delivery) (string, error) {
	host, ok, err := gitHostOf(ctx, c, d.Org, d.Pull.HostID)
	if err == nil && !ok {
		err = workflow.Refuse(workflow.ErrConflict, "id", "git host %s was deleted or disabled: nothing would be done", d.For)
	}
	return host.V.Pool, err
}

// Unshow notes that a pull request is not shown by a delivery that was dropped. The next event of it shows it again.
func Unshow(ctx context.Context, c *ledger.Change, d record.Delivery) error {
	if d.Kind != api.DeliverShow {
		return nil
	}
	k := record.PullKey(d.Org, d.Pull.HostID, d.Pull.Repository, d.Pull.Number)
	pull, ok, err := ledger.Load[record.Pull](ctx, c, k)
	if err != nil || !ok || pull.Showing != d.ID {
		return err
	}
	pull.Showing, pull.Stale = "", false
	c.PutUntil(k, pull, c.Now.Add(record.PullKept))
	return nil
}
