package providercache_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/providercache/providercachetest"
)

// world is a cache with its clock.
type world struct {
	*providercache.Store
	dir, left string
	bytes     int64
	now       time.Time
	tasks     int
}

func open(t *testing.T, bytes int64) *world {
	t.Helper()
	top := t.TempDir()
	w := &world{dir: filepath.Join(top, "providers"), left: filepath.Join(top, "left"), bytes: bytes, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.reopen(t)
	return w
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// reopen starts anew on the same directories.
func (w *world) reopen(t *testing.T) {
	t.Helper()
	var err error
	w.Store, err = providercache.Open(providercache.Config{Dir: w.dir, Left: w.left, Packages: filepath.Join(filepath.Dir(w.left), "packages"), Bytes: w.bytes, Now: func() time.Time { return w.now }})
	check(t, err)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const platformDir = "registry.example.com/tests/one/1.0.0/"

// work makes the work directory of a task that leaves files in the package of this machine's platform.
func work(t *testing.T, files map[string][]byte) (dir, hash string) {
	t.Helper()
	return workFor(t, providercache.Platform(), files)
}

func workFor(t *testing.T, platform string, files map[string][]byte) (dir, hash string) {
	t.Helper()
	dir = t.TempDir()
	pkg := filepath.Join(dir, providercache.TaskDir, providercache.TaskPackages, platformDir+platform)
	check(t, os.MkdirAll(pkg, 0o700))
	for name, content := range files {
		check(t, os.MkdirAll(filepath.Dir(filepath.Join(pkg, name)), 0o700))
		check(t, os.WriteFile(filepath.Join(pkg, name), content, 0o600))
	}
	hash, err := dirhash.HashDir(pkg, "", dirhash.Hash1)
	check(t, err)
	return dir, hash
}

// pkg is the directory of the package in a work directory.
func pkg(dir string) string {
	return filepath.Join(dir, providercache.TaskDir, providercache.TaskPackages, platformDir+providercache.Platform())
}

// provider is a package with a program of so many random bytes.
func provider(t *testing.T, size int) map[string][]byte {
	t.Helper()
	return map[string][]byte{"terraform-provider-one_v1.0.0": providercachetest.Program(t, size-64), "docs/LICENSE": nil}
}

// end ends a task that has this work directory.
func (w *world) end(t *testing.T, dir string) {
	t.Helper()
	w.tasks++
	check(t, w.Take(fmt.Sprintf("task-%d", w.tasks), dir))
	w.Collect(t.Context())
	left, err := os.ReadDir(w.left)
	if err != nil || len(left) > 0 {
		t.Fatalf("what tasks left still waits: %v, %v", left, err)
	}
}

func (w *world) has(hash string) bool {
	_, ok := providercache.Find(w.dir, providercache.Platform(), []string{"zh:00", hash})
	return ok
}

func TestStore_KeepsWhatATaskLeftUnderTheHashOfItsFiles(t *testing.T) {
	w := open(t, 1<<20)
	files := provider(t, 1000)
	dir, hash := work(t, files)
	w.end(t, dir)
	if _, err := os.Lstat(filepath.Join(dir, providercache.TaskDir)); !os.IsNotExist(err) {
		t.Errorf("it is still in the work directory: %v", err)
	}
	w.reopen(t)
	found, ok := providercache.Find(w.dir, providercache.Platform(), []string{hash})
	if !ok || found.Bytes != 1000 || found.Hash != hash {
		t.Fatalf("got %+v, %v, want the package with 1000 bytes", found, ok)
	}
	if got, err := dirhash.HashDir(found.Path, "", dirhash.Hash1); got != hash || err != nil {
		t.Errorf("its hash is %s, %v, want %s", got, err, hash)
	}
	// The engine's user runs it and cannot write it, whatever the modes were.
	for name, want := range map[string]os.FileMode{".": 0o755, "docs": 0o755, "docs/LICENSE": 0o555, "terraform-provider-one_v1.0.0": 0o555} {
		if info, err := os.Stat(filepath.Join(found.Path, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want mode %o", name, info.Mode(), err, want)
		}
	}
	if _, ok := providercache.Find(w.dir, "plan9_amd64", []string{hash}); ok {
		t.Error("it is found for another platform")
	}
	for _, no := range []string{"", "h1:", "zh:" + hash[3:], "h1:../../x", hash + "=", "h1:" + strings.Repeat("A", 43) + "="} {
		if w.has(no) {
			t.Errorf("the hash %q finds a package", no)
		}
	}
}

func TestStore_TakesNothingThatIsNotAPackage(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	check(t, os.WriteFile(secret, []byte("not the job's"), 0o600))
	for what, change := range map[string]func(t *testing.T, dir string){
		"a link to a file of others": func(t *testing.T, dir string) { check(t, os.Symlink(secret, filepath.Join(pkg(dir), "x"))) },
		"another name of a file":     func(t *testing.T, dir string) { check(t, os.Link(secret, filepath.Join(pkg(dir), "x"))) },
		"a pipe":                     func(t *testing.T, dir string) { check(t, syscall.Mkfifo(filepath.Join(pkg(dir), "x"), 0o600)) },
		"a name with two lines":      func(t *testing.T, dir string) { check(t, os.WriteFile(filepath.Join(pkg(dir), "x\ny"), nil, 0o600)) },
		"more bytes than the cache":  func(t *testing.T, dir string) { check(t, os.Truncate(filepath.Join(pkg(dir), "docs/LICENSE"), 1<<21)) },
		"a script": func(t *testing.T, dir string) {
			check(t, os.WriteFile(filepath.Join(pkg(dir), "terraform-provider-one_v1.0.0"), []byte("#!/bin/sh\nexec true\n"), 0o700))
		}, //nolint:gosec // a program
		"no program": func(t *testing.T, dir string) {
			check(t, os.Remove(filepath.Join(pkg(dir), "terraform-provider-one_v1.0.0")))
		},
		"a package that is a link":      func(t *testing.T, dir string) { moveAndLink(t, pkg(dir)) },
		"a directory above that is one": func(t *testing.T, dir string) { moveAndLink(t, filepath.Dir(filepath.Dir(pkg(dir)))) },
		"packages that are one": func(t *testing.T, dir string) {
			moveAndLink(t, filepath.Join(dir, providercache.TaskDir, providercache.TaskPackages))
		},
		"all of it is one": func(t *testing.T, dir string) { moveAndLink(t, filepath.Join(dir, providercache.TaskDir)) },
		"many files": func(t *testing.T, dir string) {
			for i := range 10_001 {
				check(t, os.WriteFile(filepath.Join(pkg(dir), fmt.Sprint(i)), nil, 0o600))
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := open(t, 1<<20)
			dir, hash := work(t, provider(t, 1000))
			change(t, dir)
			w.end(t, dir)
			kept, err := os.ReadDir(filepath.Join(w.dir, "packages"))
			if err != nil || len(kept) > 0 || w.has(hash) {
				t.Errorf("it is in the cache: %v, %v", kept, err)
			}
		})
	}
}

// moveAndLink puts a link in place of a directory, which it moves out of the work directory.
func moveAndLink(t *testing.T, path string) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "moved")
	check(t, os.Rename(path, to))
	check(t, os.Symlink(to, path))
}

// The hash does not cover the platform, and a lock file has the hashes of several.
func TestStore_APackageIsForThePlatformOfItsProgram(t *testing.T) {
	w := open(t, 1<<20)
	other := "linux_arm64"
	if providercache.Platform() == other {
		other = "linux_amd64"
	}
	dir, hash := workFor(t, other, provider(t, 1000))
	w.end(t, dir)
	if _, ok := providercache.Find(w.dir, other, []string{hash}); ok || w.has(hash) {
		t.Error("a program of this platform is kept as one of another")
	}
}

func TestStore_OfTwoThatAreTheSameTheFirstStays(t *testing.T) {
	w := open(t, 1<<20)
	files := provider(t, 1000)
	first, hash := work(t, files)
	w.end(t, first)
	found, _ := providercache.Find(w.dir, providercache.Platform(), []string{hash})
	before, err := os.Stat(found.Path)
	check(t, err)
	second, _ := work(t, files)
	w.end(t, second)
	after, err := os.Stat(found.Path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the package is another one: %v", err)
	}
}

func TestStore_TheLeastRecentlyUsedMakesRoom(t *testing.T) {
	w := open(t, 2500)
	hashes := make([]string, 3)
	for i := range 2 {
		var dir string
		dir, hashes[i] = work(t, provider(t, 1000))
		w.end(t, dir)
		w.now = w.now.Add(time.Hour)
	}
	// A task that ends now had the first from the cache.
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, providercache.TaskDir), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, providercache.TaskDir, providercache.TaskUsed), []byte(hashes[0]+"\nnonsense\n"), 0o600))
	w.end(t, dir)
	w.now = w.now.Add(time.Hour)
	w.reopen(t) // it remembers

	third := provider(t, 1000)
	dir, hashes[2] = work(t, third)
	w.end(t, dir)
	if !w.has(hashes[0]) || w.has(hashes[1]) || w.has(hashes[2]) {
		t.Error("want the first, which was used; the second on its way out, the third not yet there")
	}
	w.now = w.now.Add(time.Minute)
	w.Sweep(nil)
	dir, _ = work(t, third)
	w.end(t, dir)
	if !w.has(hashes[0]) || w.has(hashes[1]) || !w.has(hashes[2]) {
		t.Error("want the first and the third")
	}
	if kept, err := os.ReadDir(filepath.Join(w.dir, "packages")); err != nil || len(kept) != 2 {
		t.Errorf("%d packages are on disk, %v, want 2", len(kept), err)
	}
}

