package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// The descriptors at which a runner may wait, for Environment.Gate.
const (
	GateStdin = "0"
	GateExtra = "3" // the first after the usual three
)

// maxBundle bounds an encoded bundle in bytes.
const maxBundle = 16 << 20

// Bundle is a launcher's data for a runner that cannot resolve secrets itself: the values of the references that its
// run names, or the reason why one has none, and variables. It goes through a pipe only: never on disk, never in an
// environment.
type Bundle struct {
	Values map[string]Value  `json:"values,omitempty"` // by reference
	Env    map[string]string `json:"env,omitempty"`
	// NoDownload says why the launcher did not download the engine; empty: it did, or the engine has no version.
	NoDownload string `json:"no_download,omitempty"`
}

// Value is a secret, or the error in its place.
type Value struct {
	Value       []byte `json:"value,omitempty"`
	Missing     string `json:"missing,omitempty"`     // the secret does not exist: a sentence
	Unavailable string `json:"unavailable,omitempty"` // the store of the secret could not be asked
}

// String keeps the values out of any text that prints a bundle.
func (b Bundle) String() string { return fmt.Sprintf("bundle of %d secrets", len(b.Values)) }

// GoString does the same for %#v.
func (b Bundle) GoString() string { return b.String() }

// OpenGate lets a runner begin. It writes one byte, after the launcher has recorded the task. The bundle follows, if
// there is one.
func OpenGate(gate io.Writer, bundle *Bundle) error {
	_, err := gate.Write([]byte{1})
	if err == nil && bundle != nil {
		err = json.NewEncoder(gate).Encode(bundle)
	}
	if err != nil {
		return fmt.Errorf("open the gate of the runner: %w", err)
	}
	return nil
}

// PassGate waits until the launcher opens the gate that the environment names, and returns the bundle that came
// through it; nil means that there was none. After an error the runner may do nothing: its launcher may have died.
func PassGate(getenv func(string) string) (*Bundle, error) {
	e, _ := Read(getenv, "") // the runner reports its mistakes when it reads the rest
	if e.Gate == "" {
		return nil, nil //nolint:nilnil // no gate, no bundle
	}
	fd, err := strconv.ParseUint(e.Gate, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s: %q is not a descriptor", Name("Gate"), e.Gate)
	}
	gate := os.Stdin
	if fd != 0 { // the standard input stays open, so that its number is not reused
		if gate = os.NewFile(uintptr(fd), "gate"); gate == nil {
			return nil, fmt.Errorf("%s: %s is not open", Name("Gate"), e.Gate)
		}
		defer func() { _ = gate.Close() }()
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("the launcher went away before the task could begin: %w", err)
	}
	if !e.Bundled {
		return nil, nil //nolint:nilnil // no bundle
	}
	var bundle Bundle
	if err := json.NewDecoder(io.LimitReader(gate, maxBundle)).Decode(&bundle); err != nil {
		// Without the cause, which may quote values.
		return nil, errors.New("the launcher went away before the task could begin: its secrets did not arrive in full")
	}
	return &bundle, nil
}
