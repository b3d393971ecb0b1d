package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
)

type notificationCommands struct {
	Apply  notificationApply  `cmd:"" help:"Create or change the notifications that files describe."`
	List   notificationList   `cmd:"" help:"List notifications."`
	Show   notificationShow   `cmd:"" aliases:"get" help:"Show a notification."`
	Delete notificationDelete `cmd:"" help:"Delete a notification; what it has not sent yet is not sent."`
}

type notificationApply struct {
	applyFlags
}

// Run makes the notifications. A document that names no kind is one.
func (c *notificationApply) Run(a *app, cl *client.Client) error {
	return detailed(c.DetailedExitcode, c.apply(a, cl, workspacefile.Notification, nil))
}

type notificationList struct{}

// Run prints the list.
func (c *notificationList) Run(a *app, cl *client.Client) error {
	return list(a, cl.Notifications, "no notifications: make one with dayfly notification apply -f FILE",
		[]string{"NOTIFICATION", "EVENTS", "PROJECTS", "TO", "FORMAT", "STATE"}, func(n api.Notification) []string {
			return []string{n.Name, cmp.Or(strings.Join(n.Events, ","), "all"), cmp.Or(strings.Join(n.Projects, ","), "all"), cmp.Or(n.URL, n.URLRef), n.Format, activeOr(n.IsDisabled)}
		})
}

type notificationShow struct {
	Name string `arg:"" help:"The notification."`
}

// Run prints the notification.
func (c *notificationShow) Run(a *app, cl *client.Client) error {
	n, err := cl.Notification(a.ctx, c.Name)
	if err != nil {
		return err
	}
	if a.json() {
		return a.shown(workspacefile.Notification, asNotification(n), n, "")
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("notification", n.Name)
	line("description", n.Description)
	line("events", cmp.Or(strings.Join(n.Events, ", "), "all"))
	line("projects", cmp.Or(strings.Join(n.Projects, ", "), "all"))
	line("url", n.URL)
	line("url_ref", n.URLRef)
	line("format", n.Format)
	line("secret_ref", n.SecretRef)
	line("pool", n.Pool)
	if n.IsDisabled {
		line("state", "disabled")
	}
	return a.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

type notificationDelete struct {
	Name string `arg:"" help:"The notification."`
	confirmed
}

// Run deletes the notification.
func (c *notificationDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "notification", c.Name, ": nobody is told by it any more", cl.DeleteNotification)
}

type deliveryCommands struct {
	List   deliveryList   `cmd:"" help:"List deliveries, the newest first."`
	Replay deliveryReplay `cmd:"" help:"Let deliveries that have failed be tried again."`
}

type deliveryList struct {
	State string `enum:"waiting,claimed,done,failed," default:"" placeholder:"STATE" help:"Only those in this state: waiting, claimed, done or failed."`
	For   string `placeholder:"NAME" help:"Only those that this notification or git host wants."`
	Limit int    `default:"50" help:"Most deliveries that are listed."`
}

// Run prints the list.
func (c *deliveryList) Run(a *app, cl *client.Client) error {
	if c.Limit < 1 {
		return usage(fmt.Errorf("--limit: want a number above 0, not %d", c.Limit))
	}
	page := func(ctx context.Context, cursor string, limit int) (api.Page[api.Delivery], error) {
		return cl.Deliveries(ctx, api.DeliveryFilter{State: c.State, For: c.For, Cursor: cursor, Limit: limit})
	}
	now := time.Now()
	more, err := listUpTo(a, c.Limit, page, "no such deliveries", []string{"DELIVERY", "FOR", "WHAT", "ABOUT", "STATE", "TRIES", "AGE", "DETAIL"}, func(d api.Delivery) []string {
		what, about := d.About()
		return []string{d.ID, d.For, what, dash(about), d.State, fmt.Sprint(d.Attempts), text.Duration(now.Sub(d.CreatedAt)), dash(text.Cut(d.Detail, 100))}
	})
	if err == nil && more {
		a.say("there are more: list them with --limit")
	}
	return err
}

type deliveryReplay struct {
	ID []string `arg:"" help:"The deliveries."`
}

// Run lets the deliveries be tried again, up to the first that is refused.
func (c *deliveryReplay) Run(a *app, cl *client.Client) error {
	done := []api.Delivery{}
	var failure error
	for _, id := range c.ID {
		d, err := cl.ReplayDelivery(a.ctx, id)
		if failure = err; err != nil {
			break
		}
		if done = append(done, d); !a.json() {
			failure = a.print("delivery %s to %s is tried again", d.ID, d.For)
		}
	}
	if a.json() {
		return cmp.Or(a.encode(done), failure)
	}
	return failure
}
