package docker

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
)

const idFile = "id"

var (
	containerForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{12,64}$`) })
	idForm        = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{16}$`) })
)

// record is what is on disk about a task of a container.
type record struct {
	taskdir.Record

	Container string `json:"container"`
	Engine    string `json:"engine"` // the id of the engine that has it: another one's silence proves nothing

	StopWhy string    `json:"stop_why,omitempty"` // it was asked to stop
	StopAt  time.Time `json:"stop_at,omitzero"`   // when its grace began
	Killed  bool      `json:"killed,omitempty"`   // the grace was over
	Hurried bool      `json:"hurried,omitempty"`  // it was killed before that
}

// Base implements taskdir.Entry.
func (t *entry) Base() *taskdir.Record { return &t.record.Record }

// Where implements taskdir.Entry.
func (t *entry) Where() (key string, value any) { return "container", t.record.Container }

// Phase implements taskdir.Entry.
func (t *entry) Phase() launcher.Phase {
	switch {
	case !t.record.StoppedAt.IsZero():
		return launcher.Stopped
	case t.record.StopWhy != "":
		return launcher.Stopping
	}
	return launcher.Running
}

func (r *record) check() error {
	if err := r.Check(); err != nil {
		return err
	}
	if !containerForm().MatchString(r.Container) || r.Engine == "" {
		return errors.New("record without its container")
	}
	return nil
}

// decode reads a record. The container of one that cannot be read carries what is needed to make another.
func decode(b []byte) (*entry, error) {
	var t entry
	if err := json.Unmarshal(b, &t.record); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return &t, t.record.check()
}

// identity returns the id of this directory's launcher, made once and kept: its containers carry it.
func identity(dir string) (string, error) {
	path := filepath.Join(dir, idFile)
	b, err := os.ReadFile(path)
	if id := string(bytes.TrimSpace(b)); err == nil && idForm().MatchString(id) {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the launcher's id: %w", err)
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:])
	id := hex.EncodeToString(raw[:])
	if err := disk.Replace(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("keep the launcher's id: %w", err)
	}
	return id, nil
}
