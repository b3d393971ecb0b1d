package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The side of a pool performs deliveries here as an agent does: it claims some, and for each one it sends it or fails,
// and reports, or dies with it. A receiver knows a delivery by its id.

const (
	deliverers   = "deliverer"
	deliverEvery = 30 * time.Second

	metDelivered = "a delivery is made"
	metSentTwice = "a delivery is made twice"
	metRefusedBy = "a receiver refuses a delivery for good"
)

// telling are the notifications of a world, and what they want; empty means all.
var telling = map[string][]string{"all": nil, "some": {api.EventFailed, api.EventDrift}}

// told is a delivery as the store has it.
type told struct {
	ID       string    `json:"id"`
	For      string    `json:"for"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Tries    int       `json:"tries"`
	NextTime time.Time `json:"next"`
	Notice   struct {
		Event    string `json:"event"`
		Workflow string `json:"wf"`
	} `json:"notice"`
}

// notifies makes the notifications of a world, and lets each stack perform deliveries.
func (w *world) notifies(r *rand.Rand) {
	for _, name := range []string{"all", "some"} {
		_, _, err := w.cp.server().rules.Notifications.Put(w.ctx, w.people.admin, api.Notification{
			Name: name, URL: "https://hooks.example.com/" + name, SecretRef: "file:hook", Events: telling[name],
		})
		must(0, err)
	}
	w.sent, w.refused = map[string]int{}, map[string]bool{}
	for _, s := range w.stacks {
		w.every(deliverEvery, between(r, 0, deliverEvery), "deliver", s.errand)
	}
}

// errand is one round of what a stack does about deliveries.
func (s *stack) errand() {
	w, p := s.w, s.w.other(deliverers+" "+s.name)
	out, err := ask(w.ctx, w, p, plane, "claim deliveries", func(ctx context.Context) (out api.DeliveriesClaimed, err error) {
		err = w.cp.do("claim deliveries", func(rules *controlplane.Plane) error {
			out, err = rules.ClaimDeliveries(ctx, s.who, api.DeliveryClaim{Max: 5, Instance: s.name})
			return err
		})
		return out, err
	})
	if err != nil {
		return
	}
	for _, task := range out.Tasks {
		w.guard.scan("a delivery", task.Send.Body)
		r := w.roll("delivery", task.ID, task.Attempt)
		result := api.DeliveryResult{Attempt: task.Attempt, Detail: "as it went"}
		switch n := r.IntN(10); {
		case n == 0 && !w.healed:
			continue // it dies before it sends
		case n == 1 && !w.healed:
			w.sent[task.ID]++
			continue // it dies after that
		case n == 2 && !w.healed:
			result.IsPermanent, w.refused[task.ID] = true, true
			w.met[metRefusedBy]++
		case n <= 5 && !w.healed:
			result.RetryAfterSeconds = float64(r.IntN(300))
		default:
			result.IsDone = true
			w.sent[task.ID]++
		}
		w.after(between(r, 0, 3*time.Minute), "deliver result", func() { s.delivered(p, task.ID, result, 1) })
	}
}

// delivered reports a try, and again if the report is lost.
func (s *stack) delivered(p *process, id string, in api.DeliveryResult, n int) {
	err := tells(s.w.ctx, s.w, p, plane, "deliver result", func(ctx context.Context) error {
		return s.w.cp.do("deliver result", func(rules *controlplane.Plane) error { return rules.DeliveryDone(ctx, s.who, id, in) })
	})
	if err != nil && n < 3 {
		s.w.after(10*time.Second, "deliver result again", func() { s.delivered(p, id, in, n+1) })
	}
}

// toldAll checks at the end that each piece of news has one delivery for each who wants it, done or on its way; one that
// was given up was refused, or tried for a day.
func (w *world) toldAll() {
	w.empty("outbox/default")
	type news struct{ to, event, workflow string }
	found := map[news]int{}
	for s := (store.Scan{Part: "delivery/default", Limit: 1000}); ; {
		page, err := w.cp.inner.Range(context.Background(), s)
		must(0, err)
		for _, r := range page.Records {
			var d told
			must(0, json.Unmarshal(r.Value, &d))
			found[news{d.For, d.Notice.Event, d.Notice.Workflow}]++
			if n := w.sent[d.ID]; n > 0 {
				w.met[metDelivered]++
				if n > 1 {
					w.met[metSentTwice]++
				}
			}
			switch age := w.cp.now().Sub(d.Since); {
			case d.State == api.DeliveryDone && w.sent[d.ID] == 0:
				w.fail("what is done was sent", "delivery %s is done and was never sent", d.ID)
			case d.State == api.DeliveryFailed && !w.refused[d.ID] && age < 12*time.Hour:
				w.fail("a delivery is tried for a day", "delivery %s was given up after %d tries", d.ID, d.Tries)
			case d.State == api.DeliveryWaiting && age > 25*time.Hour && d.NextTime.Before(w.cp.now().Add(-time.Hour)):
				w.fail("a delivery that is due is made", "delivery %s waits since %s", d.ID, d.NextTime)
			}
		}
		if s.After = page.Next; s.After == "" {
			break
		}
	}
	for n, times := range found {
		if times > 1 {
			w.fail("an event is notified once", "%s was told %d times of %s of %s", n.to, times, n.event, n.workflow)
		}
	}
	for _, id := range w.truth.order {
		for to := range telling {
			want := 0
			if w.truth.records[id].State == workflow.Failed {
				want = 1
			}
			if got := found[news{to, api.EventFailed, id}]; got != want {
				w.fail("an event is notified once", "%s was told %d times that %s has failed, which is %s", to, got, id, w.truth.records[id].State)
			}
		}
	}
	if len(w.sent) > 0 {
		w.tell("deliveries: %s", fmt.Sprint(len(w.sent), " sent, ", len(w.refused), " refused"))
	}
}
