package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// holder is the user that has a state while tasks live that may write it. Several such tasks share
// one, so that none takes the files away from another; the control plane lets only one of them act.
type holder struct {
	uid   uint32
	tasks int
}

// takeUser finds a user for a task's engine: the one that already has the state, or else one that no
// live task has and no process runs as.
func (l *Launcher) takeUser(rec *record) error {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	h := l.holders[rec.StateDir]
	if h == nil {
		uid, lock, err := l.freshUser()
		if err != nil {
			return err
		}
		h = &holder{uid: uid}
		l.users[uid] = &user{lock: lock, tasks: map[string]bool{}}
	}
	rec.EngineUID = h.uid
	l.users[h.uid].tasks[rec.Ref] = true
	if rec.StateDir != "" {
		h.tasks++
		l.holders[rec.StateDir] = h
	}
	return nil
}

// user is one that engines of live tasks have.
type user struct {
	tasks map[string]bool // by reference: whether its engine may still act, because its runner is not known to be dead
	lock  *os.File        // keeps other launchers of this machine from using it; nil: there are no locks
}

// ours returns the user of a task, and how many other tasks have it and how many of these may still act. It returns
// nil unless this launcher alone has the user. The lock is held.
func (l *Launcher) ours(rec record) (u *user, others, acting int) {
	u = l.users[rec.EngineUID]
	base := int64(l.config.EngineUIDBase)
	if uid := int64(rec.EngineUID); u == nil || u.lock == nil || uid < base || uid >= base+int64(l.config.EngineUIDs) {
		return nil, 0, 0
	}
	for ref, acts := range u.tasks {
		if ref != rec.Ref {
			others++
			if acts {
				acting++
			}
		}
	}
	return u, others, acting
}

// unproven says that a process may have outlived a task whose runner was killed, where its processes are known by
// their session alone.
func (l *Launcher) unproven(rec record) string {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if u, _, _ := l.ours(rec); u != nil || rec.Cgroup != "" || rec.Boot != l.boot {
		return ""
	}
	return "; a process of it that left its session on purpose may still run"
}

// killUser kills all remaining processes of a task by its user. While another task that may act has the same user, it
// does nothing: a process could belong to either. Then the last of these tasks kills it.
func (l *Launcher) killUser(rec record) (remaining int, err error) {
	if rec.EngineUID == 0 || rec.Boot != l.boot {
		return 0, nil
	}
	l.stateMu.Lock() // no task gets the user meanwhile
	defer l.stateMu.Unlock()
	l.Mu.Lock()
	u, _, acting := l.ours(rec)
	l.Mu.Unlock()
	if u == nil || acting > 0 {
		return 0, nil
	}
	return cleanup.KillUser(rec.EngineUID)
}

// freshUser tries the users in turn, so that each stays unused for as long as possible. The lock is held.
func (l *Launcher) freshUser() (uint32, *os.File, error) {
	base, n := uint32(l.config.EngineUIDBase), uint32(l.config.EngineUIDs) //nolint:gosec // checked in New
	for i := range n {
		next := (l.lastUID + 1 + i) % n
		uid := base + next
		if l.users[uid] != nil {
			continue
		}
		lock, err := l.lockUser(uid)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		lives, err := cleanup.UserLives(uid)
		if err == nil && !lives {
			l.lastUID = next
			return uid, lock, nil
		}
		_ = lock.Close()
		if err != nil {
			return 0, nil, fmt.Errorf("look for a free user: %w", err)
		}
	}
	return 0, nil, &launcher.Refusal{Reason: workflow.ReasonCapacity, Text: fmt.Sprintf("live tasks use all of the %d users for engines", n)}
}

// lockUser keeps a user from the other launchers of this machine, which have the same range, until the file is
// closed. A launcher that died may have left processes alive: the caller looks for processes of the user.
func (l *Launcher) lockUser(uid uint32) (*os.File, error) {
	if l.userLocks == "" {
		return nil, nil //nolint:nilnil // closing a nil file is harmless
	}
	f, err := os.OpenFile(filepath.Join(l.userLocks, strconv.FormatUint(uint64(uid), 10)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of user for engines: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock user %d for engines: %w", uid, err)
	}
	return f, nil
}

// holdAgain notes the user of a task that an earlier launcher began.
func (l *Launcher) holdAgain(rec record) {
	if rec.EngineUID == 0 {
		return
	}
	u := l.users[rec.EngineUID]
	if u == nil {
		u = &user{tasks: map[string]bool{}}
		u.lock, _ = l.lockUser(rec.EngineUID) // a launcher that has it now found no live process of the task
		l.users[rec.EngineUID] = u
	}
	u.tasks[rec.Ref] = false
	if rec.StateDir == "" {
		return
	}
	h := l.holders[rec.StateDir]
	if h == nil {
		h = &holder{uid: rec.EngineUID}
		l.holders[rec.StateDir] = h
	}
	h.tasks++
}

// freeUser gives a task's user back. The last task that has it removes the files of that user outside of its
// directories, and the last that could write a state returns its files to the launcher's user, so that the next task
// with that user finds nothing of its own.
func (l *Launcher) freeUser(rec record) {
	if rec.EngineUID == 0 {
		return
	}
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	l.Mu.Lock()
	u, others, _ := l.ours(rec)
	l.Mu.Unlock()
	if u != nil && others == 0 {
		if err := cleanup.DropFiles(rec.EngineUID, time.Now().Add(dropTime)); err != nil {
			l.Log.Warn("not all files of a task removed", "task", rec.Ref, "err", err)
		}
	}
	if h := l.holders[rec.StateDir]; h != nil {
		if h.tasks--; h.tasks <= 0 {
			delete(l.holders, rec.StateDir)
			if err := l.GiveState(rec.StateDir, os.Geteuid()); err != nil {
				l.Log.Error("state not taken back from its user", "task", rec.Ref, "err", err)
			}
		}
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if u := l.users[rec.EngineUID]; u != nil {
		if delete(u.tasks, rec.Ref); len(u.tasks) == 0 {
			_ = u.lock.Close()
			delete(l.users, rec.EngineUID)
		}
	}
}

// openState makes the directory of a workspace's state and, for a task that writes, gives it to the
// engine's user. For a task that only reads, the runner makes a copy as root.
func (l *Launcher) openState(dir string, rec record) error {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if err := l.MakeState(dir); err != nil {
		return err
	}
	if rec.StateDir == "" || rec.EngineUID == 0 {
		return nil
	}
	return l.GiveState(dir, int(rec.EngineUID))
}

// passable refuses a directory that users other than its owner cannot pass through.
func passable(dir string) error {
	for ; dir != "" && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, err := os.Stat(filepath.Dir(dir)) // the last one gets its mode from the launcher
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at directory: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return workflow.Refuse(workflow.ErrInvalid, "data", "engines run as users of their own and cannot pass through %s (mode %04o): keep the data elsewhere, such as below /var/lib, or run chmod o+x on it", filepath.Dir(dir), info.Mode().Perm())
		}
	}
	return nil
}
