package providercache

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

const (
	unfinished  = ".new-"     // begins the name of a package that is being copied
	maxWaiting  = 16          // tasks whose packages wait to be taken in; those of further ones are not kept
	retireDelay = time.Minute // from when a package leaves the index until the tasks are listed that may have found it
	maxUsed     = 1000        // packages that a task may list as used
)

// Config says where the cache is and how large it may be.
type Config struct {
	Dir   string // of the cache, which tasks read
	Left  string // a directory of the same file system in which packages of tasks wait; no task may reach it
	Bytes int64  // limit for the files of all packages
	// Packages is a directory of the file system of tasks with a cache for each workspace, which has the same limit once
	// more for all of them; empty: none. No task may reach it.
	Packages string
	Now      func() time.Time // nil means time.Now
	Log      *slog.Logger     // nil means none
}

// Store is the writing side of the cache, of which an agent has one.
type Store struct {
	cfg  Config
	wake chan struct{} // holds a value when something waits

	mu      sync.Mutex // guards the fields below, and the names in the cache
	all     map[string]*entry
	waiting int
}

// entry is a package of the cache.
type entry struct {
	bytes    int64
	platform string
	used     time.Time
	retired  time.Time       // when it was removed from the index; zero: it is there
	holders  map[string]bool // of a retired one: tasks that may use it; nil: not known yet
}

// Open makes the directories if they do not exist, and reads the packages.
func Open(c Config) (*Store, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{cfg: c, wake: make(chan struct{}, 1), all: map[string]*entry{}}
	for dir, mode := range map[string]fs.FileMode{c.Dir: 0o755, s.path(packagesDir): 0o755, s.path(indexDir): 0o755, c.Left: 0o700} {
		if err := makeDir(dir, mode); err != nil {
			return nil, err
		}
	}
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("read the cache of providers: %w", err)
	}
	waiting, err := os.ReadDir(c.Left)
	s.waiting = len(waiting)
	if s.waiting > 0 {
		s.wake <- struct{}{}
	}
	return s, err
}

// makeDir makes a directory with a mode, regardless of the umask.
func makeDir(path string, mode fs.FileMode) error {
	err := os.MkdirAll(path, mode)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return fmt.Errorf("make the cache of providers: %w", err)
	}
	return nil
}

func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, names...)...)
}

// read finds the packages, and removes the remains of a crash.
func (s *Store) read() error {
	packages, err := os.ReadDir(s.path(packagesDir))
	if err != nil {
		return err
	}
	for _, p := range packages {
		path := s.path(packagesDir, p.Name())
		if _, ok := nameOfName(p.Name()); !ok {
			if err := disk.RemoveTree(path); err != nil {
				return err
			}
			continue
		}
		s.all[p.Name()] = &entry{bytes: bytesOf(path), retired: s.cfg.Now()}
	}
	platforms, err := os.ReadDir(s.path(indexDir))
	if err != nil {
		return err
	}
	for _, platform := range platforms {
		names, err := os.ReadDir(s.path(indexDir, platform.Name()))
		if err != nil {
			return err
		}
		for _, name := range names {
			e, info := s.all[name.Name()], fs.FileInfo(nil)
			if info, err = name.Info(); e == nil || err != nil {
				if err := os.Remove(s.path(indexDir, platform.Name(), name.Name())); err != nil {
					return err
				}
				continue
			}
			e.platform, e.used, e.retired = platform.Name(), info.ModTime(), time.Time{}
		}
	}
	return nil
}

// nameOfName says whether a name is that of a package.
func nameOfName(name string) (string, bool) {
	for _, r := range name {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return "", false
		}
	}
	return name, len(name) == 64
}

// bytesOf is the size of the files of a package.
func bytesOf(path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil // files that cannot be seen do not count
	})
	return bytes
}

// Take moves the packages of a task, and the cache that it was lent, out of its work directory, if there are any. No
// process of the task may remain. Run reads the packages.
func (s *Store) Take(ref, workDir string) error {
	if err := s.takeBack(ref, workDir); err != nil {
		s.cfg.Log.Warn("cache of packages not kept", "task", ref, "err", err)
	}
	from := filepath.Join(workDir, TaskDir)
	if info, err := os.Lstat(from); err != nil || !info.IsDir() {
		return nil //nolint:nilerr // there is nothing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting >= maxWaiting {
		s.cfg.Log.Info("providers of a task not kept", "task", ref, "reason", "those of others wait")
		return nil
	}
	if err := os.Rename(from, filepath.Join(s.cfg.Left, ref)); err != nil {
		return fmt.Errorf("keep the providers of task %s: %w", ref, err)
	}
	s.waiting++
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Run takes in the packages of tasks, until ctx ends. Those that wait then are taken in after the next start.
func (s *Store) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.Collect(ctx)
		}
	}
}

// Collect takes in the packages that wait now. One call is made at a time.
func (s *Store) Collect(ctx context.Context) {
	entries, err := os.ReadDir(s.cfg.Left)
	if err != nil {
		s.cfg.Log.Error("providers of tasks not read", "err", err)
	}
	for _, e := range entries {
		s.takeIn(ctx, e.Name())
		if ctx.Err() != nil {
			return
		}
		if err := disk.RemoveTree(filepath.Join(s.cfg.Left, e.Name())); err != nil {
			s.cfg.Log.Error("providers of a task not removed", "task", e.Name(), "err", err)
		}
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}
}

