package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Files and directories of a data directory. The private one is only for Dayfly.
const (
	AdminTokenFile = privateDir + "/admin-token"      // of the control plane
	DatabaseFile   = privateDir + "/dayfly.db"        // of the control plane
	blobsDir       = privateDir + "/blobs"            // of the control plane: logs beyond their first MiB
	ArtifactsDir   = privateDir + "/artifacts"        // of the agent: the artifacts of runs
	TicketKeysFile = privateDir + "/ticket-keys.json" // of the agent
	SecretsDir     = privateDir + "/secrets"          // of the agent: file:NAME
	StateDir       = "state"                          // of the agent: ORGANIZATION/WORKSPACE
	JobsDir        = "jobs"                           // of the agent's process launcher
	ContainersDir  = "containers"                     // of the agent's docker launcher
	ToolsDir       = "tools"                          // of the agent: engines that were downloaded
	ProvidersDir   = "providers"                      // of the agent: the cache of providers
	RelayDir       = "relay"                          // of the agent: a socket for each container job

	lockFile       = "lock"
	privateDir     = "private"
	webhookKeyFile = privateDir + "/webhook-key" // from which the secrets of webhooks are derived
	stateIDFile    = privateDir + "/state-id"    // of the agent: identifies this directory of states, also after a move
	relayPortFile  = privateDir + "/relay-port"
	packagesDir    = privateDir + "/packages"       // of the agent: a cache of packages for each workspace
	providersLeft  = privateDir + "/providers-left" // of the agent: providers that tasks left for the cache
	instanceFile   = privateDir + "/instance"       // keeps the agent's instance name over restarts
	processFile    = privateDir + "/process"        // the agent's last process that the control plane admitted
)

// DefaultData returns the data directory if none is named. Root's must be one that others can pass through:
// engines run as separate users.
func DefaultData(getenv func(string) string) (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/dayfly", nil
	}
	dir := getenv("XDG_DATA_HOME")
	if dir == "" || !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("neither HOME nor XDG_DATA_HOME is set: name a data directory with --data")
		}
		dir = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(dir, "dayfly"), nil
}

// dataDir is a data directory that this process alone uses.
type dataDir struct {
	path string
	lock *os.File
}

// openData makes the directory if it does not exist, checks it, locks it, and marks it.
func openData(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := CheckData(path); err != nil {
		return nil, err
	}
	// Root's engines run as other users: they must reach their own directories, and may open nothing else.
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := makeDir(path, mode); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "", "others can write to the data directory %s: chmod go-w %s", path, path)
	}
	if os.Geteuid() == 0 {
		if err := passable(path); err != nil {
			return nil, err
		}
	}
	lock, err := takeLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, err
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the data directory: %w", err), d.close())
	}
	return d, nil
}

// makeDir makes a directory and its parents. The umask does not change their mode.
func makeDir(path string, mode fs.FileMode) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(path, mode) // it exists, or something else does
	}
	if err := makeDir(filepath.Dir(path), mode); err != nil {
		return err
	}
	switch err := os.Mkdir(path, mode); {
	case errors.Is(err, fs.ErrExist):
		return nil // another process was faster
	case err != nil:
		return err
	}
	return os.Chmod(path, mode)
}

// stateID returns the id of the directory's states, made once and stored: a run distinguishes them by it from those
// of another machine.
func (d *dataDir) stateID() (string, error) {
	kept, err := readPrivate(d.file(stateIDFile))
	if err != nil || kept != "" {
		return kept, err
	}
	id := rand.Text()
	return id, writePrivate(d.file(stateIDFile), id)
}

// webhookKey returns the key from which the secrets of webhooks are derived. It is made with the first use.
func (d *dataDir) webhookKey() ([]byte, error) {
	kept, err := readPrivate(d.file(webhookKeyFile))
	if err != nil || kept != "" {
		return []byte(kept), err
	}
	key := rand.Text()
	return []byte(key), writePrivate(d.file(webhookKeyFile), key)
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// close lets the next process have the directory.
func (d *dataDir) close() error { return d.lock.Close() }

// passable refuses a path if other users cannot pass through one of its parents.
func passable(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return workflow.Refuse(workflow.ErrInvalid, "",
				"engines run as separate users, which cannot pass through %s to the data directory %s: choose one that they can reach, such as /var/lib/dayfly", dir, path)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// takeLock locks a file for as long as this process lives, however it ends, and writes the process id
// into it for the next process to read.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := lockSoon(f); err != nil {
		holder := "another process"
		if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil && len(b) > 0 {
			holder = "process " + strings.TrimSpace(string(b))
		}
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, workflow.Refuse(workflow.ErrInUse, "", "%s uses the data directory %s: stop it, or choose another directory", holder, filepath.Dir(path))
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}

// lockSoon takes a lock. It tries for a moment: a process that was killed may have left the lock to a child that it
// had just started.
func lockSoon(f *os.File) error {
	const tries, pause = 20, 50 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	var err error
	for range tries {
		<-timer.C
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		timer.Reset(pause)
	}
	return err
}

// readPrivate reads a small file that only its owner can read; a missing one is empty.
func readPrivate(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", workflow.Refuse(workflow.ErrInvalid, "", "others can read %s: remove it, and a new token is made; then revoke the old one", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// writePrivate replaces a file as a whole, readable by its owner only.
func writePrivate(path, text string) error { return disk.Replace(path, []byte(text+"\n")) }
