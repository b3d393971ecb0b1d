package setup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// DeliveryCommands are the commands of dayfly delivery.
type DeliveryCommands struct {
	List   deliveryList   `cmd:"" help:"List deliveries, the newest first."`
	Replay deliveryReplay `cmd:"" help:"Retry failed deliveries."`
}

type deliveryList struct {
	State string `enum:"waiting,claimed,done,failed," default:"" placeholder:"STATE" help:"Only those in this state: waiting, claimed, done or failed."`
	For   string `placeholder:"NAME" help:"Only those that this notification or git host wants."`
	Limit int    `default:"50" help:"How many at most."`
}

// Run prints the list.
func (c *deliveryList) Run(a *cli.App, cl *client.Client) error {
	if err := cli.CheckLimit(c.Limit); err != nil {
		return err
	}
	page := func(ctx context.Context, cursor string, limit int) (api.Page[api.Delivery], error) {
		return cl.Deliveries(ctx, api.DeliveryFilter{State: c.State, For: c.For, Cursor: cursor, Limit: limit})
	}
	now := time.Now()
	more, err := cli.ListUpTo(a, c.Limit, page, "no such deliveries", []string{"DELIVERY", "FOR", "EVENT", "ABOUT", "STATE", "TRIES", "AGE", "DETAIL"}, func(d api.Delivery) []string {
		event, about := d.About()
		return []string{d.ID, d.For, event, cli.Dash(about), d.State, fmt.Sprint(d.Attempts), text.Duration(now.Sub(d.CreatedAt)), cli.Dash(text.Cut(d.Detail, 100))}
	})
	if err == nil && more {
		a.Say("there are more: list them with --limit")
	}
	return err
}

type deliveryReplay struct {
	ID []string `arg:"" help:"The deliveries."`
}

// Run lets the deliveries be tried again, up to the first that is refused.
func (c *deliveryReplay) Run(a *cli.App, cl *client.Client) error {
	done := []api.Delivery{}
	var failure error
	for _, id := range c.ID {
		d, err := cl.ReplayDelivery(a.Ctx, id)
		if failure = err; err != nil {
			break
		}
		if done = append(done, d); !a.JSON() {
			failure = a.Print("delivery %s to %s is tried again", d.ID, d.For)
		}
	}
	if a.JSON() {
		return cmp.Or(a.Encode(done), failure)
	}
	return failure
}
