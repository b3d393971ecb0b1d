package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// limited is a world whose people are counted, at a time that stands still unless it is moved.
type limited struct {
	*world
	mu   sync.Mutex
	now  time.Time
	gets atomic.Int64 // reads of the store
}

func newLimited(t *testing.T, rates admission.Rates) *limited {
	t.Helper()
	w := &limited{world: newWorld(t), now: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}
	w.store.onGet = func() { w.gets.Add(1) }
	w.handler = documented(t, httpapi.New(w.plane, httpapi.Config{Gate: admission.New(rates, func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now
	})}))
	return w
}

func (w *limited) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// whoami calls from an address and returns the status and how long to wait.
func (w *limited) whoami(t *testing.T, from, token string) (status int, after string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/whoami", nil)
	r.RemoteAddr = from
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("X-Forwarded-For", "203.0.113.99") // whoever calls can write this
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	if answer.Code == http.StatusTooManyRequests {
		if p := problemOf(t, answer); p.Code != "too_many_requests" {
			t.Errorf("429 with %+v", p)
		}
	}
	return answer.Code, answer.Header().Get("Retry-After")
}

// flood calls until it is refused, and returns how many calls were answered.
func (w *limited) flood(t *testing.T, from, token string, most int) int {
	t.Helper()
	for n := range most {
		if status, after := w.whoami(t, from, token); status == http.StatusTooManyRequests {
			if after != "1" {
				t.Errorf("Retry-After is %q", after)
			}
			return n
		}
	}
	return most
}

// tokenNamed makes a user token.
func (w *world) tokenNamed(t *testing.T, name string) string {
	t.Helper()
	made, err := w.plane.CreateToken(t.Context(), mustKnow(t, w, w.admin), api.NewToken{Name: name, Role: api.RoleViewer})
	if err != nil {
		t.Fatal(err)
	}
	return made.Value
}

// mustKnow says who a token speaks for.
func mustKnow(t *testing.T, w *world, token string) controlplane.Principal {
	t.Helper()
	who, err := w.plane.Authenticate(t.Context(), token)
	must(t, err)
	return who
}

// started submits a workflow and starts it as a runner does.
func started(t *testing.T, w *world) (api.Job, api.Run) {
	t.Helper()
	admin, pool := mustKnow(t, w, w.admin), mustKnow(t, w, w.pool)
	_, _, err := w.plane.PutWorkspace(t.Context(), admin, network("global"))
	must(t, err)
	_, err = w.plane.Submit(t.Context(), admin, "", api.Submit{Workspace: "network", Operation: workflow.Preview})
	must(t, err)
	claimed, err := w.plane.Claim(t.Context(), pool, api.Claim{Instance: "i1", Max: 1})
	must(t, err)
	if len(claimed.Jobs) != 1 {
		t.Fatalf("claimed %+v", claimed)
	}
	job := claimed.Jobs[0]
	must(t, w.plane.Launch(t.Context(), pool, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: "task-1"}))
	run := api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: "task-1", Boot: strings.Repeat("0a", 16)}
	_, err = w.plane.Start(t.Context(), job.Token, run, api.Start{})
	must(t, err)
	return job, run
}

const home = "198.51.100.7:4000"

// C17: each token has a rate, and an organization's tokens have one together. What is refused costs no read.
func TestRates_OfATokenAndOfAnOrganization(t *testing.T) {
	w := newLimited(t, admission.Rates{Token: 2, Organization: 5})
	one, two, three := w.tokenNamed(t, "one"), w.tokenNamed(t, "two"), w.tokenNamed(t, "three")
	if n := w.flood(t, home, one, 100); n != 20 {
		t.Errorf("one token made %d calls at once, want 20", n)
	}
	before := w.gets.Load()
	if n := w.flood(t, home, one, 100); n != 0 || w.gets.Load() != before {
		t.Errorf("beyond its rate: %d calls, %d reads", n, w.gets.Load()-before)
	}
	if a, b := w.flood(t, home, two, 100), w.flood(t, home, three, 100); a != 20 || b != 10 {
		t.Errorf("the others made %d and %d calls, want 20 and 10: together 50", a, b)
	}
	w.advance(time.Second)
	if a, b, c := w.flood(t, home, one, 100), w.flood(t, home, two, 100), w.flood(t, home, three, 100); a != 2 || b != 2 || c != 1 {
		t.Errorf("a second later they made %d, %d and %d calls, want 2, 2 and 1", a, b, c)
	}
	w.advance(time.Hour)
	if n := w.flood(t, home, one, 100); n != 20 {
		t.Errorf("after an hour it made %d calls at once, want 20", n)
	}
}

