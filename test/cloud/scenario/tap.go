package scenario

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Tap keeps what others can read: what functions and tasks write, what is sent to queues and to ECS.
type Tap struct {
	mu   sync.Mutex
	read map[string]*bytes.Buffer // by where it was read
}

// sent is where a tap keeps the launch messages that were sent.
const sent = "the input of sqs:SendMessageBatch"

// NewTap returns a tap that has read nothing.
func NewTap() *Tap { return &Tap{read: map[string]*bytes.Buffer{}} }

// Add keeps a text.
func (t *Tap) Add(where, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.read[where]
	if b == nil {
		b = &bytes.Buffer{}
		t.read[where] = b
	}
	b.WriteString(text)
	b.WriteByte('\n')
}

// Writer adds all that is written to it.
func (t *Tap) Writer(where string) *TapWriter { return &TapWriter{t, where} }

// TapWriter is an io.Writer into a tap.
type TapWriter struct {
	tap   *Tap
	where string
}

func (w *TapWriter) Write(p []byte) (int, error) {
	w.tap.Add(w.where, string(p))
	return len(p), nil
}

// call keeps the input of a call.
func (t *Tap) call(c wire.Call) error {
	t.Add("the input of "+c.Service+":"+c.Operation, string(c.Body))
	return nil
}

// places are where something was read.
func (t *Tap) places() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.read))
}

// find says where a secret can be read, as it is or encoded.
func (t *Tap) find(name, secret string) (found []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	forms := []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), url.QueryEscape(secret)}
	for _, where := range slices.Sorted(maps.Keys(t.read)) {
		text := t.read[where].String()
		if slices.ContainsFunc(forms, func(f string) bool { return strings.Contains(text, f) }) {
			found = append(found, fmt.Sprintf("%s can be read in %s", name, where))
		}
	}
	return found
}

// text is all that was read somewhere.
func (t *Tap) text(where string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.read[where]; b != nil {
		return b.String()
	}
	return ""
}

// Save writes each place to a file of a directory.
func (t *Tap) Save(dir string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := os.MkdirAll(dir, 0o700)
	for where, b := range t.read {
		name := strings.NewReplacer(" ", "-", ":", "-", "/", "-").Replace(where) + ".log"
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600))
	}
	return err
}
