package sigv4_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// The published test suite of Signature Version 4.
func TestVerify_PublishedVectors(t *testing.T) {
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	table := sigv4.NewTable(func() time.Time { return at })
	table.Add(sigv4.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"})
	for target, signature := range map[string]string{
		"/":                             "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
		"/?Param2=value2&Param1=value1": "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
	} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Host = "example.amazonaws.com"
		r.Header.Set("X-Amz-Date", "20150830T123600Z")
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, Signature="+signature)
		if _, err := table.Verify(r, nil, "us-east-1", "service"); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// That of S3, whose paths are encoded once. (S3 API reference, "Signature calculations: Examples", PUT Object.)
func TestVerify_PublishedVectorOfS3(t *testing.T) {
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for name, ahead := range map[string]time.Duration{"": 0, "RequestTimeTooSkewed": sigv4.S3Skew + time.Second} {
		table := sigv4.NewTable(func() time.Time { return at.Add(ahead) })
		table.Add(sigv4.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"})
		r := httptest.NewRequest(http.MethodPut, "/test%24file.text", nil)
		r.Host = "examplebucket.s3.amazonaws.com"
		for header, value := range map[string]string{
			"Date": "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Date": "20130524T000000Z", "X-Amz-Storage-Class": "REDUCED_REDUNDANCY",
			"X-Amz-Content-Sha256": "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
			"Authorization": "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request," +
				"SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class," +
				"Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
		} {
			r.Header.Set(header, value)
		}
		_, err := table.Verify(r, []byte("Welcome to Amazon S3."), "us-east-1", "s3")
		if got, ok := errors.AsType[*wire.Error](err); ok && got.Code != name || !ok && name != "" {
			t.Errorf("%s after it was signed: got %v, want %q", ahead, err, name)
		}
	}
}

// That of an address. (S3 API reference, "Authenticating Requests: Using Query Parameters", An Example.)
func TestVerify_PublishedVectorOfAnAddress(t *testing.T) {
	const target = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request" +
		"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
	for in, want := range map[string]bool{target: true, strings.Replace(target, "test", "text", 1): false, strings.Replace(target, "&X-Amz-Expires=86400", "", 1): false} {
		table := sigv4.NewTable(func() time.Time { return time.Date(2013, 5, 24, 23, 0, 0, 0, time.UTC) })
		table.Add(sigv4.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"})
		r := httptest.NewRequest(http.MethodGet, in, nil)
		r.Host = "examplebucket.s3.amazonaws.com"
		if _, err := table.Verify(r, nil, "us-east-1", "s3"); (err == nil) != want {
			t.Errorf("%s: got %v", in, err)
		}
	}
}

type attempt struct {
	method, target, body string
	header               map[string]string
	signed               func(*http.Request) // changes made before it is signed
	sent                 func(*http.Request) // and after
	credentials          func(sigv4.Credentials) sigv4.Credentials
	service, region      string
	age                  time.Duration
}

// judge signs a request with the SDK's signer, sends it over a socket, and lets the table judge it.
func judge(t *testing.T, table *sigv4.Table, c sigv4.Credentials, a attempt) (wire.Identity, error) {
	t.Helper()
	var who wire.Identity
	var verdict error
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		who, verdict = table.Verify(r, body, "us-east-1", "sqs")
	}))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), a.method, server.URL+a.target, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	if a.signed != nil {
		a.signed(r)
	}
	if a.credentials != nil {
		c = a.credentials(c)
	}
	if a.service == "" {
		a.service = "sqs"
	}
	if a.region == "" {
		a.region = "us-east-1"
	}
	sum := sha256.Sum256([]byte(a.body))
	err = v4.NewSigner().SignHTTP(context.Background(), aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken},
		r, hex.EncodeToString(sum[:]), a.service, a.region, time.Now().Add(-a.age))
	if err != nil {
		t.Fatal(err)
	}
	if a.sent != nil {
		a.sent(r)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	return who, verdict
}

func TestVerify_TakesWhatTheSDKSigns(t *testing.T) {
	table := sigv4.NewTable(nil)
	user := table.User("ci")
	session := table.Session("arn:aws:iam::123456789012:role/dayfly/runner", "task-1", time.Hour)
	for name, a := range map[string]attempt{
		"post":                   {method: http.MethodPost, target: "/", body: `{"a":1}`, header: map[string]string{"X-Amz-Target": "S.Op", "Content-Type": "application/x-amz-json-1.0"}},
		"query":                  {method: http.MethodGet, target: "/a?b=2&a=x%20y&b=1&flag&a-b=1&empty="},
		"path with escapes":      {method: http.MethodPost, target: "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aus-east-1%3A1%3Afunction%3Af/invocations", body: "{}"},
		"path with odd letters":  {method: http.MethodPut, target: "/a%20b/~c*(d)+e=f@g/%E2%82%AC", body: "x"},
		"header with blanks":     {method: http.MethodPost, target: "/", header: map[string]string{"X-Amz-Meta": "  a   b  "}},
		"clock within its bound": {method: http.MethodPost, target: "/", age: 4 * time.Minute},
		"clock ahead":            {method: http.MethodPost, target: "/", age: -4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []sigv4.Credentials{user, session} {
				who, err := judge(t, table, c, a)
				if err != nil {
					t.Fatalf("%s: %v", c.Identity.ARN, err)
				}
				if who != c.Identity {
					t.Errorf("got %+v, want %+v", who, c.Identity)
				}
			}
		})
	}
	if got, want := session.Identity.ARN, "arn:aws:sts::123456789012:assumed-role/runner/task-1"; got != want {
		t.Errorf("identity: got %s, want %s", got, want)
	}
}

