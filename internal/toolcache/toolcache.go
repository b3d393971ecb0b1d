// Package toolcache keeps the versions of engines that are not installed: it fetches one from its publisher, checks the
// publisher's signature and the checksum, and puts it into a directory that no engine's user can write to. There it also
// keeps the versions of the installed ones. It runs nothing.
//
// hc-install does this for HashiCorp's files only, and bounds neither downloads nor unpacked files. OpenTofu has its
// files elsewhere and in another layout. So one path serves both publishers. It checks signatures with the library
// that hc-install uses.
//
// # Consistency
//
// A version appears by the rename of its whole directory, so that nobody finds half of it. Processes that want the same
// version at the same time wait for one another, by a lock of its own. A version that is there is never asked for
// again. A crash leaves at most a directory with another name, which a later download removes.
package toolcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/wait"
)

const (
	fetchTime = 5 * time.Minute // for one download, with the wait for another one of the same version
	lockPoll  = 200 * time.Millisecond
	// maxKept is how many versions of an engine stay after a download. A version that was used within keepFor stays too:
	// a run may still need it, and lasts a day at most.
	maxKept = 10
	keepFor = 48 * time.Hour

	digestFile = "archive.sha256"
	unfinished = ".new-" // begins the name of a directory that is not complete
)

// ErrNotAllowed means that an engine is not among those that may be fetched.
var ErrNotAllowed = errors.New("downloads are not allowed here: engine_downloads")

// Cache is a directory of engines: <Dir>/<engine>/<version>/<engine>. A nil Cache has none and fetches none.
type Cache struct {
	Dir     string
	Allowed []string             // engines that may be fetched
	Why     string               // why nothing is fetched, if that is known already; empty: it is not
	From    map[string]Publisher // by engine; nil means Publishers
}

// Tool is one version of an engine.
type Tool struct {
	Path    string
	Version *version.Version
	Digest  string // SHA-256 of the archive that it came in
}

// Read reads an engine_version; nil means that every version fits.
func Read(engineVersion string) (version.Constraints, error) {
	if engineVersion = strings.TrimSpace(engineVersion); engineVersion == "" {
		return nil, nil
	}
	return version.NewConstraint(engineVersion)
}

// Cached returns the highest version of an engine that is there and fits.
func (c *Cache) Cached(engine string, want version.Constraints) (Tool, bool) {
	for _, t := range c.List(engine) {
		if fits(want, t.Version) {
			now := time.Now()
			_ = os.Chtimes(filepath.Dir(t.Path), now, now) // for tidy; a task may only read the directory
			return t, true
		}
	}
	return Tool{}, false
}

// List returns the versions of an engine that are there, the highest first.
func (c *Cache) List(engine string) []Tool {
	if c == nil || c.Dir == "" {
		return nil
	}
	var found []Tool
	entries, _ := os.ReadDir(filepath.Join(c.Dir, engine)) // there may be none yet
	for _, e := range entries {
		v, err := version.NewVersion(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(c.Dir, engine, e.Name())
		t := Tool{Path: filepath.Join(dir, engine), Version: v}
		if info, err := os.Lstat(t.Path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		digest, _ := os.ReadFile(filepath.Join(dir, digestFile)) //nolint:gosec // G304: of the cache itself
		t.Digest = strings.TrimSpace(string(digest))
		found = append(found, t)
	}
	slices.SortFunc(found, func(a, b Tool) int { return b.Version.Compare(a.Version) })
	return found
}

// Get returns a version of an engine that fits: the highest that is there, else the highest that its publisher offers.
func (c *Cache) Get(ctx context.Context, engine string, want version.Constraints) (Tool, error) {
	if t, ok := c.Cached(engine, want); ok {
		return t, nil
	}
	if err := c.Refusal(engine); err != nil {
		return Tool{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fmt.Errorf("it took longer than %s", fetchTime))
	defer cancel()
	p := c.From[engine]
	if c.From == nil {
		p = Publishers()[engine]
	}
	t, err := c.get(ctx, newSource(p), engine, want)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return t, err
}

// Refusal says why an engine is not fetched; nil means that it may be.
func (c *Cache) Refusal(engine string) error {
	switch {
	case c != nil && c.Why != "":
		return errors.New(c.Why)
	case c == nil || !slices.Contains(c.Allowed, engine):
		return ErrNotAllowed
	}
	return nil
}

func (c *Cache) get(ctx context.Context, from *source, engine string, want version.Constraints) (Tool, error) {
	defer from.close()
	v, err := from.highest(ctx, want)
	if err != nil {
		return Tool{}, err
	}
	dir := filepath.Join(c.Dir, engine)
	for _, d := range []string{c.Dir, dir} {
		if err := makeDir(d); err != nil {
			return Tool{}, err
		}
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock-"+v.String()))
	if err != nil {
		return Tool{}, err
	}
	defer unlock()
	exact := version.MustConstraints(version.NewConstraint("= " + v.String()))
	if t, ok := c.Cached(engine, exact); ok { // another process was faster
		return t, nil
	}
	if err := from.fetch(ctx, engine, v, dir); err != nil {
		return Tool{}, fmt.Errorf("%s %s: %w", engine, v, err)
	}
	c.tidy(engine, time.Now())
	t, ok := c.Cached(engine, exact)
	if !ok {
		return Tool{}, fmt.Errorf("%s %s was fetched and is not there any more", engine, v)
	}
	return t, nil
}

// fits reports whether a version is one that was asked for. Pre-releases have to be named.
func fits(want version.Constraints, v *version.Version) bool {
	if want == nil {
		return v.Prerelease() == ""
	}
	return want.Check(v)
}

// makeDir makes a directory that every user can read, regardless of the umask.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o755) //nolint:gosec // G301: engines run as other users
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.Chmod(path, 0o755) //nolint:gosec // G302: see above
	}
	if err != nil {
		return fmt.Errorf("make the directory of engines: %w", err)
	}
	return nil
}

// lock waits until no other process has a lock.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // G304: in the cache itself
	if err != nil {
		return nil, fmt.Errorf("open the lock of a download: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			err = wait.For(ctx, lockPoll)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("wait for another download: %w", err), f.Close())
		}
	}
}

// tidy removes the versions that were not used for the longest time, and the remains of a crash.
func (c *Cache) tidy(engine string, now time.Time) {
	dir := filepath.Join(c.Dir, engine)
	type entry struct {
		path string
		used time.Time
	}
	var versions, old []entry
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		one := entry{filepath.Join(dir, e.Name()), info.ModTime()}
		if strings.HasPrefix(e.Name(), unfinished) {
			old = append(old, one)
		} else {
			versions = append(versions, one)
		}
	}
	slices.SortFunc(versions, func(a, b entry) int { return cmp.Compare(b.used.UnixNano(), a.used.UnixNano()) })
	old = append(old, versions[min(len(versions), maxKept):]...)
	for _, e := range old {
		if now.Sub(e.used) > keepFor {
			_ = os.RemoveAll(e.path) // else the next download does it
		}
	}
}
