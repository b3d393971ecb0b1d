package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestTransfer_OfAPathGoesToTheRelayAsAnyCall(t *testing.T) {
	var got []byte
	server := answering(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "the plan")
			return
		}
		got, _ = io.ReadAll(r.Body)
		ok(struct{}{})(w, r)
	})
	r := newRunner(t, server)
	put := api.Transfer{Method: "PUT", URL: "/v1/jobs/w1/bytes"}
	is(t, "upload", r.Upload(t.Context(), put, "files/a", 5, strings.NewReader("bytes")), nil)
	sent := server.seen[0]
	equal(t, "body", string(got), "bytes")
	equal(t, "length", sent.ContentLength, 5)
	equal(t, "path", sent.URL.Path, put.URL)
	equal(t, "name", sent.Header.Get(api.HeaderArtifact), "files/a")
	equal(t, "ticket", sent.Header.Get("Authorization"), "Bearer ticket")
	equal(t, "attempt", sent.Header.Get(api.HeaderAttempt), "3")
	is(t, "upload of nothing", r.Upload(t.Context(), put, "files/b", 0, strings.NewReader("")), nil)

	var to bytes.Buffer
	get := api.Transfer{Method: "GET", URL: put.URL}
	is(t, "download", r.Download(t.Context(), get, &to, 8), nil)
	equal(t, "downloaded", to.String(), "the plan")
	is(t, "more than was asked for", r.Download(t.Context(), get, io.Discard, 7), workflow.ErrTooLarge)
}

func TestTransfer_KeepsTheRelaysRefusals(t *testing.T) {
	for _, want := range []error{workflow.ErrInvalid, workflow.ErrExists, workflow.ErrBusy, workflow.ErrUnsupported} {
		r := newRunner(t, answering(refusing(workflow.Refuse(want, "", "no"))))
		is(t, "upload", r.Upload(t.Context(), api.Transfer{URL: "/v1/jobs/w1/bytes"}, "files/a", 1, strings.NewReader("a")), want)
		is(t, "download", r.Download(t.Context(), api.Transfer{URL: "/v1/jobs/w1/bytes"}, io.Discard, 1), want)
	}
}

// A signed URL is a permission: it goes nowhere else, and nothing of the run goes there.
func TestTransfer_OfAURLGoesOutBare(t *testing.T) {
	status := http.StatusOK
	place := answering(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPut {
			equal(t, "body", string(body), "bytes")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code></Error>")
	})
	server := httptest.NewServer(place)
	defer server.Close()
	relay := answering(ok(struct{}{}))
	r := newRunner(t, relay)
	to := api.Transfer{Method: "PUT", URL: server.URL + "/key?X-Amz-Signature=planted", Header: map[string]string{"If-None-Match": "*"}}
	upload := func() error { return r.Upload(t.Context(), to, "files/a", 5, strings.NewReader("bytes")) }
	is(t, "upload", upload(), nil)
	sent := place.seen[0]
	for _, name := range []string{"Authorization", api.HeaderArtifact, api.HeaderAttempt, api.HeaderTask, api.HeaderBoot, api.HeaderTicket} {
		equal(t, name, sent.Header.Get(name), "")
	}
	equal(t, "a signed header", sent.Header.Get("If-None-Match"), "*")
	equal(t, "length", sent.ContentLength, 5)
	equal(t, "calls to the relay", len(relay.seen), 0)

	for code, want := range map[int]error{
		412: nil, 403: workflow.ErrBusy, 503: workflow.ErrBusy, 400: workflow.ErrConflict, 404: workflow.ErrConflict, 302: workflow.ErrConflict,
	} {
		status = code
		err := upload()
		is(t, http.StatusText(code), err, want)
		if client.RunOver(err) || err != nil && strings.Contains(err.Error(), "planted") {
			t.Errorf("%d: %v", code, err)
		}
	}
	status = 412
	is(t, "a download has no such answer", r.Download(t.Context(), to, io.Discard, 100), workflow.ErrConflict)
}

func TestTransfer_ErrorsDoNotShowTheURL(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	r := newRunner(t, answering(ok(struct{}{})))
	ended, end := context.WithCancel(t.Context())
	end()
	for name, err := range map[string]error{
		"nobody listens": r.Download(t.Context(), api.Transfer{URL: server.URL + "/key?sign=planted"}, io.Discard, 1),
		"no URL":         r.Download(t.Context(), api.Transfer{URL: "https://%zz/key?sign=planted"}, io.Discard, 1),
		"another scheme": r.Download(t.Context(), api.Transfer{URL: "file:///key?sign=planted"}, io.Discard, 1),
		"no address":     r.Download(t.Context(), api.Transfer{}, io.Discard, 1),
		"given up":       r.Download(ended, api.Transfer{URL: server.URL + "/key?sign=planted"}, io.Discard, 1),
	} {
		if err == nil || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := r.Download(t.Context(), api.Transfer{URL: server.URL + "/key"}, io.Discard, 1); !client.Transient(err) {
		t.Errorf("nobody listens: %v does not pass", err)
	}
}
