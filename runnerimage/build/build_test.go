package main_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dayfly-dev/dayfly/runnerimage/build/layers"
)

// programs are built once: the builder, and a shell and an engine without libraries.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "dayfly-build-test-"); err != nil {
		return "", err
	}
	for to, pkg := range map[string]string{"build": ".", "busybox": "../../test/isolation/testdata/shell"} {
		cmd := exec.CommandContext(context.Background(), "go", "build", "-C", pkg, "-o", filepath.Join(dir, to), ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
	}
	return dir, nil
})

var used atomic.Bool

func TestMain(m *testing.M) {
	code := m.Run()
	if used.Load() {
		dir, _ := programs()
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// site is a machine with a builder and what it finds in PATH.
type site struct {
	t    *testing.T
	dir  string
	path string // PATH
}

func newSite(t *testing.T) *site {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the programs of this system do not run in images")
	}
	used.Store(true)
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: t.TempDir()}
	s.path = filepath.Join(s.dir, "bin")
	gocmd, err := exec.LookPath("go")
	if err := errors.Join(err, os.Mkdir(s.path, 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"build": filepath.Join(built, "build"), "bin/busybox": filepath.Join(built, "busybox"), "bin/terraform": filepath.Join(built, "busybox"), "bin/go": gocmd,
	} {
		if err := os.Symlink(to, filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) write(name string, b []byte) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// make makes an image, and returns what was said.
func (s *site) make(env ...string) (string, error) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.dir, "build"))
	cmd.Dir = "../.."
	var base []string
	for _, name := range []string{"HOME", "GOCACHE", "GOMODCACHE", "GOPATH", "GOFLAGS", "GOPROXY", "GOROOT"} {
		if value := os.Getenv(name); value != "" {
			base = append(base, name+"="+value)
		}
	}
	cmd.Env = append(append(base, "PATH="+s.path, "VERSION=v1", "REVISION=abc"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *site) mustMake(env ...string) string {
	s.t.Helper()
	said, err := s.make(env...)
	if err != nil {
		s.t.Fatalf("%v: %s", err, said)
	}
	return said
}

// read opens the one image of an OCI layout.
func (s *site) read(dir string) v1.Image {
	s.t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		s.t.Fatalf("the layout has %v, %v", manifest, err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		s.t.Fatal(err)
	}
	return img
}

func (s *site) files(img v1.Image, paths ...string) map[string]string {
	s.t.Helper()
	tree, err := layers.Read(img)
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := tree.Files(img, paths...)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range got {
		out[k] = string(v)
	}
	return out
}

// header is that of a file in an image's archive.
func header(t *testing.T, img v1.Image, path string) *tar.Header {
	t.Helper()
	flat := mutate.Extract(img)
	defer func() { _ = flat.Close() }()
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("look for %s: %v", path, err)
		}
		if strings.TrimPrefix(h.Name, "/") == path {
			return h
		}
	}
}

var digestLine = regexp.MustCompile(`(?m)^digest (sha256:[0-9a-f]{64}), id sha256:[0-9a-f]{64}$`)

func digestOf(t *testing.T, said string) string {
	t.Helper()
	m := digestLine.FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("no digest in %q", said)
	}
	return m[1]
}

