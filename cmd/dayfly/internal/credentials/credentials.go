// Package credentials keeps, in a file that only its owner can read, the addresses of control
// planes and the tokens for them, and says which one a command talks to. It sends nothing.
package credentials

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// Variables that take precedence over the file.
const (
	EnvURL   = "DAYFLY_URL"
	EnvToken = "DAYFLY_API_TOKEN" //nolint:gosec // the name of a variable
)

// Target is the control plane that a command talks to.
type Target struct {
	URL   string
	Token redact.String
	Ends  time.Time // when the token ends; zero: when it is revoked
	Data  string    // data directory of a control plane of this machine; empty: unknown, or elsewhere
}

// Expired reports whether the token has ended by itself.
func (t Target) Expired(now time.Time) bool { return !t.Ends.IsZero() && !now.Before(t.Ends) }

// ErrNone means that no control plane was named.
var ErrNone = errors.New("no control plane is known: start one with dayfly up, or name one with dayfly login URL or " + EnvURL)

// document is the file. Current is the address for commands that name no other.
type document struct {
	Current string            `json:"current"`
	Tokens  map[string]string `json:"tokens"`
	Data    map[string]string `json:"data,omitempty"`

	Ends map[string]time.Time `json:"ends,omitempty"` // of tokens that end by themselves
}

// Path returns the path of the file.
func Path(getenv func(string) string) (string, error) {
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" || !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("neither HOME nor XDG_CONFIG_HOME is set: there is no place for the credentials file")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "dayfly", "credentials.json"), nil
}

// Find returns the control plane to talk to: that of the variables, else of the file. A token of the file is used
// only for the address that it was stored for.
func Find(getenv func(string) string) (Target, error) {
	address, token, data := strings.TrimRight(getenv(EnvURL), "/"), getenv(EnvToken), ""
	var ends time.Time
	if address == "" || token == "" {
		doc, err := read(getenv)
		if err != nil {
			return Target{}, err
		}
		if address == "" {
			address = doc.Current
		}
		if token == "" {
			token, ends = doc.Tokens[address], doc.Ends[address]
		}
		data = doc.Data[address]
	}
	switch {
	case address == "":
		return Target{}, ErrNone
	case token == "":
		return Target{}, fmt.Errorf("no token is known for %s: set %s or run dayfly login %s", address, EnvToken, address)
	}
	from := EnvURL
	if getenv(EnvURL) == "" {
		from = "the address of the last login"
	}
	if err := CheckURL(from, address); err != nil {
		return Target{}, err
	}
	return Target{URL: address, Token: redact.New(token), Ends: ends, Data: data}, nil
}

// Address returns the control plane that commands talk to, whether or not there is a token for it.
func Address(getenv func(string) string) (string, error) {
	if address := strings.TrimRight(getenv(EnvURL), "/"); address != "" {
		return address, nil
	}
	doc, err := read(getenv)
	if err == nil && doc.Current == "" {
		err = ErrNone
	}
	return doc.Current, err
}

// CheckURL refuses an address that cannot be a control plane's, or where others could read the token. name says where
// the address was written.
func CheckURL(name, address string) error {
	if err := config.CheckControlPlane(address); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func read(getenv func(string) string) (document, error) {
	doc := document{Tokens: map[string]string{}, Data: map[string]string{}, Ends: map[string]time.Time{}}
	path, err := Path(getenv)
	if err != nil {
		return doc, nil //nolint:nilerr // no home, no file: the variables may still be enough
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return doc, nil
	}
	if err != nil {
		return doc, fmt.Errorf("read the credentials: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return doc, fmt.Errorf("read the credentials: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return doc, fmt.Errorf("others can read %s: chmod 600 %s, and replace the tokens in it", path, path)
	}

	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return doc, fmt.Errorf("read the credentials: %w", err)
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return doc, fmt.Errorf("%s is damaged: remove it and run dayfly login", path)
	}
	for _, m := range []*map[string]string{&doc.Tokens, &doc.Data} {
		if *m == nil { // the file says null
			*m = map[string]string{}
		}
	}
	if doc.Ends == nil {
		doc.Ends = map[string]time.Time{}
	}
	return doc, nil
}

// Save stores the token for an address and makes that address the current one. It returns the file's path. An
// existing file is replaced as a whole.
func Save(getenv func(string) string, to Target) (string, error) {
	if err := CheckURL("address", to.URL); err != nil {
		return "", err
	}
	path, err := Path(getenv)
	if err != nil {
		return "", err
	}
	doc, err := read(getenv)
	if err != nil {
		return "", err
	}
	doc.Tokens[to.URL], doc.Current = to.Token.Reveal(), to.URL
	delete(doc.Data, to.URL)
	delete(doc.Ends, to.URL)
	if to.Data != "" {
		doc.Data[to.URL] = to.Data
	}
	if !to.Ends.IsZero() {
		doc.Ends[to.URL] = to.Ends.UTC()
	}
	return path, write(path, doc)
}

// Remove forgets the token for an address, and reports whether there was one.
func Remove(getenv func(string) string, address string) (bool, error) {
	path, err := Path(getenv)
	if err != nil {
		return false, err
	}
	doc, err := read(getenv)
	if _, known := doc.Tokens[address]; err != nil || !known {
		return false, err
	}
	delete(doc.Tokens, address)
	delete(doc.Data, address)
	delete(doc.Ends, address)
	return true, write(path, doc)
}

func write(path string, doc document) error {
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the credentials: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write the credentials: %w", err)
	}
	if err := disk.Replace(path, append(b, '\n')); err != nil {
		return fmt.Errorf("keep the credentials: %w", err)
	}
	return nil
}
