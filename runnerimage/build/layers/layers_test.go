package layers_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/runnerimage/build/layers"
)

// merged is a root file system whose /bin, /lib and /etc/ssl are links, as Debian's are.
func merged(t *testing.T) (file, digest string) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./usr/bin/env", Typeflag: tar.TypeReg, Mode: 0o755},
		{Name: "./usr/bin/sh", Typeflag: tar.TypeLink, Linkname: "./usr/bin/env"},
		{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		{Name: "./lib", Typeflag: tar.TypeSymlink, Linkname: "/usr/lib"},
		{Name: "./loop", Typeflag: tar.TypeSymlink, Linkname: "loop"},
		{Name: "./tmp/", Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: "./usr/lib/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./etc/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 7},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "root.tar")
	write(t, file, out.Bytes())
	return file, sum(out.Bytes())
}

func sum(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, base string) v1.Image {
	t.Helper()
	img, err := layers.Open(t.Context(), base, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func appended(t *testing.T, base v1.Image, entries ...layers.Entry) v1.Image {
	t.Helper()
	img, err := layers.Append(base, []layers.Layer{{Name: "files", Entries: entries}}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// flat is the file system of an image, a line for each path.
func flat(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	out := map[string]string{}
	in := tar.NewReader(mutate.Extract(img))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = fmt.Sprintf("%c %o %d %s", h.Typeflag, h.Mode, h.Uid, h.Linkname)
	}
}

func TestAppend_PutsFilesWhereTheLinksOfTheBaseLead(t *testing.T) {
	t.Parallel()
	file, digest := merged(t)
	base := open(t, file+"@"+digest)
	img := appended(t, base,
		layers.Entry{Path: "bin", Dir: true},
		layers.Entry{Path: "bin/tool", Mode: layers.Executable, Data: []byte("x")},
		layers.Entry{Path: "/lib/new/so", Mode: layers.Plain},
		layers.Entry{Path: "bin/again", Link: "tool"},
		layers.Entry{Path: "etc", Dir: true},
		layers.Entry{Path: "tmp", Dir: true, Mode: layers.Shared},
		layers.Entry{Path: "work/mine", Dir: true, Mode: 0o700, User: 5},
	)
	want := flat(t, base)
	maps.Copy(want, map[string]string{
		"usr/bin/tool": "0 755 0 ", "usr/bin/again": "2 777 0 tool", "usr/lib/new": "5 755 0 ", "usr/lib/new/so": "0 644 0 ",
		"tmp": "5 1777 0 ", "work": "5 755 0 ", "work/mine": "5 700 5 ",
	})
	if diff := cmp.Diff(want, flat(t, img)); diff != "" {
		t.Errorf("the file system (-want +got):\n%s", diff)
	}
}

func TestAppend_RefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	file, digest := merged(t)
	base := open(t, file+"@"+digest)
	for path, want := range map[string]string{
		"usr/bin":   "put usr/bin into the image: there is a directory at usr/bin",
		"bin/env/x": "put bin/env/x into the image: /usr/bin/env is not a directory",
		"loop/x":    "put loop/x into the image: /loop is not a directory",
	} {
		_, err := layers.Append(base, []layers.Layer{{Entries: []layers.Entry{{Path: path}}}}, time.Time{})
		if err == nil || err.Error() != want {
			t.Errorf("a file at %s: got %v, want %s", path, err, want)
		}
	}
}

func TestAppend_SameInputsSameDigest(t *testing.T) {
	t.Parallel()
	file, digest := merged(t)
	for _, base := range []string{"", file + "@" + digest} {
		var digests []v1.Hash
		for i := range 2 {
			from := filepath.Join(t.TempDir(), "from")
			write(t, from, []byte("the same"))
			if err := os.Chtimes(from, time.Time{}, time.Unix(int64(i), 0)); err != nil {
				t.Fatal(err)
			}
			entries := []layers.Entry{{Path: "bin/b", Mode: layers.Executable, From: from}, {Path: "bin/a", Link: "b"}}
			if i == 1 {
				slices.Reverse(entries)
			}
			d, err := appended(t, open(t, base), entries...).Digest()
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, d)
		}
		if digests[0] != digests[1] {
			t.Errorf("on %q: got %s and %s", base, digests[0], digests[1])
		}
	}
}

func TestOpen_TakesWhatIsPinned(t *testing.T) {
	t.Parallel()
	img := appended(t, open(t, ""), layers.Entry{Path: "a"})
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()

	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	outer, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	p, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err := errors.Join(err, p.AppendImage(img), p.AppendIndex(index)); err != nil {
		t.Fatal(err)
	}

	server := httptest.NewServer(registry.New())
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://") + "/base"
	tag, err := name.NewTag(at + ":v1")
	if err := errors.Join(err, remote.WriteIndex(tag, index), remote.Write(tag, img)); err != nil {
		t.Fatal(err)
	}

	for _, base := range []string{
		filepath.Join(dir, "layout") + "@" + want.String(),
		filepath.Join(dir, "layout") + "@" + outer.String(),
		at + "@" + want.String(),
		at + ":v1@" + outer.String(),
	} {
		if got, err := open(t, base).Digest(); err != nil || got != want {
			t.Errorf("open %s: got %s, %v, want %s", base, got, err, want)
		}
	}

	// A saved image has the same configuration, and other layers where Docker has packed them itself.
	saved := filepath.Join(dir, "saved.tar")
	if err := tarball.WriteToFile(saved, tag, img); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(b); errors.Join(err, z.Close()) != nil {
		t.Fatal(err)
	}
	write(t, saved+".gz", zipped.Bytes())
	wantID, _ := img.ConfigName()
	for _, base := range []string{saved + "@" + sum(b), saved + ".gz@" + sum(zipped.Bytes())} {
		if got, err := open(t, base).ConfigName(); err != nil || got != wantID {
			t.Errorf("open %s: got %s, %v, want %s", base, got, err, wantID)
		}
	}
}

func TestOpen_RefusesWhatIsNotPinned(t *testing.T) {
	t.Parallel()
	file, digest := merged(t)
	other := "sha256:" + strings.Repeat("0", 64)
	for base, want := range map[string]string{
		"debian:stable-slim":       "write BASE=debian:stable-slim@sha256:... (docker buildx imagetools inspect debian:stable-slim shows it)",
		"debian@sha256:123":        "write BASE=debian@sha256:...",
		file:                       "write BASE=" + file + "@sha256:... (for a file sha256sum shows it",
		file + "@" + other:         "has the digest " + digest + ", and not " + other,
		t.TempDir() + "@" + digest: "is not an OCI layout",
		"/nowhere@" + digest:       "no such file",
	} {
		_, err := layers.Open(t.Context(), base, "amd64")
		if !errors.Is(err, workflow.ErrInvalid) || !strings.HasPrefix(err.Error(), "BASE: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("open %s: got %v, want a refusal with %q", base, err, want)
		}
	}
}

func TestOpen_RefusesAnotherArchitecture(t *testing.T) {
	t.Parallel()
	p, err := layout.Write(t.TempDir(), empty.Index)
	img := open(t, "")
	digest, _ := img.Digest()
	if err := errors.Join(err, p.AppendImage(img)); err != nil {
		t.Fatal(err)
	}
	_, err = layers.Open(t.Context(), string(p)+"@"+digest.String(), "arm64")
	if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), "is for linux/amd64 and the image is for linux/arm64") {
		t.Errorf("got %v", err)
	}
}

