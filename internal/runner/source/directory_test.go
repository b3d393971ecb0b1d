package source_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// write makes a tree: names that end in / are directories, values that begin with -> are links.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(target, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read is the reverse of write.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch {
		case e.IsDir():
			files[name+"/"] = ""
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			files[name] = "->" + target
			return err
		default:
			content, err := os.ReadFile(path)
			files[name] = string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// R2: a local directory is a source.
func TestFetch_DirectoryIsCopiedWithoutStateAndCaches(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0815\nsize 12345\n"
	top := tempDir(t)
	write(t, top, map[string]string{
		"app/main.tf":                                   "resource {}",
		"app/modules/net/main.tf":                       "module",
		"app/empty/":                                    "",
		"app/.terraform.lock.hcl":                       "locks",
		"app/.terraform/providers/x":                    "->/usr/lib/x",
		"app/.terraform/terraform.tfstate":              "backend",
		"app/.terraform/environment":                    "dev",
		"app/modules/net/.terraform/environment":        "not of the root module",
		"app/.git/config":                               "token",
		"app/terraform.tfstate":                         "state",
		"app/terraform.tfstate.backup":                  "state",
		"app/.terraform.tfstate.lock.info":              "lock",
		"app/terraform.tfstate.d/dev/terraform.tfstate": "of dev",
		"app/other/my.tfstate":                          "of another name",
		"app/linked.tfstate":                            "->main.tf",
		"app/link.tf":                                   "->modules/net/main.tf",
		"app/modules/up":                                "->../main.tf",
		"app/dangling":                                  "->nowhere",
		"app/modules/net/big.zip":                       pointer,
		"app/modules/net/short.zip":                     pointer[:20],
	})
	if err := os.Chmod(filepath.Join(top, "app/main.tf"), 0o755|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	dest, aside := filepath.Join(t.TempDir(), "work"), t.TempDir()
	var log []string
	fetched, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Directory: filepath.Join(top, "app")}, Dest: dest, Roots: []string{top}, Aside: aside,
		Log: func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if fetched.Root != dest || fetched.Aside != aside {
		t.Errorf("got %+v, want the root module in %s, and what was set aside in %s", fetched, dest, aside)
	}
	want := map[string]string{
		"main.tf": "resource {}", "modules/": "", "modules/net/": "", "modules/net/main.tf": "module", "empty/": "",
		".terraform.lock.hcl": "locks", "other/": "", "modules/net/big.zip": pointer, "modules/net/short.zip": pointer[:20],
		"link.tf": "->modules/net/main.tf", "modules/up": "->../main.tf", "dangling": "->nowhere",
	}
	if diff := cmp.Diff(want, read(t, dest)); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	want = map[string]string{
		"terraform.tfstate": "state", "terraform.tfstate.d/": "", "terraform.tfstate.d/dev/": "", "terraform.tfstate.d/dev/terraform.tfstate": "of dev",
		"other/": "", "other/my.tfstate": "of another name", ".terraform/": "", ".terraform/terraform.tfstate": "backend", ".terraform/environment": "dev",
	}
	if diff := cmp.Diff(want, read(t, aside)); diff != "" {
		t.Errorf("set aside (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"modules/net/big.zip"}, fetched.Pointers); diff != "" {
		t.Errorf("pointers (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(dest, "main.tf"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("mode: got %v, %v, want 0755 without setuid", info.Mode(), err)
	}
	if got := strings.Join(log, "\n"); !strings.Contains(got, "set aside 8 files of engine state") {
		t.Errorf("log: got %q, want a line about the state that was set aside", got)
	}
}

func TestFetch_DirectoryOutsideTheRootsIsRefused(t *testing.T) {
	top, other := tempDir(t), tempDir(t)
	write(t, top, map[string]string{"app/main.tf": "x", "file": "x", "out": "->" + other, "sub/": ""})
	write(t, other, map[string]string{"secret/main.tf": "x"})
	for name, tc := range map[string]struct {
		dir   string
		roots []string
		want  error
	}{
		"no roots":             {filepath.Join(top, "app"), nil, workflow.ErrForbidden},
		"elsewhere":            {filepath.Join(other, "secret"), []string{top}, workflow.ErrForbidden},
		"elsewhere, nothing":   {filepath.Join(other, "nothing"), []string{top}, workflow.ErrForbidden},
		"by a link":            {filepath.Join(top, "out/secret"), []string{top}, workflow.ErrForbidden},
		"by traversal":         {top + "/app/../../" + filepath.Base(other) + "/secret", []string{top}, workflow.ErrForbidden},
		"above the root":       {filepath.Dir(top), []string{top}, workflow.ErrForbidden},
		"name with the prefix": {top + "-more", []string{top}, workflow.ErrForbidden},
		"relative":             {"app", []string{top}, workflow.ErrInvalid},
		"missing":              {filepath.Join(top, "nothing"), []string{top}, workflow.ErrNotFound},
		"a file":               {filepath.Join(top, "file"), []string{top}, workflow.ErrNotFound},
	} {
		dest := filepath.Join(t.TempDir(), "work")
		_, err := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: tc.dir}, Dest: dest, Roots: tc.roots})
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
		if says := strings.Join(tc.roots, ", "); errors.Is(err, workflow.ErrForbidden) && (!strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "--source-root DIR")) {
			t.Errorf("%s: got %v, want it to name the roots and the flag", name, err)
		}
		if _, err := os.Stat(dest); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the refused source left something", name)
		}
	}
}

