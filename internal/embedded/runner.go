package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/child"
)

// RunnerProgram is the runner alone, which a build puts beside this program.
const RunnerProgram = "dayfly-runner"

// versionTime bounds the question which version a runner is.
const versionTime = 30 * time.Second

// runnerCommand is how runners that are processes are started: the runner beside this program, which links nothing
// of the control plane and so starts in half the time and with less memory, where it is of the same version; else
// this program again.
func runnerCommand(ctx context.Context, version string) ([]string, error) {
	beside, err := child.Beside(RunnerProgram)
	if err != nil {
		return nil, err
	}
	if isVersion(ctx, beside, version) {
		return []string{beside}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{self, "runner"}, nil
}

// isVersion reports whether a runner is of a version. A version that two different builds may have is none.
func isVersion(ctx context.Context, runner, version string) bool {
	if version == "" || version == "dev" || version == "unknown" || strings.HasSuffix(version, "-dirty") {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, runner, "version").Output()
	return err == nil && strings.TrimSpace(string(out)) == version
}
