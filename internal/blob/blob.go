// Package blob keeps bytes that are written once and too large or too many for records. It does not change or list
// blobs. A place that does not delete old ones by rules of its own has a DeleteAll.
package blob

import (
	"context"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Max is the most bytes of a blob.
const Max = 1 << 20

// Store keeps blobs. Its methods may be called concurrently. An error that is workflow.ErrBusy passes: try again.
type Store interface {
	// Put keeps a blob. Whoever puts a name again puts the same bytes: a name follows from its content. When Put
	// returns nil, the blob outlives a failure of the machine.
	Put(ctx context.Context, name string, body []byte) error
	// Get returns a blob. That there is none is workflow.ErrNotFound.
	Get(ctx context.Context, name string) ([]byte, error)
}

// CheckName refuses what is not the name of a blob: parts of lower-case letters, digits, '-' and '_', with '/' between
// them, at most 200 bytes.
func CheckName(name string) error {
	bad := len(name) > 200
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-_") != ""
	}
	if bad {
		return workflow.Refuse(workflow.ErrInvalid, "", "%.250q is not the name of a blob", name)
	}
	return nil
}

// CheckPut refuses what may not be put. Every implementation calls it first.
func CheckPut(name string, body []byte) error {
	if len(body) > Max {
		return workflow.Refuse(workflow.ErrTooLarge, "", "a blob has at most %d bytes, not %d", Max, len(body))
	}
	return CheckName(name)
}
