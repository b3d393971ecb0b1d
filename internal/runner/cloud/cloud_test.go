package cloud_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/cloud"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

const (
	taskID   = "0123456789abcdef0123456789abcdef"
	arn      = "arn:aws:ecs:us-east-1:123456789012:task/pool/" + taskID
	taskRole = "arn:aws:iam::123456789012:role/dayfly-task"
	caller   = "arn:aws:sts::123456789012:assumed-role/dayfly-task/" + taskID
	netRole  = "arn:aws:iam::123456789012:role/dayfly/default/net"
)

// clock is a time that stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// account is an account with a task in it: the endpoint of its credentials, STS, and a gateway that
// checks signatures.
type account struct {
	*clock
	keys  *sigv4.Table // by the clock
	real  *sigv4.Table // by the machine's, which the SDK signs with
	url   string
	tasks *awsim.TaskCredentials

	mu      sync.Mutex
	assumed []url.Values  // each request for a role
	fail    func() string // an error code of STS, or ""
	seen    []*http.Request
	bodies  []string
	gateway int // status that the gateway answers with; 0 means that it passes calls on
}

func newAccount(t *testing.T) *account {
	t.Helper()
	a := &account{clock: &clock{now: time.Now().Truncate(time.Second)}, fail: func() string { return "" }}
	a.keys, a.real = sigv4.NewTable(a.Now), sigv4.NewTable(time.Now)
	tasks := awsim.New(awsim.Config{Credentials: a.keys, Now: a.Now}).Tasks()
	mux := http.NewServeMux()
	mux.HandleFunc("/v2/credentials/", func(w http.ResponseWriter, r *http.Request) {
		to := httptest.NewRecorder()
		tasks.ServeHTTP(to, r)
		var out struct{ AccessKeyID, SecretAccessKey, Token string }
		if json.Unmarshal(to.Body.Bytes(), &out) == nil && out.AccessKeyID != "" {
			a.real.Add(sigv4.Credentials{AccessKeyID: out.AccessKeyID, SecretAccessKey: out.SecretAccessKey, SessionToken: out.Token, Identity: wire.Identity{ARN: caller}})
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(to.Code)
		_, _ = w.Write(to.Body.Bytes())
	})
	a.tasks = tasks
	mux.HandleFunc("/sts/", a.sts)
	mux.HandleFunc("/api/", a.serve)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// task is the identity of a task whose credentials last so long.
func (a *account) task(t *testing.T, life time.Duration) *cloud.Cloud {
	t.Helper()
	c, err := cloud.New(cloud.Config{
		TaskARN: arn, FullURI: a.url + a.tasks.Grant(taskRole, taskID, life), Now: a.Now,
		Endpoint: func(service string) string { return map[string]string{"STS": a.url + "/sts/"}[service] },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sts is AssumeRole over the query protocol.
func (a *account) sts(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	who, err := a.real.Verify(r, body, "us-east-1", "sts")
	code := a.fail()
	if err != nil {
		code = "SignatureDoesNotMatch"
	}
	in, _ := url.ParseQuery(string(body))
	if code != "" {
		w.WriteHeader(map[bool]int{true: http.StatusForbidden, false: http.StatusBadRequest}[code == "AccessDenied"])
		_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>User: %s is not authorized to perform: sts:AssumeRole</Message></Error></ErrorResponse>`, code, who.ARN)
		return
	}
	in.Set("caller", who.ARN)
	a.assumed = append(a.assumed, in)
	got := a.keys.Session(in.Get("RoleArn"), in.Get("RoleSessionName"), time.Hour)
	type creds struct {
		AccessKeyID string `xml:"AccessKeyId"`
		Secret      string `xml:"SecretAccessKey"`
		Token       string `xml:"SessionToken"`
		Expires     string `xml:"Expiration"`
	}
	out, _ := xml.Marshal(creds{got.AccessKeyID, got.SecretAccessKey, got.SessionToken, got.Expires.UTC().Format(time.RFC3339)})
	text := strings.NewReplacer("<creds>", "<Credentials>", "</creds>", "</Credentials>").Replace(string(out))
	_, _ = fmt.Fprintf(w, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>%s</AssumeRoleResult></AssumeRoleResponse>`, text)
}

// serve is a gateway with IAM authorization.
func (a *account) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	who, err := a.keys.Verify(r, body, "us-east-1", "execute-api")
	if err != nil || a.gateway != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(max(a.gateway, http.StatusForbidden))
		_, _ = fmt.Fprintf(w, `{"message":%q}`, fmt.Sprint(err))
		return
	}
	a.seen, a.bodies = append(a.seen, r), append(a.bodies, string(body))
	_, _ = io.WriteString(w, who.ARN)
}

func send(t *testing.T, rt http.RoundTripper, method, address, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer the.sealed.ticket")
	req.Header.Set("Dayfly-Attempt", "2")
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := req.Header.Get("Authorization"); got != "Bearer the.sealed.ticket" {
		t.Errorf("the caller's request was changed: %q", got)
	}
	return resp.StatusCode, string(text)
}

func TestSign_TheGatewayKnowsTheTask(t *testing.T) {
	a := newAccount(t)
	rt := a.task(t, 0).Sign("")
	want := caller
	for _, test := range []struct{ method, path, body string }{
		{http.MethodPost, "/api/prod/v1/jobs/wf_1/start", ""},
		{http.MethodGet, "/api/prod/v1/jobs/wf_1/spec", ""},
		{http.MethodPost, "/api/prod/v1/jobs/wf_1/logs", `{"first":0,"lines":[{"text":"é & <"}]}`},
	} {
		if status, text := send(t, rt, test.method, a.url+test.path, test.body); status != 200 || text != want {
			t.Errorf("%s: got %d %s, want %s", test.path, status, text, want)
		}
	}
	for i, r := range a.seen {
		if got := r.Header.Get(api.HeaderTicket); got != "the.sealed.ticket" {
			t.Errorf("%s: the ticket is %q", r.URL.Path, got)
		}
		auth := strings.ToLower(r.Header.Get("Authorization"))
		for _, h := range []string{"dayfly-ticket", "dayfly-attempt", "host", "x-amz-security-token"} {
			if !strings.Contains(auth, h) {
				t.Errorf("%s does not sign %s: %s", r.URL.Path, h, auth)
			}
		}
		if i == 2 && a.bodies[2] != `{"first":0,"lines":[{"text":"é & <"}]}` {
			t.Errorf("the body arrived as %q", a.bodies[2])
		}
	}
}

// What is on its way cannot be changed: the signature covers the body.
func TestSign_AnotherBodyIsRefused(t *testing.T) {
	a := newAccount(t)
	rt := a.task(t, 0).Sign("us-east-1")
	inner, err := url.Parse(a.url)
	if err != nil {
		t.Fatal(err)
	}
	meddler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		again, _ := http.NewRequestWithContext(r.Context(), r.Method, inner.String()+r.URL.Path, strings.NewReader("{}"))
		again.Header, again.Host = r.Header.Clone(), r.Host
		resp, err := http.DefaultClient.Do(again)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close() //nolint:errcheck // of a test
		w.WriteHeader(resp.StatusCode)
	}))
	defer meddler.Close()
	if status, _ := send(t, rt, http.MethodPost, meddler.URL+"/api/v1/jobs/wf_1/result", `{"outcome":"failed"}`); status != http.StatusForbidden {
		t.Errorf("got %d", status)
	}
	if status, _ := send(t, rt, http.MethodPost, meddler.URL+"/api/v1/jobs/wf_1/result", `{}`); status != http.StatusOK {
		t.Errorf("the same body got %d", status)
	}
}

