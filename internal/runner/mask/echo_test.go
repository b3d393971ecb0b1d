package mask_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

// R6: the echo of /bin/sh replaces the escapes in what it prints, and what it prints is hidden too.
func TestSet_HidesWhatTheShellsEchoMakesOfAValue(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh on this machine")
	}
	for _, value := range []string{
		`before\2after`, `before\0101after`, `before\777after`, `one\nline-two`, `tab\tbetween`, `double\\slash`,
		`the end\cnever seen`, `an\xylophone`, `at the end\`, `\0`, `plain\61x`,
	} {
		var set mask.Set
		if set.Add(value) > 0 {
			continue // too short to be hidden in any form
		}
		out, err := exec.CommandContext(t.Context(), sh, "-c", `echo "$1"`, "sh", value).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			line = strings.TrimSpace(line)
			if got := set.String(line); len(line) >= mask.MinLength && strings.Contains(got, line) {
				t.Errorf("%q printed as %q leaves as %q", value, line, got)
			}
		}
	}
}
