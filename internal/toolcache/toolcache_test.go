package toolcache_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/toolcache"
	"github.com/dayfly-dev/dayfly/internal/toolcache/toolcachetest"
)

const program = "#!/bin/sh\necho engine\n"

func want(t *testing.T, s string) version.Constraints {
	t.Helper()
	c, err := toolcache.Read(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newCache(t *testing.T, r *toolcachetest.Releases) *toolcache.Cache {
	return &toolcache.Cache{Dir: filepath.Join(t.TempDir(), "tools"), Allowed: []string{"terraform", "tofu"}, From: r.Publishers()}
}

// nothing fails if anything is left in a cache but locks.
func nothing(t *testing.T, c *toolcache.Cache) {
	t.Helper()
	_ = filepath.WalkDir(c.Dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && (!e.IsDir() && !strings.HasPrefix(e.Name(), ".lock-") || strings.HasPrefix(e.Name(), ".new-")) {
			t.Errorf("%s is left", path)
		}
		return nil
	})
}

func TestGet_HighestVersionThatFitsIsFetchedOnce(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077)) // as an agent has it
	r := toolcachetest.New(t)
	for _, engine := range []string{"terraform", "tofu"} {
		for _, v := range []string{"1.8.1", "1.10.0", "1.10.2", "1.11.0-rc1"} {
			r.Publish(t, engine, v, program)
		}
	}
	for _, engine := range []string{"terraform", "tofu"} {
		c := newCache(t, r)
		for _, tc := range []struct{ asked, got string }{
			{"~> 1.8.0", "1.8.1"}, {"> 1.9", "1.10.2"}, {"1.10.0", "1.10.0"}, {"", "1.10.2"}, {"1.11.0-rc1", "1.11.0-rc1"},
			{">= 1.8", "1.10.2"}, // what is there is taken
		} {
			tool, err := c.Get(t.Context(), engine, want(t, tc.asked))
			if err != nil || tool.Version.String() != tc.got || len(tool.Digest) != 64 {
				t.Fatalf("%s %q: got %+v, %v, want %s", engine, tc.asked, tool, err, tc.got)
			}
			if want := filepath.Join(c.Dir, engine, tc.got, engine); tool.Path != want {
				t.Errorf("got %s, want %s", tool.Path, want)
			}
			if b, err := os.ReadFile(tool.Path); err != nil || string(b) != program {
				t.Errorf("got %q, %v", b, err)
			}
			for path := tool.Path; path != filepath.Dir(c.Dir); path = filepath.Dir(path) {
				if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
					t.Errorf("%s: got %v, %v, want mode 755", path, info.Mode(), err)
				}
			}
			entries, _ := os.ReadDir(filepath.Dir(tool.Path))
			if len(entries) != 2 {
				t.Errorf("got %v, want the engine and the digest of its archive", entries)
			}
		}
		if got := r.Fetched(engine); got != 4 {
			t.Errorf("%d archives of %s were fetched, want 4", got, engine)
		}
	}
	before := r.Calls()
	c := newCache(t, r)
	if _, err := c.Get(t.Context(), "tofu", want(t, "1.8.1")); err != nil {
		t.Fatal(err)
	}
	once := r.Calls()
	if _, err := c.Get(t.Context(), "tofu", want(t, "~> 1.8")); err != nil || r.Calls() != once || once == before {
		t.Errorf("got %d calls, %v, want none for what is there", r.Calls()-once, err)
	}
}

