package docs_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/docs"
)

// testTimes are those that follow a test.
var testTimes = regexp.MustCompile(` \([0-9.]+s\)\n`)

// The page shows the files of the example, and what the program says of them.
func TestPolicies_ShowTheExampleAndItsOutput(t *testing.T) {
	const rules = "examples/policies/rules/"
	const command = "dayfly policy test examples/policies/rules --plan examples/policies/plan.json"
	files, saidHere := map[string]bool{rules + "main.rego": false, rules + "main_test.rego": false}, ""
	for _, b := range docs.Blocks(read(t, "docs/policies.md")) {
		if b.Lang == "rego" {
			for name := range files {
				files[name] = files[name] || read(t, name) == b.Text
			}
		}
		if _, after, ok := strings.Cut(b.Text, "$ "+command+"\n"); ok {
			saidHere = after
		}
	}
	for name, isShown := range files {
		if !isShown {
			t.Errorf("docs/policies.md does not show %s as it is", name)
		}
	}
	if testing.Short() {
		t.Skip("this builds the program")
	}
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "dayfly"), strings.Fields(command)[1:]...)
	cmd.Dir = root
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %v", command, err)
	}
	if got := testTimes.ReplaceAllString(string(out), "\n"); got != saidHere {
		t.Errorf("got %q, and docs/policies.md shows %q", got, saidHere)
	}
}
