package cli

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Browse opens an address with the program that this system has for it.
func (a *App) Browse(ctx context.Context, address string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	if !Installed(program, a.Getenv) {
		return fmt.Errorf("there is no %s", program)
	}
	c := exec.CommandContext(ctx, program, address) //nolint:gosec // the address begins with https://, and no shell reads it
	if err := c.Start(); err != nil {
		return err
	}
	go func() { _ = c.Wait() }()
	return nil
}

// Installed reports whether there is a program of this name on the PATH.
func Installed(program string, getenv func(string) string) bool {
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		if _, err := exec.LookPath(filepath.Join(dir, program)); err == nil && filepath.IsAbs(dir) {
			return true
		}
	}
	return false
}