func TestMissing_NamesWhatLacks(t *testing.T) {
	t.Parallel()
	// This test is a program of this machine; whether it has a loader depends on how it was built.
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	arch := map[byte]string{0x3e: "amd64", 0xb7: "arm64"}[content[18]]
	loader, err := layers.Loader(bytes.NewReader(content), arch)
	if err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[arch]
	bundle, _ := layers.Mozilla()
	img := appended(t, open(t, ""),
		layers.Entry{Path: "bin/sh", Link: "busybox"},
		layers.Entry{Path: "bin/busybox", From: program},
		layers.Entry{Path: "usr/bin/tofu", Data: []byte("#!/bin/sh\n")},
		layers.Entry{Path: "usr/bin/text", Data: []byte("text")},
		layers.Entry{Path: "etc/ssl/cert.pem", Data: bundle},
		layers.Entry{Path: or(loader, "a-loader")},
	)
	for _, c := range []struct {
		arch     string
		programs []string
		want     []string
	}{
		{arch, []string{"/bin/sh", "terraform|tofu"}, nil},
		{arch, []string{"/bin/bash", "git", "terraform|pulumi"}, []string{"it has no /bin/bash", "it has no git", "it has no terraform or pulumi"}},
		{arch, []string{"text"}, []string{"its /usr/bin/text does not run on linux/" + arch + ": it is not an ELF program"}},
		{other, []string{"/bin/sh"}, []string{"its /bin/sh does not run on linux/" + other + ": it is for " + map[string]string{"amd64": "EM_X86_64", "arm64": "EM_AARCH64"}[arch]}},
	} {
		got, err := layers.Missing(img, c.arch, c.programs...)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("missing of %v for %s: %v (-want +got):\n%s", c.programs, c.arch, err, diff)
		}
	}
	bare := appended(t, open(t, ""), layers.Entry{Path: "etc/ssl/cert.pem", Data: []byte("no certificates")})
	if got, err := layers.Missing(bare, arch); err != nil || !cmp.Equal(got, []string{"it has no CA certificates"}) {
		t.Errorf("missing of a bare image: got %v, %v", got, err)
	}
}

func or(path, otherwise string) string {
	if path == "" {
		return otherwise
	}
	return path
}

func TestMozilla_IsAWholeStore(t *testing.T) {
	t.Parallel()
	bundle, version := layers.Mozilla()
	if n := len(layers.Certificates(bundle)); n <= 100 || version == "" {
		t.Errorf("got %d roots of version %q", n, version)
	}
}
