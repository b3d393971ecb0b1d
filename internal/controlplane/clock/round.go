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

// A pass shares its time: each organization has its turn, and each kind of timer in each of their partitions. A turn
// does one page of its work. What is left of it waits until all others have had theirs.

// round does a bounded piece of work. It returns the turn that goes on with it; nil means that nothing is left.
type round func(ctx context.Context) round

// pass is one pass. Its turns may run at the same time.
type pass struct {
	*Calls
	service time.Time // what the service clock shows

	mu       sync.Mutex
	sum      Summary
	failures []error
	left     int       // workflows that this part may still look at
	until    time.Time // when this part ends
	cut      bool      // this part has ended before its work

	forwardUntil time.Time // when this pass forwards no more; the zero time: it has not begun
}

// begin begins a part of the pass.
func (p *pass) begin(until time.Time) { p.left, p.until, p.cut = most, until, false }

// over says whether this part has to end.
func (p *pass) over(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left <= 0 || ctx.Err() != nil || !p.ledger.Now().Before(p.until) {
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
	p.left--
	return true
}

// looked counts what came of it.
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

// purged counts what a purge did.
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

const orgPage = 50 // organizations whose turns begin together

// round lets every organization have its turns, beginning with the one at which the last pass was cut short. Then it
// goes on with what is left of them, in rounds. If it is cut short in the first round, it returns where.
func (p *pass) round(ctx context.Context, from string, turns func(org string) []round) (place string) {
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
				some := turns(r.Key.Sort)
				all, of = append(all, some...), append(of, slices.Repeat([]string{r.Key.Sort}, len(some))...)
			}
			left, begun := p.run(ctx, all)
			again = append(again, left...)
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

// run lets each turn do its piece, some at the same time. It returns what goes on with them, and how many have begun.
func (p *pass) run(ctx context.Context, turns []round) (again []round, begun int) {
	next := make([]round, len(turns))
	var group errgroup.Group
	atOnce := p.ledger.AtOnce()
	group.SetLimit(atOnce)
	for ; begun < len(turns) && !p.over(ctx); begun++ {
		i := begun
		do := func() error {
			next[i] = turns[i](ctx)
			return nil
		}
		if atOnce == 1 {
			_ = do()
		} else {
			group.Go(do)
		}
	}
	_ = group.Wait() // its functions return none
	return slices.DeleteFunc(next, func(t round) bool { return t == nil }), begun
}
