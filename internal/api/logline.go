package api

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of a log.
const (
	MaxLogText      = 64 << 10  // bytes of one line, or piece of one
	MaxLogStep      = 64        // bytes of the name of its step
	MaxLogBatch     = 256 << 10 // bytes of the lines of one call, as Wire counts them
	MaxLogLines     = 5000      // lines of one call
	DefaultLogQuota = 64 << 20  // of one attempt's log, as Weight counts

	// MaxLogTail is the maximum size of a LogTail, compressed; MaxLogTailText, before that.
	MaxLogTail     = 512 << 10
	MaxLogTailText = 8 << 20

	minWeight = 32 // of a line: many short ones take room too
)

// ParseLogQuota reads how much the log of an attempt may hold, such as 64MiB; empty means DefaultLogQuota.
func ParseLogQuota(s string) (int64, error) {
	if s == "" {
		return DefaultLogQuota, nil
	}
	digits, ok := strings.CutSuffix(s, "MiB")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || n < 1 || n > 1024 {
		return 0, workflow.Refuse(workflow.ErrInvalid, "", "%.20q is not a size of a log: write one from 1MiB to 1024MiB, such as 64MiB", s)
	}
	return int64(n) << 20, nil //nolint:gosec // at most 1024
}

// Weight is a line's share of its log's quota: its text, but no less than 32 bytes.
func (l LogLine) Weight() int64 { return int64(max(len(l.Text), minWeight)) }

// Wire is about the size of a line on the wire, and no less than its short form.
func (l LogLine) Wire() int {
	n := 96 + len(l.Step) + len(l.Text)
	for i := range len(l.Text) {
		switch c := l.Text[i]; {
		case c < ' ', c == '<', c == '>', c == '&', c == 0x7f:
			n += 5
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// LogBatch is how many of some lines, at least one, fit into one call.
func LogBatch(lines []LogLine) (n int) {
	size := 0
	for ; n < len(lines) && n < MaxLogLines; n++ {
		if size += lines[n].Wire(); size > MaxLogBatch && n > 0 {
			break
		}
	}
	return n
}

// Append adds the short form of a line, in which spools and tails hold it, to b.
func (l LogLine) Append(b []byte) []byte {
	more := byte(0)
	if l.More {
		more = 1
	}
	b = append(binary.AppendVarint(b, l.At.UnixNano()), more)
	for _, s := range []string{l.Step, l.Text} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

var errLogLine = errors.New("this is not a line of a log")

// ParseLogLine reads the short form that b begins with, of n bytes; n is 0 where b holds only a part of it. b is not
// trusted: bytes that are not valid text within the bounds are refused.
func ParseLogLine(b []byte) (l LogLine, n int, err error) {
	at, n := binary.Varint(b)
	if n < 0 {
		return l, 0, errLogLine
	}
	if n == 0 || n == len(b) {
		return l, 0, nil
	}
	l.At, l.More = time.Unix(0, at).UTC(), b[n] == 1
	n++
	for _, f := range []struct {
		to    *string
		limit uint64
	}{{&l.Step, MaxLogStep}, {&l.Text, MaxLogText}} {
		size, used := binary.Uvarint(b[n:])
		switch {
		case used < 0, size > f.limit:
			return l, 0, errLogLine
		case used == 0, size > uint64(len(b)-n-used): //nolint:gosec // used is at most len(b)-n
			return l, 0, nil
		}
		n += used
		end := n + int(size) //nolint:gosec // below limit
		*f.to, n = strings.ToValidUTF8(string(b[n:end]), "?"), end
	}
	return l, n, nil
}

// LogTail is the end of a log that the control plane did not get while its run lasted.
type LogTail struct {
	First int64  `json:"first" minimum:"0" doc:"Number of the first of its lines" example:"118"`
	Lines []byte `json:"lines" doc:"The lines, each in its short form, compressed by gzip"`
}

// Unpack returns the lines of a tail. It reads no more than the bounds allow, whatever the input.
func (t LogTail) Unpack() ([]LogLine, error) {
	bad := func(problem string) ([]LogLine, error) {
		return nil, workflow.Refuse(workflow.ErrInvalid, "tail", "%s", problem)
	}
	if t.First < 0 || len(t.Lines) > MaxLogTail {
		return bad(fmt.Sprintf("the tail begins at line %d and has %d bytes; at most %d are allowed", t.First, len(t.Lines), MaxLogTail))
	}
	z, err := gzip.NewReader(bytes.NewReader(t.Lines))
	if err != nil {
		return bad("the tail is not compressed by gzip")
	}
	text, err := io.ReadAll(io.LimitReader(z, MaxLogTailText+1))
	if err != nil || len(text) > MaxLogTailText {
		return bad("the tail is cut off, or longer than it may be")
	}
	var lines []LogLine
	weight := int64(0)
	for len(text) > 0 {
		l, n, err := ParseLogLine(text)
		if weight += l.Weight(); err != nil || n == 0 || weight > MaxLogTailText {
			return bad("the tail holds something other than lines, or too many")
		}
		lines, text = append(lines, l), text[n:]
	}
	return lines, nil
}
