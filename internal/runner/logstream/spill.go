package logstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

const spillChunk = 128 << 10 // more than the longest record

var errSpillFull = errors.New("the file for log lines is full")

// spill is a queue of lines in a file without a name.
type spill struct {
	dir  string
	most int64

	file   *os.File
	end    int64  // of what is written
	at     int64  // of what is read
	out    []byte // not yet written
	in     []byte // read and not yet given away
	lines  int64
	broken error // the file cannot be read: its lines are lost
}

func (s *spill) push(l api.LogLine) error {
	if s.end+int64(len(s.in)+len(s.out)) > s.most {
		return errSpillFull
	}
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "dayfly-log-*")
		if err != nil {
			return err
		}
		// Without a name nobody can open it, and it is gone with the process.
		if err := os.Remove(f.Name()); err != nil {
			_ = f.Close()
			return err
		}
		s.file = f
	}
	if len(s.out) >= spillChunk {
		if _, err := s.file.WriteAt(s.out, s.end); err != nil {
			return err
		}
		s.end += int64(len(s.out))
		s.out = s.out[:0]
	}
	s.out = encode(s.out, l)
	s.lines++
	return nil
}

// pop gives away the oldest line; there must be one.
func (s *spill) pop() api.LogLine {
	s.lines--
	l, n, ok := decode(s.in)
	for !ok && s.broken == nil {
		s.broken = s.read()
		l, n, ok = decode(s.in)
	}
	if s.broken != nil {
		l, n = api.LogLine{At: time.Unix(0, 0).UTC(), Text: fmt.Sprintf("[dayfly] this line is missing: it could not be read back: %v", s.broken)}, 0
	}
	s.in = s.in[n:]
	if s.lines == 0 {
		s.in, s.out, s.at, s.end, s.broken = nil, nil, 0, 0, nil
		_ = s.file.Truncate(0) // only to give the space back
	}
	return l
}

// read brings more of the file, or what is not in it yet, to what can be given away.
func (s *spill) read() error {
	if s.at == s.end {
		if len(s.out) == 0 {
			return io.ErrUnexpectedEOF
		}
		s.in, s.out = append(s.in, s.out...), s.out[:0]
		return nil
	}
	b := make([]byte, min(spillChunk, s.end-s.at))
	if _, err := s.file.ReadAt(b, s.at); err != nil {
		return err
	}
	s.at += int64(len(b))
	s.in = append(s.in[:len(s.in):len(s.in)], b...)
	return nil
}

func (s *spill) close() {
	if s.file != nil {
		_ = s.file.Close() // nobody reads it again
		s.file = nil
	}
}

func encode(b []byte, l api.LogLine) []byte {
	b = binary.AppendVarint(b, l.At.UnixNano())
	b = appendString(b, l.Step)
	more := byte(0)
	if l.More {
		more = 1
	}
	return appendString(append(b, more), l.Text)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decode reads one record; ok says that b holds the whole of it.
func decode(b []byte) (l api.LogLine, n int, ok bool) {
	at, n := binary.Varint(b)
	if n <= 0 {
		return l, 0, false
	}
	step, used, ok := readString(b[n:])
	if n += used; !ok || n >= len(b) {
		return l, 0, false
	}
	more := b[n] == 1
	n++
	text, used, ok := readString(b[n:])
	if !ok {
		return l, 0, false
	}
	return api.LogLine{At: time.Unix(0, at).UTC(), Step: step, Text: text, More: more}, n + used, true
}

func readString(b []byte) (s string, n int, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) { //nolint:gosec // n is at most its length
		return "", 0, false
	}
	end := n + int(size) //nolint:gosec // within b
	return string(b[n:end]), end, true
}
