package client_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// desk is a control plane that gives tokens, takes the last one that it gave, and counts.
type desk struct {
	mu     sync.Mutex
	now    time.Time
	given  int
	calls  int
	lives  int
	away   int // status with which exchanges fail; 0: none
	forms  []string
	refuse string // an error of RFC 6749
}

func (d *desk) clock() time.Time { d.mu.Lock(); defer d.mu.Unlock(); return d.now }

func (d *desk) change(f func()) { d.mu.Lock(); defer d.mu.Unlock(); f() }

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.URL.Path != "/v1/token" {
		d.calls++
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer dfp_%d", d.given) {
			refusing(workflow.Refuse(workflow.ErrRevoked, "", "the token was revoked or has expired"))(w, r)
			return
		}
		ok(api.States{})(w, r)
		return
	}
	_ = r.ParseForm()
	d.forms = append(d.forms, r.PostForm.Encode())
	switch {
	case d.away != 0:
		gateway(d.away, "application/json", `{"code":"busy","detail":"the issuer does not answer","error":"temporarily_unavailable"}`)(w, r)
	case d.refuse != "":
		gateway(http.StatusBadRequest, "application/json", fmt.Sprintf(`{"code":"unauthenticated","detail":"no rule of the issuer fits this token","error":%q}`, d.refuse))(w, r)
	default:
		d.given++
		ok(api.IssuedToken{AccessToken: fmt.Sprintf("dfp_%d", d.given), ExpiresIn: d.lives})(w, r)
	}
}

// newDesk returns a desk and a client that exchanges a file's token there.
func newDesk(t *testing.T, file string) (*desk, *client.Client) {
	t.Helper()
	d := &desk{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), lives: 600}
	bare := newClient(t, d, func(c *client.Config) { c.Token = nil })
	source := client.Exchanged(bare, api.TokenRequest{Scope: "pool:pool_1", Expiration: 600}, d.clock, nil, client.TokenFile(file, d.clock))
	return d, newClient(t, d, func(c *client.Config) { c.Token, c.Source = nil, source })
}

func writeToken(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
}

// jwt is the shape of a token that expires.
func jwt(ends time.Time) string {
	claims, _ := json.Marshal(map[string]int64{"exp": ends.Unix()})
	return "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(claims) + ".sig"
}

func TestExchanged_TokenIsRenewedBeforeItExpires(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, "first\n")
	d, c := newDesk(t, file)
	ask := func(when string, given int, want error) {
		t.Helper()
		_, err := c.States(t.Context(), api.StatesQuery{IDs: []string{"wf_1"}})
		is(t, when, err, want)
		equal(t, when+": tokens given", d.given, given)
	}
	ask("the first call", 1, nil)
	if got := d.forms[0]; !strings.Contains(got, "subject_token=first&") || !strings.Contains(got, "token-exchange") || !strings.Contains(got, "scope=pool%3Apool_1") {
		t.Errorf("got form %s", got)
	}
	d.change(func() { d.now = d.now.Add(339 * time.Second) }) // jitter takes at most a tenth
	ask("before two thirds", 1, nil)
	writeToken(t, file, "second")
	d.change(func() { d.now = d.now.Add(61 * time.Second) })
	ask("after two thirds", 2, nil)
	if got := d.forms[1]; !strings.Contains(got, "subject_token=second&") {
		t.Errorf("the file was not read again: %s", got)
	}

	d.change(func() { d.away, d.now = http.StatusServiceUnavailable, d.now.Add(400*time.Second) })
	ask("while the issuer is away", 2, nil)
	asked := len(d.forms)
	ask("at once again", 2, nil)
	equal(t, "exchanges within the floor", len(d.forms), asked)
	d.change(func() { d.now = d.now.Add(199 * time.Second) })
	ask("until the last second", 2, nil)
	d.change(func() { d.now = d.now.Add(time.Second) })
	calls := d.calls
	ask("after its end", 2, workflow.ErrBusy)
	equal(t, "calls with a token that is over", d.calls, calls)
	d.change(func() { d.away = 0 })
	ask("when the issuer is back", 3, nil)
}

