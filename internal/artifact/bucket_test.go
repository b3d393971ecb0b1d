package artifact_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

var _ relay.Places = (*artifact.Bucket)(nil)

// do makes a signed request as its receiver does, without credentials.
func do(t *testing.T, to api.Transfer, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), to.Method, to.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range to.Header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // of a test
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(got)
}

// Over an S3 that checks signatures, lengths and checksums.
func TestBucket_LendsOneRequestForEachArtifact(t *testing.T) {
	now := time.Now()
	table := sigv4.NewTable(func() time.Time { return now })
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"s3": &s3.Service{}}}))
	t.Cleanup(server.Close)
	cfg := awsim.ClientConfig(server.URL, table.Session("status", "function", time.Hour))
	if err := awsim.MakeBucket(t.Context(), cfg, "artifacts"); err != nil {
		t.Fatal(err)
	}

	begun := now
	bucket := artifact.NewBucket(cfg, "artifacts", func() time.Time { return begun })
	if d := cmp.Diff(api.Place{Kind: api.PlaceS3, Bucket: "artifacts", Region: "us-east-1"}, bucket.Place()); d != "" {
		t.Error(d)
	}
	const body = "a plan"
	sum := sha256.Sum256([]byte(body))
	what := api.NewArtifact{Name: "files/a+b=@,c.json", Kind: api.ArtifactFile, Size: int64(len(body)), SHA256: hex.EncodeToString(sum[:])}
	key := api.ArtifactKey("org", "ws_1", "wf_1", 1, what.Name)
	up, err := bucket.Upload(t.Context(), key, what)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := at.Query().Get("X-Amz-SignedHeaders"); got != "content-length;host;if-none-match;x-amz-checksum-sha256" || at.Query().Get("X-Amz-Expires") != "300" {
		t.Errorf("signed %s for %s s", got, at.Query().Get("X-Amz-Expires"))
	}
	without := up
	without.Header = map[string]string{"X-Amz-Checksum-Sha256": up.Header["X-Amz-Checksum-Sha256"]}
	for _, c := range []struct {
		what string
		to   api.Transfer
		body string
		want int
	}{
		{"other bytes", up, "a plot", 400}, {"more bytes", up, body + "!", 403}, {"without the condition", without, body, 403},
		{"as it was announced", up, body, 200}, {"again", up, body, 412},
	} {
		if got, said := do(t, c.to, c.body); got != c.want {
			t.Errorf("%s: got %d %s, want %d", c.what, got, said, c.want)
		}
	}
	down, err := bucket.Download(t.Context(), key, api.Artifact{})
	if err != nil {
		t.Fatal(err)
	}
	if got, text := do(t, down, ""); got != 200 || text != body {
		t.Errorf("got %d %q", got, text)
	}
	now = begun.Add(5*time.Minute + time.Second)
	if got, text := do(t, down, ""); got != 403 || !strings.Contains(text, "expired") {
		t.Errorf("after five minutes: got %d %s", got, text)
	}
	now = begun

	what.Size, what.SHA256 = 0, hex.EncodeToString(sha256.New().Sum(nil))
	up, err = bucket.Upload(t.Context(), key+".empty", what)
	if err != nil {
		t.Fatal(err)
	}
	if got, said := do(t, up, ""); got != 200 {
		t.Errorf("an empty artifact: got %d %s", got, said)
	}
	for _, bad := range []string{"org/ws_1/../ws_2/plan", "org//plan", "/org", "org/ws 1/x"} {
		_, up := bucket.Upload(t.Context(), bad, what)
		if _, down := bucket.Download(t.Context(), bad, api.Artifact{}); !errors.Is(down, workflow.ErrInvalid) || !errors.Is(up, workflow.ErrInvalid) {
			t.Errorf("%s: %v, %v", bad, up, down)
		}
	}
}
