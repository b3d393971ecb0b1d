package taskdir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

const (
	journalPrefix = "journal-"
	brokenSuffix  = ".broken"
	segmentTime   = 15 * time.Minute // for which lines are added to one file
)

// journal keeps the records of tasks in a few files, so that a task costs none of its own. Each line is a record of a
// task, which replaces those before it, or a note about one. Lines are only added. The oldest file is removed when it
// has no record of a task that is known. Its lines about such tasks are copied to the newest file once the other
// tasks are too old to be known, so that one long task does not keep a file.
//
// A kill or a power failure may cut off the end of a file. Therefore each process begins a file of its own, and a line
// that cannot be read counts for nothing: the one before it is the record.
type journal struct {
	dir string
	now func() time.Time
	log *slog.Logger

	mu    sync.Mutex          // guards the fields below
	files []*segment          // the oldest first
	out   *segment            // the last of files, to which lines are added; nil: the next line begins one
	over  bool                // the directory may be another launcher's by now
	home  map[string]*segment // of each known task: which has its record
}

// segment is one file of a journal.
type segment struct {
	number int
	begun  time.Time    // or read
	tasks  int          // whose record it has
	file   *os.File     // nil if an earlier process wrote it
	size   atomic.Int64 // of its whole lines

	syncing sync.Mutex // held by one: lines that the others have written meanwhile are then on disk too
	synced  int64      // size that is on disk
}

// The notes about a task.
const (
	noteAcknowledged = "settled" // its end need not be reported any more
	noteGone         = "gone"    // it never began
)

// note is a line that is not a record.
type note struct {
	Ref  string `json:"ref"`
	Note string `json:"note"`
}

func (j *journal) path(s *segment) string {
	return filepath.Join(j.dir, journalPrefix+strconv.Itoa(s.number))
}

// put adds the record of a task. If it is durable, it is on disk when put returns.
func (j *journal) put(ref string, record any, durable bool) error {
	line, err := json.Marshal(record)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.add(line); err != nil {
		return err
	}
	to, size := j.out, j.out.size.Load()
	j.place(ref, to)
	if !durable {
		return nil
	}
	j.mu.Unlock()
	err = to.sync(size)
	j.mu.Lock()
	if err != nil && j.out == to {
		j.out = nil // the next sync of it could succeed although lines are lost
	}
	return err
}

// note adds a note about a task. A power failure may undo it.
func (j *journal) note(ref, text string) error {
	line, err := json.Marshal(note{ref, text})
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.add(line)
}

// has reports whether there is a record of a task.
func (j *journal) has(ref string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.home[ref] != nil
}

// forget says that the record of a task is not needed any more.
func (j *journal) forget(ref string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.place(ref, nil)
	return j.drop()
}

// place remembers which segment has the record of a task. The lock is held.
func (j *journal) place(ref string, to *segment) {
	if from := j.home[ref]; from != nil {
		from.tasks--
		delete(j.home, ref)
	}
	if to != nil {
		to.tasks++
		j.home[ref] = to
	}
}

// add adds a line. The lock is held.
func (j *journal) add(line []byte) error {
	if j.over {
		return errors.New("the launcher is closed")
	}
	if j.out == nil || j.now().Sub(j.out.begun).Abs() >= segmentTime {
		if err := j.begin(); err != nil {
			return err
		}
	}
	n, err := j.out.file.Write(append(line, '\n'))
	if err != nil {
		if n > 0 && j.out.file.Truncate(j.out.size.Load()) != nil {
			j.out = nil // nothing may follow half a line
		}
		return err
	}
	j.out.size.Add(int64(n))
	return nil
}

// begin begins a segment and gives up those that are too old. The lock is held.
func (j *journal) begin() error {
	s := &segment{begun: j.now()}
	if n := len(j.files); n > 0 {
		s.number = j.files[n-1].number + 1
	}
	file, err := os.OpenFile(j.path(s), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(j.dir)
	if err == nil {
		err = errors.Join(disk.Sync(root), root.Close())
	}
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(j.path(s)))
	}
	s.file = file
	j.files, j.out = append(j.files, s), s
	for old := j.files[0]; err == nil && s.begun.Sub(old.begun).Abs() > Keep+segmentTime; old = j.files[0] {
		if err = errors.Join(j.copyFrom(old), j.drop()); err != nil {
			j.log.Warn("old records of tasks not removed", "path", j.path(old), "err", err) // the next segment tries again
		}
	}
	return nil
}

// copyFrom copies the lines of an old segment about known tasks. The lock is held.
func (j *journal) copyFrom(old *segment) error {
	b, err := os.ReadFile(j.path(old))
	if err != nil {
		return err
	}
	var lines []line
	has := map[string]bool{}
	eachLine(b, func(l line) {
		home := j.home[l.ref]
		if home == nil || l.note == "" && (home != old || has[l.ref] || !json.Valid(l.text)) {
			return
		}
		has[l.ref] = has[l.ref] || l.note == ""
		lines = append(lines, l)
	})
	for _, l := range slices.Backward(lines) {
		if err := j.add(l.text); err != nil {
			return err
		}
		if l.note == "" {
			j.place(l.ref, j.out)
		}
	}
	if old.tasks > 0 {
		return fmt.Errorf("the records of %d tasks are gone from it", old.tasks)
	}
	return nil
}