// C17: pools and runners are not counted and wait for nobody: a run lives on while people are refused.
func TestRates_RunnersNeverWaitBehindPeople(t *testing.T) {
	w := newLimited(t, admission.Rates{Token: 1, Organization: 1, Failures: 1})
	job, run := started(t, w.world)
	if n := w.flood(t, home, w.admin, 1000); n >= 1000 {
		t.Fatal("people are not counted")
	}
	w.flood(t, home, "dfu_"+strings.Repeat("x", 43), 1000) // from the runner's own address
	for i := range 500 {
		body, _ := json.Marshal(api.Heartbeat{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/jobs/"+run.Workflow+"/heartbeat", strings.NewReader(string(body)))
		r.RemoteAddr = home
		for name, value := range map[string]string{
			"Authorization": "Bearer " + job.Token, "Content-Type": "application/json",
			"Dayfly-Attempt": fmt.Sprint(run.Attempt), "Dayfly-Task": run.Task, "Dayfly-Boot": run.Boot,
		} {
			r.Header.Set(name, value)
		}
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		if answer.Code != http.StatusOK {
			t.Fatalf("heartbeat %d: %d %s", i, answer.Code, answer.Body)
		}
		if status, _ := w.whoami(t, "203.0.113.5:1", w.pool); status != http.StatusOK {
			t.Fatalf("call %d of the pool: %d", i, status)
		}
		if status, _ := w.whoami(t, home, w.admin); status != http.StatusTooManyRequests {
			t.Fatalf("call %d of a person: %d", i, status)
		}
	}
}

// Failed sign-ins from one address are refused after some, and lock out nobody.
func TestRates_FailedSignInsAreBoundByAddress(t *testing.T) {
	w := newLimited(t, admission.Rates{Failures: 1})
	known := w.tokenNamed(t, "known")
	if status, _ := w.whoami(t, home, known); status != http.StatusOK {
		t.Fatalf("at first: %d", status)
	}
	guess := func(from string, most int) (answered int) {
		for n := range most {
			if status, _ := w.whoami(t, from, fmt.Sprintf("dfu_%043d", n)); status == http.StatusTooManyRequests {
				return n
			}
		}
		return most
	}
	if n := guess(home, 1000); n != 60 {
		t.Errorf("%d guesses were answered, want 60", n)
	}
	if n := guess(home, 1000); n != 0 {
		t.Errorf("then %d more", n)
	}
	for name, from := range map[string]string{"far": "198.51.100.8:4000", "near": home} {
		if status, _ := w.whoami(t, from, w.tokenNamed(t, name)); status != http.StatusOK {
			t.Errorf("a token that is not known yet, from %s: %d, want 200", from, status)
		}
	}
	for range 100 {
		if status, _ := w.whoami(t, home, known); status != http.StatusOK {
			t.Fatalf("a token that is known, from the same address: %d", status)
		}
	}
	w.advance(time.Second)
	if n := guess(home, 1000); n != 1 {
		t.Errorf("a second later %d guesses were answered, want 1", n)
	}
	if n := guess("[2001:db8:1:2:3::4]:80", 30) + guess("[2001:db8:1:2:ffff::1]:80", 1000); n != 60 {
		t.Errorf("a network of IPv6 made %d guesses, want 60 together", n)
	}
	// A token that was valid and is revoked is a guess like any other.
	mine := w.tokenNamed(t, "mine")
	if status, _ := w.whoami(t, "192.0.2.9:1", mine); status != http.StatusOK {
		t.Fatal(status)
	}
	who := mustKnow(t, w.world, mine)
	if err := w.plane.RevokeToken(t.Context(), mustKnow(t, w.world, w.admin), who.TokenID); err != nil {
		t.Fatal(err)
	}
	if n := w.flood(t, "192.0.2.9:1", mine, 1000); n != 61 {
		t.Errorf("a revoked token was looked at %d times, want 61", n)
	}
}

// Beyond the rate the sign-ins of an address are checked one after the other, and none waits for ever.
func TestRates_SignInsOfAnAddressWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLimited(t, admission.Rates{Failures: 1})
		right := w.tokenNamed(t, "right")
		if n := w.flood(t, home, "dfu_wrong", 1000); n != 60 {
			t.Fatalf("%d guesses were answered, want 60", n)
		}
		var atOnce, most atomic.Int64
		w.store.onGet = func() { // a slow store
			most.Store(max(most.Load(), atOnce.Add(1)))
			<-time.After(300 * time.Millisecond)
			atOnce.Add(-1)
		}
		var all sync.WaitGroup
		statuses := make([]int, 20)
		for i := range statuses {
			token := fmt.Sprint("dfu_wrong", i)
			if i == 3 {
				token = right
			}
			all.Go(func() { statuses[i], _ = w.whoami(t, home, token) })
			synctest.Wait() // they come one by one
		}
		began := time.Now()
		all.Wait()
		for i, got := range statuses {
			if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i == 3]; got != want {
				t.Errorf("call %d: %d, want %d", i, got, want)
			}
		}
		if most.Load() != 1 || time.Since(began) > 3*time.Second {
			t.Errorf("%d reads at once, over after %s", most.Load(), time.Since(began))
		}
	})
}

