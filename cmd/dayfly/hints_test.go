package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

func TestHint_ANearMissIsToldWhatWasMeant(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct{ line, says string }{
		{"plan", "there is no command dayfly plan: did you mean dayfly run --op preview?"},
		{"logs wf_1", "there is no command dayfly logs: did you mean dayfly workflow logs?"},
		{"ls", "did you mean dayfly workflow list?"},
		{"init", "every run initializes its engine by itself: dayfly run ./DIR"},
		{"taint x", "replace_triggered_by"},
		{"help plan", "did you mean dayfly run --op preview?"},
		{"pool rm x", "there is no command dayfly pool rm: did you mean dayfly pool delete?"},
		{"workflow stop x", "did you mean dayfly workflow cancel?"},
		{"wokflow list", `did you mean "workflow"?`},
		{"nonsense", "there is no command dayfly nonsense; see dayfly --help"},
		{"pool nonsense", "there is no command dayfly pool nonsense; see dayfly pool --help"},
		{"run x --op plan", "--op: there is no operation plan: did you mean preview?"},
		{"run x --op apply", "did you mean update?"},
		{"run x --op refersh", "did you mean refresh?"},
		{"run x --op nonsense", `--op: want preview, update, refresh, destroy, scan, evaluate, not "nonsense"; see dayfly run --help`},
		{"run x --fllow", `did you mean "--follow"?`},
		{"pool list -o jsn", "--output: there is no jsn: did you mean json?"},
		{"workflow list --state queued", "--state: there is no state queued: did you mean pending?"},
		{"workflow list --op plan", "--op: there is no operation plan: did you mean preview?"},
		{"workflow list --since yesterday", "--since: want a time such as"},
		{"workflow list --state canceled", "did you mean cancelled?"},
	} {
		got := w.run(strings.Fields(tc.line)...)
		if got.code != cli.ExitUsage || !strings.Contains(got.stderr, tc.says) || got.stdout != "" {
			t.Errorf("dayfly %s: got %+v, want exit 64 and %q", tc.line, got, tc.says)
		}
		if strings.Contains(got.stderr, "?;") {
			t.Errorf("dayfly %s: got %q", tc.line, got.stderr)
		}
	}
	if got := w.run("workflow", "list", "--state", "halted"); got.code != cli.ExitRefused {
		t.Errorf("a state that nobody knows here may be one that the control plane knows: got %+v", got)
	}
}

func TestSuggest_TheNameThatWasMeant(t *testing.T) {
	w := newWorld(t)
	w.ok("project", "create", "payments")
	w.ok("pool", "create", "builders")
	file := filepath.Join(t.TempDir(), "network.yaml")
	if err := os.WriteFile(file, []byte("{name: network, engine: command, source: {directory: /x}, commands: {preview: 'true'}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("apply", "-f", file)
	for line, meant := range map[string]string{
		"workspace show netwrk": "network", "run netwrk": "network", "run nonsense": "", "output netwok": "network", "state list netwrk": "network",
		"takeover report netwerk": "network", "open netwrk": "network", "pool show builder": "builders", "pool assign bilders --workspace network": "builders",
		"pool assign builders --workspace netwrk": "network", "project delete paymnts --yes": "payments", "project show elsewhere": "",
		"repair unlock netwrk --yes": "network",
	} {
		got := w.run(strings.Fields(line)...)
		if got.code != cli.ExitRefused || !strings.Contains(got.stderr, "there is no ") || strings.Contains(got.stderr, "did you mean") != (meant != "") || !strings.Contains(got.stderr, meant) {
			t.Errorf("dayfly %s: got %+v, want %q", line, got, meant)
		}
	}
	if err := os.WriteFile(file, []byte("{kind: schedule, name: nightly, cron: '0 3 * * *', workspaces: [netwrk]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.run("apply", "-f", file); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "there is no workspace netwrk: did you mean network?") {
		t.Errorf("a document: got %+v", got)
	}
}
