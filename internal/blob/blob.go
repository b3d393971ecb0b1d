// Package blob keeps bytes that are written once and too large or too many for records. It does not change or list
// blobs. A place that does not delete old ones by rules of its own has a DeleteAll.
package blob

import (
	"context"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Max is the maximum size of a blob in bytes.
const Max = 1 << 20

// Store keeps blobs. Its methods may be called concurrently. An error that is workflow.ErrBusy passes: try again.
type Store interface {
	// Put stores a blob. A second Put of a name has the same bytes, because the name follows from the content. When Put
	// returns nil, the blob outlives a failure of the machine.
	Put(ctx context.Context, name string, body []byte) error
	// Get returns a blob. An unknown name is workflow.ErrNotFound.
	Get(ctx context.Context, name string) ([]byte, error)
}

// CheckName refuses an invalid name of a blob. A name has parts of lower-case letters, digits, '-' and '_', with '/'
// between them, at most 200 bytes.
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

// CheckPut refuses an invalid name or a blob that is too large. Every implementation calls it first.
func CheckPut(name string, body []byte) error {
	if len(body) > Max {
		return workflow.Refuse(workflow.ErrTooLarge, "", "a blob has at most %d bytes, not %d", Max, len(body))
	}
	return CheckName(name)
}
