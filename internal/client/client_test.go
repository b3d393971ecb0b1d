package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestNew_AddressIsChecked(t *testing.T) {
	for address, want := range map[string]string{
		"":                              "is missing",
		"control.example.com":           "starts neither with",
		"ftp://control.example.com":     "starts neither with",
		"https://":                      "has no host",
		"https://me:hunter2@control":    "holds a user name",
		"https://me:hunter2@control:%%": "is not a URL",
		"https://control?x=1":           "holds a query",
		"https://control/#top":          "holds a query or a fragment",
	} {
		for name, err := range map[string]error{
			"client": second(client.New(client.Config{URL: address})),
			"runner": second(client.NewRunner(client.RunnerConfig{URL: address})),
		} {
			if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with address %q: got %v, want one that says it %s", name, address, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s with address %q: the error repeats the password", name, address)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestClient_RequestHasWhatTheAPIAsksFor(t *testing.T) {
	var body []byte
	server := answering(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		ok(api.Workflow{ID: "w1"})(w, r)
	})
	c := newClient(t, server, func(cfg *client.Config) { cfg.URL, cfg.UserAgent = "https://control.test/prod/", "dayfly/1.2" })
	got, err := c.Submit(t.Context(), api.Submit{Workspace: "net"})
	is(t, "submit", err, nil)
	equal(t, "workflow", got.ID, "w1")
	r := server.seen[0]
	equal(t, "method", r.Method, http.MethodPost)
	equal(t, "address below the one of a gateway", r.URL.Path, "/prod/v1/workflows")
	equal(t, "host", r.Host, "control.test")
	equal(t, "authorization", r.Header.Get("Authorization"), "Bearer "+secret)
	equal(t, "content type", r.Header.Get("Content-Type"), "application/json")
	equal(t, "user agent", r.Header.Get("User-Agent"), "dayfly/1.2")
	equal(t, "body", string(body), `{"workspace":"net"}`)
}

func TestClient_NamesCannotLeaveTheirPlace(t *testing.T) {
	server := answering(ok(api.Workspace{}))
	c := newClient(t, server)
	for _, name := range []string{"", ".", ".."} {
		_, err := c.Workspace(t.Context(), name)
		is(t, "workspace "+name, err, workflow.ErrInvalid)
	}
	equal(t, "requests", len(server.seen), 0)
	for _, name := range []string{"a/../b", "a?b#c", "ä b", "%2e%2e"} {
		_, err := c.Workspace(t.Context(), name)
		is(t, "workspace "+name, err, nil)
		r := server.seen[len(server.seen)-1]
		equal(t, "path", r.URL.Path, "/v1/workspaces/"+name)
		equal(t, "segments of "+name, strings.Count(r.URL.EscapedPath(), "/"), 3)
	}
}

// C11: a token that changes is taken up by the next request.
func TestClient_AsksForTheTokenEachTime(t *testing.T) {
	server := answering(ok(api.Identity{}))
	token := "one"
	c := newClient(t, server, func(cfg *client.Config) { cfg.Token = func() redact.String { return redact.New(token) } })
	_, err := c.Whoami(t.Context())
	is(t, "first", err, nil)
	token = "two"
	_, err = c.Whoami(t.Context())
	is(t, "second", err, nil)
	equal(t, "first token", server.seen[0].Header.Get("Authorization"), "Bearer one")
	equal(t, "second token", server.seen[1].Header.Get("Authorization"), "Bearer two")
	token = ""
	_, err = c.Health(t.Context())
	is(t, "without a token", err, nil)
	equal(t, "no token", server.seen[2].Header.Get("Authorization"), "")
	token = "hunter2\n"
	_, err = c.Whoami(t.Context())
	is(t, "broken token", err, workflow.ErrUnauthenticated)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error repeats the token: %v", err)
	}
}

// A server that redirects is not the control plane, and the target of the redirect must not get the token.
func TestClient_DoesNotFollowRedirects(t *testing.T) {
	server := answering(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://login.example.com/", http.StatusMovedPermanently)
	})
	_, err := newClient(t, server).CreateToken(t.Context(), api.NewToken{})
	is(t, "redirect", err, client.ErrUnreachable)
	if !strings.Contains(err.Error(), "login.example.com") {
		t.Errorf("the error does not say where to: %v", err)
	}
	equal(t, "requests", len(server.seen), 1)
}

func TestClient_UnreachableIsRecognised(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	url := closed.URL
	closed.Close()
	c, err := client.New(client.Config{URL: url})
	is(t, "new", err, nil)
	_, err = c.CreateToken(t.Context(), api.NewToken{Name: "ci"})
	is(t, "closed port", err, client.ErrUnreachable)
	if _, isNet := errors.AsType[*net.OpError](err); !isNet || strings.Count(err.Error(), url) != 1 {
		t.Errorf("the error does not have its cause, or the address not once: %v", err)
	}
	equal(t, "transient", client.Transient(err), true)
	equal(t, "ends a run", client.RunOver(err), false)
}