// Credentials are renewed before their end, and anew where the gateway does not take them.
func TestSign_RenewsCredentials(t *testing.T) {
	a := newAccount(t)
	rt := a.task(t, time.Hour).Sign("")
	for range 30 { // 5 hours
		if status, text := send(t, rt, http.MethodPost, a.url+"/api/x", "{}"); status != 200 {
			t.Fatalf("got %d %s", status, text)
		}
		a.pass(10 * time.Minute)
	}

	cut := strings.SplitN(a.seen[len(a.seen)-1].Header.Get("Authorization"), "/", 2)[0]
	a.keys.Revoke(strings.TrimPrefix(cut, "AWS4-HMAC-SHA256 Credential="))
	var last int
	for range 12 { // the endpoint has new ones by then at the latest
		a.pass(5 * time.Minute)
		if last, _ = send(t, rt, http.MethodPost, a.url+"/api/x", "{}"); last == 200 {
			break
		}
	}
	if last != 200 {
		t.Errorf("it never recovers from credentials that were ended: %d", last)
	}
}

func TestGateway(t *testing.T) {
	for address, want := range map[string]string{
		"https://abc123.execute-api.eu-central-1.amazonaws.com/prod":      "eu-central-1",
		"https://abc123-vpce-0a.execute-api.us-east-1.amazonaws.com/prod": "us-east-1",
		"https://abc.execute-api.us-east-1.vpce.amazonaws.com":            "us-east-1",
		"https://ABC.execute-api.cn-north-1.amazonaws.com.cn/":            "cn-north-1",
		"https://relay.example.com":                                       "",
		"https://abc.execute-api.us-east-1.amazonaws.com.evil.example":    "",
		"https://example.com/abc.execute-api.us-east-1.amazonaws.com":     "",
		"unix:///run/dayfly/relay.sock":                                   "",
		"https://user@x.y/abc.execute-api.us-east-1.amazonaws.com":        "",
		"http://%zz": "",
		"https://abc.execute-api.us-east-1.amazonaws.com:443/prod/v1/extra": "us-east-1",
	} {
		if got, ok := cloud.Gateway(address); got != want || ok != (want != "") {
			t.Errorf("%s: got %q %v, want %q", address, got, ok, want)
		}
	}
}