func TestStore_WhatARunningTaskMayUseStaysOnDisk(t *testing.T) {
	w := open(t, 1500)
	files := provider(t, 1000)
	dir, old := work(t, files)
	w.end(t, dir)
	found, _ := providercache.Find(w.dir, providercache.Platform(), []string{old})
	next := provider(t, 1000)
	dir, hash := work(t, next)
	w.end(t, dir)
	if w.has(old) || w.has(hash) {
		t.Error("want that neither is found: one makes room, and the other waits for it")
	}
	there := func() bool { _, err := os.Stat(found.Path); return err == nil }
	w.Sweep([]string{"a"}) // too early to know who found it
	w.now = w.now.Add(time.Minute)
	w.Sweep([]string{"a", "b"})
	w.now = w.now.Add(time.Hour)
	w.Sweep([]string{"b", "c"})
	if !there() {
		t.Fatal("it is gone although b lives")
	}
	w.Sweep([]string{"c"})
	if there() {
		t.Error("it is still there although only c lives, which began later")
	}
	dir, _ = work(t, next)
	w.end(t, dir)
	if !w.has(hash) {
		t.Error("the next task that left it did not bring it into the cache")
	}
}

func TestStore_EvictedPackageIsRestoredIfPresent(t *testing.T) {
	w := open(t, 1500)
	files := provider(t, 1000)
	dir, old := work(t, files)
	w.end(t, dir)
	dir, _ = work(t, provider(t, 1000))
	w.end(t, dir)
	dir, _ = work(t, files)
	w.end(t, dir)
	w.now = w.now.Add(time.Hour)
	w.Sweep(nil)
	if !w.has(old) {
		t.Error("it is gone")
	}
}

