package s3_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

// address is what one request with a signature in its address sends.
type address struct {
	method, path, body string
	signed             http.Header // as it was signed
	length             int64       // as it was signed; 0: it was not
	life               string      // X-Amz-Expires; "" means 300
	later              time.Duration
	sent               func(r *http.Request) // changes before it is sent
	revoked            bool
}

func TestAddresses_WithASignature(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var ahead time.Duration
	table := sigv4.NewTable(func() time.Time { return now.Add(ahead) })
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"s3": &s3.Service{}}}))
	t.Cleanup(server.Close)
	session := table.Session("status", "f", time.Hour)
	f := fixture{t, awsim.ClientConfig(server.URL, table.User("ann")), nil}
	f.wants(200, "", "PUT", "/artifacts", "")
	ask := func(a address) (int, string, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), a.method, server.URL+a.path, strings.NewReader(a.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header, r.ContentLength = a.signed.Clone(), a.length
		if r.Header == nil {
			r.Header = http.Header{}
		}
		query := r.URL.Query()
		if query.Set("X-Amz-Expires", "300"); a.life != "" {
			query.Set("X-Amz-Expires", a.life)
		}
		r.URL.RawQuery = query.Encode()
		creds := aws.Credentials{AccessKeyID: session.AccessKeyID, SecretAccessKey: session.SecretAccessKey, SessionToken: session.SessionToken}
		if a.revoked {
			creds.SessionToken = "x"
		}
		url, _, err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).PresignHTTP(t.Context(), creds, r, "UNSIGNED-PAYLOAD", "s3", "us-east-1", now)
		if err != nil {
			t.Fatal(err)
		}
		if r.URL, err = r.URL.Parse(url); err != nil {
			t.Fatal(err)
		}
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(a.body)), int64(len(a.body))
		if a.body == "" {
			r.Body = http.NoBody
		}
		if a.sent != nil {
			a.sent(r)
		}
		ahead = a.later
		defer func() { ahead = 0 }()
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // of a test
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, answer{body: string(text)}.code(), string(text)
	}
	sum := func(body string) string {
		s := sha256.Sum256([]byte(body))
		return base64.StdEncoding.EncodeToString(s[:])
	}
	put := func(key string, change func(a *address)) address {
		a := address{method: http.MethodPut, path: "/artifacts/" + key, body: "a plan", length: 6, signed: http.Header{"X-Amz-Checksum-Sha256": {sum("a plan")}, "If-None-Match": {"*"}}}
		if change != nil {
			change(&a)
		}
		return a
	}
	get := func(change func(a *address)) address {
		a := address{method: http.MethodGet, path: "/artifacts/o/w/plan%2Bb%20c"}
		if change != nil {
			change(&a)
		}
		return a
	}
	header := func(name, value string) func(a *address) {
		return func(a *address) { a.sent = func(r *http.Request) { r.Header.Set(name, value) } }
	}
	query := func(name, value string) func(a *address) {
		return func(a *address) {
			a.sent = func(r *http.Request) { q := r.URL.Query(); q.Set(name, value); r.URL.RawQuery = q.Encode() }
		}
	}
	body := func(text string) func(a *address) { return func(a *address) { a.body = text } }
	for _, c := range []struct {
		what   string
		a      address
		status int
		code   string
	}{
		{"as it was signed", put("o/w/plan%2Bb%20c", nil), 200, ""},
		{"again", put("o/w/plan%2Bb%20c", nil), 412, "PreconditionFailed"},
		{"to its end", put("late", func(a *address) { a.later = 300 * time.Second }), 200, ""},
		{"an empty one", put("empty", func(a *address) { a.body, a.length = "", 0; a.signed.Set("X-Amz-Checksum-Sha256", sum("")) }), 200, ""},
		{"other bytes", put("x", body("a plot")), 400, "BadDigest"},
		{"more bytes", put("x", body("a plan!")), 403, "SignatureDoesNotMatch"},
		{"more bytes, where the length is not signed", put("x", func(a *address) { a.body, a.length = "a plan!", 0 }), 400, "BadDigest"},
		{"without the condition", put("x", func(a *address) { a.sent = func(r *http.Request) { r.Header.Del("If-None-Match") } }), 403, "SignatureDoesNotMatch"},
		{"another checksum", put("x", header("X-Amz-Checksum-Sha256", sum("a plot"))), 403, "SignatureDoesNotMatch"},
		{"one more checksum", put("x", header("X-Amz-Checksum-Crc32", "AAAAAA==")), 403, "AccessDenied"},
		{"a checksum that was not signed", put("x", func(a *address) {
			a.signed = nil
			header("X-Amz-Checksum-Sha256", sum("a plan"))(a)
		}), 403, "AccessDenied"},
		{"another key", put("x", func(a *address) { a.sent = func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/artifacts/y", "" } }), 403, "SignatureDoesNotMatch"},
		{"a hash that is not of the body", put("x", func(a *address) { a.signed.Set("X-Amz-Content-Sha256", strings.Repeat("0", 64)) }), 400, "XAmzContentSHA256Mismatch"},
		{"too large", put("x", func(a *address) { a.body, a.length = strings.Repeat("x", 8<<20+1), 8<<20+1 }), 400, "EntityTooLarge"},
		{"fetched", get(nil), 200, ""},
		{"another method", get(func(a *address) { a.sent = func(r *http.Request) { r.Method = http.MethodDelete } }), 403, "SignatureDoesNotMatch"},
		{"after its time", get(func(a *address) { a.later = 301 * time.Second }), 403, "AccessDenied"},
		{"before its time", get(func(a *address) { a.later = -16 * time.Minute }), 403, "AccessDenied"},
		{"a longer time", get(query("X-Amz-Expires", "301")), 403, "SignatureDoesNotMatch"},
		{"more than a week", get(func(a *address) { a.life = "604801" }), 400, "AuthorizationQueryParametersError"},
		{"no time", get(func(a *address) { a.life = "soon" }), 400, "AuthorizationQueryParametersError"},
		{"another token", get(query("X-Amz-Security-Token", "x")), 403, "InvalidAccessKeyId"},
		{"the token of nobody", get(func(a *address) { a.revoked = true }), 403, "InvalidAccessKeyId"},
		{"one more parameter", get(query("x-id", "GetObject")), 403, "SignatureDoesNotMatch"},
		{"two signatures", get(header("Authorization", "AWS4-HMAC-SHA256 Credential=a")), 400, ""},
		{"when the session is over", get(func(a *address) { a.life, a.later = "7200", time.Hour }), 400, "ExpiredToken"},
	} {
		status, code, text := ask(c.a)
		if status != c.status || c.code != "" && code != c.code {
			t.Errorf("%s: got %d %s, want %d %s", c.what, status, text, c.status, c.code)
		}
		if c.what == "fetched" && text != "a plan" {
			t.Errorf("got %q", text)
		}
		if bytes.Contains([]byte(text), []byte(session.SessionToken)) {
			t.Errorf("%s: the answer quotes the token", c.what)
		}
	}
}
