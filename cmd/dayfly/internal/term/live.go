package term

import (
	"fmt"
	"io"
	"sync"
)

// Live writes lines and, on a terminal, one more line below them that is redrawn. Elsewhere that line is never
// shown. Its methods may be called concurrently.
type Live struct {
	mu     sync.Mutex
	w      io.Writer
	style  Style
	status string
	open   bool // the last line written has no end yet
	err    error
}

// NewLive makes a Live that writes to w.
func NewLive(w io.Writer, style Style) *Live { return &Live{w: w, style: style} }

// Style returns the style of the writer.
func (l *Live) Style() Style { return l.style }

// Line writes a line above the status.
func (l *Live) Line(text string) { l.Text(text, true) }

// Text writes a part of a line; end says whether the line ends there.
func (l *Live) Text(text string, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		l.wipe()
	}
	l.open = !end
	if end {
		text += "\n"
	}
	l.write(text)
	if end {
		l.draw()
	}
}

// Status sets the line at the bottom; empty removes it.
func (l *Live) Status(text string) {
	if !l.style.Live {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		l.status = text
		return
	}
	l.wipe()
	l.status = text
	l.draw()
}

// Err returns the first write error: the reader is gone.
func (l *Live) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Live) wipe() {
	if l.style.Live && l.status != "" {
		l.write("\r\x1b[K")
	}
}

func (l *Live) draw() {
	if !l.style.Live || l.status == "" {
		return
	}
	text := []rune(l.status)
	if limit := l.style.Width - 1; limit > 0 && len(text) > limit {
		text = text[:limit]
	}
	l.write(l.style.Dim(string(text)))
}

func (l *Live) write(text string) {
	if l.err != nil {
		return
	}
	if _, err := io.WriteString(l.w, text); err != nil {
		l.err = fmt.Errorf("write: %w", err)
	}
}
