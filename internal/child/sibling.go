package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Beside is where a program lies that was built and installed together with this one. Nothing need be there.
func Beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

// Find returns the path of a program beside this one, else of one in PATH. The error is that of exec.LookPath.
func Find(name string) (string, error) {
	if beside, err := Beside(name); err == nil {
		if found, err := exec.LookPath(beside); err == nil {
			return found, nil
		}
	}
	return exec.LookPath(name)
}
