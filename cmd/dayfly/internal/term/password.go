package term

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	xterm "golang.org/x/term"
)

// ReadSecret reads a secret value from standard input: from a terminal one line, after a prompt
// and without echo; from anything else all of it, less one line end. It never holds more than
// most bytes.
func ReadSecret(stdin io.Reader, prompts io.Writer, prompt string, most int) (string, error) {
	if f, ok := stdin.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) {
		if _, err := fmt.Fprint(prompts, prompt+": "); err != nil {
			return "", fmt.Errorf("prompt: %w", err)
		}
		b, err := xterm.ReadPassword(int(f.Fd()))
		_, _ = fmt.Fprintln(prompts)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the value: %w", err)
		}
		return checked(string(b), most)
	}
	b, err := io.ReadAll(bufio.NewReader(io.LimitReader(stdin, int64(most)+3)))
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
	return checked(text, most)
}

func checked(text string, most int) (string, error) {
	switch {
	case text == "":
		return "", errors.New("the value on standard input is empty")
	case len(text) > most:
		return "", fmt.Errorf("the value has more than %d bytes", most)
	}
	return text, nil
}
