package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	markerText = "This is a data directory of Dayfly, with secrets, tokens and states. No run may have it as its source.\n"
	// movedText is short, so that an older version does not take it for a database.
	movedText = "Moved to " + privateDir + "/ by a newer Dayfly. To go back to the older one, stop the newer one and move all that is in " + privateDir + "/ here.\n"
)

// SecretsPath returns where the secrets of a data directory are. One that only an earlier version has opened has them
// elsewhere, and they may be wanted while that version runs.
func SecretsPath(data string) string {
	old := filepath.Join(data, filepath.Base(SecretsDir))
	if there(old) || there(filepath.Join(data, lockFile)) && !there(filepath.Join(data, privateDir)) {
		return old
	}
	return filepath.Join(data, SecretsDir)
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// settle marks the directory, makes the private one in it, and moves there what an earlier version had beside it. The
// lock is held, and nothing is open yet. If the process dies, the next call goes on.
func (d *dataDir) settle() error {
	if err := mark(d.path); err != nil {
		return err
	}
	private := d.file(privateDir)
	if err := os.Mkdir(private, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(private)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return workflow.Refuse(workflow.ErrInvalid, "", "%s is not a directory: move it away", private)
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(private, 0o700); err != nil { //nolint:gosec // a directory
			return err
		}
	}
	if err := mark(private); err != nil {
		return err
	}
	// The log of a database goes with it, or commits are lost.
	if err := d.moveWhole(DatabaseFile, DatabaseFile+"-wal", DatabaseFile+"-shm"); err != nil {
		return err
	}
	if err := d.moveWhole(TicketKeysFile); err != nil {
		return err
	}
	for _, name := range []string{AdminTokenFile, instanceFile, stateIDFile, relayPortFile} {
		if err := d.move(name); err != nil {
			return err
		}
	}
	return errors.Join(d.moveCopies(), d.moveSecrets())
}

// mark makes a directory known as a data directory.
func mark(dir string) error {
	path := filepath.Join(dir, runner.DataMarker)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		return nil
	}
	return disk.Replace(path, []byte(markerText))
}

// before is where an earlier version had a file.
func (d *dataDir) before(name string) string { return d.file(filepath.Base(name)) }

// moveWhole moves a file with others that belong to it, all or none. Each gets its new name beside the old one. Then a
// note takes the place of the first one: an older version refuses the note, where it would begin anew without a file.
func (d *dataDir) moveWhole(name string, others ...string) error {
	old := d.before(name)
	moved, err := isNote(old)
	if err != nil {
		return err
	}
	if !moved && there(old) {
		if err := d.forgetLinks(name, others); err != nil {
			return err
		}
		for _, one := range append([]string{name}, others...) {
			if err := os.Link(d.before(one), d.file(one)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := syncDir(d.file(privateDir)); err != nil {
			return err
		}
	}
	if !moved {
		if err := disk.Replace(old, []byte(movedText)); err != nil {
			return err
		}
	}
	for _, one := range others {
		if err := os.Remove(d.before(one)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// forgetLinks removes the new names that a call made which did not come to its end. It refuses files that are not
// those of the old names.
func (d *dataDir) forgetLinks(name string, others []string) error {
	old, err := os.Stat(d.before(name))
	if err != nil {
		return err
	}
	now, err := os.Lstat(d.file(name))
	linked := err == nil && os.SameFile(old, now)
	for _, one := range append(others, name) { // name last: while it is there, the others are known to be links
		if !there(d.file(one)) {
			continue
		}
		if !linked {
			return workflow.Refuse(workflow.ErrInvalid, "", "there are both %s and %s: keep the one that you need, with the files beside it whose names begin with it, and move the other away", d.before(name), d.file(one))
		}
		if err := os.Remove(d.file(one)); err != nil {
			return err
		}
	}
	return nil
}

// isNote reports whether a file was moved. It refuses what is not a plain file.
func isNote(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, workflow.Refuse(workflow.ErrInvalid, "", "%s is not a plain file: put the file itself there", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, int64(len(movedText))))
	word, _, _ := strings.Cut(movedText, ".")
	return strings.HasPrefix(string(b), word), err
}

// move moves a file that stands alone. Where both are there, an older version has made the old one in vain.
func (d *dataDir) move(name string) error {
	old := d.before(name)
	switch {
	case !there(old):
		return nil
	case there(d.file(name)):
		return os.Remove(old)
	}
	return os.Rename(old, d.file(name))
}

// moveCopies moves the copies of the database that were made before its migrations.
func (d *dataDir) moveCopies() error {
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		now := filepath.Join(d.file(privateDir), e.Name())
		if strings.HasPrefix(e.Name(), filepath.Base(DatabaseFile)+".v") && !there(now) {
			err = errors.Join(err, os.Rename(d.file(e.Name()), now))
		}
	}
	return err
}

// moveSecrets moves the secrets. One that was set in the old place while the new one was there is the newer.
func (d *dataDir) moveSecrets() error {
	old, now := d.before(SecretsDir), d.file(SecretsDir)
	if !there(old) {
		return nil
	}
	if !there(now) {
		return os.Rename(old, now)
	}
	entries, err := os.ReadDir(old)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(old, e.Name()), filepath.Join(now, e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(old)
}

func syncDir(path string) error {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	if err := errors.Join(disk.Sync(dir), dir.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