// D1: the image on nothing, made twice, and an image on that one. Everything that a task needs is in it.
func TestMake_OnNothingAndOnABase(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := filepath.Join(s.dir, "first")
	said := s.mustMake("OUTPUT=" + first)
	digest := digestOf(t, said)
	if again := digestOf(t, s.mustMake("OUTPUT="+filepath.Join(s.dir, "second"))); again != digest {
		t.Errorf("made twice: %s and %s", digest, again)
	}
	for _, want := range []string{"base nothing", "engine " + s.path + "/terraform", "shell busybox", "CA certificates of Mozilla", "git none", "at most 60 MB"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	img := s.read(first)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	is := config.Config
	if is.User != "65532:65532" || len(is.Volumes) != 2 || is.Labels["dev.dayfly.version"] != "v1" || is.Labels["org.opencontainers.image.revision"] != "abc" ||
		len(is.Entrypoint) != 1 || is.Entrypoint[0] != "/usr/local/bin/runner" {
		t.Errorf("its configuration: %+v", is)
	}
	for _, program := range []string{"usr/local/bin/runner", "usr/local/bin/dayfly-policy"} {
		if h := header(t, img, program); h.Mode != 0o755 || h.Uid != 0 || h.Gid != 0 || h.Size == 0 {
			t.Errorf("%s: mode %o of %d:%d, %d bytes; want a program that root alone can write", program, h.Mode, h.Uid, h.Gid, h.Size)
		}
	}
	for _, license := range []string{"LICENSE", "THIRD_PARTY_LICENSES.txt"} {
		if h := header(t, img, "usr/share/doc/dayfly/"+license); h.Mode != 0o644 || h.Size == 0 {
			t.Errorf("%s: mode %o, %d bytes; want a text that everybody reads", license, h.Mode, h.Size)
		}
	}
	const bundle, users = "/etc/ssl/certs/ca-certificates.crt", "/etc/passwd"
	files := s.files(img, bundle, users)
	if want := "root:x:0:0:root:/:/bin/sh\nrunner:x:65532:65532:runner:/dayfly/work:/bin/sh\n"; files[users] != want {
		t.Errorf("its users: %q", files[users])
	}

	// A base that has all of it keeps its own, with EXTRA and EXTRA_CA beside it.
	own := layers.Certificates([]byte(files[bundle]))[:1]
	authority := s.write("authority.pem", append(layers.PEM(own), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")})...))
	s.write("extra/usr/bin/git", []byte("#!/bin/sh\n"))
	s.write("extra/etc/own", []byte("mine"))
	said = s.mustMake("BASE="+first+"@"+digest, "OUTPUT="+filepath.Join(s.dir, "third"), "EXTRA="+filepath.Join(s.dir, "extra"), "EXTRA_CA="+authority, "REQUIRE=git")
	for _, want := range []string{"base " + first + "@" + digest, "engine terraform of the base", "shell that of the base", "CA certificates of the base and EXTRA_CA", "git that of EXTRA"} {
		if !strings.Contains(said, want) {
			t.Errorf("on a base it does not say %q: %s", want, said)
		}
	}
	got := s.files(s.read(filepath.Join(s.dir, "third")), bundle, users, "/etc/own")
	if got[bundle] != files[bundle]+string(layers.PEM(own)) || got[users] != files[users] || got["/etc/own"] != "mine" {
		t.Errorf("on a base: users %q, own %q, a bundle of %d bytes", got[users], got["/etc/own"], len(got[bundle]))
	}
}

// Each mistake and each lack ends with a sentence that names the fix.
func TestMake_RefusesWithTheFix(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := os.Remove(filepath.Join(s.path, "terraform")); err != nil {
		t.Fatal(err)
	}
	s.write("extra/usr/local/bin/tofu", []byte("not a program"))
	extra := "EXTRA=" + filepath.Join(s.dir, "extra")
	const key = "-----BEGIN PRIVATE KEY-----"
	for _, c := range []struct {
		env  []string
		want []string
	}{
		{[]string{"ENGINE=none", "GOARCH=386", "SBOM=text", "EXTRA=/nowhere", "EXTRA_CA=/nowhere", "PUSH=yes", "SOURCE_DATE_EPOCH=now", "IMAGE=A B"},
			[]string{"ENGINE: none is not an engine", "GOARCH: tasks run on", "SBOM: text is not", "EXTRA: /nowhere", "EXTRA_CA: /nowhere", "PUSH: is yes", "SOURCE_DATE_EPOCH: now", "IMAGE: "}},
		{[]string{"PUSH=1"}, []string{"write IMAGE=REGISTRY/NAME:TAG"}},
		{[]string{"SIGN_KEY=" + key}, []string{"SIGN_KEY: names no key: give the path of a file, env://NAME, or awskms:///ARN", "set PUSH=1"}},
		{[]string{"BASE=debian:stable-slim"}, []string{"write BASE=debian:stable-slim@sha256:..."}},
		{[]string{"ENGINE=terraform"}, []string{"ENGINE: PATH has no statically linked terraform", "or use ENGINE=tofu"}},
		{[]string{extra, "REQUIRE=git"}, []string{"it has no git", "its /usr/local/bin/tofu does not run on linux/" + runtime.GOARCH, "put it into EXTRA, or name a BASE"}},
	} {
		said, err := s.make(append(c.env, "OUTPUT="+filepath.Join(s.dir, "out"))...)
		if err == nil {
			t.Errorf("%v was made: %s", c.env, said)
		}
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%v does not say %q: %s", c.env, want, said)
			}
		}
		if strings.Contains(said, key) {
			t.Error("the value of a key was printed")
		}
	}
	if err := os.Remove(filepath.Join(s.path, "busybox")); err != nil {
		t.Fatal(err)
	}
	said, err := s.make(extra)
	if err == nil || !strings.Contains(said, "the image has no shell") || !strings.Contains(said, "install busybox-static, put a shell into EXTRA/bin/sh, or name a BASE with one") {
		t.Errorf("without a shell: %v: %s", err, said)
	}
}

// built returns a program of scripts/foreign if it has been built on this machine.
func built(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../scripts/foreign", program)
	cmd.Env = append(os.Environ(), "ONLY_CACHED=1")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("%s has not been built here: scripts/foreign %[1]s builds it", program)
	}
	return strings.TrimSpace(string(out))
}

