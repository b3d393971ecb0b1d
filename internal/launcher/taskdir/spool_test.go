package taskdir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// In a container the engine has the runner's user: what it puts in the place of a spool must lead nowhere.
func TestSpool_OpensNothingButAFileOfARunner(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, []byte("not for others"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		place func(path string) error
		owner int
		ok    bool
	}{
		"a file":                  {func(path string) error { return os.WriteFile(path, []byte("log"), 0o600) }, os.Geteuid(), true},
		"a file of somebody else": {func(path string) error { return os.WriteFile(path, []byte("log"), 0o600) }, os.Geteuid() + 1, false},
		"a symbolic link":         {func(path string) error { return os.Symlink(elsewhere, path) }, os.Geteuid(), false},
		"another name of a file":  {func(path string) error { return os.Link(elsewhere, path) }, os.Geteuid(), false},
		"a pipe":                  {func(path string) error { return syscall.Mkfifo(path, 0o600) }, os.Geteuid(), false},
		"a directory":             {func(path string) error { return os.Mkdir(path, 0o700) }, os.Geteuid(), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &taskdir.SpoolDir{Dir: t.TempDir(), Owner: c.owner, Now: time.Now}
			if err := c.place(filepath.Join(s.Dir, "task-1")); err != nil {
				t.Fatal(err)
			}
			f, err := s.Spool("task-1")
			if f != nil {
				defer func() { _ = f.Close() }()
			}
			if (err == nil) != c.ok || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("opened: %v", err)
			}
			if err := s.DropSpool("task-1"); err != nil {
				t.Error(err)
			}
		})
	}
	s := &taskdir.SpoolDir{Dir: t.TempDir(), Owner: os.Geteuid(), Now: time.Now}
	if _, err := s.Spool("../" + filepath.Base(elsewhere)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that leads elsewhere: %v", err)
	}
}

func TestSpools_AreBoundedInNumberAndAge(t *testing.T) {
	now := time.Now()
	s := &taskdir.SpoolDir{Dir: filepath.Join(t.TempDir(), "spools"), Owner: os.Geteuid(), Now: func() time.Time { return now }}
	if refs, err := s.Spools(); err != nil || len(refs) != 0 {
		t.Errorf("before the first: %v, %v", refs, err)
	}
	for i := range 70 {
		work := t.TempDir()
		path := filepath.Join(work, task.SpoolName)
		if err := os.WriteFile(path, []byte("log"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := now.Add(time.Duration(i) * time.Second)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if err := s.Keep(fmt.Sprintf("task-%02d", i), work); err != nil {
			t.Fatal(err)
		}
	}
	refs, err := s.Spools()
	if err != nil || len(refs) != 64 || refs[0] != "task-69" || refs[63] != "task-06" || s.Has("task-05") || !s.Has("task-06") {
		t.Errorf("got %d: %v, %v", len(refs), refs, err)
	}
	now = now.Add(workflow.ReportRetention + 30*time.Second)
	refs, err = s.Spools()
	if err != nil || len(refs) != 40 || refs[39] != "task-30" || s.Has("task-29") {
		t.Errorf("after the retention of reports: got %d: %v, %v", len(refs), refs, err)
	}
}
