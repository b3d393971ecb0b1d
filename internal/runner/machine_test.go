package runner_test

import (
	"os/exec"
	"strings"
	"testing"
)

// What bin/dayfly-runner links is made ready at the start of each task.
func TestMachine_TheRunnerOfOneMachineLinksNoCloud(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: it compiles the runner")
	}
	const program = "github.com/dayfly-dev/dayfly/runnerimage"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "machine", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "github.com/aws/") {
			t.Errorf("it links %s", name)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", "-tags", "machine", program, "../runner").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