// A root that is itself reached through a link counts as where the link leads.
func TestFetch_RootsAreResolvedToo(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{"real/app/main.tf": "x", "alias": "->real"})
	for _, dir := range []string{"real/app", "alias/app", "alias"} {
		_, err := source.Fetch(t.Context(), source.Request{
			Source: api.Source{Directory: filepath.Join(top, dir)}, Dest: filepath.Join(t.TempDir(), "work"), Roots: []string{filepath.Join(top, "alias")},
		})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestFetch_LinksThatLeaveTheTreeAreRefusedByName(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"absolute":            {"bad": "->/etc/passwd"},
		"upwards":             {"sub/bad": "->../../other"},
		"upwards and back":    {"bad": "->../app/main.tf"},
		"to the parent":       {"bad": "->.."},
		"by way of others":    {"a/b/c": "->../..", "bad": "->a/b/c/../etc"},
		"by way of two links": {"a/b/c": "->../..", "d": "->a/b/c/a", "bad": "->d/b/c/.."},
		"code of an engine":   {"bad.tf": "->../common/bad.tf"},
		"a directory":         {"bad": "->../common"},
		"by a hidden link":    {".shared": "->../common", "bad.tf": "->.shared/bad.tf"},
		"a lock of providers": {".terraform.lock.hcl": "->../bad"},
		"states":              {"terraform.tfstate.d": "->../bad"},
	} {
		top := tempDir(t)
		write(t, filepath.Join(top, "app"), files)
		_, err := source.Fetch(t.Context(), source.Request{
			Source: api.Source{Directory: filepath.Join(top, "app")}, Dest: filepath.Join(t.TempDir(), "work"), Roots: []string{top},
		})
		if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), "bad") {
			t.Errorf("%s: got %v, want a refusal that names bad", name, err)
		}
	}
}

// Linters and people read such files. The code could take a missing one for one that it can do without, so the link
// stays, and reading it is an error.
func TestFetch_LinksForToolsMayLeaveTheTree(t *testing.T) {
	top := tempDir(t)
	files := map[string]string{
		"app/main.tf": "x", "app/.tflint.hcl": "->../.tflint.hcl", "app/sub/README.md": "->/usr/share/readme", "app/CODEOWNERS": "->../../OWNERS",
		"app/.editorconfig": "->main.tf",
	}
	write(t, top, files)
	app := filepath.Join(top, "app")
	fetch := func(dir string) (log []string, digest, dest string) {
		dest = filepath.Join(tempDir(t), "work")
		got, err := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: dir}, Dest: dest, Roots: []string{top, filepath.Dir(dir)}, Log: func(format string, args ...any) {
			log = append(log, fmt.Sprintf(format, args...))
		}})
		if err != nil {
			t.Fatal(err)
		}
		return log, got.Digest, dest
	}
	log, digest, dest := fetch(app)
	if want := `left out 3 links out of the source: ".tflint.hcl", "CODEOWNERS", "sub/README.md"`; !slices.Contains(log, want) {
		t.Errorf("the log is %q, want %s", log, want)
	}
	for _, name := range []string{".tflint.hcl", "CODEOWNERS", "sub/README.md"} {
		if _, err := os.ReadFile(filepath.Join(dest, name)); !errors.Is(err, syscall.ELOOP) {
			t.Errorf("reading %s: got %v, want %v", name, err, syscall.ELOOP)
		}
	}
	if target, err := os.Readlink(filepath.Join(dest, ".editorconfig")); target != "main.tf" {
		t.Errorf(".editorconfig is %q, %v; want it as it was", target, err)
	}

	sources := source.Sources{Roots: []string{top}}
	copied := filepath.Join(tempDir(t), "copy")
	asked, err := sources.Digest(t.Context(), app, "")
	if err := errors.Join(err, sources.Copy(t.Context(), app, "", copied)); err != nil {
		t.Fatal(err)
	}
	if again, of, _ := fetch(copied); asked != digest || of != digest || !slices.Equal(again[1:], log[1:]) {
		t.Errorf("a copy has the digest %s and the log %q, want %s as of the source (asked: %s) and %q", of, again, digest, asked, log)
	}
}

func TestFetch_SpecialFilesAreRefused(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{"main.tf": "x"})
	if err := syscall.Mkfifo(filepath.Join(top, "pipe"), 0o600); err != nil {
		t.Skip("this system has no pipes by name: ", err)
	}
	_, err := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: top}, Dest: filepath.Join(t.TempDir(), "work"), Roots: []string{top}})
	if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), `"pipe"`) {
		t.Errorf("got %v, want a refusal that names the pipe", err)
	}
}

