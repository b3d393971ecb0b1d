package boot_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/sts"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// A function without a stored token: AWS says which role it has, and a control plane that trusts the account takes that
// for the pool.
func TestPoolToken_OfARoleThatTheControlPlaneTrusts(t *testing.T) {
	account := provider.Start(t, "RS256") // AWS's issuer of this account
	account.User = nil
	table := sigv4.NewTable(nil)
	service := &sts.Service{Credentials: table, Sign: func(claims map[string]any) string { return account.Token("RS256", claims) }}
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"sts": service}})
	aws := httptest.NewServer(server)
	t.Cleanup(aws.Close)

	issuers, err := oidc.New(oidc.Config{Private: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	plane := controlplane.New(memory.New(), controlplane.Config{DefaultState: api.StateDirectory, Issuers: issuers})
	admin, err := plane.Bootstrap(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	who, err := plane.Authenticate(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = plane.Issuers.Put(t.Context(), who, api.Issuer{Name: "aws", URL: account.URL, Rules: []api.TrustRule{{
		Claims:  map[string]string{"sub": "arn:aws:iam::123456789012:role/main-*", "https://sts.amazonaws.com/.aws_account": "123456789012"},
		Becomes: api.KindPool, Pool: "default",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var exchanges int
	handler := httpapi.New(plane, httpapi.Config{})
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/token" {
			exchanges++
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(control.Close)

	call := func(role string) (name string, log string, err error) {
		t.Helper()
		session := table.Session(role, "function", time.Hour)
		e := boot.Read(env(
			"AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", session.AccessKeyID, "AWS_SECRET_ACCESS_KEY", session.SecretAccessKey,
			"AWS_SESSION_TOKEN", session.SessionToken, "AWS_ENDPOINT_URL_STS", aws.URL,
			"DAYFLY_POOL_IDENTITY", "aws", "DAYFLY_ORGANIZATION", "default", "DAYFLY_POOL", "default",
		))
		var said strings.Builder
		token := e.PoolToken(e.AWS(), control.URL, e.Log(&said))
		if err := e.Err(); err != nil {
			t.Fatal(err)
		}
		c, err := boot.ControlPlane(control.URL, token)
		if err != nil {
			t.Fatal(err)
		}
		var got api.Identity
		for range 3 {
			if got, err = c.Whoami(t.Context()); err != nil {
				return "", said.String(), err
			}
		}
		return got.Pool, said.String(), nil
	}
	if pool, _, err := call("main-PollerRole"); err != nil || pool != "default" || exchanges != 1 {
		t.Errorf("got pool %q after %d exchanges, %v", pool, exchanges, err)
	}
	if _, log, err := call("other-PollerRole"); err == nil || strings.Contains(log, "eyJ") || !strings.Contains(log, "pool token not exchanged") {
		t.Errorf("another stack's role: %v; it logged\n%s", err, log)
	}
	service.Sign = nil
	if _, log, err := call("main-PollerRole"); err == nil || !strings.Contains(log, "OutboundWebIdentityFederationDisabledException: Outbound web identity federation is not enabled") {
		t.Errorf("an account that signs nothing: %v; it logged\n%s", err, log)
	}
}

func TestPoolToken_SaysWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		identity string
		missing  []string
	}{
		{"", []string{"DAYFLY_POOL_TOKEN_SECRET"}},
		{"secret", []string{"DAYFLY_POOL_TOKEN_SECRET"}},
		{"aws", []string{"DAYFLY_ORGANIZATION", "DAYFLY_POOL"}},
		{"gcp", []string{"DAYFLY_POOL_IDENTITY"}},
	} {
		e := boot.Read(env("AWS_REGION", "us-east-1", "AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "s", "DAYFLY_POOL_IDENTITY", tt.identity))
		_ = e.PoolToken(e.AWS(), "https://cp.example.com", e.Log(io.Discard))
		err := e.Err()
		if err == nil || slices.ContainsFunc(tt.missing, func(name string) bool { return !strings.Contains(err.Error(), "\n"+name+": ") }) {
			t.Errorf("%q: got %v, want %v", tt.identity, err, tt.missing)
		}
	}
}
