package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// few is how much of a list the checks read at once, so that its pages matter.
const few = 7

// logIsWhole: every line that was acknowledged, or kept for later, is in the log once and in order, unless the log
// itself says that lines are missing or that it is full.
func (w *world) logIsWhole(b *boot) {
	a, next, told := b.attempt(), int64(0), false
	for offset := int64(0); max(b.taken, b.kept) > 0; {
		page, err := w.cp.server().rules.Logs(w.ctx, w.people.admin, a.job, a.n, offset, few, 0)
		if err != nil {
			w.fail("logs are whole", "attempt %d of %s: %v", a.n, a.job, err)
			return
		}
		for _, l := range page.Lines {
			var n int64
			var of string
			if strings.HasPrefix(l.Text, "[dayfly] ") {
				told = true
				continue
			}
			if _, err := fmt.Sscanf(l.Text, logText, &n, &of); err != nil || of != b.id || n < next || n > next && !told {
				w.fail("logs are whole", "attempt %d of %s: %q follows line %d", a.n, a.job, l.Text, next-1)
				return
			}
			next, told = n+1, false
		}
		if page.Next == offset {
			break
		}
		offset = page.Next
	}
	if next < max(b.taken, b.kept) && !told {
		w.fail("logs are whole", "attempt %d of %s: %d lines were acknowledged and %d kept, and its log ends with line %d", a.n, a.job, b.taken, b.kept, next-1)
	}
}

// resultIsKnown: an accepted result decided the state, or is in the timeline; except a result that another attempt
// came before.
func (w *world) resultIsKnown(b *boot) {
	a := b.attempt()
	r := w.truth.of(a.job)
	if !b.accepted {
		return
	}
	result, ok := stored[api.Result](w, store.Key{Part: "wf/" + a.job, Sort: fmt.Sprintf("result/%04d", a.n)})
	if !ok && r.Attempt > a.n {
		return
	}
	if !ok || result.Outcome != b.result.Outcome {
		w.fail("a result that was taken is on record", "attempt %d of %s: %s was taken, and %q is on record", a.n, a.job, b.result.Outcome, result.Outcome)
		return
	}
	told := w.timeline(a.job)
	i := slices.IndexFunc(told, func(e api.Event) bool {
		return e.Attempt == a.n && (e.Kind == "late_result" || e.Kind == "result" && r.State == result.Outcome)
	})
	if i < 0 {
		w.fail("a result that was taken is on record", "attempt %d of %s: %s was taken, the workflow is %s, and its timeline does not tell of a late result",
			a.n, a.job, result.Outcome, r.State)
	}
}

func (w *world) timeline(job string) (all []api.Event) {
	for cursor, more := "", true; more; more = cursor != "" {
		page, err := w.cp.server().rules.Timeline(w.ctx, w.people.admin, job, cursor, few)
		if err != nil {
			w.fail("readable", "timeline of %s: %v", job, err)
			return nil
		}
		all, cursor = append(all, page.Items...), page.Next
	}
	return all
}

// submitted: a key makes one workflow, however often its request is repeated; this includes a retry of each key.
func (t *truth) submitted(r *record) {
	made := "entry " + r.Message
	most := 1
	switch {
	case r.PlanOf != "":
		t.w.applies(r)
		made = "plan of " + r.PlanOf
	case r.Trigger != nil && r.Trigger.Kind == api.TriggerTree:
		made = t.w.treeRun(r)
	case r.Trigger != nil && r.RetryOf == "":
		made = t.w.scheduled(r)
	case r.RetryOf != "":
		made, most = "retry of "+r.RetryOf, t.w.people.retried[r.RetryOf]
	}
	if t.made[made]++; t.made[made] > most {
		t.w.fail("a key makes one workflow", "%s has made %d workflows under %d keys", made, t.made[made], most)
	}
}

// repeat submits once more what was submitted before, or something else under its key.
func (p *people) repeat(n int, other bool) string {
	if len(p.asked) == 0 {
		return "nothing to repeat"
	}
	at := p.asked[n%len(p.asked)]
	if !other {
		p.again("submit again", func() error { return p.ask(at.index, at.in) })
		return fmt.Sprintf("entry %d is submitted again", at.index)
	}
	at.in.Priority = new(*at.in.Priority + 10)
	p.again("submit another", func() error {
		known := p.ids[at.index] != ""
		out, err := p.send(at.index, at.in)
		if known && err == nil {
			p.w.fail("a key is for one request", "entry %d made %s, and another request under its key made %s", at.index, p.ids[at.index], out.ID)
		}
		if !known {
			return nil
		}
		return err
	})
	return fmt.Sprintf("something else is submitted under the key of entry %d", at.index)
}
