package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const key = "default/ws_1/wf_1/1/files/dir/a"

func of(text string, until time.Time) api.Artifact {
	sum := sha256.Sum256([]byte(text))
	return api.Artifact{Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), ExpiresAt: until}
}

// files are the plain files below a directory, with slashes.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

func content(t *testing.T, d *artifact.Directory, key string) string {
	t.Helper()
	f, err := d.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKeep_WritesWhatWasAnnouncedAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "artifacts")
	d := artifact.NewDirectory(base)
	until := time.Now().Add(time.Hour)
	broken := errors.New("the runner is gone")
	for name, body := range map[string]io.Reader{
		"other bytes": strings.NewReader("two"), "fewer": strings.NewReader("on"), "more": strings.NewReader("one more"),
		"cut short": io.MultiReader(strings.NewReader("o"), readError{broken}),
	} {
		if err := d.Keep(key, of("one", until), body); err == nil || name != "cut short" && !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if left := files(t, base); len(left) != 0 {
		t.Errorf("left %q", left)
	}
	if err := d.Keep(key, of("one", until), strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d, key); got != "one" {
		t.Errorf("got %q", got)
	}
	if err := d.Keep(key, of("one", until), strings.NewReader("one")); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := d.Keep(key, of("two", until), strings.NewReader("two")); !errors.Is(err, workflow.ErrExists) || content(t, d, key) != "one" {
		t.Errorf("another in its place: %v", err)
	}
	for path := filepath.Join(base, filepath.FromSlash(key)); path != dir; path = filepath.Dir(path) {
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v: others may read it", path, info.Mode(), err)
		}
	}
}

type readError struct{ err error }

func (r readError) Read([]byte) (int, error) { return 0, r.err }

func TestKeep_OfManyWritersEachHasOneResult(t *testing.T) {
	d := artifact.NewDirectory(t.TempDir())
	until := time.Now().Add(time.Hour)
	var all sync.WaitGroup
	kept := make(chan string, 16)
	for n := range 16 {
		text := string(bytes.Repeat([]byte{byte('a' + n%2)}, 10_000))
		all.Go(func() {
			switch err := d.Keep(key, of(text, until), strings.NewReader(text)); {
			case err == nil:
				kept <- text
			case !errors.Is(err, workflow.ErrExists):
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(kept)
	n := 0
	for text := range kept {
		if n++; text != content(t, d, key) {
			t.Error("a writer was told that its bytes are kept, and others are")
		}
	}
	if n != 8 {
		t.Errorf("%d writers were told that their bytes are kept, want the 8 of one text", n)
	}
}

func TestOpen_WhatIsNotThere(t *testing.T) {
	d := artifact.NewDirectory(filepath.Join(t.TempDir(), "none"))
	_, err := d.Open(key)
	_, other := d.Download(t.Context(), key, api.Artifact{})
	// Not ErrNotFound, which would tell a runner that its run is over.
	if !errors.Is(err, workflow.ErrConflict) || !errors.Is(other, workflow.ErrConflict) {
		t.Errorf("got %v and %v", err, other)
	}
}

// A truncated file would look like a transfer that is cut off, which a runner repeats for minutes.
func TestDownload_RefusesWhatHasAnotherSize(t *testing.T) {
	dir := t.TempDir()
	d := artifact.NewDirectory(dir)
	a := of("one", time.Now().Add(time.Hour))
	if err := d.Keep(key, a, strings.NewReader("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Download(t.Context(), key, a); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "on", "one more"} {
		if err := os.WriteFile(filepath.Join(dir, key), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Download(t.Context(), key, a); !errors.Is(err, workflow.ErrConflict) {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestSweep_DeletesExpiredAndCrashedFiles(t *testing.T) {
	base := t.TempDir()
	d := artifact.NewDirectory(base)
	now := time.Now()
	keep := func(key string, until time.Time) {
		t.Helper()
		if err := d.Keep(key, of("one", until), strings.NewReader("one")); err != nil {
			t.Fatal(err)
		}
	}
	keep("default/ws_1/wf_1/1/files/a", now.Add(24*time.Hour))
	keep("default/ws_1/wf_2/1/files/.a.tmp", now.Add(72*time.Hour))
	// A crash between the temporary file and its name, and one between the name and its time.
	for _, name := range []string{".b.ABCDEFGHIJKLMNOPQRSTUVWXYZ.tmp", "b"} {
		if err := os.WriteFile(filepath.Join(base, "default/ws_1/wf_1/1/files", name), []byte("on"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {30 * time.Minute, 0}, {2 * time.Hour, 2}, {25 * time.Hour, 0}, {26 * time.Hour, 1}, {72 * time.Hour, 0}} {
		if n, err := d.Sweep(now.Add(step.after)); err != nil || n != step.want {
			t.Errorf("after %s: %d files, %v, want %d", step.after, n, err, step.want)
		}
	}
	if left := files(t, base); !slices.Equal(left, []string{"default/ws_1/wf_2/1/files/.a.tmp"}) {
		t.Errorf("left %q", left)
	}
	if _, err := os.Stat(filepath.Join(base, "default/ws_1/wf_1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory is left: %v", err)
	}
	keep("default/ws_1/wf_1/1/files/a", now.Add(24*time.Hour))
	if n, err := artifact.NewDirectory(filepath.Join(base, "none")).Sweep(now); n != 0 || err != nil {
		t.Errorf("of none: %d, %v", n, err)
	}
}

// An artifact that is announced again gets its time, also after a crash lost it.
func TestKeep_AgainGivesTheTimeThatIsMissing(t *testing.T) {
	base := t.TempDir()
	d := artifact.NewDirectory(base)
	until := time.Now().Add(24 * time.Hour)
	path := filepath.Join(base, filepath.FromSlash(key))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("one"), 0o600), d.Keep(key, of("one", until), strings.NewReader("one"))); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Sweep(time.Now().Add(23 * time.Hour)); n != 0 || err != nil {
		t.Errorf("deleted %d, %v", n, err)
	}
}

func FuzzKeep_StaysInItsDirectory(f *testing.F) {
	for _, k := range []string{key, "..", "a/../../b", "/etc/passwd", "a//b", "", "a/./b", `a\..\b`, "a/\x00", ".", "a/.tmp", strings.Repeat("a/", 300) + "a"} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, k string) {
		outer := t.TempDir()
		base := filepath.Join(outer, "artifacts")
		err := artifact.NewDirectory(base).Keep(k, of("one", time.Now().Add(time.Hour)), strings.NewReader("one"))
		got := files(t, outer)
		if err == nil && !slices.Equal(got, []string{"artifacts/" + k}) || err != nil && len(got) != 0 {
			t.Errorf("key %q: %v, and there are %q", k, err, got)
		}
	})
}