func TestClient_ForeignAnswersAreNoAnswers(t *testing.T) {
	problem := `{"title":"Forbidden","status":403,"code":"forbidden","detail":"no"}`
	for name, answer := range map[string]http.HandlerFunc{
		"page of a portal":            gateway(200, "text/html", "<html>log in</html>"),
		"401 of a gateway":            gateway(401, "application/json", `{"message":"Unauthorized"}`),
		"403 of a gateway":            gateway(403, "application/json", `{"message":"Forbidden"}`),
		"403 with our code, not ours": gateway(403, "application/json", problem),
		"problem without a code":      gateway(403, "application/problem+json", `{"title":"Forbidden"}`),
		"problem that is no JSON":     gateway(403, "application/problem+json", "no"),
		"502":                         gateway(502, "text/html", "bad gateway"),
		"503":                         gateway(503, "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newRunner(t, answering(answer)).Start(t.Context())
			is(t, "error", err, client.ErrUnreachable)
			equal(t, "transient", client.Transient(err), true)
			equal(t, "ends the run", client.RunOver(err), false)
		})
	}
	_, err := newRunner(t, answering(gateway(403, "application/problem+json; charset=utf-8", problem))).Start(t.Context())
	is(t, "403 of the control plane", err, workflow.ErrForbidden)
	equal(t, "that ends the run", client.RunOver(err), true)
}

// A control plane of a later version says what this client does not know.
func TestClient_UnknownWordsBreakNothing(t *testing.T) {
	later := `{"id":"wf_1","state":"resting","reason":"moonlight","type":"x","operation":"y","steps":[{"name":"plan","status":"paused"}],"later":{"a":[1]}}`
	w, err := newClient(t, answering(gateway(200, "application/json", later))).Workflow(t.Context(), "wf_1")
	is(t, "unknown words", err, nil)
	equal(t, "state", w.State, "resting")
	equal(t, "reason", w.Reason, "moonlight")
	equal(t, "has ended", w.State.Terminal(), false)
	for status, want := range map[int]error{
		401: workflow.ErrBusy, 403: workflow.ErrBusy, 404: workflow.ErrInvalid, 409: workflow.ErrConflict, 410: workflow.ErrBusy,
		413: workflow.ErrTooLarge, 422: workflow.ErrInvalid, 429: workflow.ErrTooMany, 500: workflow.ErrBusy,
	} {
		answer := gateway(status, "application/problem+json", `{"code":"of_a_later_version","detail":"the moon is full","later":1}`)
		_, err := newRunner(t, answering(answer)).Start(t.Context())
		is(t, fmt.Sprint("unknown code with ", status), err, want)
		equal(t, "ends the run", client.RunOver(err), false)
		if !strings.Contains(err.Error(), "the moon is full") {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// A wrong address behind the right host is not an outage: trying again is of no use.
func TestClient_ForeignNotFoundIsPermanent(t *testing.T) {
	_, err := newRunner(t, answering(gateway(404, "text/plain", "404 page not found"))).Start(t.Context())
	is(t, "404", err, workflow.ErrInvalid)
	equal(t, "transient", client.Transient(err), false)
	equal(t, "ends the run", client.RunOver(err), false)
}

func TestClient_AnswersAreBounded(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte(" "), 17<<20))
	}
	_, err := newClient(t, answering(endless)).Whoami(t.Context())
	if err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
}

func TestClient_RequestTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := answering(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c := newClient(t, silent, func(cfg *client.Config) { cfg.RequestTimeout = 5 * time.Second })

		start := time.Now()
		_, err := c.CreateToken(t.Context(), api.NewToken{Name: "ci"})
		is(t, "error", err, client.ErrUnreachable)
		equal(t, "time-out", time.Since(start), 5*time.Second)

		start = time.Now()
		_, err = newClient(t, silent, func(cfg *client.Config) { cfg.RequestTimeout, cfg.RetryCount = 5*time.Second, -1 }).
			Claim(t.Context(), api.Claim{WaitSeconds: 20})
		is(t, "claim", err, client.ErrUnreachable)
		equal(t, "time-out of a claim, its own wait besides", time.Since(start), 25*time.Second)

		start = time.Now()
		_, err = newRunner(t, silent).Start(t.Context())
		is(t, "start", err, client.ErrUnreachable)
		equal(t, "default time-out", time.Since(start), 30*time.Second)

		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = newRunner(t, silent).Heartbeat(ctx, api.Heartbeat{})
		is(t, "heartbeat", err, client.ErrUnreachable)
		is(t, "heartbeat", err, context.DeadlineExceeded)
		equal(t, "time-out of a heartbeat is its caller's", time.Since(start), time.Minute)
	})
}

// A caller that gives up does not get the error that the control plane is away.
func TestClient_CancelledCallIsNoOutage(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by the operator")
	server := answering(func(_ http.ResponseWriter, r *http.Request) {
		cancel(stopped)
		<-r.Context().Done()
	})
	_, err := newClient(t, server).Pools(ctx, "", 0)
	is(t, "cause", err, stopped)
	equal(t, "unreachable", errors.Is(err, client.ErrUnreachable), false)
	equal(t, "transient", client.Transient(err), false)
	equal(t, "requests", len(server.seen), 1)
}

