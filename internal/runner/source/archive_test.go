package source_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// member is an entry of an archive: its kind is that of a tar header.
type member struct {
	name, content string
	kind          byte
	mode          int64
}

func plain(name, content string) member { return member{name, content, tar.TypeReg, 0o644} }

// tarOf is a tar file; the content of a link is where it leads.
func tarOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Mode: m.mode}
		if m.kind == tar.TypeReg {
			h.Size = int64(len(m.content))
		} else {
			h.Linkname = m.content
		}
		if m.kind == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: m.kind, PAXRecords: map[string]string{"comment": m.content}}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if m.kind == tar.TypeReg {
			_, _ = io.WriteString(w, m.content)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func zipOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(os.FileMode(m.mode)) //nolint:gosec // of a test
		if m.kind == tar.TypeSymlink {
			h.SetMode(os.ModeSymlink | 0o777)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(f, m.content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// digest is the SHA-256 of an archive, as a workspace names it.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// bucket is Objects over a map.
type bucket map[string][]byte

func (b bucket) Object(_ context.Context, region, name, key string) (io.ReadCloser, error) {
	if object, ok := b[region+"/"+name+"/"+key]; ok {
		return io.NopCloser(bytes.NewReader(object)), nil
	}
	return nil, workflow.Refuse(workflow.ErrNotFound, "source.archive.url", "there is no such object")
}

// unpack fetches an archive from a bucket, and says what is in place.
func unpack(t *testing.T, archive []byte, path string, change ...func(*source.Request)) (source.Fetched, map[string]string, error) {
	t.Helper()
	top := t.TempDir()
	r := source.Request{
		Source: api.Source{Archive: &api.ArchiveSource{URL: "s3://code/net/v1.tgz", SHA256: digest(archive), Path: path, Region: "eu-west-1"}},
		Dest:   filepath.Join(top, "work"), TempDir: t.TempDir(), Aside: filepath.Join(top, "aside"),
		Objects: bucket{"eu-west-1/code/net/v1.tgz": archive},
	}
	if err := os.Mkdir(r.Aside, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&r)
	}
	got, err := source.Fetch(t.Context(), r)
	if left, _ := os.ReadDir(r.TempDir); len(left) > 0 {
		t.Errorf("left in the temporary directory: %v", left)
	}
	files := map[string]string{}
	_ = filepath.WalkDir(r.Dest, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(r.Dest, p)
		if target, err := os.Readlink(p); err == nil {
			files[name] = "-> " + target
			return nil
		}
		b, err := os.ReadFile(p)
		info, _ := d.Info()
		files[name] = info.Mode().String() + " " + string(b)
		return err
	})
	return got, files, err
}

// R2: an archive is unpacked, whatever its form, without what belongs to one machine.
func TestFetch_ArchiveOfEachForm(t *testing.T) {
	members := []member{
		{"", "a commit", tar.TypeXGlobalHeader, 0},
		{"net/", "", tar.TypeDir, 0o755},
		plain("net/main.tf", "main"),
		{"net/run.sh", "#!/bin/sh", tar.TypeReg, 0o755},
		{"net/link.tf", "modules/a/a.tf", tar.TypeSymlink, 0o777},
		plain("net/modules/a/a.tf", "a"), // whose directories the archive does not name
		plain("net/terraform.tfstate", "{}"),
		plain("net/.git/config", "token"), plain("net/.terraform/x", "x"),
		plain("./other/b.tf", "b"),
	}
	want := map[string]string{
		"net/main.tf": "-rw-r--r-- main", "net/run.sh": "-rwxr-xr-x #!/bin/sh", "net/link.tf": "-> modules/a/a.tf",
		"net/modules/a/a.tf": "-rw-r--r-- a", "other/b.tf": "-rw-r--r-- b",
	}
	for name, archive := range map[string][]byte{
		"tar": tarOf(t, members...), "tar.gz": gzipped(tarOf(t, members...)), "zip": zipOf(t, members[1:]...),
	} {
		t.Run(name, func(t *testing.T) {
			got, files, err := unpack(t, archive, "net")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, files); d != "" {
				t.Errorf("in place (-want +got):\n%s", d)
			}
			if filepath.Base(got.Root) != "net" {
				t.Errorf("the root module is %s", got.Root)
			}
			if _, err := os.Stat(filepath.Join(got.Aside, "terraform.tfstate")); err != nil {
				t.Errorf("the state was not set aside: %v", err)
			}
		})
	}
}

