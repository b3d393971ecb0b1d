package embedded

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A backup is a directory with the records of a control plane and the logs that they name, as they were at one
// moment, and with a list of its files, which is written last. A file that is not on the list is not part of it, and
// one that is must have the listed size and hash: so a backup that was cut short is never taken for a whole one. It
// holds no token, key or secret in the clear, and nothing of an agent's.
const (
	manifestFile  = "manifest.json"
	backupFormat  = 1
	backupPart    = ".partial" // ends the name of one that is being made
	backupRecords = "dayfly.db"
	backupBlobs   = "blobs"
	backupLock    = ".lock"
)

// Manifest is the list of the files of a backup.
type Manifest struct {
	Format  int         `json:"format"`
	Program string      `json:"program"`
	Made    time.Time   `json:"made"`
	Schema  int         `json:"schema"`
	Files   []SavedFile `json:"files"`
}

// SavedFile is a file of a backup.
type SavedFile struct {
	Name   string `json:"name"` // below the backup, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Backup copies the records and logs of a data directory into a new directory, also while a server uses them. version
// is the program's.
func Backup(ctx context.Context, data, to, version string) (m Manifest, err error) {
	if err := CheckData(data); err != nil {
		return m, err
	}
	db := filepath.Join(data, DatabaseFile)
	if !there(db) {
		return m, workflow.Refuse(workflow.ErrNotFound, "", "there are no records in %s: name the data directory of the server with --data", data)
	}
	if there(to) {
		return m, workflow.Refuse(workflow.ErrExists, "", "%s already exists: name a new directory", to)
	}
	partial := to + backupPart
	lock, err := beginPart(partial)
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
		err = errors.Join(err, lock.Close())
	}()
	m = Manifest{Format: backupFormat, Program: "dayfly " + cmp.Or(version, "dev"), Made: time.Now().UTC(), Schema: sqlite.Schema}
	if err = sqlite.Copy(ctx, db, filepath.Join(partial, backupRecords)); err != nil {
		return m, err
	}
	// Blobs never change. Those that were made since are not named by the records; those that are gone since were past
	// their retention.
	if err := copyTree(ctx, filepath.Join(data, blobsDir), filepath.Join(partial, backupBlobs)); err != nil {
		return m, err
	}
	if err := syncTree(filepath.Join(partial, backupBlobs)); err != nil {
		return m, err
	}
	if m.Files, err = list(ctx, partial); err != nil {
		return m, err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	if err := disk.Replace(filepath.Join(partial, manifestFile), append(text, '\n')); err != nil {
		return m, err
	}
	if err := os.Rename(partial, to); err != nil {
		return m, err
	}
	return m, errors.Join(os.Remove(filepath.Join(to, backupLock)), syncDir(filepath.Dir(to)))
}

// beginPart makes the directory of a backup that is being made, and locks it. Files of one that was killed are
// removed.
func beginPart(partial string) (*os.File, error) {
	path := filepath.Join(partial, backupLock)
	// After a backup that was killed before it made its lock there is an empty directory.
	if files, err := os.ReadDir(partial); there(partial) && !there(path) && (err != nil || len(files) > 0) {
		return nil, workflow.Refuse(workflow.ErrExists, "", "%s is not an unfinished backup: move it away, or name another directory", partial)
	}
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return nil, fmt.Errorf("make the backup: %w", err)
	}
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the backup: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, workflow.Refuse(workflow.ErrInUse, "", "another process is making the backup %s", strings.TrimSuffix(partial, backupPart))
	}
	entries, err := os.ReadDir(partial)
	for _, e := range entries {
		if e.Name() != backupLock {
			err = errors.Join(err, os.RemoveAll(filepath.Join(partial, e.Name())))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the backup: %w", err), lock.Close())
	}
	return lock, nil
}

// list looks at every file below a directory.
func list(ctx context.Context, dir string) (out []SavedFile, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == backupLock {
			return errors.Join(err, ctx.Err())
		}
		f := SavedFile{}
		if f.Name, err = filepath.Rel(dir, path); err != nil {
			return err
		}
		f.Name = filepath.ToSlash(f.Name)
		f.Size, f.SHA256, err = sum(path)
		out = append(out, f)
		return errors.Join(err, ctx.Err())
	})
	return out, err
}

// copyTree copies all files below a directory, if there is one.
func copyTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			err = os.Mkdir(target, 0o700)
		case strings.HasSuffix(e.Name(), disk.TempSuffix): // it is being made
		default:
			err = copyFile(path, target)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		return errors.Join(err, ctx.Err())
	})
}

// syncTree puts the names of all that was copied on disk.
func syncTree(dir string) error {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = syncDir(path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sum is the size and the hash of a plain file.
func sum(path string) (size int64, hash string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return 0, "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// OpenBackup reads the list of a backup, and refuses one that is not whole.
func OpenBackup(ctx context.Context, dir string) (m Manifest, err error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, notWhole(dir, "it has no "+manifestFile)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, notWhole(dir, "its "+manifestFile+" cannot be read")
	}
	if m.Format != backupFormat || m.Schema != sqlite.Schema {
		return m, workflow.Refuse(workflow.ErrUnsupported, "", "the backup %s was made by %s in a form that this program does not know: restore it with that program", dir, m.Program)
	}
	records := false
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
			return m, notWhole(dir, fmt.Sprintf("it names a file outside of it, %q", f.Name))
		}
		size, hash, err := sum(filepath.Join(dir, filepath.FromSlash(f.Name)))
		switch {
		case err != nil:
			return m, notWhole(dir, err.Error())
		case size != f.Size || hash != f.SHA256:
			return m, notWhole(dir, fmt.Sprintf("%s is not as it was saved", f.Name))
		case ctx.Err() != nil:
			return m, context.Cause(ctx)
		}
		records = records || f.Name == backupRecords
	}
	if !records {
		return m, notWhole(dir, "it has no records")
	}
	return m, nil
}

func notWhole(dir, why string) error {
	return workflow.Refuse(workflow.ErrInvalid, "", "%s is not a whole backup: %s", dir, why)
}
