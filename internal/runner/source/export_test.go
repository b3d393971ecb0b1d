package source

import (
	"context"
	"io"
)

// WithLimits returns a request with smaller bounds.
func WithLimits(r Request, entries int, bytes int64) Request {
	r.limits = limits{entries: entries, bytes: bytes}
	return r
}

// WithCA returns a request that trusts one more certificate.
func WithCA(r Request, pem []byte) Request {
	r.caPEM = pem
	return r
}

// CheckURL parses a git URL and returns how it is shown.
func CheckURL(raw string) (string, error) {
	a, err := parseURL(raw)
	return a.String(), err
}

// Weigh refuses a pack by the sizes of its objects.
var Weigh = weigh

// Interruptible returns the reader through which a file is copied.
func Interruptible(ctx context.Context, from io.Reader) io.Reader { return interruptible{ctx, from} }

// SubmoduleURL resolves the address of a submodule of a repository, which is the source itself, and returns how both are
// shown.
func SubmoduleURL(of, raw string) (base, shown string, err error) {
	home, err := parseURL(of)
	if err != nil {
		return "", "", err
	}
	a, err := submoduleURL(home, home, raw)
	return home.scheme + "://" + home.host, a.String(), err
}

// ParseModules reads a file .gitmodules.
var ParseModules = parseModules
