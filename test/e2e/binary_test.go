package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is where the product's binary is put, once; TestMain removes it.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// binary builds the product as it ships, without the race detector, and returns its path.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() { built.dir, built.err = build(t.Context()) })
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "dayfly")
}

func build(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "dayfly-e2e-")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(dir, "dayfly"), "github.com/dayfly-dev/dayfly/cmd/dayfly")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build dayfly: %w\n%s", err, out)
	}
	return dir, nil
}

func removeBinary() error {
	if built.dir == "" {
		return nil
	}
	return os.RemoveAll(built.dir)
}