func TestVerify_RefusesTheRest(t *testing.T) {
	now := time.Now()
	table := sigv4.NewTable(func() time.Time { return now })
	c := table.Session("runner", "task-1", time.Hour)
	expired := table.Session("runner", "task-2", -time.Second)
	revoked := table.Session("runner", "task-3", time.Hour)
	table.Revoke(revoked.AccessKeyID)
	post := func(a attempt) attempt {
		a.method, a.target, a.body = http.MethodPost, "/", `{"a":1}`
		return a
	}
	for name, c := range map[string]struct {
		attempt     attempt
		credentials sigv4.Credentials
		want        string
	}{
		"no signature":        {post(attempt{sent: func(r *http.Request) { r.Header.Del("Authorization") }}), c, "MissingAuthenticationTokenException"},
		"basic":               {post(attempt{sent: func(r *http.Request) { r.Header.Set("Authorization", "Basic eA==") }}), c, "IncompleteSignatureException"},
		"wrong secret":        {post(attempt{credentials: func(c sigv4.Credentials) sigv4.Credentials { c.SecretAccessKey += "x"; return c }}), c, "InvalidSignatureException"},
		"unknown key":         {post(attempt{credentials: func(c sigv4.Credentials) sigv4.Credentials { c.AccessKeyID = "ASIAX"; return c }}), c, "UnrecognizedClientException"},
		"no session token":    {post(attempt{credentials: func(c sigv4.Credentials) sigv4.Credentials { c.SessionToken = ""; return c }}), c, "UnrecognizedClientException"},
		"other session token": {post(attempt{credentials: func(c sigv4.Credentials) sigv4.Credentials { c.SessionToken = expired.SessionToken; return c }}), c, "UnrecognizedClientException"},
		"expired":             {post(attempt{}), expired, "ExpiredTokenException"},
		"revoked":             {post(attempt{}), revoked, "UnrecognizedClientException"},
		"old":                 {post(attempt{age: 6 * time.Minute}), c, "InvalidSignatureException"},
		"from the future":     {post(attempt{age: -6 * time.Minute}), c, "InvalidSignatureException"},
		"other service":       {post(attempt{service: "ecs"}), c, "InvalidSignatureException"},
		"other region":        {post(attempt{region: "eu-west-1"}), c, "InvalidSignatureException"},
		"other body": {post(attempt{sent: func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader([]byte(`{"a":2}`))), 7
		}}), c, "InvalidSignatureException"},
		"other path":            {post(attempt{sent: func(r *http.Request) { r.URL.Path = "/other" }}), c, "InvalidSignatureException"},
		"other query":           {post(attempt{sent: func(r *http.Request) { r.URL.RawQuery = "a=1" }}), c, "InvalidSignatureException"},
		"other method":          {post(attempt{sent: func(r *http.Request) { r.Method = http.MethodPut }}), c, "InvalidSignatureException"},
		"other host":            {post(attempt{sent: func(r *http.Request) { r.Host = "elsewhere" }}), c, "InvalidSignatureException"},
		"target after the fact": {post(attempt{sent: func(r *http.Request) { r.Header.Set("X-Amz-Target", "S.Other") }}), c, "InvalidSignatureException"},
		"other date": {post(attempt{sent: func(r *http.Request) {
			r.Header.Set("X-Amz-Date", now.UTC().Add(time.Minute).Format("20060102T150405Z"))
		}}), c, "InvalidSignatureException"},
		"no date":                  {post(attempt{sent: func(r *http.Request) { r.Header.Del("X-Amz-Date") }}), c, "IncompleteSignatureException"},
		"wrong hash of the body":   {post(attempt{signed: func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", strings.Repeat("0", 64)) }}), c, "InvalidSignatureException"},
		"body that was not signed": {post(attempt{signed: func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD") }}), c, "InvalidSignatureException"},
	} {
		t.Run(name, func(t *testing.T) {
			who, err := judge(t, table, c.credentials, c.attempt)
			var got *wire.Error
			if !errors.As(err, &got) || got.Code != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if who != (wire.Identity{}) {
				t.Errorf("got the identity %+v with an error", who)
			}
			if err != nil && strings.Contains(err.Error(), c.credentials.SecretAccessKey) {
				t.Errorf("the error quotes a secret: %v", err)
			}
		})
	}
}

func TestVerify_ExpiresOnTheTablesClock(t *testing.T) {
	now := time.Now()
	table := sigv4.NewTable(func() time.Time { return now })
	c := table.Session("runner", "task-1", time.Minute)
	a := attempt{method: http.MethodPost, target: "/"}
	if _, err := judge(t, table, c, a); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	var got *wire.Error
	if _, err := judge(t, table, c, a); !errors.As(err, &got) || got.Code != "ExpiredTokenException" {
		t.Errorf("got %v, want ExpiredTokenException", err)
	}
}

func FuzzParseAuthorization(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, Signature=" + strings.Repeat("ab", 32))
	f.Add("AWS4-HMAC-SHA256 Credential=/////,SignedHeaders=;;,Signature=zz")
	f.Add("AWS4-HMAC-SHA256 ")
	table := sigv4.NewTable(nil)
	f.Fuzz(func(t *testing.T, header string) {
		a, err := sigv4.ParseAuthorization(header)
		if err == nil && (a.AccessKeyID == "" || a.Scope.Service == "" || len(a.SignedHeaders) == 0 || len(a.Signature) != 32) {
			t.Errorf("%q was taken as %+v", header, a)
		}
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Authorization", header)
		r.Header.Set("X-Amz-Date", time.Now().UTC().Format("20060102T150405Z"))
		if who, err := table.Verify(r, nil, "us-east-1", "sqs"); err == nil {
			t.Errorf("%q is %+v to an empty table", header, who)
		}
	})
}
