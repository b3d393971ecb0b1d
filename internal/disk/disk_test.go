package disk_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

// holds fails unless the directory has just this one file, with the content, readable by its owner only.
func holds(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("got %v, %v, want a plain file of mode 0600", info, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want one file", entries, err)
	}
}

func TestReplace_PutsAFileInPlaceOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"a long first text", "short"} {
		if err := disk.Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		holds(t, path, text)
	}
}

func TestReplace_ReplacesALinkAndNotWhatItLeadsTo(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(elsewhere, []byte("old"), 0o600), os.Symlink(elsewhere, path)); err != nil {
		t.Fatal(err)
	}
	if err := disk.Replace(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "new")
	holds(t, elsewhere, "old")
}

func TestReplaceIn_StaysInItsDirectory(t *testing.T) {
	base := t.TempDir()
	inside := filepath.Join(base, "inside")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close() //nolint:errcheck // a directory
	if err := disk.ReplaceIn(dir, "../file", nil); err == nil {
		t.Error("got a file beside the directory, want an error")
	}
	if err := disk.ReplaceIn(dir, "file", []byte("text")); err != nil {
		t.Error(err)
	}
	holds(t, filepath.Join(inside, "file"), "text")
}

func TestReplace_AFailureLeavesWhatWasThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := disk.Replace(path, []byte("text")); err == nil {
		t.Error("got a file in place of a directory, want an error")
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("got %v, %v, want the directory alone", entries, err)
	}
}

func TestCreate_OneOfManyWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var all sync.WaitGroup
	won := make(chan []byte, 8)
	for n := range 8 {
		all.Go(func() {
			mine := bytes.Repeat([]byte{byte('a' + n)}, 10_000)
			switch err := disk.Create(path, mine); {
			case err == nil:
				won <- mine
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d files were created", len(won))
	}
	holds(t, path, string(<-won))
}
