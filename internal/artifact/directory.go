// Package artifact keeps the bytes of artifacts: in files of an agent, or in a bucket that it signs requests for. It
// does not know which artifacts exist, nor who may read them.
package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Directory keeps the bytes of artifacts as files below one directory, which only its owner can enter. A file is there
// whole or not at all, and is never replaced. The time of its last change is that until which it is kept.
type Directory struct{ path string }

// NewDirectory returns the store below a directory, which is made with the first file.
func NewDirectory(path string) *Directory { return &Directory{path} }

// Place returns the kind of place.
func (d *Directory) Place() api.Place { return api.Place{Kind: api.PlaceDirectory} }

// Upload returns a request without a URL: the program that serves it hands the bytes to Keep.
func (d *Directory) Upload(_ context.Context, key string, _ api.NewArtifact) (api.Transfer, error) {
	return api.Transfer{Method: http.MethodPut}, checkKey(key)
}

// Download returns a request without a URL: the program that serves it takes the bytes from Open. It refuses a
// missing file, and one of another size: a file that is too short would look like a transfer that is cut off each
// time.
func (d *Directory) Download(_ context.Context, key string, a api.Artifact) (api.Transfer, error) {
	f, err := d.Open(key)
	if err != nil {
		return api.Transfer{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err == nil && info.Size() != a.Size {
		err = workflow.Refuse(workflow.ErrConflict, "size", "the artifact has %d bytes, and its file on this machine has %d: the file was changed", a.Size, info.Size())
	}
	return api.Transfer{Method: http.MethodGet}, err
}

// checkKey refuses an invalid key of an artifact. Its parts are plain names of files.
func checkKey(key string) error {
	// The rule for names holds for each part of a key.
	for part := range strings.SplitSeq(key, "/") {
		if len(key) > 500 || api.CheckArtifactName(api.FilesDir+part) != nil {
			return workflow.Refuse(workflow.ErrInvalid, "key", "%.250q is not the key of an artifact", key)
		}
	}
	return nil
}

// Keep writes the bytes of an artifact, if they have its size and its SHA-256. The same bytes again are no error; others
// under the key are refused.
func (d *Directory) Keep(key string, a api.Artifact, body io.Reader) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := disk.MakeDirs(d.path, path.Dir(key)); err != nil {
		return fmt.Errorf("keep artifact: %w", err)
	}
	dir, err := d.in(path.Dir(key))
	if err != nil {
		return fmt.Errorf("keep artifact: %w", err)
	}
	defer dir.Close() //nolint:errcheck // a directory
	name := path.Base(key)
	err = disk.CreateIn(dir, name, func(to io.Writer) error { return CopyChecked(to, body, a.Size, a.SHA256) })
	if errors.Is(err, fs.ErrExist) {
		err = same(dir, name, a)
	}
	if err == nil {
		err = until(dir, name, a.ExpiresAt)
	}
	if _, refused := errors.AsType[*workflow.Error](err); err != nil && !refused {
		err = fmt.Errorf("keep artifact: %w", err)
	}
	return err
}

// in opens a directory below that of the store.
func (d *Directory) in(name string) (*os.Root, error) {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a directory
	return root.OpenRoot(name)
}

// CopyChecked copies data of this size and SHA-256. It refuses other data, possibly after it has copied some of it.
func CopyChecked(to io.Writer, from io.Reader, size int64, sum string) error {
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, hash), io.LimitReader(from, size+1))
	switch {
	case err != nil:
		return err
	case n != size:
		return workflow.Refuse(workflow.ErrInvalid, "size", "the artifact has %d bytes; other bytes came, or more or fewer of them", size)
	case hex.EncodeToString(hash.Sum(nil)) != sum:
		return workflow.Refuse(workflow.ErrInvalid, "sha256", "the bytes that came are not those of the artifact: their SHA-256 is another")
	}
	return nil
}

// same refuses to keep an artifact under the name of another.
func same(dir *os.Root, name string, a api.Artifact) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if err := CopyChecked(io.Discard, f, a.Size, a.SHA256); err != nil {
		return workflow.Refuse(workflow.ErrExists, "name", "there is another artifact of this name")
	}
	return nil
}

// until notes in a file how long it is kept. If the process crashes before that, the next sweep removes the file: its
// arrival was not reported to anybody.
func until(dir *os.Root, name string, at time.Time) error {
	if err := dir.Chtimes(name, time.Time{}, at); err != nil {
		return err
	}
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Open returns the bytes of an artifact. The reader checks them.
func (d *Directory) Open(key string) (*os.File, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	dir, err := d.in(path.Dir(key))
	if err == nil {
		defer dir.Close() //nolint:errcheck // a directory
		var f *os.File
		if f, err = dir.Open(path.Base(key)); err == nil {
			return f, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, workflow.Refuse(workflow.ErrConflict, "", "the bytes of the artifact are not on this machine, or are not kept any longer")
	}
	return nil, fmt.Errorf("open artifact: %w", err)
}

// grace is how long an expired file is kept: it may be one that is being written.
const grace = time.Hour

// Sweep deletes expired files, unfinished ones of a crash, and directories that are empty then. It returns
// how many files it has deleted.
func (d *Directory) Sweep(now time.Time) (deleted int, err error) {
	root, err := os.OpenRoot(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sweep artifacts: %w", err)
	}
	defer root.Close() //nolint:errcheck // a directory
	var dirs []string
	var errs []error
	_ = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		info, err := e.Info()
		switch {
		case err != nil, name == ".":
		case e.IsDir():
			dirs = append(dirs, name)
		case info.ModTime().Add(grace).Before(now):
			if err = root.Remove(name); err == nil {
				deleted++
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		return nil
	})
	for _, dir := range slices.Backward(dirs) {
		if info, err := root.Stat(dir); err == nil && info.ModTime().Add(grace).Before(now) {
			_ = root.Remove(dir) // one that is not empty stays
		}
	}
	return deleted, errors.Join(errs...)
}