// Both ends agree on which errors are worth another try and which end a run.
func TestErrors_AreClassified(t *testing.T) {
	transient := map[string]bool{"busy": true, "too_many_requests": true, "task_not_reported": true}
	over := map[string]bool{"already_started": true, "run_over": true, "unauthenticated": true, "token_revoked": true, "forbidden": true, "not_found": true}
	for _, kind := range api.Kinds() {
		err := error(&workflow.Error{Kind: kind.Err, Message: "no"})
		if errors.Is(kind.Err, workflow.ErrLogGap) {
			err = &api.LogGapError{Next: 3}
		}
		_, got := newRunner(t, answering(refusing(err))).Start(t.Context())
		is(t, kind.Code, got, kind.Err)
		equal(t, kind.Code+" is transient", client.Transient(got), transient[kind.Code])
		equal(t, kind.Code+" ends a run", client.RunOver(got), over[kind.Code])
	}
	_, got := newRunner(t, answering(refusing(errors.New("disk full")))).Start(t.Context())
	equal(t, "an internal error is transient", client.Transient(got), true)
	equal(t, "an internal error is an outage", errors.Is(got, client.ErrUnreachable), false)
	equal(t, "no error is transient", client.Transient(nil), false)
	equal(t, "no error ends a run", client.RunOver(nil), false)
}

func TestRunner_NamesItsRunAndTriesOnce(t *testing.T) {
	server := answering(refusing(workflow.ErrBusy))
	r := newRunner(t, server)
	calls := map[string]error{
		"/v1/jobs/w1/start":     second(r.Start(t.Context())),
		"/v1/jobs/w1/spec":      second(r.Spec(t.Context())),
		"/v1/jobs/w1/heartbeat": second(r.Heartbeat(t.Context(), api.Heartbeat{})),
		"/v1/jobs/w1/steps":     second(r.Steps(t.Context(), api.Steps{})),
		"/v1/jobs/w1/logs":      second(r.Logs(t.Context(), api.Logs{})),
		"/v1/jobs/w1/result":    second(r.Result(t.Context(), api.Result{})),
	}
	for path, err := range calls {
		is(t, path, err, workflow.ErrBusy)
	}
	equal(t, "requests", len(server.seen), len(calls))
	for _, req := range server.seen {
		if _, known := calls[req.URL.Path]; !known {
			t.Errorf("call of %s", req.URL.Path)
		}
		equal(t, "authorization", req.Header.Get("Authorization"), "Bearer ticket")
		equal(t, "attempt", req.Header.Get(api.HeaderAttempt), "3")
		equal(t, "task", req.Header.Get(api.HeaderTask), "task-1")
		equal(t, "boot", req.Header.Get(api.HeaderBoot), "b00t")
	}
}

// No error answer, whatever it holds, breaks the client or ends a run without one of our codes.
func FuzzProblem(f *testing.F) {
	f.Add(403, "application/problem+json", `{"code":"forbidden","errors":[{"field":"a","message":"b"}]}`, "3")
	f.Add(416, "application/problem+json", `{"code":"log_gap","next":-4}`, "Wed, 21 Oct 2026 07:28:00 GMT")
	f.Add(401, "text/html", `<html>`, "99999999999999999999")
	f.Fuzz(func(t *testing.T, status int, media, body, after string) {
		if status < 300 || status > 999 {
			return
		}
		answer := func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{media}
			w.Header()["Retry-After"] = []string{after}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
		_, err := newRunner(t, answering(answer)).Start(t.Context())
		if err == nil || err.Error() == "" {
			t.Fatalf("status %d became %v", status, err)
		}
		if client.RunOver(err) && !strings.HasPrefix(strings.ToLower(strings.TrimSpace(media)), "application/problem+json") {
			t.Errorf("%d of %s ends a run: %v", status, media, err)
		}
		if client.RunOver(err) && client.Transient(err) {
			t.Errorf("%v is both transient and the end", err)
		}
		if d := api.RetryAfter(err); d < 0 || d > 24*time.Hour {
			t.Errorf("Retry-After %q became %s", after, d)
		}
	})
}

func TestRunner_ReachesItsRelayByASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // so that nothing is left of the client
		_, _ = fmt.Fprintf(w, `{"remaining_seconds": %d}`, len(r.URL.Path))
	})}}
	server.Start()
	defer server.Close()
	r, err := client.NewRunner(client.RunnerConfig{URL: "unix://" + path, Run: api.Run{Workflow: "wf-1", Attempt: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := r.Start(t.Context()); err != nil || c.RemainingSeconds != float64(len("/v1/jobs/wf-1/start")) {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, bad := range []string{"unix://relay.sock", "unix://"} {
		if _, err := client.NewRunner(client.RunnerConfig{URL: bad}); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", bad, err)
		}
	}
}
