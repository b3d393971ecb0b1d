package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
)

// dirs are the directories of a run, below its work directory.
type dirs struct {
	work      string // the runner's own: the engine's user can pass through it, but can neither list nor write it
	ours      bool   // the work directory was made here
	source    string // the code
	aside     string // the parts of the source that are not code; only for the runner
	temp      string // TMPDIR of the engine
	home      string // HOME of the engine
	artifacts string // DAYFLY_ARTIFACTS of the engine
	secrets   string // files of secrets
	modules   string // files of the credentials for modules, while a step has them
	tools     string // engines that were fetched for this run alone; empty: none
	broken    error  // why they could not be made

	written []*os.File // secrets of the step: emptied at its end, also if code has given them other names
}

// prepare makes the directories, for the engine's user.
func (r *run) prepare() (err error) {
	d := &r.dirs
	if d.work = r.cfg.WorkDir; d.work == "" {
		if d.work, err = os.MkdirTemp("", "dayfly-run-*"); err != nil {
			return err
		}
		d.ours = true
	}
	mode := fs.FileMode(0o700)
	if r.cfg.Engine != nil {
		mode = 0o711 // the engine passes through it and cannot list it
	}
	if err := d.makeWork(mode); err != nil {
		return err
	}
	// These are made when there is something for them.
	d.aside, d.secrets, d.modules = filepath.Join(d.work, "aside"), filepath.Join(d.work, "secrets"), filepath.Join(d.work, "modules")
	for _, sub := range []struct {
		path *string
		name string
	}{{&d.temp, "tmp"}, {&d.home, "home"}, {&d.source, "source"}, {&d.artifacts, "artifacts"}} {
		path := filepath.Join(d.work, sub.name)
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		*sub.path = path
		if r.cfg.Engine != nil {
			if err := os.Lchown(path, int(r.cfg.Engine.UID), int(r.cfg.Engine.GID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeWork makes the work directory. In a directory that is shared with others, it makes one of its own.
func (d *dirs) makeWork(mode fs.FileMode) error {
	if err := os.MkdirAll(d.work, mode); err != nil {
		return err
	}
	info, err := os.Stat(d.work)
	if err != nil {
		return err
	}
	shared := !d.ours && info.Mode()&fs.ModeSticky != 0
	if !shared {
		if err = os.Chmod(d.work, mode); err != nil && (d.ours || !errors.Is(err, fs.ErrPermission)) {
			return err
		}
		shared = err != nil // the root of a volume may belong to another user
	}
	if shared { // a shared directory stays as it is
		if d.work, err = os.MkdirTemp(d.work, "run-*"); err != nil {
			return err
		}
		d.ours = true
		if err := os.Chmod(d.work, mode); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) owner() *engine.Owner {
	if r.cfg.Engine == nil {
		return nil
	}
	return &engine.Owner{UID: int(r.cfg.Engine.UID), GID: int(r.cfg.Engine.GID)}
}

// writeSecrets writes values to files below a new directory that only the engine's user can read. Anything that code
// with the runner's user may have put in its place is not used.
func (d *dirs) writeSecrets(dir string, files []resolved, owner *engine.Owner) error {
	if len(files) == 0 {
		return nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if owner != nil {
		if err := os.Lchown(dir, owner.UID, owner.GID); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, s := range files {
		f, err := writeNew(root, s.File, s.value.Reveal(), owner)
		if err != nil {
			return fmt.Errorf("the secret for the file %q cannot be written: %w", s.File, err)
		}
		d.written = append(d.written, f)
	}
	return nil
}

// writeNew writes a file that is not there yet, for the engine's user alone, and makes the directories on the way to it.
// No link leads it out of the root.
// The caller closes the file.
func writeNew(root *os.Root, name, content string, owner *engine.Owner) (*os.File, error) {
	var parents []string
	for above := filepath.Dir(filepath.Clean(name)); above != "."; above = filepath.Dir(above) {
		parents = append(parents, above)
	}
	for _, parent := range slices.Backward(parents) {
		if err := root.Mkdir(parent, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if owner != nil {
			if err := disk.GiveOne(root, parent, owner.UID, owner.GID); err != nil {
				return nil, err
			}
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString(content)
	if owner != nil && err == nil {
		err = f.Chown(owner.UID, owner.GID)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// toolsOf returns the cache of engines that a run uses.
func (r *run) toolsOf() *toolcache.Cache {
	if r.cfg.Tools == nil || r.cfg.Tools.Dir != "" {
		return r.cfg.Tools
	}
	own := *r.cfg.Tools
	r.dirs.tools = filepath.Join(r.dirs.work, "tools")
	own.Dir = r.dirs.tools
	return &own
}

// removeSecrets empties and removes the files of the secrets; it may be called again.
func (d *dirs) removeSecrets(log *slog.Logger) {
	for _, f := range d.written {
		logRemoval(log, errors.Join(f.Truncate(0), f.Close()))
	}
	d.written = nil
	for _, path := range []string{d.secrets, d.modules} {
		if path != "" {
			logRemoval(log, disk.RemoveTree(path))
		}
	}
}

// remove removes the rest.
func (d *dirs) remove(log *slog.Logger) {
	for _, path := range []string{d.aside, d.temp, d.home, d.source, d.artifacts, d.tools} {
		if path != "" {
			logRemoval(log, disk.RemoveTree(path))
		}
	}
	if d.ours {
		logRemoval(log, disk.RemoveTree(d.work))
	}
}

func logRemoval(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("directory not removed", "err", err)
	}
}
