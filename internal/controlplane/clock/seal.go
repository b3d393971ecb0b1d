package clock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Entries of the audit trail are written without a chain, so that no two changes wait for each other. The pass seals
// them: a seal has the digest of the entries behind the one before it, and the digest of that one. Entries are sealed
// when they are old enough that none can be written before them: see ledger.decidedFor. Each seal is one commit with
// the record that says how far sealing has come, so of two passes one loses, and a crash leaves whole seals only.
const (
	sealAge = 5 * time.Minute
	maxSeal = 200 // entries of one seal: with their longest texts still one blob
	maxMade = 50  // seals of one organization in one round of a pass
)

// Forwarding is bounded for the whole pass: a place that does not answer holds nothing else back.
const (
	maxForward   = 10 * time.Second
	maxForwarded = 50 // seals of one organization in one pass
)

// Forwarder sends parts of the sealed audit trail to another place. It is called for one organization in the order of
// its seals, and may be called again with the same ones.
type Forwarder interface {
	// Forward returns nil when the entries and their seal are safe at the other place.
	Forward(ctx context.Context, organization string, entries []api.AuditEvent, seal api.Seal) error
	// Place names the other place, without secrets.
	Place() string
}

// seals seals the entries that are old enough, and forwards them.
func (p *pass) seals(org string) round {
	return func(ctx context.Context) round {
		made, err := p.seal(ctx, org)
		if err != nil && !lostRace(err) {
			p.failed(fmt.Errorf("seal the audit trail of %s: %w", org, err))
		}
		if p.forward != nil {
			if err := p.forwards(ctx, org); err != nil && !lostRace(err) {
				p.failed(fmt.Errorf("forward the audit trail of %s: %w", org, err))
			}
		}
		if made < maxMade {
			return nil
		}
		return p.seals(org)
	}
}

func lostRace(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrUnknown)
}

// seal makes the seals of one round, and says how many.
func (p *Calls) seal(ctx context.Context, org string) (made int, err error) {
	k := record.SealedKey(org)
	for ; made < maxMade; made++ {
		r, err := p.ledger.Read(ctx, k)
		if err != nil {
			return made, err
		}
		state, _, err := ledger.Get[record.Sealed](r, k)
		if err != nil {
			return made, err
		}
		now := p.ledger.Now()
		entries, err := p.entries(ctx, org, state.To, record.At(now.Add(-sealAge)), maxSeal)
		if err != nil || len(entries) == 0 {
			return made, err
		}
		seal := api.Seal{
			Number: state.Number + 1, After: state.To, To: entries[len(entries)-1].ID, Count: len(entries), Previous: state.Digest, At: now,
		}
		seal.Digest = seal.Sum(org, entries)
		state.Number, state.To, state.Digest = seal.Number, seal.To, seal.Digest
		if err := p.ledger.Commit(ctx, []store.Op{
			store.Put(record.Encode(record.SealKey(org, seal.Number), seal), store.Absent),
			store.Put(record.Encode(k, state), r.Version(k)),
		}); err != nil {
			return made, err
		}
	}
	return made, nil
}

// entries reads up to a number of entries of the trail that lie behind an id and before another.
func (p *Calls) entries(ctx context.Context, org, after, before string, limit int) (out []api.AuditEvent, err error) {
	scan := store.Scan{Part: record.AuditPart(org), To: before, Limit: limit}
	if after != "" {
		if scan.From = after + "\x00"; scan.From >= before {
			return nil, nil // the clock was set back
		}
	}
	page, err := p.ledger.Range(ctx, scan)
	for _, r := range page.Records {
		out = append(out, identity.Entry(r))
	}
	return out, err
}

