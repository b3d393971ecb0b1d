package boot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// config is the SDK's configuration in an environment.
func config(getenv func(string) string) (aws.Config, error) {
	e := boot.Read(getenv)
	cfg := e.AWS()
	return cfg, e.Err()
}

func TestEnv_ReportsAllMistakesWithoutPasswords(t *testing.T) {
	e := boot.Read(env(
		"A_URL", "https://user:hunter2@example.com", "A_TIME", "30", "A_LONG", "2h", "A_COUNT", "many",
		"A_RATE", "-1", "A_SWITCH", "yes", "A_LIST", "a, b,a", "A_WORD", "blue",
		"DAYFLY_ENABLED_WORKFLOW_TYPES", "deployment,drift", "DAYFLY_LOG_LEVEL", "loud",
	))
	_ = e.Required("A_NAME", "the name of the stack")
	_ = e.URL("A_URL", "the address of the control plane")
	_ = e.Duration("A_TIME", time.Second, 0, time.Minute)
	_ = e.Duration("A_LONG", time.Second, 0, time.Minute)
	_ = e.Int("A_COUNT", 1, 1, 10)
	_ = e.Number("A_RATE", 1, 20)
	_ = e.Bool("A_SWITCH", false)
	_ = e.List("A_LIST")
	_ = e.RequiredList("A_SUBNETS", "the subnets of the tasks")
	_ = e.OneOf("A_WORD", "red", "red", "green")
	_ = e.Types()
	_ = e.Log(io.Discard)
	_ = e.AWS()
	e.Also(errors.Join(
		workflow.Refuse(workflow.ErrInvalid, "task_role", "it is no ARN"), errors.New("A_REST: it is wrong"),
	))
	e.Also(nil)
	err := e.Err()
	if err == nil {
		t.Fatal("no mistake was found")
	}
	for _, name := range []string{
		"A_NAME", "A_URL", "A_TIME", "A_LONG", "A_COUNT", "A_RATE", "A_SWITCH", "A_LIST", "A_SUBNETS", "A_WORD",
		"DAYFLY_ENABLED_WORKFLOW_TYPES", "DAYFLY_LOG_LEVEL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"DAYFLY_TASK_ROLE", "A_REST",
	} {
		if strings.Count(err.Error(), "\n"+name+": ") != 1 {
			t.Errorf("%s is not told once in:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the password is in the error:\n%v", err)
	}
}

func TestEnv_ReadsByTypeAndFillsInDefaults(t *testing.T) {
	e := boot.Read(env("URL", "https://a.example/base", "TIME", "55s", "NONE", "0", "COUNT", " 7 ", "RATE", "2.5", "SWITCH", "true", "LIST", "a, b,,c"))
	got := []any{
		e.URL("URL", "an address"), e.Duration("TIME", 0, 0, time.Minute), e.Duration("NONE", time.Second, 0, time.Minute),
		e.Duration("MISSING", time.Second, 0, time.Minute), e.Int("COUNT", 1, 1, 10), e.Int("MISSING", 3, 1, 10),
		e.Number("RATE", 1, 20), e.Bool("SWITCH", false), e.Bool("MISSING", true), e.List("LIST"), e.List("MISSING"),
		e.OneOf("MISSING", "red", "red", "green"),
	}
	want := []any{
		"https://a.example/base", 55 * time.Second, time.Duration(0), time.Second, 7, 3, 2.5, true, true,
		[]string{"a", "b", "c"}, []string(nil), "red",
	}
	if d := cmp.Diff(want, got); d != "" || e.Err() != nil {
		t.Errorf("(-want +got):\n%s\n%v", d, e.Err())
	}
}

func TestAWS_ObeysTheEndpointOfAServiceThenThatOfAll(t *testing.T) {
	cfg, err := config(env("AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", "AKIA", "AWS_SECRET_ACCESS_KEY", "s", "AWS_SESSION_TOKEN", "t",
		"AWS_ENDPOINT_URL", "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:2"))
	if err != nil {
		t.Fatal(err)
	}
	if got := *secretsmanager.NewFromConfig(cfg).Options().BaseEndpoint; got != "http://127.0.0.1:2" {
		t.Errorf("Secrets Manager is called at %s", got)
	}
	if got := *sqs.NewFromConfig(cfg).Options().BaseEndpoint; got != "http://127.0.0.1:1" {
		t.Errorf("SQS is called at %s", got)
	}
	key, err := cfg.Credentials.Retrieve(t.Context())
	if err != nil || key.AccessKeyID != "AKIA" || key.SessionToken != "t" || cfg.Region != "us-east-1" {
		t.Errorf("credentials %s, region %s, %v", key.AccessKeyID, cfg.Region, err)
	}
	cfg, err = config(env("AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", "AKIA", "AWS_SECRET_ACCESS_KEY", "s"))
	if err != nil || sqs.NewFromConfig(cfg).Options().BaseEndpoint != nil {
		t.Errorf("an endpoint without a variable: %v", err)
	}
}

func TestOf_IsTheServicesOwnEndpointThenThatOfAll(t *testing.T) {
	for want, vars := range map[string][]string{
		"http://127.0.0.1:3": {"AWS_ENDPOINT_URL", "http://127.0.0.1:1", "AWS_ENDPOINT_URL_S3", "http://127.0.0.1:3"},
		"http://127.0.0.1:1": {"AWS_ENDPOINT_URL", "http://127.0.0.1:1"},
		"":                   nil,
	} {
		e := boot.Read(env(append(vars, "AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", "AKIA", "AWS_SECRET_ACCESS_KEY", "s")...))
		if got := aws.ToString(e.Of("S3", e.AWS()).BaseEndpoint); got != want {
			t.Errorf("S3 is called at %q, want %q", got, want)
		}
	}
}

// vault is a secret that changes, on a clock.
type vault struct {
	mu    sync.Mutex
	now   time.Time
	value string
	err   error
	reads int
}

func (v *vault) fetch(context.Context) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads++
	return v.value, v.err
}

