package main

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

// The commands of all kinds of settings are made from the table of kinds: their outputs are in one place here.
func TestSettings_AreListedShownAndDeleted(t *testing.T) {
	w := newWorld(t)
	t.Setenv("TZ", "UTC")
	w.ok("principal", "create", "anna")
	documents := `{name: network, engine: command, commands: {update: 'true'}}
--- {kind: issuer, name: hub, url: https://id.example.com, login: {client_id: cli}, rules: [{claims: {sub: anna}, becomes: user, role: viewer}]}
--- {kind: git_host, name: forge, host: github, token_ref: file:token, members: [{id: 7, principal: anna, role: operator}]}
--- {kind: notification, name: ops, url_ref: file:slack, format: slack, events: [stuck, drift]}
--- {kind: schedule, name: nightly, cron: 0 3 * * *, time_zone: Europe/Berlin, workspaces: [network], projects: [global], is_paused: true}
--- {kind: policy_group, name: rules, enforcement: waivable, projects: [global], source: {git: {url: https://example.com/rules.git}}}
`
	if got := w.in(t.Context(), documents, "apply", "-f", "-"); got.code != cli.ExitOK {
		t.Fatalf("apply: %+v", got)
	}
	for command, c := range map[string]struct{ name, list, show string }{
		"issuer":       {"hub", "ISSUER | URL | RULES | LOGIN | STATE / hub | https://id.example.com | 1 | cli | active", "rule 1 | claims sub=anna, becomes user, role viewer"},
		"git-host":     {"forge", "GIT HOST | KIND | URL | MEMBERS | STATE / forge | github | https://github.com | 1 | active", "token ref | file:token"},
		"notification": {"ops", "NOTIFICATION | EVENTS | PROJECTS | TO | FORMAT | STATE / ops | drift,stuck | all | file:slack | slack | active", "url ref | file:slack"},
		"schedule":     {"nightly", "SCHEDULE | CRON | RUNS | NEXT | OF | STATE / nightly | 0 3 * * * Europe/Berlin | insights_scan | - | network,global | paused", "paused | yes"},
		"policy":       {"rules", "GROUP | ENFORCEMENT | HOLDS FOR | SOURCE | STATE / rules | waivable | global | https://example.com/rules.git | active", "edited by | admin"},
	} {
		if got := cells(w.ok(command, "list")); got != c.list {
			t.Errorf("%s list: got\n%s, want\n%s", command, got, c.list)
		}
		if got := cells(w.ok(command, "show", c.name)); !strings.Contains(got, c.show) || strings.Contains(got, "version") {
			t.Errorf("%s show: got\n%s, want %s in it", command, got, c.show)
		}
		document := w.ok(command, "show", c.name, "-o", "yaml")
		if got := w.in(t.Context(), document, "apply", "-f", "-"); got.code != cli.ExitOK || !strings.Contains(got.stdout, "is unchanged") {
			t.Errorf("%s: its own document is applied as\n%+v", command, got)
		}
		has(t, command, w.ok(command, "delete", c.name, "--yes"), c.name+" is deleted")
		has(t, command, w.ok(command, "list"), "make one with dayfly apply -f FILE")
	}
}

// cells are the words of a table or of lines, with a bar between columns and a slash between lines.
func cells(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		var cells []string
		for cell := range strings.SplitSeq(strings.TrimSpace(line), "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		lines = append(lines, strings.Join(cells, " | "))
	}
	return strings.Join(lines, " / ")
}
