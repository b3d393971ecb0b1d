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

// record is the record of a task on disk.
type record struct {
	taskdir.Record

	Container string `json:"container"`
	Engine    string `json:"engine"` // id of the engine that has it: that another one does not know it proves nothing

	StopWhy string    `json:"stop_why,omitempty"` // why it was asked to stop
	StopAt  time.Time `json:"stop_at,omitzero"`   // when its grace began
	Killed  bool      `json:"killed,omitempty"`   // it was killed when its grace was over
	Hurried bool      `json:"hurried,omitempty"`  // it was killed before its grace was over
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

// decode reads a record. If it cannot be read, the container's labels are enough to make another.
func decode(b []byte) (*entry, error) {
	var t entry
	if err := json.Unmarshal(b, &t.record); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	return &t, t.record.check()
}

// identity returns the id of this directory's launcher. It is made once and kept, because containers have it as a
// label.
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
