// Package built gives tests the programs of this repository as they ship: without cgo, and without the race detector
// that a test itself may be built with.
package built

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

const module = "github.com/dayfly-dev/dayfly"

// Program returns the program of a main package, by its path in this repository. It is taken from the directory DAYFLY_BIN,
// where one stage of CI has put what ships, else built into dir. The error has what the compiler said.
func Program(ctx context.Context, dir, pkg string) (string, error) {
	name := path.Base(pkg)
	if bin := os.Getenv("DAYFLY_BIN"); bin != "" {
		made := filepath.Join(bin, name)
		if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
			return made, err
		}
	}
	made, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	// The module of a test can be another one, which names this one as what it needs; the module of the program, a third.
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", module, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", made, ".") //nolint:gosec // a path that tests name
	cmd.Dir, cmd.Env = filepath.Join(strings.TrimSpace(string(root)), pkg), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return made, nil
}
