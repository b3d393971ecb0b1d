package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const units = "../../infra/systemd"

// verify returns what systemd says against a unit whose program is one that is here.
func verify(t *testing.T, name, text string) string {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze here: Debian's package systemd has it")
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/local/bin/dayfly", "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file).CombinedOutput() //nolint:gosec // ours
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	var said []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, name) { // not of units of this machine
			said = append(said, line)
		}
	}
	return strings.Join(said, "")
}

func TestUnits_SystemdAcceptsThem(t *testing.T) {
	files, err := filepath.Glob(units + "/*.service")
	if err != nil || len(files) != 3 {
		t.Fatalf("got the units %v, %v; want three", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "ExecStart=/usr/local/bin/dayfly ") {
			t.Errorf("%s does not start /usr/local/bin/dayfly, which scripts/install replaces", file)
		}
		if said := verify(t, filepath.Base(file), string(text)); said != "" {
			t.Errorf("systemd says of %s:\n%s", file, said)
		}
		if said := verify(t, filepath.Base(file), strings.Replace(string(text), "ProtectHome=", "ProtectHouse=", 1)); said == "" {
			t.Errorf("systemd says nothing of a mistake in %s", file)
		}
	}
}
