package relay_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/ticket"
)

// counting counts what it opens.
type counting struct {
	*ticket.Keyring
	opened int
}

func (c *counting) Open(sealed string, now time.Time) (ticket.Claims, error) {
	c.opened++
	return c.Keyring.Open(sealed, now)
}

// A ticket is opened once for its run, unless its key may be withdrawn; it is refused all the same when it expires.
func TestOpen_OnceForARunWhileTheKeysAreKnown(t *testing.T) {
	now := time.Now()
	know := func(context.Context, string, time.Time) error { return nil }
	for name, c := range map[string]struct {
		know func(context.Context, string, time.Time) error
		want []int // opened, after each call
	}{
		"keys that stay":   {nil, []int{1, 1, 1, 2, 3}},
		"keys that change": {know, []int{1, 2, 3, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			at, opener := now, &counting{Keyring: ring}
			r, err := relay.New(opener, newUpstream(), relay.Config{URL: "https://cp.example.com", Transport: newUpstream(), Now: func() time.Time { return at }, Know: c.know})
			if err != nil {
				t.Fatal(err)
			}
			sealed := seal(t, "wf_1", 1, now.Add(time.Hour))
			shown := func(req *http.Request) { req.Header.Set("Authorization", "Bearer "+sealed) }
			for i, name := range []string{"start", "steps", "result", "result", "spec"} {
				want := http.StatusOK
				if name == "spec" {
					at, want = now.Add(time.Hour), http.StatusUnauthorized
				}
				if w := call(t, r, name, "wf_1", "{}", shown); w.Code != want || opener.opened != c.want[i] {
					t.Errorf("%s, call %d: got %d after %d times, want %d after %d", name, i, w.Code, opener.opened, want, c.want[i])
				}
			}
			if w := call(t, r, "spec", "wf_2", "", shown); w.Code != http.StatusUnauthorized {
				t.Errorf("for another job: got %d", w.Code)
			}
		})
	}
}

func TestTookResult_OfThisTaskAlone(t *testing.T) {
	u := newUpstream()
	r := u.relay(t, relay.Config{})
	took := func() [3]bool {
		return [3]bool{r.TookResult("wf_1", 1, "task-1"), r.TookResult("wf_1", 1, "task-2"), r.TookResult("wf_1", 2, "task-1")}
	}
	call(t, r, "start", "wf_1", "{}")
	u.answer = func(seen) (int, string) {
		return http.StatusConflict, `{"status":409,"code":"already_started","detail":"no"}`
	}
	call(t, r, "result", "wf_1", "{}")
	if got := took(); got != [3]bool{} {
		t.Errorf("before the result was taken: got %v", got)
	}
	u.answer = nil
	call(t, r, "result", "wf_1", "{}")
	call(t, r, "logs", "wf_1", "{}")
	if got := took(); got != [3]bool{true} {
		t.Errorf("after it: got %v, want that of the task alone", got)
	}
}
