package api

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// AuditReport is the findings of a check of the audit trail.
type AuditReport struct {
	First    int64      `json:"first"`    // the first seal that is kept
	Last     int64      `json:"last"`     // the last one that holds
	Entries  int        `json:"entries"`  // that are sealed, and as they were
	Anchored int        `json:"anchored"` // seals that are as they were forwarded
	Broken   string     `json:"broken,omitempty"`
	Unsealed int        `json:"unsealed"` // newer entries, which no seal has yet
	Since    *time.Time `json:"unsealed_since,omitempty"`
}

// AuditAnchor is a seal as it was forwarded, with the entries before it.
type AuditAnchor struct {
	Seal    Seal
	Entries []AuditEvent
}

// VerifyAudit checks a trail against its seals, and these against one another and against those that were forwarded.
// It computes every digest itself. It ends at the first link that is broken, which the report names. Seals and entries
// come in their order; state says which seals there should be. An error is one of reading.
func VerifyAudit(organization string, state SealPage, seals iter.Seq2[Seal, error], entries iter.Seq2[AuditEvent, error], anchors map[int64]AuditAnchor) (r AuditReport, err error) {
	next, stop := iter.Pull2(entries)
	defer stop()
	r = AuditReport{First: state.First, Last: state.First - 1}
	e, err, more := next()
	var was Seal
	for s, err := range seals {
		if err != nil {
			return r, err
		}
		if r.Broken = follows(was, s, r.Last+1); r.Broken != "" {
			return r, nil
		}
		var in []AuditEvent
		for ; more && e.ID <= s.To; e, err, more = next() {
			if err != nil {
				return r, err
			}
			if len(in) > 0 && e.ID <= in[len(in)-1].ID {
				r.Broken = fmt.Sprintf("%s: the entry %s comes out of its order", s.Range(), e.ID)
				return r, nil
			}
			if e.ID > s.After { // events before the first seal are just being deleted
				in = append(in, e)
			}
		}
		if err != nil {
			return r, err
		}
		anchor, anchored := anchors[s.Number]
		if r.Broken = s.differs(organization, in, anchor); r.Broken == "" && anchored && anchor.Seal.Digest != s.Digest {
			r.Broken = s.Range() + ": it is not the seal that was forwarded: the trail was sealed anew, after a change of it or of a seal before"
		}
		if r.Broken != "" {
			return r, nil
		}
		if anchored {
			r.Anchored++
		}
		was, r.Last, r.Entries = s, s.Number, r.Entries+len(in)
	}
	if last := lastSeal(state, anchors); last > r.Last {
		r.Broken = fmt.Sprintf("seal %d is missing, and so is all that comes after it: there was a seal %d", r.Last+1, last)
		return r, nil
	}
	for ; more; e, err, more = next() {
		if err != nil {
			return r, err
		}
		if r.Unsealed++; r.Since == nil {
			r.Since = new(e.At)
		}
	}
	return r, err
}

// lastSeal is the number of the last seal that there should be.
func lastSeal(state SealPage, anchors map[int64]AuditAnchor) int64 {
	last := state.Last
	for n := range anchors {
		last = max(last, n)
	}
	return last
}

// follows says why a seal cannot be the one of a number, behind another.
func follows(was, s Seal, number int64) string {
	switch {
	case s.Number == 0:
		return fmt.Sprintf("seal %d cannot be read", number)
	case s.Number > number:
		return fmt.Sprintf("seal %d is missing: the next one is seal %d", number, s.Number)
	case s.Number < number:
		return fmt.Sprintf("seal %d is in the place of seal %d", s.Number, number)
	case was.Number == 0 && number > 1: // those before it are past the retention
		return ""
	case s.Previous != was.Digest || s.After != was.To:
		return fmt.Sprintf("%s: it does not follow the seal before it: one of the two was changed", s.Range())
	}
	return ""
}

// Range names a seal, with the times of the entries that it is about.
func (s Seal) Range() string {
	moment := func(id string) string { return AuditTime(id).Format("2006-01-02 15:04:05Z") }
	if s.After == "" {
		return fmt.Sprintf("seal %d (up to %s)", s.Number, moment(s.To))
	}
	return fmt.Sprintf("seal %d (%s to %s)", s.Number, moment(s.After), moment(s.To))
}

// differs says how the entries of a seal differ from those that were sealed. Entries that were forwarded with the seal
// tell which one it is.
func (s Seal) differs(organization string, got []AuditEvent, anchor AuditAnchor) string {
	if len(got) == s.Count && s.Sum(organization, got) == s.Digest {
		return ""
	}
	if anchor.Seal.Number > 0 && anchor.Seal.Sum(organization, anchor.Entries) == anchor.Seal.Digest {
		return s.Range() + ": " + difference(anchor.Entries, got)
	}
	switch {
	case len(got) < s.Count:
		return fmt.Sprintf("%s: it has %s, and there are %d: the others were deleted", s.Range(), EntryCount(s.Count), len(got))
	case len(got) > s.Count:
		added := EntryCount(len(got)-s.Count) + " too many, added"
		for i := range got {
			if len(got) == s.Count+1 && s.Sum(organization, slices.Concat(got[:i], got[i+1:])) == s.Digest {
				added = "the entry " + got[i].ID + " was added,"
			}
		}
		return fmt.Sprintf("%s: %s after the seal was made: by somebody who can write the records", s.Range(), added)
	}
	return s.Range() + ": an entry of it was changed, or the seal itself"
}

// EntryCount is a number of entries with its noun.
func EntryCount(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// difference names the first entry in which two lists differ.
func difference(want, got []AuditEvent) string {
	for i, e := range want {
		switch {
		case i >= len(got) || got[i].ID > e.ID:
			return "the entry " + e.ID + " was deleted: " + e.text()
		case got[i].ID < e.ID:
			return "the entry " + got[i].ID + " was added: " + got[i].text()
		case got[i].text() != e.text() || !got[i].At.Equal(e.At):
			return "the entry " + e.ID + " was changed: it was " + e.text() + ", and is " + got[i].text()
		}
	}
	if len(got) > len(want) {
		return "the entry " + got[len(want)].ID + " was added: " + got[len(want)].text()
	}
	return "the entries are those that were forwarded; the seal was changed"
}

func (e AuditEvent) text() string {
	return fmt.Sprintf("%s %s %s %q: %s", e.Actor, e.Action, e.Target, e.Detail, e.Outcome)
}
