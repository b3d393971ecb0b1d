package embedded_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// The runner beside this program is taken where it is of the same version, and never where two builds may have
// that version.
func TestRunnerCommand_TakesTheRunnerOfTheSameVersion(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the runner")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(self), embedded.RunnerProgram)
	command := func(version string) string {
		got, err := embedded.RunnerCommand(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(got, " ")
	}
	if got := command("v1.2.3"); got != self+" runner" {
		t.Errorf("without one: %s", got)
	}
	t.Cleanup(func() { _ = os.Remove(beside) })
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v1.2.3", "-o", beside, "../../runnerimage")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for version, want := range map[string]string{
		"v1.2.3": beside, "v1.2.4": self + " runner", "": self + " runner", "dev": self + " runner", "v1.2.3-dirty": self + " runner",
	} {
		if got := command(version); got != want {
			t.Errorf("version %q: %s, want %s", version, got, want)
		}
	}
}
