package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A file of the user's cache is made once, whichever clone asks, and made again if it is broken.
func TestCached_AFileIsMadeOnceAndAgainWhenBroken(t *testing.T) {
	dir := t.TempDir()
	cached := func(makes bool) (path string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "../../scripts/cached", "tools/a-1", "sh", "-c", `echo made >&2; echo whole >"$0"`)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		if made := strings.Contains(said.String(), "made"); made != makes {
			t.Errorf("it was made: %v, want %v", made, makes)
		}
		path = strings.TrimSpace(string(out))
		if content, err := os.ReadFile(path); err != nil || string(content) != "whole\n" {
			t.Errorf("it has %q, %v", content, err)
		}
		return path
	}
	path := cached(true)
	cached(false)
	for _, broken := range []func() error{
		func() error { return os.WriteFile(path, []byte("half"), 0o600) },
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(filepath.Join(dir, "dayfly/tools/a-1"), nil, 0o600) },
	} {
		if err := broken(); err != nil {
			t.Fatal(err)
		}
		cached(true)
		cached(false)
	}
	cmd := exec.CommandContext(t.Context(), "../../scripts/cached", "tools/a-2", "sh", "-c", `echo half >"$0"; exit 75`)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir)
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 75 {
		t.Errorf("what cannot be made: %v, want exit code 75", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "dayfly/tools/a-2*")); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}
