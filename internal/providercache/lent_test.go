package providercache_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/providercache"
)

// lend makes a task with the cache of a workspace, and returns its work directory and the names in the cache.
func (w *world) lend(t *testing.T, ref, workspace string) (work string, has []string) {
	t.Helper()
	work = t.TempDir()
	check(t, w.Lend(ref, workspace, work, 0))
	entries, err := os.ReadDir(filepath.Join(work, providercache.TaskLent))
	check(t, err)
	for _, e := range entries {
		has = append(has, e.Name())
	}
	return work, has
}

// leave writes a file of so many bytes into the cache of a task, and ends the task well.
func (w *world) leave(t *testing.T, ref, work, name string, size int) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(work, providercache.TaskLent, name), make([]byte, size), 0o600))
	check(t, os.Rename(filepath.Join(work, providercache.TaskLent), filepath.Join(work, providercache.TaskKept)))
	check(t, w.Take(ref, work))
}

func TestLend_OneWorkspaceGetsItsOwnAgain(t *testing.T) {
	w := open(t, 1<<20)
	work, has := w.lend(t, "a", "ws_1")
	if len(has) > 0 {
		t.Errorf("the first has %v", has)
	}
	w.reopen(t) // the agent may end before its task
	w.leave(t, "a", work, "one", 10)
	if _, has = w.lend(t, "b", "ws_2"); len(has) > 0 {
		t.Errorf("another workspace has %v", has)
	}
	first, has := w.lend(t, "c", "ws_1")
	if fmt.Sprint(has) != "[one]" {
		t.Errorf("the next has %v", has)
	}
	second, has := w.lend(t, "d", "ws_1")
	if len(has) > 0 {
		t.Errorf("one at the same time has %v", has)
	}
	w.leave(t, "c", first, "two", 10)
	w.leave(t, "d", second, "three", 10)
	if _, has = w.lend(t, "e", "ws_1"); fmt.Sprint(has) != "[three]" {
		t.Errorf("after both there is %v, want that of the last", has)
	}
	for _, bad := range []string{"", "..", "../x", "a.1"} {
		if err := w.Lend("f", bad, t.TempDir(), 0); err == nil {
			t.Errorf("%q is taken for a workspace", bad)
		}
	}
}

// A job whose run did not end well, or that was lent none, leaves none, whatever lies in its work directory.
func TestLend_OnDoubtItIsDropped(t *testing.T) {
	w := open(t, 1<<20)
	work, _ := w.lend(t, "killed", "ws_1")
	check(t, os.WriteFile(filepath.Join(work, providercache.TaskLent, "x"), nil, 0o600))
	check(t, w.Take("killed", work))
	check(t, os.Rename(filepath.Join(work, providercache.TaskLent), filepath.Join(work, providercache.TaskKept)))
	check(t, w.Take("killed", work)) // its end was recorded twice
	forged := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(forged, providercache.TaskKept, "poison"), 0o700))
	check(t, w.Take("pull-request", forged))
	linked, _ := w.lend(t, "linked", "ws_2")
	check(t, os.Symlink(forged, filepath.Join(linked, providercache.TaskKept)))
	check(t, w.Take("linked", linked))
	for _, workspace := range []string{"ws_1", "ws_2"} {
		if _, has := w.lend(t, "next", workspace); len(has) > 0 {
			t.Errorf("the next of %s has %v", workspace, has)
		}
	}
}

// A file with a second name may be anybody's: it is given to no user, and the whole cache is dropped.
func TestLend_IsGivenAsAWholeOrNotAtAll(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	w := open(t, 1<<20)
	work, _ := w.lend(t, "a", "ws_1")
	w.leave(t, "a", work, "one", 10)
	owned := func(ref string, want int) string {
		work := t.TempDir()
		check(t, w.Lend(ref, "ws_1", work, 4711))
		dir := filepath.Join(work, providercache.TaskLent)
		entries, err := os.ReadDir(dir)
		check(t, err)
		if info, err := os.Stat(dir); err != nil || len(entries) != want || ownerOf(info) != 4711 {
			t.Errorf("%s: %v, owner %d, %v", ref, entries, ownerOf(info), err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err != nil || ownerOf(info) != 4711 {
				t.Errorf("%s: %s has the owner %d, %v", ref, e.Name(), ownerOf(info), err)
			}
		}
		return work
	}
	work = owned("b", 1)
	check(t, os.Link(filepath.Join(work, providercache.TaskLent, "one"), filepath.Join(work, "elsewhere")))
	w.leave(t, "b", work, "two", 10)
	owned("c", 0)
}

func TestLend_TheLastUsedStay(t *testing.T) {
	w := open(t, 100<<10)
	for i, size := range []int{40 << 10, 40 << 10, 40 << 10, 101 << 10} {
		work, _ := w.lend(t, fmt.Sprint(i), fmt.Sprintf("ws_%d", i))
		w.leave(t, fmt.Sprint(i), work, "x", size)
		w.now = w.now.Add(time.Hour)
	}
	for i, want := range []int{0, 1, 1, 0} { // the first made room, and the last is too large
		if _, has := w.lend(t, fmt.Sprint("again", i), fmt.Sprintf("ws_%d", i)); len(has) != want {
			t.Errorf("workspace %d has %v", i, has)
		}
	}
}
