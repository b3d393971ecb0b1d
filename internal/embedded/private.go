package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const markerText = "This is a data directory of Dayfly, with secrets, tokens and states. No run may have it as its source.\n"

// CheckData refuses a data directory from before 0.1.0, and changes nothing in it. It is called before anything else
// is done with a data directory, and by no process that has its database open.
func CheckData(data string) error {
	found := ""
	if version := sqlite.Older(filepath.Join(data, DatabaseFile)); version > 0 {
		found = fmt.Sprintf("%s has schema %d", DatabaseFile, version)
	}
	// Only versions before 0.1.0 had these beside the private directory.
	for _, name := range []string{DatabaseFile, TicketKeysFile, AdminTokenFile, SecretsDir, instanceFile, stateIDFile, relayPortFile} {
		if name := filepath.Base(name); found == "" && there(filepath.Join(data, name)) {
			found = "it has " + name + " outside of " + privateDir + "/"
		}
	}
	if found == "" {
		return nil
	}
	return workflow.Refuse(workflow.ErrUnsupported, "", "the data directory %s is of a version of Dayfly before 0.1.0 (%s), which this version does not read; nothing in it was changed. "+
		"Name another one with --data. The states are in %s: copy them beside the workspace's code, and run an update with --take-over. "+
		"See \"A data directory from before 0.1.0\" in docs/backup.md", data, found, filepath.Join(data, StateDir, "ORGANIZATION", "WORKSPACE"))
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// setUp marks the directory and makes the private one in it. The lock is held, and nothing is open yet. If the
// process dies, the next call goes on.
func (d *dataDir) setUp() error {
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
	return mark(private)
}

// mark makes a directory known as a data directory.
func mark(dir string) error {
	path := filepath.Join(dir, runner.DataMarker)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		return nil
	}
	return disk.Replace(path, []byte(markerText))
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
