package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/redact"
)

// maxFile is the largest file with a token or secret, in bytes.
const maxFile = 64 << 10

// ReadSecretFile reads a token or a secret from the file that a flag names.
func ReadSecretFile(flag, path string) (redact.String, error) {
	f, err := os.Open(path)
	if err != nil {
		return redact.String{}, Usage(fmt.Errorf("%s: %w", flag, err))
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	value := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return redact.String{}, Usage(fmt.Errorf("%s: %w", flag, err))
	case value == "" || len(b) > maxFile:
		return redact.String{}, Usage(fmt.Errorf("%s: %s is empty or too long", flag, path))
	}
	return redact.New(value), nil
}

// PrintSecret prints a new token: alone on standard output, so that a pipe can take it.
func (a *App) PrintSecret(v any, value, format string, args ...any) error {
	if a.JSON() {
		return a.Encode(v)
	}
	a.Say(format, args...)
	return a.Print("%s", value)
}