func (v *vault) clock() time.Time { v.mu.Lock(); defer v.mu.Unlock(); return v.now }

func (v *vault) set(value string, err error, later time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.err, v.now = value, err, v.now.Add(later)
}

func newVault(value string) (*vault, *boot.Secret) {
	v := &vault{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), value: value}
	return v, boot.NewSecret("the pool token", v.clock, v.fetch)
}

func TestSecret_IsReloadedByAgeOrRefusalNotTooOften(t *testing.T) {
	v, s := newVault("one\n")
	want := func(value string, reads int, when string) {
		t.Helper()
		got, err := s.Get(t.Context())
		if err != nil || got.Reveal() != value || v.reads != reads {
			t.Errorf("%s: %q after %d readings, %v; want %q after %d", when, got.Reveal(), v.reads, err, value, reads)
		}
	}
	want("one", 1, "first")
	v.set("two", nil, 4*time.Minute)
	want("one", 1, "young enough")
	v.set("two", nil, time.Minute)
	want("two", 2, "too old")
	v.set("three", nil, 9*time.Second)
	if again, after := s.Refused(); again || after != time.Second {
		t.Errorf("9 s after a reading: again %v, after %s", again, after)
	}
	want("two", 2, "refused a moment after it was read")
	v.set("three", nil, time.Second)
	want("three", 3, "refused, and not just read")

	v.set("three", errors.New("throttled"), 10*time.Second)
	s.Refused()
	want("three", 4, "refused while it cannot be read")
	want("three", 4, "again at once")
	v.set("four", nil, 10*time.Second)
	want("four", 5, "when it can be read again")
}

func TestSecret_ThatIsMissingOrEmptyIsAnError(t *testing.T) {
	v, s := newVault("  ")
	if _, err := s.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "the pool token is empty") {
		t.Errorf("an empty secret: %v", err)
	}
	v.set("", errors.New("AccessDenied"), 0)
	if _, err := s.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "read the pool token: AccessDenied") {
		t.Errorf("one that cannot be read: %v", err)
	}
}