func TestOpen_RemovesWhatACrashLeft(t *testing.T) {
	w := open(t, 1<<20)
	dir, hash := work(t, provider(t, 1000))
	w.end(t, dir)
	found, _ := providercache.Find(w.dir, providercache.Platform(), []string{hash})
	lost := strings.Repeat("ab", 32)
	check(t, os.Mkdir(filepath.Join(w.dir, "packages", ".new-1"), 0o700))
	check(t, os.Mkdir(filepath.Join(w.dir, "packages", lost), 0o700)) // not in the index
	check(t, os.WriteFile(filepath.Join(w.dir, "index", providercache.Platform(), strings.Repeat("cd", 32)), []byte("1\n"), 0o600))
	late, next := work(t, provider(t, 1000))
	check(t, w.Take("late", late)) // and not looked at
	w.reopen(t)
	w.Collect(t.Context())
	w.now = w.now.Add(time.Hour)
	w.Sweep(nil)
	if !w.has(hash) || !w.has(next) {
		t.Error("want the package that was there, and the one that waited")
	}
	packages, err := os.ReadDir(filepath.Join(w.dir, "packages"))
	index, err2 := os.ReadDir(filepath.Join(w.dir, "index", providercache.Platform()))
	if err != nil || err2 != nil || len(packages) != 2 || len(index) != 2 {
		t.Errorf("got %d packages and %d names, %v, %v, want 2 of each", len(packages), len(index), err, err2)
	}
	if _, err := os.Stat(found.Path); err != nil {
		t.Error(err)
	}
}

func TestTake_ManyTasksAtOnce(t *testing.T) {
	w := open(t, 1<<20)
	files := provider(t, 1000)
	var all sync.WaitGroup
	hashes := make([]string, 40)
	for i := range hashes {
		var dir string
		dir, hashes[i] = work(t, files)
		all.Go(func() {
			if err := w.Take(fmt.Sprintf("task-%d", i), dir); err != nil {
				t.Error(err)
			}
			w.Sweep(nil)
			_ = w.has(hashes[i])
		})
	}
	all.Wait()
	if waits, err := os.ReadDir(w.left); err != nil || len(waits) != 16 {
		t.Errorf("%d tasks wait, %v, want 16: those of the others stay in their work directories", len(waits), err)
	}
	w.Collect(t.Context())
	if !w.has(hashes[0]) {
		t.Error("the package is not there")
	}
}
