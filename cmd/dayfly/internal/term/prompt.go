package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	xterm "golang.org/x/term"
)

// ErrAborted means that the user ended a prompt without an answer, by Ctrl-C or Ctrl-D.
var ErrAborted = errors.New("aborted at the prompt")

// IsTerminal reports whether a reader or writer is a terminal.
func IsTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && xterm.IsTerminal(int(f.Fd()))
}

// ReadSecret reads a secret value from standard input: from a terminal one line, after a prompt
// and without echo; from anything else all of it, less one line end. It has at most limit bytes.
func ReadSecret(ctx context.Context, stdin io.Reader, prompts io.Writer, prompt string, limit int) (string, error) {
	if f, ok := stdin.(*os.File); ok && IsTerminal(f) {
		before, err := xterm.MakeRaw(int(f.Fd()))
		if err != nil {
			return "", fmt.Errorf("prompt: %w", err)
		}
		text, err := answer(ctx, prompts, prompt+": ", func() (string, error) { return hidden(f, limit) })
		// However it ends, restore the terminal: a shell that does not show its input looks dead.
		err = errors.Join(err, xterm.Restore(int(f.Fd()), before))
		_, _ = fmt.Fprintln(prompts) // the line's end was not shown either
		if err != nil {
			return "", err
		}
		return checked(text, limit)
	}
	b, err := io.ReadAll(bufio.NewReader(io.LimitReader(stdin, int64(limit)+3)))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	text := string(b)
	if n := len(text); n > 0 && text[n-1] == '\n' {
		text = text[:n-1]
		if n > 1 && text[n-2] == '\r' {
			text = text[:n-2]
		}
	}
	return checked(text, limit)
}

// hidden reads a line from a terminal in raw mode, which shows nothing and sends no signals. It keeps one byte more
// than limit.
func hidden(terminal io.Reader, limit int) (string, error) {
	const interrupt, end, backspace, erase, del = 3, 4, 8, 21, 127
	var line []byte
	for key := make([]byte, 1); ; {
		if _, err := terminal.Read(key); err != nil {
			return "", err
		}
		switch key[0] {
		case '\r', '\n':
			return string(line), nil
		case interrupt, end:
			return "", ErrAborted
		case backspace, del:
			_, size := utf8.DecodeLastRune(line)
			line = line[:len(line)-size]
		case erase:
			line = line[:0]
		default:
			if len(line) <= limit {
				line = append(line, key[0])
			}
		}
	}
}

// Ask shows a question on a terminal and returns the line that is the answer.
func Ask(ctx context.Context, terminal io.Reader, prompts io.Writer, question string) (string, error) {
	text, err := answer(ctx, prompts, question, func() (string, error) {
		return bufio.NewReader(io.LimitReader(terminal, 1000)).ReadString('\n')
	})
	if err != nil {
		_, _ = fmt.Fprintln(prompts)
	}
	return strings.TrimSpace(text), err
}

// answer shows a prompt and reads until there is an answer or the user aborts.
func answer(ctx context.Context, prompts io.Writer, prompt string, read func() (string, error)) (string, error) {
	if _, err := fmt.Fprint(prompts, prompt); err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() { // it goes on after ctx ends, but then so does the program
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ErrAborted
	case r := <-done:
		switch {
		case errors.Is(r.err, io.EOF):
			return "", ErrAborted
		case r.err != nil && !errors.Is(r.err, ErrAborted):
			return "", fmt.Errorf("read the answer: %w", r.err)
		}
		return r.text, r.err
	}
}

func checked(text string, limit int) (string, error) {
	switch {
	case text == "":
		return "", errors.New("standard input is empty: pipe the value in")
	case len(text) > limit:
		return "", fmt.Errorf("the value has more than %d bytes", limit)
	}
	return text, nil
}