// R8: the role is assumed as the control plane says, by the task, and renewed past the hour.
func TestAssume_AsTheControlPlaneSays(t *testing.T) {
	a := newAccount(t)
	role := api.Role{ARN: netRole, ExternalID: "ws_1", Tags: map[string]string{"organization": "default", "workspace": "net"}}
	who, err := a.task(t, 0).Assume(t.Context(), role, "wf_1-2")
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{
		"caller": {caller},
		"Action": {"AssumeRole"}, "Version": {"2011-06-15"}, "RoleArn": {netRole}, "RoleSessionName": {"wf_1-2"},
		"ExternalId": {"ws_1"}, "DurationSeconds": {"3600"},
		"Tags.member.1.Key": {"organization"}, "Tags.member.1.Value": {"default"},
		"Tags.member.2.Key": {"workspace"}, "Tags.member.2.Value": {"net"},
		"TransitiveTagKeys.member.1": {"organization"}, "TransitiveTagKeys.member.2": {"workspace"},
	}
	if d := cmp.Diff([]url.Values{want}, a.assumed); d != "" {
		t.Error(d)
	}
	first, err := who.Credentials(t.Context())
	if err != nil || len(a.assumed) != 1 || first.SecretAccessKey == "" || first.SessionToken == "" {
		t.Fatalf("got %v after %d requests", err, len(a.assumed))
	}
	keys := []string{first.AccessKeyID}
	for range 60 { // 5 hours
		a.pass(5 * time.Minute)
		got, err := who.Credentials(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The SDKs ask for themselves when 5 to 15 minutes are left: they must find new ones then.
		if left := got.Expires.Sub(a.Now()); left <= 10*time.Minute || left > time.Hour {
			t.Errorf("credentials with %s left were given away", left)
		}
		if !slices.Contains(keys, got.AccessKeyID) {
			keys = append(keys, got.AccessKeyID)
		}
	}
	if n := len(keys); n < 6 || n > 9 {
		t.Errorf("%d credentials in 5 hours", n)
	}
}

// A renewal that fails ends nothing while the old credentials are good.
func TestAssume_OldCredentialsOutlastAFailure(t *testing.T) {
	a := newAccount(t)
	who, err := a.task(t, 0).Assume(t.Context(), api.Role{ARN: netRole}, "wf_1-2")
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.fail = func() string { return "AccessDenied" }
	a.mu.Unlock()
	a.pass(55 * time.Minute)
	if got, err := who.Credentials(t.Context()); err != nil || !got.Expires.After(a.Now()) {
		t.Errorf("got %v", err)
	}
	a.pass(5 * time.Minute)
	if _, err := who.Credentials(t.Context()); err == nil {
		t.Error("credentials that have expired were given away")
	}
	a.mu.Lock()
	a.fail = func() string { return "" }
	a.mu.Unlock()
	if _, err := who.Credentials(t.Context()); err != nil {
		t.Errorf("it does not recover: %v", err)
	}
}

func TestAssume_RefusalsAreSentences(t *testing.T) {
	a := newAccount(t)
	for code, test := range map[string]struct {
		says      string
		transient bool
	}{
		"AccessDenied":    {"trust policy", false},
		"RegionDisabled":  {"cannot be assumed: ", false},
		"Throttling":      {"cannot be assumed now", true},
		"InvalidClientId": {"cannot be assumed: ", false},
	} {
		a.mu.Lock()
		a.fail = func() string { return code }
		a.mu.Unlock()
		_, err := a.task(t, 0).Assume(t.Context(), api.Role{ARN: netRole}, "x")
		refused, ok := errors.AsType[*cloud.RoleError](err)
		if !ok || refused.Transient() != test.transient || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), netRole) {
			t.Errorf("%s: got %v", code, err)
		}
	}
}

func TestSessionName(t *testing.T) {
	for in, want := range map[string]string{"wf_1-2": "wf_1-2", "": "--", "x": "x-", "a b/c": "a-b-c", strings.Repeat("é", 100): strings.Repeat("-", 64)} {
		if got := cloud.SessionName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// The address of a task's credentials is a credential itself: no error names it.
func TestCredentials_ErrorsDoNotNameTheirAddress(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	a := newAccount(t)
	for name, address := range map[string]string{"refused": gone.URL + "/v2/credentials/the-guid", "unknown": a.url + "/v2/credentials/the-guid"} {
		c, err := cloud.New(cloud.Config{TaskARN: arn, FullURI: address})
		if err != nil {
			t.Fatal(err)
		}
		if name == "refused" {
			gone.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err = c.Own().Credentials(ctx)
		cancel()
		if err == nil || strings.Contains(err.Error(), "the-guid") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNew_Refusals(t *testing.T) {
	for name, cfg := range map[string]cloud.Config{
		"no region":            {},
		"an address elsewhere": {TaskARN: arn, FullURI: "http://10.1.2.3/credentials"},
		"a name elsewhere":     {TaskARN: arn, FullURI: "http://credentials.example.com/"},
		"no path":              {TaskARN: arn, RelativeURI: "evil.example.com/"},
	} {
		if _, err := cloud.New(cfg); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	c, err := cloud.New(cloud.Config{TaskARN: arn})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Own().Credentials(t.Context()); err == nil || !strings.Contains(err.Error(), "taskRoleArn") {
		t.Errorf("a task without a role: got %v", err)
	}
	if c.Region() != "us-east-1" {
		t.Errorf("its region is %q", c.Region())
	}
}
