package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/internal/child"
)

// RunnerProgram is the runner alone, which a build puts beside this program.
const RunnerProgram = "dayfly-runner"

// runnerDigest is the SHA-256 of the runner that was built before this program, in hexadecimal. It is set by the build;
// see the Makefile.
var runnerDigest string

// runnerCommand is how runners that are processes are started: the runner beside this program, which links nothing
// of the control plane and so starts in half the time and with less memory, where it has the digest; else this program
// again. said tells which, and why.
func runnerCommand(digest string) (command []string, said string, err error) {
	beside, err := child.Beside(RunnerProgram)
	if err != nil {
		return nil, "", err
	}
	found := ""
	file, err := filepath.EvalSymlinks(beside)
	if err == nil {
		_, found, err = sum(file)
	}
	switch {
	case err == nil && found == digest:
		return []string{beside}, "jobs start " + beside, nil
	case errors.Is(err, fs.ErrNotExist):
		said = "there is no " + RunnerProgram + " beside it"
	case err != nil:
		said = err.Error()
	default:
		said = beside + " was not built with it"
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("find this program: %w", err)
	}
	return []string{self, "runner"}, "jobs start this program, which is slower: " + said + " (make build)", nil
}
