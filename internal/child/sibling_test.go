package child_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/child"
)

func TestFind_PrefersTheProgramBesideThisOne(t *testing.T) {
	const name = "dayfly-find-test"
	if _, err := child.Find(name); !errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("a program that is nowhere: %v", err)
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	inPath := filepath.Join(dir, name)
	program(t, inPath, 0o755)
	if got, err := child.Find(name); err != nil || got != inPath {
		t.Errorf("in PATH: got %s, %v, want %s", got, err, inPath)
	}
	beside, err := child.Beside(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(beside) })
	program(t, beside, 0o644)
	if got, err := child.Find(name); err != nil || got != inPath {
		t.Errorf("beside, but not executable: got %s, %v, want %s", got, err, inPath)
	}
	if err := os.Chmod(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := child.Find(name); err != nil || got != beside {
		t.Errorf("beside: got %s, %v, want %s", got, err, beside)
	}
}

func program(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
		t.Fatal(err)
	}
}
