package main

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
)

// A git host is registered from a file, its secret is printed alone, and the deliveries for its events are listed.
func TestGitHost_ItsWebhookIsRegisteredAndTaken(t *testing.T) {
	w := newWorld(t)
	file := w.put("kind: git_host\nname: github\nhost: github\ntoken_ref: file:github-token\nmembers: [{id: 583231, principal: anna, role: operator}]\n")
	if got := w.run("apply", "-f", file); got.code != cli.ExitRefused || !strings.Contains(got.stderr, `members.0.principal: there is no principal "anna"`) {
		t.Errorf("a member that does not exist: %+v", got)
	}
	w.ok("principal", "create", "anna")
	has(t, "principals", w.ok("principal", "list"), "admin", "anna", "prn_")
	w.ok("apply", "-f", file)
	has(t, "list", w.ok("git-host", "list"), "github", "https://github.com", "active")
	has(t, "show", w.ok("git-host", "show", "github"), "member 1        id 583231, principal anna, ", "role operator", "file:github-token")
	got := w.run("git-host", "rotate-secret", "github")
	secret := strings.TrimSpace(got.stdout)
	if got.code != cli.ExitOK || !strings.HasPrefix(secret, "whsec_") || strings.ContainsAny(secret, " \n") || !strings.Contains(got.stderr, "/v1/webhooks/default/github") {
		t.Fatalf("got %+v", got)
	}
	body, err := os.ReadFile("../../internal/githost/webhook/testdata/github-pull_request-opened.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/v1/webhooks/default/github", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"pull_request"}, "X-Hub-Signature-256": {githosttest.Sign(secret, body)}}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Fatalf("the event is answered with %s", answer.Status)
	}
	has(t, "deliveries", w.ok("delivery", "list", "--for", "github"), "pull_read", "Example/Infra#2", "waiting")
	if list := value[[]api.Delivery](w, "delivery", "list"); len(list) != 1 || list[0].Number != 2 || list[0].Repository != "Example/Infra" {
		t.Errorf("the deliveries are %+v", list)
	}
	w.ok("git-host", "delete", "github", "--yes")
	has(t, "list", w.ok("git-host", "list"), "no git hosts")
}
