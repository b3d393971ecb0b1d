package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// shellWords splits an example as a shell does: at spaces, except in quotes. After a < comes the file that it reads.
func shellWords(t *testing.T, line string) (args []string, stdin string) {
	t.Helper()
	line, stdin, _ = strings.Cut(line, " <")
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	return args[1:], stdin
}

func TestHelp_EveryCommandHasAnExample(t *testing.T) {
	parser, all := leaves(t)
	w := newWorld(t)
	used := map[string]bool{}
	for _, leaf := range all {
		lines := examples(leaf)
		if len(lines) == 0 {
			t.Errorf("dayfly%s has no example in examples.txt", fullName(leaf))
		}
		for _, line := range lines {
			used[line] = true
			args, _ := shellWords(t, line)
			if parsed, err := parse(parser, args); err != nil || parsed.Selected().FullPath() != leaf.FullPath() {
				t.Errorf("%s: %v", line, err)
			}
		}
		got := w.run(append(strings.Fields(fullName(leaf)), "--help")...)
		if got.code != cli.ExitOK || !strings.HasSuffix(got.stdout, "\nExamples:\n  "+strings.Join(lines, "\n  ")+"\n") {
			t.Errorf("help of%s: got %+v", fullName(leaf), got)
		}
	}
	for line := range strings.Lines(exampleText) {
		if line = strings.TrimSpace(line); !used[line] {
			t.Errorf("nobody sees the example %q", line)
		}
	}
}

// notRun are examples that serve, wait for a person or for a runner, or need another machine or a clone.
var notRun = []string{
	"dayfly up", "dayfly server", "dayfly agent", "dayfly run ./DIR --follow", "dayfly workflow logs ID --follow", "dayfly state ",
	"dayfly run network --op update --yes --follow", "dayfly takeover", "dayfly artifact get", "dayfly audit list --follow",
	"dayfly login", "dayfly logout", "dayfly configure", "dayfly open", "dayfly ci", "dayfly why ID --watch", "dayfly workflow wait", "dayfly output",
	"dayfly policy test", // TestPolicyTest_RunsTheProgram
}

// refusedHere are examples that the control plane refuses in the seeded world, with its message.
var refusedHere = map[string]string{
	"dayfly workflow retry ID --yes":                                 "has ended can be retried",
	"dayfly workflow plan ID":                                        "plan",
	`dayfly workflow approve ID --comment "as discussed"`:            "plan",
	`dayfly workflow reject ID --comment "it replaces the database"`: "plan",
	"dayfly delivery replay ID":                                      "there is no delivery",
	"dayfly repair unlock network --yes":                             "network",
	"dayfly repair own ID --yes":                                     "was refused no state",
}