func TestKeys_UnknownKeyIsReloadedBeforeARefusal(t *testing.T) {
	older, newer := ticket.GenerateKey(), ticket.GenerateKey()
	text := func(keys ...ticket.Key) string {
		t.Helper()
		b, err := ticket.FormatKeys(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	v, s := newVault(text(older))
	keys := boot.NewKeys(s)
	if _, err := keys.Seal(ticket.Claims{}); !errors.Is(err, workflow.ErrBusy) {
		t.Errorf("sealing before the keys are read: %v", err)
	}
	if err := keys.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	claims := ticket.Claims{Job: "wf_1", Attempt: 1, Token: redact.New("dfj_x"), Expires: v.now.Add(time.Hour), Group: "default/net", Organization: "default", WorkspaceID: "ws_1"}
	ring, err := ticket.NewKeyring(newer, older)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := ring.Seal(claims)
	if err != nil {
		t.Fatal(err)
	}
	v.set(text(newer, older), nil, time.Second)
	if err := keys.Know(t.Context(), sealed, v.clock()); !errors.Is(err, workflow.ErrBusy) || api.RetryAfter(err) != 9*time.Second {
		t.Errorf("a second after a reading: %v", err)
	}
	v.set(text(newer, older), nil, 9*time.Second)
	if err := keys.Know(t.Context(), sealed, v.clock()); err != nil {
		t.Errorf("when the keys may be read again: %v", err)
	}
	if got, err := keys.Open(sealed, v.clock()); err != nil || got.Job != "wf_1" {
		t.Errorf("Open: %v, %v", got.Job, err)
	}
	mine, err := keys.Seal(claims)
	if err != nil {
		t.Fatal(err)
	}
	first, err := ticket.NewKeyring(newer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Open(mine, v.clock()); err != nil {
		t.Errorf("the new first key does not seal: %v", err)
	}
	v.set("no keys", nil, time.Hour)
	if err := keys.Load(t.Context()); err == nil || strings.Contains(err.Error(), "no keys") {
		t.Errorf("a broken secret: %v", err)
	}
}

// A control plane that takes one token.
func TestControlPlane_RotatedTokenFailsNoCall(t *testing.T) {
	v, s := newVault("dfp_one")
	var mu sync.Mutex
	good, calls := "dfp_one", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer "+good {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"status":401,"code":"unauthenticated","title":"Unauthorized"}`)
			return
		}
		if !strings.Contains(string(body), "wf_1") {
			t.Errorf("body %q", body)
		}
		_, _ = fmt.Fprint(w, `{"jobs":[]}`)
	}))
	t.Cleanup(server.Close)
	c, err := boot.ControlPlane(server.URL, s)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := c.States(t.Context(), api.StatesQuery{IDs: []string{"wf_1"}})
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	good, calls = "dfp_two", 0
	mu.Unlock()
	v.set("dfp_two", nil, 10*time.Second)
	if err := ask(); err != nil || calls != 2 || v.reads != 2 {
		t.Errorf("after a rotation: %v, %d calls, %d readings", err, calls, v.reads)
	}
	mu.Lock()
	good, calls = "nothing", 0
	mu.Unlock()
	v.set("dfp_two", nil, 10*time.Second)
	for range 5 {
		if err := ask(); !errors.Is(err, workflow.ErrUnauthenticated) {
			t.Errorf("with a revoked token: %v", err)
		}
	}
	if calls != 5 || v.reads != 3 {
		t.Errorf("with a revoked token: %d calls and %d readings for 5 questions", calls, v.reads)
	}
}

func TestUntil_KeepsAMargin(t *testing.T) {
	end := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	inner, stop := boot.Until(ctx, time.Minute)
	defer stop()
	if got, ok := inner.Deadline(); !ok || !got.Equal(end.Add(-time.Minute)) {
		t.Errorf("deadline %v", got)
	}
	free, stop := boot.Until(t.Context(), time.Minute)
	defer stop()
	if _, ok := free.Deadline(); ok {
		t.Error("a deadline from nowhere")
	}
}
