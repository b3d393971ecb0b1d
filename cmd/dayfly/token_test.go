package main

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

func whoami(w *world) api.Identity { return value[api.Identity](w, "whoami") }

func TestCommand_TokensAreMadeListedAndRevoked(t *testing.T) {
	w := newWorld(t)
	value := strings.TrimSpace(w.ok("token", "create", "ci", "--role", "operator", "--expires", "24h"))
	if !strings.HasPrefix(value, "dfu_") {
		t.Fatalf("got %q", value)
	}
	list := w.ok("token", "list")
	has(t, "list", list, "ci", "operator", "valid")
	if strings.Contains(list, value) {
		t.Error("the list shows the value")
	}
	has(t, "grants", w.run("token", "create", "team", "--grant", "global=viewer").stderr, "(team of team, global=viewer)")
	has(t, "list", w.ok("token", "list"), "team", "global=viewer")
	if got := w.run("token", "create", "team", "--grant", "no-such=viewer"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "there is no project") {
		t.Errorf("an unknown project: %+v", got)
	}
	admin := w.env["DAYFLY_API_TOKEN"]
	w.env["DAYFLY_API_TOKEN"] = value
	has(t, "whoami", w.ok("whoami"), "ci", "user", "default", "operator", "tok_", "expires")
	if who := whoami(w); who.Name != "ci" || who.Role != "operator" || who.Kind != "user" || who.TokenID == "" || who.ExpiresAt == nil {
		t.Errorf("whoami: %+v", who)
	}
	if got := w.run("token", "create", "more", "--role", "admin"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "admin") {
		t.Errorf("an operator made a token: %+v", got)
	}
	w.env["DAYFLY_API_TOKEN"] = admin
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "ci" {
			w.ok("token", "revoke", fields[0], "--yes")
		}
	}
	w.env["DAYFLY_API_TOKEN"] = value
	if got := w.run("workflow", "list"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "dayfly login") {
		t.Errorf("a revoked token: got %+v", got)
	}
}