// forwards sends the seals that the other place does not have, with their entries, and stores the number of the last
// one. If that is not stored, the next pass sends them again.
func (p *pass) forwards(ctx context.Context, org string) error {
	whole := ctx
	ctx, cancel := context.WithDeadline(ctx, p.forwardsUntil())
	defer cancel()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // no time remains: the next pass goes on
	}
	sealed, k := record.SealedKey(org), record.ForwardedKey(org)
	r, err := p.ledger.Read(ctx, sealed, k)
	if err != nil {
		return err
	}
	state, _, err := ledger.Get[record.Sealed](r, sealed)
	if err != nil {
		return err
	}
	was, _, err := ledger.Get[record.Forwarded](r, k)
	if err != nil {
		return err
	}
	now := was
	if place := record.Hash(p.forward.Place()); now.To != place {
		now = record.Forwarded{To: place}
	}
	now.Number = max(now.Number, state.Purged)
	var failure error
	for range maxForwarded {
		if now.Number >= state.Number || failure != nil {
			break
		}
		if failure = p.forwardOne(ctx, org, now.Number+1); failure == nil {
			now.Number, now.Failed, now.Since = now.Number+1, "", time.Time{}
		}
	}
	if failure != nil {
		p.forwardNoMore()
		p.ledger.Log.Warn("audit trail not forwarded; the next pass tries again", "organization", org, "to", p.forward.Place(), "seal", now.Number+1, "err", failure)
		if now.Failed = text.Cut(failure.Error(), 300); now.Since.IsZero() {
			now.Since = p.ledger.Now()
		}
	}
	if now == was {
		return nil
	}
	return p.ledger.Commit(whole, []store.Op{store.Put(record.Encode(k, now), r.Version(k))})
}

// forwardOne sends one seal with its entries as they are now. If they differ from those that were sealed, a
// comparison with the seal shows it.
func (p *Calls) forwardOne(ctx context.Context, org string, number int64) error {
	k := record.SealKey(org, number)
	r, err := p.ledger.Read(ctx, k)
	if err != nil {
		return err
	}
	seal, ok, err := ledger.Get[api.Seal](r, k)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("seal %d of the audit trail is missing", number)
	}
	entries, err := p.entries(ctx, org, seal.After, seal.To+"\x00", maxSeal+1)
	if err != nil {
		return err
	}
	return p.forward.Forward(ctx, org, entries, seal)
}

// forwardsUntil is when this pass forwards no more.
func (p *pass) forwardsUntil() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forwardUntil.IsZero() {
		p.forwardUntil = time.Now().Add(maxForward) // by the machine's clock, as the deadlines of calls are
	}
	return p.forwardUntil
}

// forwardNoMore ends the forwarding of a pass, after a failure at the place.
func (p *pass) forwardNoMore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forwardUntil = time.Now()
}

// audit deletes the seals whose last entry is from before a time, with their entries: whole seals only, and none that
// is still to be forwarded. First it stores how far the trail is deleted, so that no seal with half of its entries
// counts as incomplete.
func (s *purge) audit(ctx context.Context, before time.Time, forwarding bool) error {
	sealed, forwarded := record.SealedKey(s.org), record.ForwardedKey(s.org)
	r, err := s.ledger.Read(ctx, sealed, forwarded)
	if err != nil {
		return err
	}
	state, _, err := ledger.Get[record.Sealed](r, sealed)
	if err != nil {
		return err
	}
	to, _, err := ledger.Get[record.Forwarded](r, forwarded)
	if err != nil {
		return err
	}
	for !s.enough() {
		page, err := s.ledger.Range(ctx, store.Scan{Part: record.SealPart(s.org), Limit: 1})
		if err != nil || len(page.Records) == 0 {
			return err
		}
		seal, err := record.Decode[api.Seal](page.Records[0])
		if err != nil {
			return err
		}
		if seal.Number > state.Purged { // not begun
			if seal.To >= record.At(before) || seal.Number != state.Purged+1 || forwarding && seal.Number > to.Number {
				return nil
			}
			state.Purged = seal.Number
			if err := s.add(ctx, store.Put(record.Encode(sealed, state), r.Version(sealed))); err != nil {
				return err
			}
			if err := s.flush(ctx); err != nil {
				return err
			}
			rec := r[sealed]
			rec.Version++
			r[sealed] = rec
		}
		if err := s.all(ctx, store.Scan{Part: record.AuditPart(s.org), To: seal.To + "\x00", Limit: recordsAtOnce}); err != nil {
			return err
		}
		if s.enough() {
			return s.flush(ctx) // the seal goes when all of its entries are gone
		}
		if err := s.add(ctx, store.Delete(page.Records[0].Key, page.Records[0].Version)); err != nil {
			return err
		}
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}
