package logstream

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// window is how much of the file is read at once: a whole batch, and more than the longest line.
const window = api.MaxLogBatch + 2*api.MaxLogText

// spool is the file that every line is written to before it is sent, and the only numbering: line n is the
// n-th of the file. Nothing is ever taken out of it.
type spool struct {
	dir, name string

	file   *os.File
	end    int64  // of the written bytes
	at     int64  // where the first line lies that is not accepted
	in     []byte // for reading
	broken error  // it cannot be read: its lines are lost
}

// open makes the file. If it has no name, or the name is taken, it is removed at once: nobody else can open it then,
// and it is gone with the process.
func (s *spool) open() (err error) {
	if s.file != nil {
		return nil
	}
	if s.name != "" && s.dir != "" {
		s.file, err = os.OpenFile(filepath.Join(s.dir, s.name), os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if err == nil {
			return nil
		}
	}
	f, err := os.CreateTemp(s.dir, "dayfly-log-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(err, f.Close())
	}
	s.file = f
	return nil
}

// write adds lines in their short form to the end, all or none.
func (s *spool) write(lines []byte) error {
	if err := s.open(); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(lines, s.end); err != nil {
		return errors.Join(err, s.file.Truncate(s.end)) // a part of a line must not be read as a whole one
	}
	s.end += int64(len(lines))
	return nil
}

// read calls each with the lines from an offset on, and with where each of them ends, until it has enough.
func (s *spool) read(from int64, each func(l api.LogLine, end int64) (more bool)) error {
	for from < s.end {
		if want := min(window, s.end-from); int64(len(s.in)) < want {
			s.in = make([]byte, min(window, 2*want))
		}
		b := s.in[:min(int64(len(s.in)), s.end-from)]
		if _, err := s.file.ReadAt(b, from); err != nil {
			return err
		}
		for begun := from; len(b) > 0; {
			l, n, err := api.ParseLogLine(b)
			if err != nil || n == 0 && from == begun {
				return fmt.Errorf("the file of the log was changed: %w", cmp.Or(err, errNoLine))
			}
			if n == 0 {
				break
			}
			b, from = b[n:], from+int64(n)
			if !each(l, from) {
				return nil
			}
		}
	}
	return nil
}

var errNoLine = errors.New("a line that was written is missing")

// missing stands for a line that cannot be read back.
func (s *spool) missing() api.LogLine {
	return api.LogLine{At: time.Unix(0, 0).UTC(), Text: fmt.Sprintf(api.RunnerLine+"this line is missing: it could not be read back: %v", s.broken)}
}

// close keeps the file for the agent if it has unsent lines.
func (s *spool) close(taken bool) {
	if s.file == nil {
		return
	}
	_ = s.file.Close() // written data stays
	if s.name != "" && taken {
		_ = os.Remove(filepath.Join(s.dir, s.name)) // else its launcher removes it with the directory
	}
	s.file = nil
}

// Tail packs the end of the lines that are not accepted yet: as many of the last as fit into the bounds of a tail.
// nil means none.
func (s *Stream) Tail() *api.LogTail {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == s.next || s.spool.broken != nil || s.spool.file == nil {
		return nil
	}
	each := func(f func(l api.LogLine, size int64)) bool {
		from := s.spool.at
		err := s.spool.read(from, func(l api.LogLine, end int64) bool {
			f(l, max(end-from, l.Weight()))
			from = end
			return true
		})
		return err == nil
	}
	all := int64(0)
	if !each(func(_ api.LogLine, size int64) { all += size }) {
		return nil
	}
	for room := min(all, api.MaxLogTailText); room > 0; {
		var out bytes.Buffer
		var line []byte
		z := gzip.NewWriter(&out)
		t, rest := &api.LogTail{First: s.base}, all
		whole := each(func(l api.LogLine, size int64) {
			if rest > room {
				t.First++
			} else {
				line = l.Append(line[:0])
				_, _ = z.Write(line) // into memory: it cannot fail
			}
			rest -= size
		})
		if err := z.Close(); err != nil || !whole || t.First == s.next {
			return nil
		}
		if t.Lines = out.Bytes(); len(t.Lines) <= api.MaxLogTail {
			return t
		}
		room = room * api.MaxLogTail / int64(len(t.Lines)) * 9 / 10
	}
	return nil
}
