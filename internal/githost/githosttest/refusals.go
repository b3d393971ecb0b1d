package githosttest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// all calls each method of a host, and returns their errors.
func (w *world) all(ctx context.Context, host githost.Host, number int) map[string]error {
	_, read := host.Read(ctx, githost.Read{Repository: repo, Number: number})
	_, comment := host.Comment(ctx, githost.Comment{Repository: repo, Number: number, Marker: marker, Body: marker})
	return map[string]error{
		"read": read, "comment": comment,
		"status": host.Status(ctx, githost.Status{Repository: repo, Commit: sha("a"), State: githost.Success, Context: "dayfly"}),
	}
}

func permanent(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	wrong, err := w.open(client(t, "127.0.0.1"), w.URL, redact.New("tok_wrong"))
	if err != nil {
		t.Fatal(err)
	}
	for call, err := range w.all(t.Context(), wrong, n) {
		t.Log(call, err)
		fails(t, err, true, "401", "token", repo)
	}
	for call, err := range w.all(t.Context(), w.host, n+1) {
		if call != "status" {
			t.Log(call, err)
			fails(t, err, true, "404", fmt.Sprint(n+1))
		}
	}
	w.Member(repo, Bot, Reads)
	err = w.host.Status(t.Context(), githost.Status{Repository: repo, Commit: sha("a"), State: githost.Success, Context: "dayfly"})
	t.Log(err)
	fails(t, err, true, "403", "the token needs", map[Kind]string{GitHub: "Commit statuses", GitLab: "Developer"}[w.kind])
	w.Member(repo, Bot, Nothing)
	for call, err := range w.all(t.Context(), w.host, n) {
		t.Log(call, err)
		fails(t, err, true, "404", "does not see it")
	}
	w.Member(repo, Bot, Writes)
	w.Next(Answer{Status: http.StatusUnprocessableEntity, Body: `{"message":"Validation Failed"}`})
	_, err = w.host.Read(t.Context(), githost.Read{Repository: repo, Number: n})
	fails(t, err, true, "422", "Validation Failed")
	if _, err := w.open(http.DefaultClient, w.URL, redact.New("")); err == nil {
		t.Error("an empty token was taken")
	}
	if _, err := w.open(http.DefaultClient, "https://::", redact.New("x")); err == nil {
		t.Error("a text that is not an address was taken")
	}
}

func transient(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	reset := map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": fmt.Sprint(time.Now().Add(time.Hour).Unix())}
	if w.kind == GitLab {
		reset = map[string]string{"Ratelimit-Remaining": "0", "Ratelimit-Reset": fmt.Sprint(time.Now().Add(time.Hour).Unix())}
	}
	for name, c := range map[string]struct {
		answer   Answer
		min, max time.Duration
	}{
		"429 with seconds":      {Answer{Status: 429, Header: map[string]string{"Retry-After": "90"}}, 90 * time.Second, 90 * time.Second},
		"429 with a reset":      {Answer{Status: 429, Header: reset}, 59 * time.Minute, time.Hour},
		"429 without a word":    {Answer{Status: 429}, time.Minute, time.Minute},
		"403 with seconds":      {Answer{Status: 403, Header: map[string]string{"Retry-After": "60"}, Body: `{"message":"You have exceeded a secondary rate limit."}`}, time.Minute, time.Minute},
		"503 with seconds":      {Answer{Status: 503, Header: map[string]string{"Retry-After": "120"}}, 2 * time.Minute, 2 * time.Minute},
		"500":                   {Answer{Status: 500, Body: "<html>oops"}, 0, 0},
		"502":                   {Answer{Status: 502}, 0, 0},
		"409":                   {Answer{Status: 409}, 0, 0},
		"200 that is no JSON":   {Answer{Status: 200, Body: "<html>log in"}, 0, 0},
		"200 that is not asked": {Answer{Status: 200, Body: `{"hello":"world"}`}, 0, 0},
		"204":                   {Answer{Status: 204}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := w.Calls()
			w.Next(c.answer)
			_, err := w.host.Read(t.Context(), githost.Read{Repository: repo, Number: n})
			if wait := fails(t, err, false); wait < c.min || wait > c.max {
				t.Errorf("%v: wait %v, want %v to %v", err, wait, c.min, c.max)
			}
			check(t, "calls", 1, w.Calls()-before) // it is not tried again here
			w.read(t, githost.Read{Number: n})     // and a refusal is not remembered
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for call, err := range w.all(ctx, w.host, n) {
		t.Log(call, err)
		fails(t, err, false, "in time")
	}
	w.Stop()
	for call, err := range w.all(t.Context(), w.host, n) {
		t.Log(call, err)
		fails(t, err, false, "refused")
	}
}

func noToken(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	token := w.Token().Reveal()
	for _, status := range []int{200, 301, 400, 401, 403, 404, 422, 429, 500} {
		w.Next(Answer{Status: status, Header: map[string]string{"Location": "/?t=" + token}, Body: `{"message":"your request had ` + token + `"}`})
		_, err := w.host.Read(t.Context(), githost.Read{Repository: repo, Number: n})
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), token) {
			t.Errorf("%d: got %v, want an error without the token", status, err)
		}
	}
}

func noPrivate(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	host, err := w.open(client(t), w.URL, w.Token())
	if err != nil {
		t.Fatal(err)
	}
	for call, err := range w.all(t.Context(), host, n) {
		t.Log(call, err)
		fails(t, err, true, "private_deliveries of the agent")
	}
	check(t, "calls", 0, w.Calls())
}

// It is the host that follows none: a redirected call would be made into a read, or be sent to a stranger.
func noRedirect(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	host, err := w.open(http.DefaultClient, w.URL, w.Token())
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{301, 302, 307, 308} {
		before := w.Calls()
		w.Next(Answer{Status: status, Header: map[string]string{"Location": w.URL + "/elsewhere"}})
		_, err := host.Comment(t.Context(), githost.Comment{Repository: repo, Number: n, Marker: marker, Body: marker})
		t.Log(err)
		fails(t, err, true, "redirect")
		check(t, "calls", 1, w.Calls()-before)
	}
}

func noTraversal(t *testing.T, w *world) {
	for _, path := range []string{"", "infra", "example/../x", "example/..", "./x", "example/", "/infra", "example/in fra", "example/in%2Ffra", "example/infra?x", "a/" + strings.Repeat("b", 300)} {
		_, err := w.host.Read(t.Context(), githost.Read{Repository: path, Number: 1})
		fails(t, err, true, "path of a repository")
	}
	for _, name := range []string{"", "main", "../../x", sha("A"), "aaaa"} {
		fails(t, w.host.Status(t.Context(), githost.Status{Repository: repo, Commit: name, State: githost.Success}), true, "commit")
	}
	check(t, "calls", 0, w.Calls())
}
