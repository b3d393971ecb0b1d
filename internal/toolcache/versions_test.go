package toolcache_test

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/toolcache"
)

// identify is toolcache.Identify of a program that is there.
func identify(t *testing.T, path string) toolcache.Program {
	t.Helper()
	p, err := toolcache.Identify(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What a program said of its version counts as long as it is the same file, whatever name leads to it.
func TestSaid_UntilTheProgramChanges(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, v := t.TempDir(), version.Must(version.NewVersion("1.10.2"))
	path, link := filepath.Join(dir, "tofu"), filepath.Join(dir, "link")
	install := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	install(content)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	c := &toolcache.Cache{Dir: filepath.Join(dir, "cache")}
	is := func(what string, want bool) {
		t.Helper()
		got, ok := c.Said(identify(t, link))
		if ok != want || ok && !got.Equal(v) {
			t.Errorf("%s: %v, %v; want it known: %v", what, got, ok, want)
		}
	}
	is("before it was asked", false)
	c.Remember(identify(t, path), info.Path+"/other", v)
	is("built from another package", false)
	c.Remember(identify(t, path), info.Path, v)
	is("asked", true)
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	is("changed", false)
	c.Remember(identify(t, path), info.Path, v)
	is("asked again", true)
	install(content)
	is("installed anew", false)

	c.Remember(identify(t, path), info.Path, v)
	kept, err := filepath.Glob(filepath.Join(c.Dir, ".said", "*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v, %v", kept, err)
	}
	for _, broken := range []string{"", "{", `{"version":"1.10.2"}`} {
		if err := os.WriteFile(kept[0], []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		is("a broken entry", false)
	}
	c.Remember(identify(t, path), info.Path, v)
	is("made again", true)
}

// A script may say another version tomorrow, as those of version managers do.
func TestSaid_NotOfAScript(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tofu")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &toolcache.Cache{Dir: filepath.Join(dir, "cache")}
	c.Remember(identify(t, path), "", version.Must(version.NewVersion("1.10.2")))
	if v, ok := c.Said(identify(t, path)); ok {
		t.Errorf("it is known as %s", v)
	}
	var none *toolcache.Cache
	none.Remember(identify(t, path), "", version.Must(version.NewVersion("1.10.2")))
	if v, ok := none.Said(identify(t, path)); ok {
		t.Errorf("without a cache it is known as %s", v)
	}
}
