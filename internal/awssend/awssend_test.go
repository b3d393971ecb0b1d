package awssend_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/internal/awssend"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// counted counts the pieces in which something is written.
type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func TestWhole_SendsHeaderAndBodyInOnePiece(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, string(body))
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	var writes atomic.Int64
	transport := &http.Transport{DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address) //nolint:noctx // loopback
		return counted{c, &writes}, err
	}}
	defer transport.CloseIdleConnections()
	client := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, HTTPClient: awssend.Whole(&http.Client{Transport: transport}),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "key"}, nil
		}),
	})
	for n := range int64(3) {
		if _, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(server.URL + "/1/jobs")}); err != nil {
			t.Fatal(err)
		}
		if writes.Load() != n+1 {
			t.Errorf("request %d: written in %d pieces", n+1, writes.Load()-n)
		}
	}
	for _, body := range got {
		if !strings.Contains(body, "/1/jobs") {
			t.Errorf("the service was sent %q", body)
		}
	}
}

// doer keeps what it is given to do.
type doer struct{ got *http.Request }

func (d *doer) Do(r *http.Request) (*http.Response, error) {
	d.got = r
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// body is one that net/http does not know.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func request(t *testing.T, b io.ReadCloser, length int64) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://sqs.example.com/", b)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = length
	return r
}

func TestWhole_BodyIsRereadableAndStillTheCallers(t *testing.T) {
	var next doer
	b := &body{Reader: strings.NewReader("what is sent")}
	r := request(t, b, 12)
	response, err := awssend.Whole(&next).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if r.Body != b || b.closed {
		t.Error("the caller's request was changed")
	}
	for name, open := range map[string]func() (io.ReadCloser, error){
		"first": func() (io.ReadCloser, error) { return next.got.Body, nil }, "again": next.got.GetBody,
	} {
		rc, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if sent, err := io.ReadAll(rc); string(sent) != "what is sent" || err != nil {
			t.Errorf("%s: got %q, %v", name, sent, err)
		}
	}
}

func TestWhole_ABodyThatEndsTooSoonIsNotSent(t *testing.T) {
	var next doer
	response, err := awssend.Whole(&next).Do(request(t, &body{Reader: bytes.NewReader([]byte("half"))}, 8))
	if err == nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) || next.got != nil {
		t.Errorf("got %v, and %v was sent", err, next.got)
	}
}

func TestWhole_SkipsRequestsWithoutAKnownBody(t *testing.T) {
	for _, r := range []*http.Request{request(t, nil, 0), request(t, &body{Reader: strings.NewReader("a stream")}, -1)} {
		var next doer
		response, err := awssend.Whole(&next).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if next.got != r {
			t.Error("another request was sent")
		}
	}
}
