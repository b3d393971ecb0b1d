package embedded_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// The runner beside this program is taken where it is the one that was built with it, whatever the version of either.
func TestRunnerCommand_TakesTheRunnerOfTheSameBuild(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(self), embedded.RunnerProgram)
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte("a runner")))
	choose := func(digest, want, says string) {
		t.Helper()
		command, said, err := embedded.RunnerCommand(digest)
		if err != nil || strings.Join(command, " ") != want || !strings.Contains(said, says) {
			t.Errorf("with digest %q: %q, %q, %v; want %q and %q", digest, command, said, err, want, says)
		}
	}
	choose(digest, self+" runner", "there is no dayfly-runner beside it")
	t.Cleanup(func() { _ = os.Remove(beside) })
	if err := os.WriteFile(beside, []byte("a runner"), 0o600); err != nil {
		t.Fatal(err)
	}
	choose(digest, beside, "jobs start "+beside)
	choose("", self+" runner", beside+" was not built with it")
	if err := os.WriteFile(beside, []byte("another one"), 0o600); err != nil {
		t.Fatal(err)
	}
	choose(digest, self+" runner", beside+" was not built with it")
}