// Each example begins with the seeded records, not with changes of the ones before it. Only the directories are
// shared.
func TestHelp_ExamplesDoWhatTheySay(t *testing.T) {
	seeded := newWorld(t)
	id, token := seeded.seed()
	for line := range strings.Lines(exampleText) {
		line = strings.TrimSpace(line)
		if slices.ContainsFunc(notRun, func(p string) bool { return strings.HasPrefix(line, p) }) {
			continue
		}
		t.Run(line, func(t *testing.T) {
			w := seeded.clone(t)
			words := strings.ReplaceAll(strings.ReplaceAll(line, "ID", id), "TOKEN", token)
			if strings.Contains(words, "TREE") {
				words = strings.ReplaceAll(words, "TREE", value[api.Tree](w, "run", "network", "--downstream", "--op", "update", "--yes").ID)
			}
			args, stdin := shellWords(t, words)
			for command, before := range map[string]string{ // the state that it needs
				"project create": "project delete payments --yes", "pool create": "pool delete build --yes",
				"service-principal create": "sp delete deployer --yes", "workspace delete": "workflow cancel " + id,
				"pool unassign": "pool assign build --project payments", "apply -f git-host": "principal create bob",
			} {
				if strings.HasPrefix(line, "dayfly "+command) {
					w.ok(strings.Fields(before)...)
				}
			}
			got := w.in(t.Context(), stdin, args...)
			if says, refused := refusedHere[line]; refused {
				if got.code != cli.ExitRefused || !strings.Contains(got.stderr, says) {
					t.Errorf("got %+v, want exit 2 and %q", got, says)
				}
			} else if got.code != cli.ExitOK || got.stdout+got.stderr == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// seed makes the things that the examples name, in a directory of its own.
func (w *world) seed() (id, token string) {
	w.t.Helper()
	w.t.Chdir(w.t.TempDir())
	tomorrow := time.Now().AddDate(0, 0, 1).Format(time.DateOnly)
	for name, text := range map[string]string{
		"workspace.yaml":          "name: storage\nengine: command\ncommands: {update: 'true'}\n",
		"issuer.yaml":             "kind: issuer\nname: gitlab\nurl: https://gitlab.example.com\naudiences: [dayfly]\n",
		"schedule.yaml":           "kind: schedule\nname: weekly\ncron: '@weekly'\nworkspaces: [network]\n",
		"git-host.yaml":           "kind: git_host\nname: gitlab\nhost: gitlab\ntoken_ref: file:gitlab-token\nmembers: [{id: 8, principal: bob, role: operator}]\n",
		"policy-group.yaml":       "kind: policy_group\nname: ports\nenforcement: mandatory\nworkspaces: [network]\nsource: {directory: /policies}\n",
		"waiver.yaml":             "kind: waiver\nname: old\ngroup: buckets\nrule: main.deny\nworkspace: network\nreason: it moves\nuntil: " + tomorrow + "\n",
		"on-call.yaml":            "kind: notification\nname: on-call\nurl: https://hooks.example.com/dayfly\nsecret_ref: file:webhook-secret\n",
		"DIR/modules/net/main.tf": "variable \"cidr\" {}\n",
		"DIR/main.tf":             "provider \"null\" {}\nresource \"null_resource\" \"x\" {}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	documents := `name: network
engine: command
commands: {preview: 'true', update: 'true', destroy: 'true'}
--- {kind: pool, name: build}
--- {kind: project, name: payments}
--- {kind: notification, name: on-call, url_ref: file:slack-url, format: slack}
--- {kind: issuer, name: github, url: https://github.example.com, audiences: [dayfly]}
--- {kind: git_host, name: github, host: github, token_ref: file:github-token}
--- {kind: schedule, name: nightly, cron: 0 3 * * *, projects: [global]}
--- {kind: policy_group, name: buckets, enforcement: waivable, projects: [payments], source: {directory: /policies}}
--- {kind: policy_group, name: tags, enforcement: waivable, projects: [payments], source: {directory: /policies}}
--- {kind: workspace, name: archive, engine: command, commands: {update: 'true'}}
--- {kind: waiver, name: logs, group: tags, rule: main.deny, workspace: archive, reason: it moves, until: ` + tomorrow + `}
`
	if got := w.in(w.t.Context(), documents, "apply", "-f", "-", "--yes"); got.code != cli.ExitOK {
		w.t.Fatalf("apply: %+v", got)
	}
	w.ok("sp", "create", "deployer", "--role", "viewer")
	w.in(w.t.Context(), "value", "secret", "set", "database")
	w.ok("principal", "create", "ada")
	made := value[api.TokenValue](w, "token", "create", "old")
	return value[api.Workflow](w, "run", "network").ID, made.Token.ID
}

func TestHelp_ShowsTheFormsThatACommandHas(t *testing.T) {
	w := newWorld(t)
	for command, want := range map[string]string{
		"graph": "table, json, yaml, dot (for Graphviz).", "pool list": "table, json, yaml, name (only names or ids, one to a line).",
		"audit export": "table, json.", "token create": "table, json, yaml.", "up": "", "schema": "",
	} {
		got := strings.Join(strings.Fields(w.ok(append(strings.Fields(command), "--help")...)), " ")
		if strings.Contains(got, "--output=") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %s\nwant %q", command, got, want)
		}
	}
	if got := w.ok("up", "--help"); strings.Contains(got, "--color") {
		t.Errorf("the help of up shows --color, which it refuses:\n%s", got)
	}
}

// A full disk is not wrong usage.
func TestHelp_ThatCannotBeWrittenFails(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"run", "--help"}, {"help"}} {
		var stderr bytes.Buffer
		code := command(t.Context(), args, func(string) string { return "" }, strings.NewReader(""), full{}, &stderr)
		if code != cli.ExitFailed || stderr.String() != "dayfly: print the help: no space left on device\n" {
			t.Errorf("%q: exit %d, %q", args, code, stderr.String())
		}
	}
}

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