// D1: pushed without a Docker engine, with its contents as a referrer and a signature.
func TestMake_PushesContentsAndSignature(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	image := strings.TrimPrefix(server.URL, "http://") + "/team/runner"
	said := s.mustMake("IMAGE="+image+":v1", "PUSH=1")
	digest := digestOf(t, said)
	pushed, err := name.NewDigest(image + "@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := remote.Head(pushed.Context().Tag("v1")); err != nil || d.Digest.String() != digest {
		t.Fatalf("the registry has %v, %v, and not %s", d, err, digest)
	}

	if testing.Short() {
		t.Skip("contents and signature: -short was given")
	}
	syft, cosign := built(t, "syft"), built(t, "cosign")
	for _, program := range []string{"bash", "git", "dirname", "cut", "cat", "sha256sum", "touch"} { // of scripts/foreign
		if at, err := exec.LookPath(program); err == nil {
			_ = os.Symlink(at, filepath.Join(s.path, program))
		}
	}
	const password = "of-the-test"
	generate := exec.CommandContext(t.Context(), cosign, "generate-key-pair", "--output-key-prefix", filepath.Join(s.dir, "k"))
	generate.Env = append(os.Environ(), "COSIGN_PASSWORD="+password)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("make a key: %v: %s", err, out)
	}
	key, err := os.ReadFile(filepath.Join(s.dir, "k.key"))
	if err != nil {
		t.Fatal(err)
	}
	said = s.mustMake("IMAGE="+image+":v1", "PUSH=1", "OUTPUT="+filepath.Join(s.dir, "out.tar"), "SBOM=spdx-json",
		"SIGN_KEY=env://THE_KEY", "THE_KEY="+string(key), "COSIGN_PASSWORD="+password)
	if bytes.Contains([]byte(said), key) || strings.Contains(said, password) {
		t.Error("the key or its password was printed")
	}
	verify := exec.CommandContext(t.Context(), cosign, "verify", "--key", filepath.Join(s.dir, "k.pub"), "--insecure-ignore-tlog", pushed.Name())
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("verify the signature: %v: %s", err, out)
	}
	list, err := os.ReadFile(filepath.Join(s.dir, "out.spdx.json"))
	if err != nil || !bytes.Contains(list, []byte("github.com/go-git/go-git/v5")) {
		t.Errorf("the contents that %s lists do not name the runner's modules: %v", syft, err)
	}
	referrers, err := remote.Referrers(pushed)
	if err != nil {
		t.Fatal(err)
	}
	index, err := referrers.IndexManifest()
	if err != nil || len(index.Manifests) != 1 || index.Manifests[0].ArtifactType != "application/spdx+json" {
		t.Errorf("the image's referrers: %v, %v", fmt.Sprint(index), err)
	}
}
