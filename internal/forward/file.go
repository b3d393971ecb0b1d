package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// file is a file to which one process appends.
type file string

// maxPart is more than the bytes of one part.
const maxPart = 4 << 20

// send appends a part and waits until it is on disk. An incomplete part after the last seal, from a crash, is cut off
// first.
func (f file) send(_ context.Context, _ string, lines [][]byte, _ api.Seal) (err error) {
	to, err := os.OpenFile(string(f), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the file: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	size, err := to.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("find the end of the file: %w", err)
	}
	from := max(0, size-maxPart)
	tail := make([]byte, size-from)
	if _, err := to.ReadAt(tail, from); err != nil {
		return fmt.Errorf("read the end of the file: %w", err)
	}
	end, ours := whole(tail, from > 0)
	if !ours {
		return fmt.Errorf("%s is not a file with an audit trail: name another one", string(f))
	}
	if end += from; end < size {
		if err := to.Truncate(end); err != nil {
			return fmt.Errorf("cut off an incomplete part: %w", err)
		}
	}
	if _, err := to.WriteAt(bytes.Join(lines, nil), end); err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	return to.Sync()
}

// whole is where the last seal in the end of a file ends. Where all that is there is the beginning of a part, that is 0.
// A file with anything else is not one of ours, and is not touched.
func whole(tail []byte, cut bool) (end int64, ours bool) {
	if cut { // it begins in the middle of a line
		end = int64(bytes.IndexByte(tail, '\n') + 1)
	}
	at, sealed := end, int64(0)
	for line := range bytes.Lines(tail[end:]) {
		var l api.AuditLine
		if !bytes.HasSuffix(line, []byte("\n")) {
			if begin := []byte(`{"organization":`); !bytes.HasPrefix(line, begin[:min(len(begin), len(line))]) {
				return 0, false
			}
			break
		}
		if json.Unmarshal(line, &l) != nil || l.Organization == "" || (l.Entry == nil) == (l.Seal == nil) {
			return 0, false
		}
		if at += int64(len(line)); l.Seal != nil {
			sealed = at
		}
	}
	return sealed, sealed > 0 || !cut
}
