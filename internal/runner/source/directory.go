package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func fetchDirectory(ctx context.Context, r Request) (Fetched, error) {
	from, where, err := (Sources{Roots: r.Roots, Data: r.Data}).open(r.Source.Directory)
	if err != nil {
		return Fetched{}, err
	}
	defer from.close()
	to, err := newTree(r)
	if err != nil {
		return Fetched{}, err
	}
	defer to.close()
	top := r.Source.Path
	to.fate, to.digest = ofDirectory(top), sha256.New()
	if err := from.copy(ctx, top, to); err != nil {
		return Fetched{}, err
	}
	if err := to.finish(); err != nil {
		return Fetched{}, err
	}
	r.Log("copied %s (%d bytes) from %s", text.Count(to.files, "file"), to.bytes-to.apart, where)
	to.say(r)
	return to.module(r, "source.path", top)
}

// openDirectory opens a directory that lies below one of the roots once all links are resolved.
// It opens it by way of that root, so that a link put in place meanwhile cannot lead out of it.
func openDirectory(dir string, roots []string) (*os.Root, string, error) {
	if !filepath.IsAbs(dir) {
		return nil, "", workflow.Refuse(workflow.ErrInvalid, "source.directory", "a directory source is an absolute path; %s is not", quote(dir))
	}
	if len(roots) == 0 {
		return nil, "", workflow.Refuse(workflow.ErrForbidden, "source.directory", "this runner takes no directory sources: its source_roots names no directory; start dayfly up or its agent with --source-root DIR")
	}
	where, err := filepath.EvalSymlinks(dir)
	if err != nil {
		// The error says whether something exists only for places below a root.
		if below(filepath.Clean(dir), roots) {
			return nil, "", workflow.Refuse(workflow.ErrNotFound, "source.directory", "there is no directory %s on the machine of this runner", quote(dir))
		}
		return nil, "", outside(dir, roots)
	}
	for _, root := range roots {
		resolved, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(resolved, where)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		top, err := os.OpenRoot(resolved)
		if err != nil {
			return nil, "", fmt.Errorf("open source root: %w", err)
		}
		defer func() { _ = top.Close() }()
		opened, err := top.OpenRoot(rel)
		if err != nil {
			return nil, "", workflow.Refuse(workflow.ErrNotFound, "source.directory", "%s is not a directory that this runner can read", quote(dir))
		}
		return opened, where, nil
	}
	return nil, "", outside(dir, roots)
}

func below(dir string, roots []string) bool {
	for _, root := range roots {
		if rel, err := filepath.Rel(root, dir); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

func outside(dir string, roots []string) error {
	return workflow.Refuse(workflow.ErrForbidden, "source.directory", "%s does not lie below the source_roots of this runner, which are %s: start dayfly up or its agent with --source-root DIR, a directory above it",
		quote(dir), strings.Join(roots, ", "))
}

// copier copies one tree into another.
type copier struct {
	from  *os.Root
	to    *tree
	top   string          // the directory of the root module
	owner uint32          // of the directory that is copied
	data  *ownData        // no file of it is copied, under any name
	known map[fileID]bool // files of data with several names; nil: not read yet
}

func (c *copier) dir(ctx context.Context, name string) error {
	entries, err := fs.ReadDir(c.from.FS(), name)
	if err != nil {
		return reading(name, err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == DataMarker && e.Type().IsRegular() }) {
		return containsData(name)
	}
	for _, e := range entries {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if e.Name() == ".git" {
			continue
		}
		if e.Name() == ".terraform" {
			if err := c.engineFiles(ctx, name); err != nil {
				return err
			}
			continue
		}
		if err := c.entry(ctx, path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) entry(ctx context.Context, name string) error {
	info, err := c.from.Lstat(name)
	if err != nil {
		return reading(name, err)
	}
	switch {
	case info.IsDir():
		if c.data.has(info) {
			return containsData(name)
		}
		if err := c.to.dir(name, info.Mode()); err != nil {
			return err
		}
		return c.dir(ctx, name)
	case info.Mode()&fs.ModeSymlink != 0 && strings.HasPrefix(c.top+"/", name+"/"): // the files of the root module are recognised by their names
		return workflow.Refuse(workflow.ErrInvalid, "source.path", "%s leads over the symbolic link %s; write where that leads to", quote(c.top), quote(name))
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := c.from.Readlink(name)
		if err != nil {
			return reading(name, err)
		}
		return c.to.link(name, filepath.ToSlash(target))
	case info.Mode().IsRegular():
		return c.file(ctx, name, info)
	default:
		return workflow.Refuse(workflow.ErrInvalid, "source.directory", "%s is not a file, directory or link (%s); leave it out of the source", quote(name), info.Mode().Type())
	}
}

func (c *copier) file(ctx context.Context, name string, seen fs.FileInfo) error {
	// Without O_NONBLOCK, a pipe that has replaced the file would block the runner for ever.
	f, err := c.from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return reading(name, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return reading(name, err)
	}
	if !os.SameFile(info, seen) {
		return fmt.Errorf("read %s: it was replaced meanwhile", quote(name))
	}
	if err := c.checkNames(name, info); err != nil {
		return err
	}
	return c.to.file(name, info.Mode(), interruptible{ctx, f})
}

// checkNames refuses a hard link to a file of another user than the owner of the source: linking to a file takes
// fewer rights than reading it.
func (c *copier) checkNames(name string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Nlink < 2 {
		return nil
	}
	if st.Uid != c.owner {
		return workflow.Refuse(workflow.ErrForbidden, "source.directory", "%s is a hard link to a file of another user than the owner of the source: put a copy in its place, or leave it out of the source", quote(name))
	}
	if c.known == nil {
		c.known = c.data.linked()
	}
	if c.known[idOf(st)] {
		return workflow.Refuse(workflow.ErrForbidden, "source.directory", "%s is a hard link to a file of the data directory of Dayfly: remove it from the source", quote(name))
	}
	return nil
}

// interruptible is a reader that ends with its context.
type interruptible struct {
	ctx  context.Context //nolint:containedctx // it lives for one file
	from io.Reader
}

// Read implements io.Reader.
func (r interruptible) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.from.Read(b)
}

// engineFiles sets aside, from an engine's own directory in the root module, the files that name the place of its
// state.
func (c *copier) engineFiles(ctx context.Context, dir string) error {
	if dir != c.top {
		return nil
	}
	for _, name := range []string{path.Join(dir, backendFile), path.Join(dir, EnvironmentFile)} {
		info, err := c.from.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Mode().IsRegular() {
			err = c.file(ctx, name, info)
		}
		if err != nil {
			return reading(name, err)
		}
	}
	return nil
}

func reading(name string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return fmt.Errorf("read %s: %w", quote(name), err)
}
