package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Every sentinel crosses the network and comes back as itself, with its sentence and its field.
func TestErrors_SurviveTheNetwork(t *testing.T) {
	w := newWorld(t)
	w.handler = w.all
	c := w.client(t, w.admin)
	for _, kind := range api.Kinds() {
		if errors.Is(kind.Err, workflow.ErrLogGap) {
			continue // crosses as a number: the next test
		}
		w.store.fail = &workflow.Error{Kind: kind.Err, Field: "some.field", Message: "a sentence for people", RetryAfter: 90 * time.Second}
		_, err := c.CreateToken(t.Context(), api.NewToken{Name: "ci", Role: api.RoleViewer}) // a call without retries
		if !errors.Is(err, kind.Err) {
			t.Errorf("%s: came back as %v", kind.Code, err)
			continue
		}
		for _, other := range api.Kinds() {
			if other.Code != kind.Code && errors.Is(err, other.Err) {
				t.Errorf("%s: also came back as %s", kind.Code, other.Code)
			}
		}
		var e *workflow.Error
		if !errors.As(err, &e) || e.Field != "some.field" || e.Message != "a sentence for people" || e.RetryAfter != 90*time.Second {
			t.Errorf("%s: came back as %+v", kind.Code, e)
		}
	}
}

func TestErrors_LogGapBringsItsLine(t *testing.T) {
	w := newWorld(t)
	w.handler = w.all
	w.store.fail = &api.LogGapError{Next: 41}
	_, err := w.client(t, w.admin).CreateToken(t.Context(), api.NewToken{Name: "ci", Role: api.RoleViewer})
	var gap *api.LogGapError
	if !errors.As(err, &gap) || gap.Next != 41 || !errors.Is(err, workflow.ErrLogGap) {
		t.Errorf("came back as %v", err)
	}
}

// The store's own conditions are none of a user's business: they are transient and say when to
// come back.
func TestErrors_StoreConditionsAreBusy(t *testing.T) {
	w := newWorld(t)
	for _, condition := range []error{store.ErrBusy, store.ErrUnknown, store.ErrConflict, context.DeadlineExceeded} {
		w.store.fail = condition
		answer := w.send(t, request{method: http.MethodGet, path: "/v1/pools", token: w.admin})
		p := problemOf(t, answer)
		if p.Status != http.StatusServiceUnavailable || p.Code != "busy" || strings.Contains(p.Detail, condition.Error()) {
			t.Errorf("%v: got %d %s %q", condition, p.Status, p.Code, p.Detail)
		}
		if got := answer.Header().Get("Retry-After"); got == "" {
			t.Errorf("%v: no Retry-After", condition)
		}
	}
}

// An internal error goes to the log in full and to the caller as nothing but the id to look for.
func TestErrors_CauseStaysInTheLog(t *testing.T) {
	for name, order := range map[string]func(*ordered){
		"error": func(o *ordered) { o.fail = errors.New("the store broke with dfu_secret in it") },
		"panic": func(o *ordered) { o.panics = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			order(w.store)
			answer := w.send(t, request{method: http.MethodGet, path: "/v1/pools", token: w.admin})
			p := problemOf(t, answer)
			if p.Status != http.StatusInternalServerError || p.Code != api.CodeInternal {
				t.Errorf("got %d %s", p.Status, p.Code)
			}
			if strings.Contains(answer.Body.String(), "the store broke") {
				t.Errorf("the answer gives the cause away: %s", answer.Body)
			}
			id := answer.Header().Get("X-Request-Id")
			if id == "" || !strings.Contains(w.log.String(), "the store broke") || !strings.Contains(w.log.String(), id) {
				t.Errorf("no line of the log has cause and request %q:\n%s", id, w.log)
			}
			if strings.Contains(w.log.String(), w.admin) {
				t.Error("the token is in the log")
			}
		})
	}
}

// Every answer names its request, as does the log: by the caller's own id where that is plain, else by a new one.
func TestAnswers_NameTheirRequest(t *testing.T) {
	w := newWorld(t)
	for _, given := range []string{"", "run-7/a", strings.Repeat("x", 64), strings.Repeat("x", 65), "a b", "a\"b", "a\nb", "é"} {
		for path, status := range map[string]int{"/healthz": 200, "/v1/whoami": 401, "/nothing": 404, "/v1/pools?limit=x": 401} {
			answer := w.send(t, request{method: http.MethodGet, path: path, header: map[string]string{"X-Request-Id": given}})
			got := answer.Header().Get("X-Request-Id")
			if kept := given == "run-7/a" || len(given) == 64; answer.Code != status || got == "" || (got == given) != kept {
				t.Errorf("%s with %q: answered %d as %q", path, given, answer.Code, got)
			}
			if !strings.Contains(w.log.String(), `"request_id":"`+got+`"`) {
				t.Errorf("%s with %q: %q is not in the log:\n%s", path, given, got, w.log)
			}
			w.log.Reset()
		}
	}
	w.store.panics = true
	_, err := w.client(t, w.admin).Pools(t.Context(), "", 0)
	if err == nil || strings.Count(err.Error(), "request ") != 1 {
		t.Errorf("the client does not say once which request failed: %v", err)
	}
}

// A handler that is told to abort does so: net/http has to see it.
func TestPanic_AbortIsPassedOn(t *testing.T) {
	w := newWorld(t)
	w.store.fail = nil
	w.store.abort = true
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Error("the abort was swallowed")
		}
	}()
	w.send(t, request{method: http.MethodGet, path: "/v1/pools", token: w.admin})
}

// A client that left is not a failure.
func TestErrors_LeavingClientIsNoFailure(t *testing.T) {
	w := newWorld(t)
	w.store.fail = errors.New("cut off")
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/pools", nil)
	r.Header.Set("Authorization", "Bearer "+w.admin)
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	if p := problemOf(t, answer); p.Code != "busy" {
		t.Errorf("got %s, want busy", p.Code)
	}
	if strings.Contains(w.log.String(), `"level":"ERROR"`) {
		t.Errorf("it was logged as a failure: %s", w.log)
	}
}

// Who sends far too much hears why: an answer to somebody who still sends would be lost with the connection.
func TestErrors_TooLargeABodyIsAnsweredAfterItWasRead(t *testing.T) {
	w := newWorld(t)
	address := serve(t, w.handler, func(l net.Listener) net.Listener { return l })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://"))
	must(t, err)
	defer conn.Close() //nolint:errcheck // it was only used
	const size = 7 << 20
	_, err = fmt.Fprintf(conn, "POST /v1/workflows HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", w.admin, size, strings.Repeat(" ", size))
	if err != nil {
		t.Fatalf("it was not let finish: %v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer resp.Body.Close() //nolint:errcheck // its status is enough
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", resp.StatusCode)
	}
}
