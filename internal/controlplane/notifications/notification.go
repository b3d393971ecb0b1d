package notifications

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pulls"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func settings(l *ledger.Ledger) *identity.Settings[api.Notification, api.Notification] {
	return identity.SettingsFor(l, kind.Notification, identity.SettingsRules[api.Notification, api.Notification]{
		Prepare: prepareNotification,
		View: func(rec record.Settings[api.Notification], version int64) api.Notification {
			n := rec.V
			n.CreatedAt, n.Version = &rec.Created, version
			return n
		},
		Brief: func(n api.Notification) string {
			return fmt.Sprintf("format %s, events %s, pool %s", n.Format, cmp.Or(strings.Join(n.Events, ","), "all"), cmp.Or(n.Pool, "default"))
		},
	})
}

// prepareNotification refuses a notification that cannot be sent.
func prepareNotification(ctx context.Context, c *ledger.Change, org string, n api.Notification, _ *record.Settings[api.Notification]) (api.Notification, error) {
	if err := checkNotification(n); err != nil {
		return n, err
	}
	for _, name := range n.Projects {
		if workflow.CheckWorkspaceName(name) != nil {
			return n, workflow.Invalid("projects", "there is no project %q", text.Cut(name, 64))
		}
		if _, err := catalog.Projects(ctx, c, org, name); err != nil {
			return n, err
		}
		c.Check(record.ProjectKey(org, name))
	}
	return n, catalog.CheckPool(ctx, c, org, n.Pool)
}

// checkNotification refuses a notification that is invalid by itself, without other records. It is a pure function.
func checkNotification(n api.Notification) error {
	if err := workflow.CheckText("description", n.Description, 1000); err != nil {
		return err
	}
	if len(n.Projects) > 100 {
		return workflow.Invalid("projects", "a notification has at most 100 projects")
	}
	for _, e := range n.Events {
		if !slices.Contains([]string{api.EventFailed, api.EventApproval, api.EventDrift, api.EventStuck}, e) {
			return workflow.Invalid("events", "events are failed, approval, drift and stuck, not %q", text.Cut(e, 40))
		}
	}
	switch {
	case (n.URL == "") == (n.URLRef == ""):
		return workflow.Invalid("url", "set one of url and url_ref: the address, or the reference of the secret that holds it")
	case n.Format != api.FormatDayfly && n.Format != api.FormatSlack:
		return workflow.Invalid("format", "the format is dayfly or slack, not %q", text.Cut(n.Format, 40))
	case n.Format == api.FormatDayfly && n.SecretRef == "":
		return workflow.Invalid("secret_ref", "format dayfly is signed: name the secret that it is signed with")
	case n.Format == api.FormatSlack && n.SecretRef != "":
		return workflow.Invalid("secret_ref", "format slack is not signed: leave secret_ref out")
	}
	return checkAddresses(n)
}

// checkAddresses checks the address of a notification, and its references to secrets.
func checkAddresses(n api.Notification) error {
	if n.URL != "" {
		if err := catalog.CheckURL(n.URL); err != nil {
			return err
		}
	}
	for field, ref := range map[string]string{"url_ref": n.URLRef, "secret_ref": n.SecretRef} {
		if len(ref) > 2048 {
			return workflow.Invalid(field, "a reference has at most 2048 bytes")
		}
		if ref == "" {
			continue
		}
		if err := catalog.CheckRef(field, ref); err != nil {
			return err
		}
	}
	return nil
}

// eventPage is how many events are read at once.
const eventPage = 25

// Notify makes deliveries for the outbox events of an organization, until a time. Each commit does so for one event
// and removes it. So each notification gets an event once, even if several processes do this, or one fails. The pass
// calls it.
func (p *Calls) Notify(ctx context.Context, org string, until time.Time) error {
	var failures []error
	for from := ""; p.ledger.Now().Before(until) && ctx.Err() == nil; {
		page, err := p.ledger.Range(ctx, store.Scan{Part: record.OutboxPart(org), Limit: eventPage, After: from})
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			p.trees.OnEvent(ctx, org, r)
			if err := p.notifyOne(ctx, org, r.Key); err != nil {
				failures = append(failures, fmt.Errorf("notify of %s: %w", r.Key, err))
			}
			if !p.ledger.Now().Before(until) || ctx.Err() != nil {
				break
			}
		}
		if from = page.Next; from == "" {
			break
		}
	}
	return errors.Join(failures...)
}