func TestExchanged_ARevokedTokenIsReplacedAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, "x")
	d, c := newDesk(t, file)
	ask := func() error {
		_, err := c.States(t.Context(), api.StatesQuery{IDs: []string{"wf_1"}})
		return err
	}
	is(t, "the first call", ask(), nil)
	d.change(func() { d.given, d.now = 7, d.now.Add(10*time.Second) }) // ours is not the last one any more
	is(t, "after it was revoked", ask(), nil)
	equal(t, "tokens given", d.given, 8)
	equal(t, "calls", d.calls, 3)

	d.change(func() { d.refuse, d.given, d.now = "invalid_grant", 9, d.now.Add(10*time.Second) })
	err := ask()
	is(t, "revoked, and no other to be had", err, workflow.ErrRevoked)
	d.change(func() { d.now = d.now.Add(time.Hour) })
	err = ask()
	is(t, "with none at all", err, workflow.ErrForbidden)
	if client.Transient(err) || !strings.Contains(err.Error(), "no rule of the issuer fits this token") {
		t.Errorf("got %v, want the endpoint's words, and no repeats", err)
	}
}

// However many calls need a token, one gets it.
func TestExchanged_ManyCallsMakeOneExchange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, "x")
	d, c := newDesk(t, file)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := c.States(t.Context(), api.StatesQuery{IDs: []string{"wf_1"}}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	equal(t, "tokens given", d.given, 1)
}

// A renewal that hangs holds nobody up whose token is still good.
func TestSecret_ValidValueIsUsedDuringARenewal(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	reading, release := make(chan struct{}), make(chan struct{})
	var hangs atomic.Bool
	s := client.NewSecret("the token", clock, func(context.Context) (redact.String, time.Duration, error) {
		if hangs.Load() {
			reading <- struct{}{}
			<-release
		}
		return redact.New("t"), time.Minute, nil
	})
	if _, err := s.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	hangs.Store(true)
	mu.Lock()
	now = now.Add(45 * time.Second)
	mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = s.Get(t.Context()) }()
	<-reading
	if got, err := s.Get(t.Context()); err != nil || got.Reveal() != "t" {
		t.Errorf("got %q, %v, want the one that is still valid", got.Reveal(), err)
	}
	close(release)
	<-done
}

func TestTokenFile_ErrorsNameTheFaultNotTheToken(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "token")
	read := client.TokenFile(file, func() time.Time { return now })
	for _, tt := range []struct{ content, says string }{
		{"-", "cannot be read"},
		{" \n", "holds no token"},
		{strings.Repeat("x", 70<<10), "holds no token"},
		{jwt(now), "expired at 2026-03-01T12:00:00Z: the program that writes the file must write a new one"},
		{jwt(now.Add(time.Second)), ""},
		{"opaque", ""},
		{"a.!.c", ""},
	} {
		if tt.content != "-" {
			writeToken(t, file, tt.content)
		}
		got, err := read(t.Context())
		switch {
		case tt.says == "" && (err != nil || got.Reveal() != tt.content):
			t.Errorf("%.20q: got %v", tt.content, err)
		case tt.says != "" && (!errors.Is(err, workflow.ErrBusy) || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "eyJ")):
			t.Errorf("%.20q: got %v, want %q", tt.content, err, tt.says)
		}
	}
}

// An agent asks for its token several times a second while it has none.
func TestExchanged_OneFailureIsLoggedOnceInTenSeconds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	d, _ := newDesk(t, file)
	var lines strings.Builder
	source := client.Exchanged(newClient(t, d, func(c *client.Config) { c.Token = nil }), api.TokenRequest{}, d.clock,
		slog.New(slog.NewTextHandler(&lines, nil)), client.TokenFile(file, d.clock))
	try := func(want int) {
		t.Helper()
		for range 3 {
			if _, err := source.Get(t.Context()); err == nil {
				t.Error("there is a token")
			}
		}
		equal(t, "lines", strings.Count(lines.String(), "\n"), want)
	}
	try(1)
	writeToken(t, file, " ")
	try(2) // another failure
	d.change(func() { d.now = d.now.Add(10 * time.Second) })
	try(3)
}