// Secrets and issuers' tokens that are wrong are failed sign-ins too, and say when to try again.
func TestRates_WrongSecretsAreFailedSignIns(t *testing.T) {
	w := newLimited(t, admission.Rates{Failures: 1})
	try := func(from string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/token", strings.NewReader("grant_type=client_credentials&client_id=svc_none&client_secret=wrong"))
		r.RemoteAddr = from
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, r)
		return answer
	}
	for n := range 60 {
		if answer := try(home); answer.Code != http.StatusUnauthorized {
			t.Fatalf("try %d: %d %s", n, answer.Code, answer.Body)
		}
	}
	if answer := try(home); answer.Code != http.StatusTooManyRequests || answer.Header().Get("Retry-After") != "1" || !strings.Contains(answer.Body.String(), `"error":"temporarily_unavailable"`) {
		t.Errorf("after them: %d %s", answer.Code, answer.Body)
	}
	if answer := try("203.0.113.5:1"); answer.Code != http.StatusUnauthorized {
		t.Errorf("from another address: %d %s", answer.Code, answer.Body)
	}
}

// What is remembered of addresses is bounded: the oldest are forgotten.
func TestRates_ForgetWhatWasNotAskedForLately(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 20,000 calls")
	}
	w := newLimited(t, admission.Rates{Failures: 1})
	known := w.tokenNamed(t, "known")
	wrong := "dfu_" + strings.Repeat("x", 43)
	w.whoami(t, home, known)
	if n := w.flood(t, home, wrong, 1000); n != 60 {
		t.Fatalf("%d guesses, want 60", n)
	}
	for n := range 20_001 {
		w.whoami(t, fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&255, n&255), wrong)
	}
	if n := w.flood(t, home, wrong, 1000); n != 60 {
		t.Errorf("%d guesses of an address that was forgotten, want 60", n)
	}
	if status, _ := w.whoami(t, home, known); status != http.StatusOK {
		t.Errorf("the token that was known: %d", status)
	}
}

// C17: our client waits as long as it is told, and then its call is answered.
func TestRates_OurClientWaitsForRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.handler = httpapi.New(w.plane, httpapi.Config{Gate: admission.New(admission.Rates{Token: 1}, nil)})
		c, err := client.New(client.Config{
			URL: "http://control.test", HTTPClient: &http.Client{Transport: client.InMemory(w.handler)},
			Token: func() redact.String { return redact.New(w.admin) },
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for n := range 15 {
			if _, err := c.Whoami(t.Context()); err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
		}
		if took := time.Since(began); took < 5*time.Second || took > 8*time.Second {
			t.Errorf("15 calls at one a second, ten of them at once, took %s", took)
		}
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := c.Whoami(short); !errors.Is(err, workflow.ErrTooMany) || api.RetryAfter(err) != time.Second {
			t.Errorf("without time to wait: %v", err)
		}
	})
}