func TestGet_WhatIsNotAsItWasSignedIsRefused(t *testing.T) {
	zipOf := func(add func(z *zip.Writer)) []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		add(z)
		_ = z.Close()
		return b.Bytes()
	}
	file := func(z *zip.Writer, name string, mode fs.FileMode, content string) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(r *toolcachetest.Releases, engine string)
		says   string
	}{
		"another archive": {func(r *toolcachetest.Releases, engine string) {
			r.Change(engine, "1.10.0", ".zip", func([]byte) []byte { return zipOf(func(z *zip.Writer) { file(z, engine, 0o755, "evil") }) })
		}, "the checksum of"},
		"other checksums": {func(r *toolcachetest.Releases, engine string) {
			r.Change(engine, "1.10.0", "SHA256SUMS", func(b []byte) []byte { return append(b, '\n') })
		}, "signature"},
		"another key": {func(r *toolcachetest.Releases, engine string) { r.SignWithAnotherKey(t, engine, "1.10.0") }, "signature"},
		"no signature": {func(r *toolcachetest.Releases, engine string) {
			r.Change(engine, "1.10.0", "sig", func([]byte) []byte { return nil })
		}, "404 Not Found"},
		"not in the checksums": {func(r *toolcachetest.Releases, engine string) {
			r.Sums(t, engine, "1.10.0", strings.Repeat("0", 64)+"  "+engine+"_1.9.0_plan9_z80.zip\n")
		}, "its publisher has no " + "%s_1.10.0"},
		"not a checksum": {func(r *toolcachetest.Releases, engine string) {
			r.Sums(t, engine, "1.10.0", "abc  "+toolcachetest.Archive(engine, "1.10.0")+"\n")
		}, "is not one"},
		"cut short": {func(r *toolcachetest.Releases, _ string) { r.Truncate = true }, "unexpected EOF"},
		"no such version": {func(r *toolcachetest.Releases, engine string) {
			r.Change(engine, "", "list", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("1.10.0"), []byte("1.9.9")) })
		}, "no such version among its 1"},
		"not a list": {func(r *toolcachetest.Releases, engine string) {
			r.Change(engine, "", "list", func([]byte) []byte { return []byte("<html>") })
		}, "not a list of versions"},
		"to plain http": {func(r *toolcachetest.Releases, _ string) { r.Redirect = "http://releases.example.com/x" }, "releases.example.com, which is not https"},
		"to itself":     {func(r *toolcachetest.Releases, _ string) { r.Redirect = "/loop" }, "more than 5 redirects"},
		"path traversal": {func(r *toolcachetest.Releases, engine string) {
			r.PublishArchive(t, engine, "1.10.0", zipOf(func(z *zip.Writer) { file(z, "../../"+engine, 0o755, "evil"); file(z, "/tmp/"+engine, 0o755, "evil") }))
		}, "there is no %s in it"},
		"a symbolic link": {func(r *toolcachetest.Releases, engine string) {
			r.PublishArchive(t, engine, "1.10.0", zipOf(func(z *zip.Writer) { file(z, engine, fs.ModeSymlink|0o777, "/bin/sh") }))
		}, "its %s is not a file"},
		"not an archive": {func(r *toolcachetest.Releases, engine string) { r.PublishArchive(t, engine, "1.10.0", []byte(program)) }, "not a valid zip"},
	} {
		for _, engine := range []string{"terraform", "tofu"} {
			r := toolcachetest.New(t)
			r.Publish(t, engine, "1.10.0", program)
			tc.change(r, engine)
			c := newCache(t, r)
			says := tc.says
			if strings.Contains(says, "%s") {
				says = fmt.Sprintf(says, engine)
			}
			if tool, err := c.Get(t.Context(), engine, want(t, "1.10.0")); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s of %s: got %+v, %v, want %q in one line", name, engine, tool, err, says)
			}
			nothing(t, c)
		}
	}
}