// R2: nothing of an archive is used that is not the one that the workspace names, and none leads out of the tree.
func TestFetch_ArchiveRefusals(t *testing.T) {
	good := tarOf(t, plain("main.tf", "main"))
	for name, tc := range map[string]struct {
		archive []byte
		change  func(*source.Request)
		want    error
		says    string
	}{
		"another digest": {good, func(r *source.Request) { r.Source.Archive.SHA256 = digest(nil) }, workflow.ErrInvalid, "source.archive.sha256"},
		"no digest":      {good, func(r *source.Request) { r.Source.Archive.SHA256 = "" }, workflow.ErrInvalid, "64 hexadecimal"},
		"no object":      {good, func(r *source.Request) { r.Objects = bucket{} }, workflow.ErrNotFound, "no such object"},
		"no identity":    {good, func(r *source.Request) { r.Objects = nil }, workflow.ErrUnsupported, "no identity in AWS"},
		"no module":      {good, func(r *source.Request) { r.Source.Archive.Path = "net" }, workflow.ErrNotFound, "source.archive.path"},
		"another scheme": {good, func(r *source.Request) { r.Source.Archive.URL = "ftp://x/y" }, workflow.ErrInvalid, "https or s3"},
		"not an archive": {[]byte("<html>"), nil, workflow.ErrInvalid, "cannot be read"},
		"half of one":    {gzipped(good)[:40], nil, workflow.ErrInvalid, "cannot be read"},
		"up":             {tarOf(t, plain("../main.tf", "x")), nil, workflow.ErrInvalid, "leads out"},
		"zipped up":      {zipOf(t, plain("a/../../main.tf", "x")), nil, workflow.ErrInvalid, "leads out"},
		"absolute":       {tarOf(t, plain("/etc/passwd", "x")), nil, workflow.ErrInvalid, "leads out"},
		"a link out":     {tarOf(t, member{"link", "../x", tar.TypeSymlink, 0}), nil, workflow.ErrInvalid, "outside the source"},
		"below a link":   {tarOf(t, member{"d", "..", tar.TypeSymlink, 0}, plain("d/x", "x")), nil, workflow.ErrInvalid, "outside the source"},
		"a hard link":    {tarOf(t, plain("a", "x"), member{"b", "a", tar.TypeLink, 0}), nil, workflow.ErrInvalid, "not a file, directory or symbolic link"},
		"a device":       {tarOf(t, member{"b", "", tar.TypeBlock, 0}), nil, workflow.ErrInvalid, "not a file, directory or symbolic link"},
		"too many": {tarOf(t, plain("a", "1"), plain("b", "2"), plain("c", "3")), func(r *source.Request) { *r = source.WithLimits(*r, 2, 0) },
			workflow.ErrTooLarge, "more than 2 files"},
		"a bomb": {gzipped(tarOf(t, plain("a", strings.Repeat("\x00", 1<<20)))), func(r *source.Request) { *r = source.WithLimits(*r, 0, 1000) },
			workflow.ErrTooLarge, "the source has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = func(*source.Request) {}
			}
			_, _, err := unpack(t, tc.archive, "", tc.change)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
		})
	}
}

// R2: the token goes to the host that the workspace names, and no further.
func TestFetch_ArchiveByHTTPS(t *testing.T) {
	archive := gzipped(tarOf(t, plain("main.tf", "main")))
	var elsewhere []string
	store := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		_, _ = w.Write(archive)
	}))
	t.Cleanup(store.Close)
	noTLS := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(noTLS.Close)
	var to string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer the-token":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusNotFound)
		default:
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)
	ca := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: store.Certificate().Raw})...)
	for name, tc := range map[string]struct {
		path, ref, to string
		want          error
		says          string
	}{
		"redirected":  {"/v1.tgz", "file:token", store.URL + "/signed?X-Amz-Signature=the-signature", nil, ""},
		"to no TLS":   {"/v1.tgz", "file:token", noTLS.URL, nil, "without TLS"},
		"no token":    {"/v1.tgz", "", store.URL, workflow.ErrForbidden, "token_ref"},
		"no secret":   {"/v1.tgz", "file:none", store.URL, source.ErrCredential, "source.archive.token_ref"},
		"not there":   {"/gone", "file:token", store.URL, workflow.ErrNotFound, "404"},
		"to a circle": {"/v1.tgz", "file:token", server.URL + "/v1.tgz", nil, "redirects follow each other"},
	} {
		t.Run(name, func(t *testing.T) {
			to = tc.to
			_, files, err := unpack(t, archive, "", func(r *source.Request) {
				r.Source.Archive.URL, r.Source.Archive.Region, r.Source.Archive.TokenRef = server.URL+tc.path, "", tc.ref
				r.Secrets = vault{"file:token": "the-token\n"}
				*r = source.WithCA(*r, ca)
			})
			if tc.says == "" {
				if err != nil || len(files) != 1 {
					t.Errorf("got %v, %v", files, err)
				}
				return
			}
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
			if err != nil && strings.Contains(err.Error(), "the-") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	if d := cmp.Diff([]string{""}, elsewhere); d != "" {
		t.Errorf("the token went on to another host: %s", d)
	}
}

func FuzzArchive(f *testing.F) {
	f.Add(tarOf(f, plain("a/b", "x"), member{"l", "a", tar.TypeSymlink, 0}))
	f.Add(gzipped(tarOf(f, plain("a", "x"))))
	f.Add(zipOf(f, plain("a/b", "x"), member{"l", "a/b", tar.TypeSymlink, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		top := t.TempDir()
		_, _ = source.Fetch(t.Context(), source.WithLimits(source.Request{
			Source: api.Source{Archive: &api.ArchiveSource{URL: "s3://code/x", SHA256: digest(b)}},
			Dest:   filepath.Join(top, "in", "work"), TempDir: t.TempDir(), Objects: bucket{"/code/x": b},
		}, 100, 1<<20))
		// Whatever it is, nothing is written beside the tree.
		for _, dir := range []string{top, filepath.Join(top, "in")} {
			if entries, _ := os.ReadDir(dir); len(entries) > 1 {
				t.Errorf("%s has %v", dir, entries)
			}
		}
	})
}
