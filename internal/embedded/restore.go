package embedded

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// restoringFile exists from before a restore changes the directory until all files are in their places. No server
// starts meanwhile: it would begin anew, or with a part. It has the suffix under which the present files are put aside.
const restoringFile = privateDir + "/restoring"

// Restored is the result of a restore.
type Restored struct {
	Manifest Manifest
	Data     string       // the data directory
	Ended    api.Restored // runs and schedules that would have gone on by themselves
	Aside    string       // where the records are that were there before; empty if there were none
}

// RestoreConfig names the backup and the data directory.
type RestoreConfig struct {
	Backup  string // the backup's directory
	Data    string // the data directory
	Replace bool   // records that are there are put aside
	Version string // of the program; empty means "dev"
	Log     *slog.Logger
}

// Restore puts a backup in the place of a data directory's records. Runs and schedules that would go on by themselves
// are ended, because they may have been done since the backup was made. One that is cut short is finished by the next
// one.
func Restore(ctx context.Context, cfg RestoreConfig) (out Restored, err error) {
	if out.Manifest, err = OpenBackup(ctx, cfg.Backup); err != nil {
		return out, err
	}
	d, err := openData(cfg.Data)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	out.Data = d.path
	db, blobs, marker := d.file(DatabaseFile), d.file(blobsDir), d.file(restoringFile)
	suffix, err := readPrivate(marker)
	if err != nil {
		return out, err
	}
	if suffix == "" && there(db) && !cfg.Replace {
		return out, workflow.Refuse(workflow.ErrExists, "", "%s already has records: name another data directory, or put them aside with --replace", d.path)
	}
	if suffix == "" {
		suffix = ".replaced-" + time.Now().UTC().Format("20060102-150405")
	}
	// All that can fail comes before anything is changed.
	const making = ".restoring"
	if out.Ended, err = prepare(ctx, cfg, db+making, blobs+making); err != nil {
		return out, errors.Join(err, removeAll(db+making), removeAll(blobs+making))
	}
	if err := writePrivate(marker, suffix); err != nil {
		return out, err
	}
	aside := db + suffix
	if err := putAside([2]string{db, aside}, [2]string{db + "-wal", aside + "-wal"}, [2]string{db + "-shm", aside + "-shm"}, [2]string{blobs, blobs + suffix}); err != nil {
		return out, err
	}
	if there(aside) {
		out.Aside = aside
	}
	if there(blobs + making) {
		if err := os.Rename(blobs+making, blobs); err != nil {
			return out, err
		}
	}
	if err := errors.Join(os.Rename(db+making, db), syncDir(d.file(privateDir))); err != nil {
		return out, err
	}
	return out, errors.Join(os.Remove(marker), removeAll(db+making), syncDir(d.file(privateDir)))
}

// prepare copies a backup to two paths, checks the records, and ends the runs and schedules that would go on by
// themselves.
func prepare(ctx context.Context, cfg RestoreConfig, path, blobs string) (ended api.Restored, err error) {
	if err := errors.Join(removeAll(path), removeAll(blobs)); err != nil {
		return ended, err
	}
	if err := copyTree(ctx, filepath.Join(cfg.Backup, backupBlobs), blobs); err != nil {
		return ended, err
	}
	if err := syncTree(blobs); err != nil {
		return ended, err
	}
	if err := copyFile(filepath.Join(cfg.Backup, backupRecords), path); err != nil {
		return ended, err
	}
	if err := sqlite.Check(ctx, path); err != nil {
		return ended, err
	}
	st, err := sqlite.Open(ctx, path, sqlite.Config{Log: cfg.Log, Program: "dayfly " + cfg.Version})
	if err != nil {
		return ended, err
	}
	ended, err = controlplane.New(st, controlplane.Config{Log: cfg.Log}).Restored(ctx)
	return ended, errors.Join(err, st.Close())
}

// removeAll removes a file or directory that is no longer wanted, and those with a longer name: the log of records.
func removeAll(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(filepath.Dir(path), e.Name())))
		}
	}
	return err
}

// putAside gives files of one directory other names, as far as they are there. Where a restore was cut short, some may
// have theirs already: a file in the old place then is a new one, which nobody has used.
func putAside(names ...[2]string) error {
	for _, name := range names {
		from, to := name[0], name[1]
		var err error
		if there(to) {
			err = os.RemoveAll(from)
		} else {
			err = os.Rename(from, to)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncDir(filepath.Dir(names[0][0]))
}

// copyFile makes a copy that only its owner can read and that is on disk.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// restored refuses a data directory in which a restore was cut short.
func (d *dataDir) restored() error {
	if there(d.file(restoringFile)) {
		return workflow.Refuse(workflow.ErrInUse, "", "a restore of the data directory %s was cut short: run dayfly server restore again", d.path)
	}
	return nil
}
