package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
)

// An event is taken byte for byte as its host has signed it, and who cannot sign learns nothing.
func TestWebhook_IsTakenAsItIsSigned(t *testing.T) {
	w := newWorld(t)
	admin := w.client(t, w.admin)
	if _, _, err := admin.PutSetting(t.Context(), api.GitHost{Name: "github", Kind: api.HostGitHub, TokenRef: "file:git"}); err != nil {
		t.Fatal(err)
	}
	made, err := admin.RotateWebhookSecret(t.Context(), "github")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../githost/webhook/testdata/github-pull_request-opened.json")
	if err != nil {
		t.Fatal(err)
	}
	text := "\n" + string(raw) + "\n" // the bytes are signed, not the value
	send := func(url, body, secret string, header ...string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-GitHub-Event", "pull_request")
		r.Header.Set("X-Hub-Signature-256", githosttest.Sign(secret, []byte(body)))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		return answer
	}
	refused := map[string]bool{}
	for _, answer := range []*httptest.ResponseRecorder{
		send(made.URL, text, "whsec_other"),
		send("/v1/webhooks/default/gitlab", text, made.Secret),
		send("/v1/webhooks/nobody/github", text, made.Secret),
		send(made.URL, "not JSON", ""),
		send(made.URL, text, made.Secret, "X-Hub-Signature-256", "sha256=zz", "Authorization", "Bearer "+w.admin),
	} {
		if answer.Code != http.StatusUnauthorized {
			t.Errorf("got %d: %s", answer.Code, answer.Body)
		}
		refused[answer.Body.String()] = true
	}
	if len(refused) != 1 {
		t.Errorf("the refusals differ: %v", refused)
	}
	for want, answer := range map[int]*httptest.ResponseRecorder{
		http.StatusRequestEntityTooLarge: send(made.URL, strings.Repeat(" ", 1<<20)+text, made.Secret),
		http.StatusUnprocessableEntity:   send(made.URL, "payload=%7B%7D", made.Secret, "Content-Type", "application/x-www-form-urlencoded"),
	} {
		if answer.Code != want {
			t.Errorf("got %d, want %d: %s", answer.Code, want, answer.Body)
		}
	}
	if answer := send(made.URL, text, made.Secret); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"is_taken":true`) {
		t.Errorf("got %d: %s", answer.Code, answer.Body)
	}
	if answer := send(made.URL, text, made.Secret); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "taken before") {
		t.Errorf("a replay: %d: %s", answer.Code, answer.Body)
	}
	if log := w.log.String(); strings.Contains(log, made.Secret) || strings.Contains(log, "Add a subnet") {
		t.Errorf("the log has the secret or the event: %s", log)
	}
}
