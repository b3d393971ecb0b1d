package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
	"github.com/dayfly-dev/dayfly/internal/secrets/secretstest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var (
	_ secrets.Resolver = (*local.Files)(nil)
	_ secrets.Resolver = (*local.Environment)(nil)
)

// R6: secrets from files and from the allowed environment, held to one contract.
func TestFiles_Conform(t *testing.T) {
	secretstest.Run(t, func(t *testing.T) secretstest.Subject {
		dir := filepath.Join(t.TempDir(), "secrets")
		store := local.New(dir)
		if err := store.Set(t.Context(), "open", redact.New("must not show")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "open"), 0o644); err != nil {
			t.Fatal(err)
		}
		return secretstest.Subject{
			Resolver: store,
			Put: func(t *testing.T, name, value string) string {
				t.Helper()
				if err := store.Set(t.Context(), name, redact.New(value)); err != nil {
					t.Fatal(err)
				}
				return "file:" + name
			},
			Missing:   "file:nothing",
			Forbidden: "file:open",
			Malformed: []string{"file:", "file:../other", "file:a/b", "file:.hidden", "file:..", "file:a\x00b", "file:a b", "env:HOME", "file:" + strings.Repeat("a", 129)},
		}
	})
}

func TestEnv_Conform(t *testing.T) {
	secretstest.Run(t, func(*testing.T) secretstest.Subject {
		values := map[string]string{"PRIVATE": "must not show"}
		allow := []string{"NOTHING", "plain", "space", "newline", "lines", "crlf", "unicode", "binary", "template", "large", "rotated", "one", "two", "other", "ended", "a", "b", "c", "d", "muxed"}
		return secretstest.Subject{
			Resolver: local.Env(func(name string) string { return values[name] }, allow),
			Put: func(_ *testing.T, name, value string) string {
				values[name] = value
				return "env:" + name
			},
			Missing:   "env:NOTHING",
			Forbidden: "env:PRIVATE",
			Malformed: []string{"env:", "env:1A", "env:A-B", "env:A=B", "env:A*", "file:a", "env:" + strings.Repeat("A", 129)},
		}
	})
}

func TestFiles_OnlyTheOwnerCanReadThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "secrets")
	if err := local.New(dir).Set(t.Context(), "token", redact.New("value")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "token"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s: got %04o, want %04o", path, got, want)
		}
	}
}

func TestFiles_DirectoryThatOthersCanReadIsRefused(t *testing.T) {
	dir := t.TempDir()
	store := local.New(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := store.Set(t.Context(), "token", redact.New("value")); !errors.Is(err, workflow.ErrForbidden) {
		t.Errorf("set: got %v, want %v", err, workflow.ErrForbidden)
	}
	if _, err := store.Resolve(t.Context(), "file:token"); !errors.Is(err, workflow.ErrForbidden) || !strings.Contains(err.Error(), "0700") {
		t.Errorf("resolve: got %v, want a refusal that says 0700", err)
	}
}

func TestFiles_SymbolicLinksAreNotFollowed(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("not a secret of ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "secrets")
	store := local.New(dir)
	if err := store.Set(t.Context(), "real", redact.New("value")); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "in": "real"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Resolve(t.Context(), "file:"+name); !errors.Is(err, workflow.ErrForbidden) {
			t.Errorf("resolve %s: got %v, %v, want %v", name, got, err, workflow.ErrForbidden)
		}
	}
	names, err := store.List(t.Context())
	if diff := cmp.Diff([]string{"real"}, names); diff != "" || err != nil {
		t.Errorf("list (-want +got), %v:\n%s", err, diff)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := local.New(link).Resolve(t.Context(), "file:real"); !errors.Is(err, workflow.ErrForbidden) {
		t.Errorf("directory behind a link: got %v, want %v", err, workflow.ErrForbidden)
	}
	// Setting a name that is a link replaces the link and leaves its target alone.
	if err := store.Set(t.Context(), "out", redact.New("ours")); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(outside); string(got) != "not a secret of ours" {
		t.Errorf("the target of a link was written: %q", got)
	}
}

func TestFiles_SetRefusesWhatItCannotKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	store := local.New(dir)
	for name, tc := range map[string]struct {
		secret, value string
		want          error
	}{
		"traversal": {"../evil", "v", workflow.ErrInvalid},
		"hidden":    {".evil", "v", workflow.ErrInvalid},
		"no name":   {"", "v", workflow.ErrInvalid},
		"empty":     {"empty", "", workflow.ErrInvalid},
		"too large": {"large", strings.Repeat("x", local.MaxValue+1), workflow.ErrTooLarge},
	} {
		if err := store.Set(t.Context(), tc.secret, redact.New(tc.value)); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused set made the directory: %v", err)
	}
}

func TestFiles_ListAndDelete(t *testing.T) {
	store := local.New(filepath.Join(t.TempDir(), "secrets"))
	if names, err := store.List(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("list before the first set: got %v, %v, want none", names, err)
	}
	if err := store.Delete(t.Context(), "b"); !errors.Is(err, workflow.ErrNotFound) {
		t.Errorf("delete before the first set: got %v, want %v", err, workflow.ErrNotFound)
	}
	for _, name := range []string{"b", "a", "c.d-e_f"} {
		if err := store.Set(t.Context(), name, redact.New("value")); err != nil {
			t.Fatal(err)
		}
	}
	names, err := store.List(t.Context())
	if diff := cmp.Diff([]string{"a", "b", "c.d-e_f"}, names); diff != "" || err != nil {
		t.Errorf("list (-want +got), %v:\n%s", err, diff)
	}
	if err := store.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Resolve(t.Context(), "file:b"); !errors.Is(err, workflow.ErrNotFound) {
		t.Errorf("resolve after delete: got %v, want %v", err, workflow.ErrNotFound)
	}
	if err := store.Delete(t.Context(), "b"); !errors.Is(err, workflow.ErrNotFound) {
		t.Errorf("second delete: got %v, want %v", err, workflow.ErrNotFound)
	}
}

// A reader sees one value or the other as a whole, however many write.
func TestFiles_ValueIsReplacedAsAWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	store := local.New(dir)
	whole := func(n int) string { return strings.Repeat(fmt.Sprint(n), 32<<10) }
	if err := store.Set(t.Context(), "shared", redact.New(whole(0))); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for range 10 {
				if err := store.Set(t.Context(), "shared", redact.New(whole(n))); err != nil {
					t.Errorf("set: %v", err)
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				got, err := store.Resolve(context.WithoutCancel(t.Context()), "file:shared")
				if err != nil {
					t.Errorf("resolve: %v", err)
					continue
				}
				if v := got.Reveal(); len(v) != 32<<10 || strings.Trim(v, v[:1]) != "" {
					t.Errorf("a value was read that nobody wrote: %d bytes", len(v))
				}
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want nothing but the secret", entries, err)
	}
}

func TestEnv_NoAllowListAllowsNothing(t *testing.T) {
	env := local.Env(func(string) string { return "must not show" }, nil)
	_, err := env.Resolve(t.Context(), "env:HOME")
	if !errors.Is(err, workflow.ErrForbidden) || !strings.Contains(err.Error(), "env_forward_allowlist") {
		t.Errorf("got %v, want a refusal that names env_forward_allowlist", err)
	}
}
