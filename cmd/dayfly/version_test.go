package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The libraries of a server take longer to start than `dayfly version` may take, so that answers before they start.
func TestVersion_IsToldBeforeTheLibrariesBegin(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	program := filepath.Join(t.TempDir(), "dayfly")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X github.com/dayfly-dev/dayfly/cmd/dayfly/internal/quick.Version=v1.2.3", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, arg := range []string{"version", "--version"} {
		c := exec.CommandContext(t.Context(), program, arg)
		c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace strings.Builder
		c.Stderr = &trace
		said, err := c.Output()
		if err != nil || !strings.HasPrefix(string(said), "dayfly v1.2.3 (go1.") {
			t.Fatalf("%s: got %q (%v)", arg, said, err)
		}
		begun := 0
		for line := range strings.Lines(trace.String()) {
			name, found := strings.CutPrefix(line, "init ")
			if !found {
				continue
			}
			begun++
			name, _, _ = strings.Cut(name, " ")
			for _, heavy := range []string{"net", "github.com/aws/aws-sdk-go-v2/service/", "github.com/danielgtaylor/", "github.com/zclconf/", "modernc.org/"} {
				if strings.HasPrefix(name, heavy) {
					t.Errorf("%s: package %s begins first", arg, name)
				}
			}
		}
		if begun == 0 {
			t.Errorf("%s: no trace of packages: %q", arg, trace.String())
		}
	}
	// Asked in another way, the rest answers in the same words.
	long, err := exec.CommandContext(t.Context(), program, "version", "--output", "table").Output()
	if err != nil || !strings.HasPrefix(string(long), "dayfly v1.2.3 (go1.") {
		t.Errorf("got %q (%v)", long, err)
	}
}
