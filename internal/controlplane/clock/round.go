package clock

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// A pass shares its time: each organization has its rounds, one for each kind of timer in each of its partitions
// among them. A round does one page of its work. The next page waits until all other rounds have been done.

// round does a bounded piece of work. It returns the round that goes on with it; nil means that no work remains.
type round func(ctx context.Context) round

// pass is one pass. Its rounds may run at the same time.
type pass struct {
	*Calls
	service time.Time // the time of the service clock

	mu        sync.Mutex
	sum       Summary
	failures  []error
	remaining int       // workflows that this part may still look at
	until     time.Time // when this part ends
	cut       bool      // this part has ended before its work

	forwardUntil time.Time // when this pass forwards no more; the zero time: it has not begun
}

// begin begins a part of the pass.
func (p *pass) begin(until time.Time) { p.remaining, p.until, p.cut = maxLooked, until, false }

// over says whether this part has to end.
func (p *pass) over(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remaining <= 0 || ctx.Err() != nil || !p.ledger.Now().Before(p.until) {
		p.cut, p.sum.More = true, true
	}
	return p.cut
}

// take says whether one more workflow may be looked at.
func (p *pass) take(ctx context.Context) bool {
	if p.over(ctx) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remaining--
	return true
}

// looked counts a workflow that was looked at, by its outcome.
func (p *pass) looked(ctx context.Context, moved bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum.Looked++
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.sum.Failed++
		p.failures = append(p.failures, err)
	case moved:
		p.sum.Moved++
	}
}

// purged counts the deletions of a purge.
func (p *pass) purged(sum Summary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum.Deleted += sum.Deleted
	p.sum.More = p.sum.More || sum.More
}

// failed keeps an error for the answer. The pass goes on with the rest.
func (p *pass) failed(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, err)
}

const orgPage = 50 // organizations whose rounds begin together

// all does the rounds of all organizations, beginning with the one at which the last pass was cut short, then the
// rounds that follow from them. If it is cut short before every organization had its first rounds, it returns where.
func (p *pass) all(ctx context.Context, from string, rounds func(org string) []round) (place string) {
	var again []round
	scans := []store.Scan{{From: from}}
	if from != "" {
		scans = append(scans, store.Scan{To: from})
	}
	for _, s := range scans {
		s.Part, s.Limit = record.OrganizationKey("").Part, orgPage
		for more := true; more; more = s.After != "" {
			page, err := p.ledger.Range(ctx, s)
			if err != nil {
				p.failed(err)
				return from
			}
			var all []round
			var of []string // their organizations
			for _, r := range page.Records {
				some := rounds(r.Key.Sort)
				all, of = append(all, some...), append(of, slices.Repeat([]string{r.Key.Sort}, len(some))...)
			}
			rest, begun := p.run(ctx, all)
			again = append(again, rest...)
			if p.over(ctx) && len(of) > 0 {
				return of[min(begun, len(of)-1)]
			}
			s.After = page.Next
		}
	}
	for len(again) > 0 && !p.over(ctx) {
		again, _ = p.run(ctx, again)
	}
	return ""
}

// run does rounds, some at the same time. It returns the rounds that go on with them, and how many have begun.
func (p *pass) run(ctx context.Context, rounds []round) (again []round, begun int) {
	next := make([]round, len(rounds))
	var group errgroup.Group
	atOnce := p.ledger.AtOnce()
	group.SetLimit(atOnce)
	for ; begun < len(rounds) && !p.over(ctx); begun++ {
		i := begun
		do := func() error {
			next[i] = rounds[i](ctx)
			return nil
		}
		if atOnce == 1 {
			_ = do()
		} else {
			group.Go(do)
		}
	}
	_ = group.Wait() // its functions return none
	return slices.DeleteFunc(next, func(r round) bool { return r == nil }), begun
}