func TestGet_OnlyWhatIsAllowedIsFetched(t *testing.T) {
	r := toolcachetest.New(t)
	r.Publish(t, "tofu", "1.10.0", program)
	known := newCache(t, r)
	known.Why = "the launcher knows why"
	other := newCache(t, r)
	other.Allowed = []string{"terraform"}
	for says, c := range map[string]*toolcache.Cache{"downloads are not allowed here: engine_downloads": nil, "engine_downloads": other, known.Why: known} {
		if _, err := c.Get(t.Context(), "tofu", nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	if r.Calls() != 0 {
		t.Errorf("got %d calls", r.Calls())
	}
}

func TestGet_OneDownloadServesAllThatWaitForIt(t *testing.T) {
	r := toolcachetest.New(t)
	r.Publish(t, "tofu", "1.10.0", program)
	first := newCache(t, r)
	var failed atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			c := *first // as another process has it
			if _, err := c.Get(t.Context(), "tofu", want(t, "~> 1.10")); err != nil {
				failed.Add(1)
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := r.Fetched("tofu"); got != 1 || failed.Load() != 0 {
		t.Errorf("got %d downloads, want 1", got)
	}
}

func TestGet_EndsWithItsContext(t *testing.T) {
	r := toolcachetest.New(t)
	r.Publish(t, "tofu", "1.10.0", program)
	ctx, cancel := context.WithCancel(t.Context())
	r.Before = func(req *http.Request) {
		if strings.HasSuffix(req.URL.Path, ".zip") {
			cancel()
			<-req.Context().Done()
		}
	}
	c := newCache(t, r)
	if _, err := c.Get(ctx, "tofu", nil); err == nil {
		t.Error("got no error")
	}
	nothing(t, c)
}

func TestGet_VersionsThatNobodyUsesAreRemoved(t *testing.T) {
	r := toolcachetest.New(t)
	c := newCache(t, r)
	dir := filepath.Join(c.Dir, "tofu")
	for n := range 13 {
		r.Publish(t, "tofu", fmt.Sprintf("1.%d.0", n), program)
		if _, err := c.Get(t.Context(), "tofu", want(t, fmt.Sprintf("1.%d.0", n))); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(c.List("tofu")); got != 13 {
		t.Fatalf("got %d versions, want all: each was used just now", got)
	}
	crashed := filepath.Join(dir, ".new-crashed")
	if err := os.Mkdir(crashed, 0o700); err != nil {
		t.Fatal(err)
	}
	for n, name := range []string{"1.3.0", "1.4.0", "1.5.0", "1.6.0", ".new-crashed"} {
		old := time.Now().Add(-time.Duration(100-n) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	r.Publish(t, "tofu", "1.20.0", program)
	if _, err := c.Get(t.Context(), "tofu", want(t, "1.20.0")); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"1.3.0": false, "1.6.0": false, "1.20.0": true, "1.0.0": true, ".new-crashed": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: got %v, want that it stays: %t", name, err, stays)
		}
	}
}

// The keys are those that the publishers name on their own pages.
func TestPublishers_KeysAreThoseOfThePublishers(t *testing.T) {
	for engine, want := range map[string]string{
		"terraform": "c874011f0ab405110d02105534365d9472d7468f", "tofu": "e3e6e43d84cb852eadb0051d0c0af313e5fd9f80",
	} {
		keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(toolcache.Publishers()[engine].Key))
		if err != nil || len(keys) != 1 {
			t.Fatalf("%s: got %d keys, %v", engine, len(keys), err)
		}
		if got := fmt.Sprintf("%x", keys[0].PrimaryKey.Fingerprint); got != want {
			t.Errorf("%s: got %s, want %s", engine, got, want)
		}
	}
}

func FuzzVersionsOf(f *testing.F) {
	f.Add([]byte(`{"versions":{"1.9.5":{"builds":[]},"x":null}}`))
	f.Add([]byte(`{"versions":[{"id":"1.10.0"},{"id":"../../x"}]}`))
	f.Fuzz(func(t *testing.T, list []byte) {
		all, err := toolcache.VersionsOf(list)
		for _, v := range all {
			if name := v.String(); err != nil || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
				t.Errorf("%q is not the name of a directory", name)
			}
		}
	})
}

func FuzzSumOf(f *testing.F) {
	f.Add(strings.Repeat("a", 64) + "  tofu.zip\n")
	f.Fuzz(func(t *testing.T, sums string) {
		if got, err := toolcache.SumOf(sums, "tofu.zip"); err == nil && (len(got) != 64 || !strings.Contains(strings.ToLower(sums), got)) {
			t.Errorf("got %q", got)
		}
	})
}
