package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// cursorSum is how many bytes of its checksum a cursor carries. It guards against mistakes; a cursor is no
// secret, and one that is made up reads nothing outside of its list.
const cursorSum = 6

// List is Range for a list whose pages are asked for from outside, by the cursor of the page before.
func (l *Ledger) List(ctx context.Context, s store.Scan, cursor string) (store.Page, error) {
	after, err := OpenCursor(s.Part+" "+s.From, cursor)
	if err != nil {
		return store.Page{}, err
	}
	s.After = after
	page, err := l.Range(ctx, s)
	page.Next = SealCursor(s.Part+" "+s.From, page.Next)
	return page, err
}

// SealCursor makes the place in a list where its next page begins a cursor: it holds nothing that an address
// cannot, and is good for that list alone. The end of the list has none.
func SealCursor(list, after string) string {
	if after == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(sumOf(list, after), after...))
}

// OpenCursor returns the place that a cursor was made of.
func OpenCursor(list, cursor string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) <= cursorSum || !bytes.Equal(b[:cursorSum], sumOf(list, string(b[cursorSum:]))) {
		return "", workflow.Refuse(workflow.ErrInvalid, "cursor", "%q is not a cursor of this list: take the next of the page before it as it is, or begin without one", record.Cut(cursor, 60))
	}
	return string(b[cursorSum:]), nil
}

func sumOf(list, after string) []byte {
	sum := sha256.Sum256([]byte(list + "\x00" + after))
	return sum[:cursorSum]
}