// takeIn adds the packages of a task that are not there yet.
func (s *Store) takeIn(ctx context.Context, ref string) {
	log := s.cfg.Log.With("task", ref)
	root, err := os.OpenRoot(filepath.Join(s.cfg.Left, ref))
	if err != nil {
		log.Warn("providers of a task not kept", "err", err)
		return
	}
	defer func() { _ = root.Close() }()
	s.touch(readUsed(root))
	in := &reading{root: root, limit: s.cfg.Bytes, remaining: maxEntries}
	packages, err := in.packages()
	if err != nil {
		log.Warn("providers of a task not kept", "err", err)
	}
	for _, p := range packages {
		name, bytes, err := s.add(ctx, in, p)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errKnown):
			log.Debug("provider is in the cache already", "provider", p.dir)
		case err != nil:
			log.Warn("provider not kept", "provider", p.dir, "err", err)
		default:
			log.Info("provider kept", "provider", p.dir, "hash", name, "bytes", bytes)
		}
	}
}

// readUsed returns the names of the packages that a task says it used. That is believed for the order in which packages
// make room, and for nothing else.
func readUsed(root *os.Root) (names []string) {
	f, err := open(root, TaskUsed)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(io.LimitReader(f, maxUsed*64))
	for lines.Scan() {
		if name, ok := nameOf(lines.Text()); ok {
			names = append(names, name)
		}
	}
	return names
}

// touch notes that packages were used.
func (s *Store) touch(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if e := s.all[name]; e != nil && e.retired.IsZero() {
			s.use(name, e)
		}
	}
}

// use notes a use in the index. The lock is held.
func (s *Store) use(name string, e *entry) {
	e.used = s.cfg.Now()
	if err := os.Chtimes(s.path(indexDir, e.platform, name), e.used, e.used); err != nil {
		s.cfg.Log.Warn("use of a provider not recorded", "hash", name, "err", err)
	}
}

// known reports whether a package is there, and puts it back into the index if it was removed from it.
func (s *Store) known(name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[name]
	if e == nil || e.platform == "" { // after a crash, it may be incomplete
		return false, nil
	}
	if e.retired.IsZero() {
		s.use(name, e)
		return true, nil
	}
	if err := s.enter(name, e); err != nil {
		return false, err
	}
	e.retired, e.holders = time.Time{}, nil
	return true, nil
}

// enter puts a package into the index. The lock is held.
func (s *Store) enter(name string, e *entry) error {
	dir := s.path(indexDir, e.platform)
	if err := makeDir(dir, 0o755); err != nil {
		return err
	}
	temp := filepath.Join(dir, unfinished+name)
	defer func() { _ = os.Remove(temp) }()
	err := os.WriteFile(temp, []byte(strconv.FormatInt(e.bytes, 10)+"\n"), 0o644) //nolint:gosec // G306: tasks run as other users
	if err == nil {
		err = os.Chmod(temp, 0o644) //nolint:gosec // G302: see above
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, name))
	}
	if err != nil {
		return fmt.Errorf("enter a provider into the index: %w", err)
	}
	s.use(name, e)
	return nil
}

// place puts a finished package into the cache, if there is room.
func (s *Store) place(temp, name string, e *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name] != nil {
		return errKnown
	}
	if err := s.makeRoom(e.bytes); err != nil {
		return err
	}
	if err := os.Rename(temp, s.path(packagesDir, name)); err != nil {
		return fmt.Errorf("put a provider into the cache: %w", err)
	}
	s.all[name] = e
	if err := s.enter(name, e); err != nil {
		e.retired = s.cfg.Now()
		return err
	}
	return nil
}

// errNoRoom means that packages which running jobs may use fill the cache.
var errNoRoom = errors.New("there is no room until running jobs have ended: raise provider_cache_size if this is seen often")

// makeRoom takes packages out of the index until bytes more fit, the least recently used first. The lock is held.
func (s *Store) makeRoom(bytes int64) error {
	total, live := bytes, bytes
	for _, e := range s.all {
		total += e.bytes
		if e.retired.IsZero() {
			live += e.bytes
		}
	}
	for live > s.cfg.Bytes {
		name, oldest := "", (*entry)(nil)
		for n, e := range s.all {
			if e.retired.IsZero() && (oldest == nil || cmp.Or(e.used.Compare(oldest.used), cmp.Compare(n, name)) < 0) {
				name, oldest = n, e
			}
		}
		if oldest == nil {
			return fmt.Errorf("it has %d bytes, and the whole cache may have %d", bytes, s.cfg.Bytes)
		}
		if err := os.Remove(s.path(indexDir, oldest.platform, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make room in the cache of providers: %w", err)
		}
		oldest.retired, oldest.holders = s.cfg.Now(), nil
		live -= oldest.bytes
		s.cfg.Log.Info("provider makes room", "hash", name, "bytes", oldest.bytes)
	}
	if total > s.cfg.Bytes {
		return errNoRoom
	}
	return nil
}

// Sweep removes packages that are not in the index any more, once no task lives that may have found them. living are
// the tasks that have not ended.
func (s *Store) Sweep(living []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]bool{}
	for _, ref := range living {
		now[ref] = true
	}
	for name, e := range s.all {
		if e.retired.IsZero() {
			continue
		}
		if e.holders == nil {
			if s.cfg.Now().Sub(e.retired) < retireDelay {
				continue
			}
			e.holders = now
		}
		still := map[string]bool{}
		for ref := range e.holders {
			if now[ref] {
				still[ref] = true
			}
		}
		if e.holders = still; len(still) > 0 {
			continue
		}
		if err := disk.RemoveTree(s.path(packagesDir, name)); err != nil {
			s.cfg.Log.Error("provider not removed", "hash", name, "err", err)
			continue
		}
		delete(s.all, name)
	}
}
