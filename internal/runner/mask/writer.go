package mask

import (
	"bytes"
	"sync"
	"unicode/utf8"
)

const (
	// MaxLine is the length in bytes of the longest piece of a line that a Writer gives away.
	MaxLine = 64 << 10
	// overlap is how much a Writer holds beyond a cut, so that it sees the whole of a value that begins before it:
	// the longest pattern, with room for its escapes.
	overlap = 16 * longest
	// maxEscape bounds how far before a cut the beginning of an escape is looked for.
	maxEscape = 1 << 10
)

// Writer is an io.Writer that passes on whole lines with every value hidden, however the writes cut them. Text without
// a line end is held until it has one, until it is too long, or until Flush. A line longer than MaxLine is passed on
// in pieces; a value across a cut is hidden.
type Writer struct {
	set  *Set
	emit func(text string, more bool)

	mu      sync.Mutex
	buf     []byte // the line so far, without the part that was passed on
	covered int    // how much of its beginning a marker that was given away stands for
}

// NewWriter returns a Writer that calls emit with each line, without its end, one at a time. more
// says that the line goes on in the next call. emit must not keep the Writer waiting and must not
// write to it.
func NewWriter(set *Set, emit func(text string, more bool)) *Writer {
	return &Writer{set: set, emit: emit}
}

// Write implements io.Writer. It never fails.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if !whole {
			w.hold(p)
			break
		}
		p = rest
		if len(w.buf) > 0 || len(line) > MaxLine || w.covered > 0 {
			w.hold(line)
			w.end()
			continue
		}
		w.emit(w.text(line), false)
	}
	return n, nil
}

// Flush passes on text without a line end, as a line.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.buf) > 0 || w.covered > 0 {
		w.end()
	}
}

func (w *Writer) text(line []byte) string {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	return render(line, w.set.spans(line), 0)
}

// hold appends to the line and passes on its beginning as long as the line is too long.
func (w *Writer) hold(p []byte) {
	for len(p) > 0 {
		n := min(len(p), max(MaxLine+overlap-len(w.buf), 0))
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
		if len(w.buf) >= MaxLine+overlap {
			w.give(cut(w.buf, MaxLine))
		}
	}
}

// give passes on the first n bytes of the buffer as a piece. Every value that begins in them lies in the buffer.
func (w *Writer) give(n int) {
	found := w.set.spans(w.buf)
	head, next := found, 0
	for i, f := range found {
		if f.end < n {
			continue
		}
		head = found[:i]
		if f.from < n {
			next = f.end - n
			head = append(head[:i:i], span{f.from, n})
		}
		break
	}
	// The covered part and a value that begins now are one if they touch.
	w.emit(render(w.buf[:n], head, min(w.covered, n)), true)
	next = max(next, w.covered-n)
	w.buf = w.buf[:copy(w.buf, w.buf[n:])]
	w.covered = next
}

// end passes on the rest of the line.
func (w *Writer) end() {
	for len(w.buf) > MaxLine {
		w.give(cut(w.buf, MaxLine))
	}
	line := bytes.TrimSuffix(w.buf, []byte{'\r'})
	w.emit(render(line, w.set.spans(line), min(w.covered, len(line))), false)
	w.buf, w.covered = w.buf[:0], 0
}

// cut returns where to cut a line that is longer than n: not after n, not inside a character, and
// not inside an escape or a control sequence.
func cut(b []byte, n int) int {
	for i := n - maxEscape; i < n; {
		size := 0
		if b[i] == escape || b[i] == 0xc2 {
			size, _ = unseen(b[i:])
		}
		if i+size > n {
			return i
		}
		i += max(size, 1)
	}
	i, begun := n, -1
	for ; i > 0 && i > n-maxEscape; i-- {
		c := b[i-1]
		if c == '%' || c == '\\' {
			begun = i - 1
		} else if !isHex(c) && c != 'u' && c != 'U' && c != 'x' {
			break
		}
	}
	if begun > 0 {
		return begun
	}
	if i = n - longestEntity + bytes.LastIndexByte(b[n-longestEntity:n], '&') + 1; i > n-longestEntity {
		if size, _ := entity(b[i-1:]); i-1+size > n {
			return i - 1
		}
	}
	for i = n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return n
}