func TestFetch_BoundsAreKept(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{"a": "12345", "b": "12345", "c/d": "12345"})
	deep := tempDir(t)
	write(t, deep, map[string]string{strings.Repeat("d/", 70) + "f": "x"})
	for name, tc := range map[string]struct {
		dir     string
		entries int
		bytes   int64
		want    error
	}{
		"within":       {top, 4, 15, nil},
		"one too many": {top, 3, 15, workflow.ErrTooLarge},
		"too large":    {top, 4, 14, workflow.ErrTooLarge},
		"too deep":     {deep, 0, 0, workflow.ErrTooLarge},
	} {
		req := source.WithLimits(source.Request{
			Source: api.Source{Directory: tc.dir}, Dest: filepath.Join(t.TempDir(), "work"), Roots: []string{tc.dir},
		}, tc.entries, tc.bytes)
		if _, err := source.Fetch(t.Context(), req); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestFetch_CancelledCopyEndsWithItsCause(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{"a": "1"})
	why := errors.New("cancelled by a person")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := source.Fetch(ctx, source.Request{Source: api.Source{Directory: top}, Dest: filepath.Join(t.TempDir(), "work"), Roots: []string{top}})
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestFetch_FilesBelongToTheirOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	top := tempDir(t)
	write(t, top, map[string]string{"a/b": "1", "link": "->a/b"})
	dest := filepath.Join(t.TempDir(), "work")
	_, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Directory: top}, Dest: dest, Roots: []string{top}, Owner: &source.Owner{UID: 200123, GID: 200124},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".", "a", "a/b"} {
		info, err := os.Lstat(filepath.Join(dest, name))
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 200123 || st.Gid != 200124 {
			t.Errorf("%s belongs to %v, want 200123:200124", name, info.Sys())
		}
	}
}

func TestFetch_DestinationInUseIsRefused(t *testing.T) {
	top, dest := tempDir(t), t.TempDir()
	write(t, top, map[string]string{"a": "new"})
	write(t, dest, map[string]string{"a": "old"})
	if _, err := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: top}, Dest: dest, Roots: []string{top}}); err == nil {
		t.Error("a directory in use was taken")
	}
	if diff := cmp.Diff(map[string]string{"a": "old"}, read(t, dest)); diff != "" {
		t.Errorf("it was changed:\n%s", diff)
	}
}

func TestFetch_SourceIsOneOfTwo(t *testing.T) {
	for name, s := range map[string]api.Source{
		"none": {},
		"both": {Directory: "/tmp", Git: &api.GitSource{URL: "https://example.com/a.git"}},
	} {
		if _, err := source.Fetch(t.Context(), source.Request{Source: s, Dest: t.TempDir()}); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, workflow.ErrInvalid)
		}
	}
}

// A run that waits is told whether it still gets what was submitted.
func TestDigest_ChangesWithWhatARunWouldGet(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{
		"app/main.tf": "resource {}", "app/sub/x.tf": "x", "app/link": "->main.tf", "app/terraform.tfstate": "1", "app/.terraform/environment": "dev",
	})
	app := filepath.Join(top, "app")
	digest := func() string {
		t.Helper()
		sum, err := source.Sources{Roots: []string{top}}.Digest(t.Context(), app, "")
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := digest()
	fetched, err := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: app}, Dest: filepath.Join(t.TempDir(), "work"), Roots: []string{top}, Aside: t.TempDir()})
	if err != nil || fetched.Digest != first || first == "" {
		t.Fatalf("a copy has the digest %q (%v), and the directory %q", fetched.Digest, err, first)
	}
	write(t, top, map[string]string{"app/terraform.tfstate": "2", "app/.terraform/providers/x": "y", "app/.git/HEAD": "z"})
	if digest() != first {
		t.Error("what no run gets has changed the digest")
	}
	for name, change := range map[string]func() error{
		"content": func() error { return os.WriteFile(filepath.Join(app, "main.tf"), []byte("resource  {}"), 0o600) },
		"name":    func() error { return os.Rename(filepath.Join(app, "sub/x.tf"), filepath.Join(app, "sub/y.tf")) },
		"mode":    func() error { return os.Chmod(filepath.Join(app, "main.tf"), 0o700) }, //nolint:gosec // a script
		"link": func() error {
			return errors.Join(os.Remove(filepath.Join(app, "link")), os.Symlink("sub", filepath.Join(app, "link")))
		},
		"directory": func() error { return os.Mkdir(filepath.Join(app, "new"), 0o700) },
		"workspace": func() error { return os.WriteFile(filepath.Join(app, source.EnvironmentFile), []byte("prod"), 0o600) },
	} {
		before := digest()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if digest() == before {
			t.Errorf("%s: the digest is as before", name)
		}
	}
	if _, err := (source.Sources{Roots: []string{t.TempDir()}}).Digest(t.Context(), app, ""); !errors.Is(err, workflow.ErrForbidden) {
		t.Errorf("outside of the roots: got %v, want it refused", err)
	}
}