// drop removes the oldest segments that are not needed. The lock is held.
func (j *journal) drop() error {
	for len(j.files) > 0 && j.files[0].tasks == 0 {
		old := j.files[0]
		if j.out == old {
			j.out = nil
		}
		if j.out != nil { // it may have the line that replaces a record of the old one
			if err := j.out.sync(j.out.size.Load()); err != nil {
				return err
			}
		}
		if err := os.Remove(j.path(old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		old.close()
		j.files = j.files[1:]
	}
	return nil
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.files {
		s.close()
	}
	j.over = true
}

func (s *segment) close() {
	if s.file != nil {
		_ = s.file.Close() // the durable lines are on disk
	}
}

// sync returns when the first lines, up to a size, are on disk.
func (s *segment) sync(size int64) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.synced >= size {
		return nil
	}
	now := s.size.Load()
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.synced = now
	return nil
}

// read reads the files of earlier processes. Take is given the lines of a task, the last one first, until it takes
// one. Read returns the tasks whose end is acknowledged.
func (j *journal) read(take func(ref string, record []byte) error) (acknowledged map[string]bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.listFiles(); err != nil {
		return nil, err
	}

	acknowledged = map[string]bool{}
	gone := map[string]bool{}
	for _, s := range slices.Backward(j.files) {
		b, err := os.ReadFile(j.path(s))
		if err != nil {
			return nil, err
		}
		if len(j.home) == 0 { // so that it does not grow step by step
			lines := bytes.Count(b, []byte("\n"))
			j.home, acknowledged = make(map[string]*segment, lines/2), make(map[string]bool, lines/2)
		}
		var broken error
		bad := eachLine(b, func(l line) {
			switch {
			case l.note == noteAcknowledged:
				acknowledged[l.ref] = true
			case l.note == noteGone:
				gone[l.ref] = true
			case gone[l.ref] || j.home[l.ref] != nil:
			default:
				if err := take(l.ref, l.text); err == nil {
					j.place(l.ref, s)
				} else if !l.cut {
					broken = errors.Join(broken, fmt.Errorf("task %s: %w", l.ref, err))
				}
			}
		})
		if bad > 0 {
			broken = errors.Join(broken, fmt.Errorf("%d lines are neither records nor notes", bad))
		}
		if broken != nil {
			if err := j.putAside(s, broken); err != nil {
				return nil, err
			}
		}
	}
	return acknowledged, nil
}

// listFiles finds the segments of earlier processes. The lock is held.
func (j *journal) listFiles() error {
	names, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		digits, ok := strings.CutPrefix(e.Name(), journalPrefix)
		if n, err := strconv.Atoi(digits); ok && err == nil && n >= 0 && e.Type().IsRegular() {
			j.files = append(j.files, &segment{number: n, begun: j.now()})
		}
	}
	slices.SortFunc(j.files, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return nil
}

// putAside keeps a copy of a segment that has unreadable lines.
func (j *journal) putAside(s *segment, broken error) error {
	aside := j.path(s) + brokenSuffix
	j.log.Error("records of tasks not readable, put aside", "path", aside, "err", broken)
	if err := os.Link(j.path(s), aside); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("put aside records of tasks: %w", err)
	}
	return nil
}

// line is a line of a journal.
type line struct {
	ref  string
	note string // empty: it is a record
	text []byte
	cut  bool // its end may be missing
}

// eachLine calls use with the lines of a segment, the last one first. It returns how many are of no known form,
// without one that was cut off.
func eachLine(b []byte, use func(l line)) (bad int) {
	for cut := true; len(b) > 0; cut = false {
		at := bytes.LastIndexByte(b, '\n')
		text := slices.Clip(b[at+1:])
		b = b[:max(at, 0)]
		if len(text) == 0 {
			continue
		}
		l, ok := parseLine(text)
		l.cut = cut
		if ok {
			use(l)
		} else if !cut {
			bad++
		}
	}
	return bad
}

// parseLine reads whose line it is, which comes first in it, and does not decode a record.
func parseLine(text []byte) (l line, ok bool) {
	const refAt, noteAt = `{"ref":"`, `","note":"`
	rest, ok := bytes.CutPrefix(text, []byte(refAt))
	if !ok || len(rest) < refLength || !IsRef(string(rest[:refLength])) {
		return l, false
	}
	l = line{ref: string(rest[:refLength]), text: text}
	if said, ok := bytes.CutPrefix(rest[refLength:], []byte(noteAt)); ok {
		said, ok = bytes.CutSuffix(said, []byte(`"}`))
		l.note = string(said)
		return l, ok && l.note != ""
	}
	return l, true
}
