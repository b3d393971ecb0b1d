package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/poolstack"
)

const (
	urlSecret = "arn:aws:secretsmanager:us-east-1:123456789012:secret:dayfly/hooks-AbCdEf"
	rawKey    = "0123456789abcdef0123456789abcdef"
)

// told makes a failed run of which an address is to be told, signed.
func told(t *testing.T, s *poolstack.Stack, address string) (id string) {
	t.Helper()
	s.Secrets.Set(urlSecret, fmt.Sprintf(`{"url":%q,"key":"whsec_%s"}`, address, base64.StdEncoding.EncodeToString([]byte(rawKey))))
	_, _, err := s.Plane.Notifications.Put(t.Context(), s.Admin, api.Notification{
		Name: "on-call", URLRef: urlSecret + "#url", SecretRef: urlSecret + "#key", Events: []string{api.EventFailed},
	})
	if err != nil {
		t.Fatal(err)
	}
	id = s.Submit(t.Context(), "net", 1)[0]
	if _, err := s.Plane.Claim(t.Context(), s.Pool, api.Claim{Instance: "stack", Max: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Plane.Launch(t.Context(), s.Pool, id, api.Launch{Attempt: 1, Kind: api.LaunchFailed, Text: "no such image"}); err != nil {
		t.Fatal(err)
	}
	return id
}

func deliveries(t *testing.T, s *poolstack.Stack) []api.Delivery {
	t.Helper()
	page, err := s.Plane.Deliveries(t.Context(), s.Admin, api.DeliveryFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

func TestHandle_DeliversWhatWaits(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := poolstack.New(t, nil)
	var log strings.Builder
	received := 0
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received++
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, []byte(rawKey))
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
			t.Errorf("signed %q, want %q", r.Header.Get("webhook-signature"), want)
		}
	}))
	t.Cleanup(receiver.Close)
	id := told(t, s, receiver.URL+"/path")
	for _, private := range []string{"10.0.0.0/8", "127.0.0.0/8"} {
		f, err := build(s.Env("DAYFLY_PRIVATE_DELIVERIES", private, "DAYFLY_LOG_LEVEL", "info"), &log)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.handle(t.Context(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		list := deliveries(t, s)
		if len(list) != 1 || list[0].Workflow != id || strings.Contains(list[0].Detail, "path") {
			t.Fatalf("got %+v", list)
		}
		if private == "10.0.0.0/8" {
			if list[0].State != api.DeliveryFailed || received != 0 || !strings.Contains(list[0].Detail, "PrivateDeliveries of the stack") {
				t.Errorf("to a private address: %+v", list[0])
			}
			if _, err := s.Plane.ReplayDelivery(t.Context(), s.Admin, list[0].ID); err != nil {
				t.Fatal(err)
			}
		} else if list[0].State != api.DeliveryDone || received != 1 {
			t.Errorf("%d received of %+v", received, list[0])
		}
	}
	for _, secret := range []string{"/path", "dfp_", "whsec_", rawKey} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log shows %s", secret)
		}
	}
	leak.None(t, before,
		// Connections that are kept open, here and on the other side, and the servers of the test.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*Server).Serve"),
	)
}

// What the role of the function may not read is not told of, and no other place of secrets is asked.
func TestHandle_NamesASecretThatItMayNotRead(t *testing.T) {
	t.Setenv("HOOK", "https://example.com/path")
	s := poolstack.New(t, nil)
	_, _, err := s.Plane.Notifications.Put(t.Context(), s.Admin, api.Notification{Name: "other", URLRef: "env:HOOK", Format: api.FormatSlack, Events: []string{api.EventFailed}})
	if err != nil {
		t.Fatal(err)
	}
	told(t, s, "https://example.com/path")
	s.Secrets.Set(urlSecret, "")
	f, err := build(s.Env(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.handle(t.Context(), []byte(`{"Records":[]}`)); err == nil || len(deliveries(t, s)) != 2 || deliveries(t, s)[0].State != api.DeliveryWaiting {
		t.Errorf("an event that is not empty: %v, %+v", err, deliveries(t, s))
	}
	if err := f.handle(t.Context(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	list := deliveries(t, s)
	if len(list) != 2 {
		t.Fatalf("got %+v", list)
	}
	for _, d := range list {
		if d.State == api.DeliveryDone || !strings.Contains(d.Detail, "url_ref: ") || strings.Contains(d.Detail, "path") {
			t.Errorf("%+v", d)
		}
	}
}

func TestBuild_TellsEveryMistakeAtOnce(t *testing.T) {
	s := poolstack.New(t, nil)
	_, err := build(s.Env("DAYFLY_SERVICE_URL", "", "DAYFLY_INSTANCE", "", "DAYFLY_PRIVATE_DELIVERIES", "a,b/c", "AWS_REGION", ""), os.Stderr)
	var mistakes workflow.Mistakes
	if !errors.As(err, &mistakes) || len(mistakes) != 4 {
		t.Errorf("%v\nwant four mistakes", err)
	}
}