func (p *Calls) notifyOne(ctx context.Context, org string, k store.Key) error {
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		n, ok, err := ledger.Load[record.OutboxEvent](ctx, c, k)
		if err != nil || !ok {
			return err // done by another process
		}
		c.Remove(k)
		if n.Trigger != nil && n.Trigger.Number != 0 {
			if err := pulls.OnEvent(ctx, c, org, *n.Trigger); err != nil {
				return err
			}
		}
		if n.Event == record.EventMoved {
			return nil
		}
		projects, err := projectsOf(ctx, c, org, n)
		if err != nil {
			return err
		}
		for to, err := range ledger.AllOf[record.Settings[api.Notification]](ctx, c, record.SettingsOf(org, kind.Notification, 100)) {
			if err != nil {
				return err
			}
			if !wants(to.V, n.Event, projects) {
				continue
			}
			if err := p.notify(ctx, c, org, to, n, projects); err != nil {
				return err
			}
		}
		return nil
	})
}

// projectsOf is the project of an event's workspace, and those above it; none if the workspace was deleted.
func projectsOf(ctx context.Context, c *ledger.Change, org string, n record.OutboxEvent) ([]string, error) {
	ws, ok, err := ledger.Load[record.Workspace](ctx, c, record.WorkspaceKey(org, n.Workspace))
	if err != nil || !ok || ws.ID != n.WorkspaceID {
		return nil, err
	}
	names, err := catalog.Chain(ctx, c, org, ws.W.Project)
	if errors.Is(err, workflow.ErrNotFound) {
		return nil, nil
	}
	return names, err
}

// wants says whether a notification is for an event of a workspace in projects. It is a pure function.
func wants(n api.Notification, event string, projects []string) bool {
	if n.IsDisabled || len(n.Events) > 0 && !slices.Contains(n.Events, event) {
		return false
	}
	return len(n.Projects) == 0 || slices.ContainsFunc(projects, func(name string) bool { return slices.Contains(n.Projects, name) })
}

// notify adds the delivery of an event of a workspace in projects to a notification.
func (p *Calls) notify(ctx context.Context, c *ledger.Change, org string, to record.Settings[api.Notification], n record.OutboxEvent, projects []string) error {
	d := record.Delivery{ID: record.NewID(record.DeliveryIDs, c.Now), Org: org, Kind: api.DeliverNotification, For: to.V.Name, ForID: to.ID, Created: c.Now}
	project := ""
	if len(projects) > 0 {
		project = projects[0]
	}
	d.Notice = &record.Notice{Event: n.Event, Workflow: n.Workflow, Workspace: n.Workspace, Body: Body(to.V.Format, Message{
		ID: d.ID, Organization: org, Project: project, Event: n, Address: p.cfg.Address,
	})}
	pool, err := catalog.Named(ctx, c, org, to.V.Pool)
	if err != nil {
		return err
	}
	return c.Deliver(ctx, &d, pool)
}

// wantedBy reads the notification that wants a delivery, as it is now; why says why there is none.
func wantedBy(ctx context.Context, c *ledger.Change, d record.Delivery) (n api.Notification, why string, err error) {
	k := record.SettingsKey(d.Org, kind.Notification, d.For)
	rec, ok, err := ledger.Load[record.Settings[api.Notification]](ctx, c, k)
	switch {
	case err != nil:
		return n, "", err
	case !ok || rec.ID != d.ForID:
		return n, "notification " + d.For + " was deleted", nil
	}
	return rec.V, "", nil
}

// sending is the request of a delivery by the current settings.
func sending(ctx context.Context, c *ledger.Change, d record.Delivery) (*api.SendNotification, string, error) {
	n, why, err := wantedBy(ctx, c, d)
	if err != nil || why != "" {
		return nil, why, err
	}
	if n.IsDisabled {
		return nil, "notification " + d.For + " is disabled", nil
	}
	return &api.SendNotification{URL: n.URL, URLRef: n.URLRef, SecretRef: n.SecretRef, Body: d.Notice.Body}, "", nil
}

// wantedPool is the name of the pool whose side does a delivery that is replayed.
func wantedPool(ctx context.Context, c *ledger.Change, d record.Delivery) (string, error) {
	if d.Pull != nil {
		return pulls.PoolOf(ctx, c, d)
	}
	n, why, err := wantedBy(ctx, c, d)
	if err == nil && why != "" {
		err = workflow.Refuse(workflow.ErrConflict, "id", "%s: nothing would be sent", why)
	}
	return n.Pool, err
}
