package deliverer_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/deliverer"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

var _ deliverer.Upstream = (*client.Client)(nil)

const setting = "private_deliveries of the agent"

// keyBytes is the key of secret file:key.
const keyBytes = "0123456789abcdef0123456789abcdef"

// desk is an upstream that hands out waiting deliveries until they are done, as the control plane does.
type desk struct {
	mu      sync.Mutex
	waiting []api.DeliveryTask
	claimed map[string]api.DeliveryTask
	results map[string][]api.DeliveryResult
	claims  int
	lose    bool                    // reports are not taken
	onClaim func(api.DeliveryClaim) // nil: nothing
}

func (d *desk) ClaimDeliveries(_ context.Context, in api.DeliveryClaim) (out api.DeliveriesClaimed, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims++
	if in.Instance != "agent-1" || in.Max < 1 || in.Max > 20 {
		return out, fmt.Errorf("claim of %+v", in)
	}
	if d.onClaim != nil {
		d.onClaim(in)
	}
	n := min(in.Max, len(d.waiting))
	out.Tasks, d.waiting = slices.Clone(d.waiting[:n]), d.waiting[n:]
	for i := range out.Tasks {
		out.Tasks[i].Attempt++
		d.claimed[out.Tasks[i].ID] = out.Tasks[i]
	}
	out.Short = n < in.Max
	return out, nil
}

func (d *desk) DeliveryDone(_ context.Context, id string, in api.DeliveryResult) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	task, ok := d.claimed[id]
	if !ok || task.Attempt != in.Attempt {
		return fmt.Errorf("report of %s, attempt %d, which is not claimed", id, in.Attempt)
	}
	if d.lose {
		return errors.New("the connection broke")
	}
	delete(d.claimed, id)
	d.results[id] = append(d.results[id], in)
	if !in.IsDone && !in.IsPermanent {
		d.waiting = append(d.waiting, task)
	}
	return nil
}

// values are secrets by reference.
type values map[string]string

func (v values) Resolve(_ context.Context, ref string) (redact.String, error) {
	if text, ok := v[ref]; ok {
		return redact.New(text), nil
	}
	if !strings.HasPrefix(ref, "file:") {
		return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "secrets", "%q is no reference", ref)
	}
	return redact.String{}, workflow.Refuse(workflow.ErrNotFound, "secrets", "there is no secret %s", ref)
}

// world is a deliverer between a desk and a receiver.
type world struct {
	*desk
	*deliverer.Deliverer
	log *strings.Builder
	now time.Time
}

func newWorld(t *testing.T, secrets values, private ...string) *world {
	t.Helper()
	listed, err := outbound.ReadPrivate(private)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		desk: &desk{claimed: map[string]api.DeliveryTask{}, results: map[string][]api.DeliveryResult{}},
		log:  &strings.Builder{}, now: time.Unix(1_700_000_000, 0),
	}
	w.Deliverer, err = deliverer.New(w.desk, deliverer.Config{
		Instance: "agent-1", Secrets: secrets, Private: listed, Setting: setting, Now: func() time.Time { return w.now },
		Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// one makes one try of a notification.
func (w *world) one(t *testing.T, in api.SendNotification) api.DeliveryResult {
	t.Helper()
	w.waiting = []api.DeliveryTask{{ID: "dlv_1", LeaseSeconds: 120, Send: &in}}
	w.onClaim = func(api.DeliveryClaim) {
		if w.claims++; w.claims > 2 {
			t.Error("claimed again")
		}
	}
	if _, err := w.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := w.results["dlv_1"]
	if len(got) != 1 {
		t.Fatalf("%d reports", len(got))
	}
	if s := w.log.String(); strings.Contains(s, "path") || strings.Contains(s, "whsec") {
		t.Errorf("the log shows what it must not:\n%s", s)
	}
	return got[0]
}

// verify checks a request as a receiver would, by the text of Standard Webhooks alone.
func verify(header http.Header, body string) error {
	mac := hmac.New(sha256.New, []byte(keyBytes))
	fmt.Fprintf(mac, "%s.%s.%s", header.Get("webhook-id"), header.Get("webhook-timestamp"), body)
	for one := range strings.FieldsSeq(header.Get("webhook-signature")) {
		version, sum, _ := strings.Cut(one, ",")
		raw, err := base64.StdEncoding.DecodeString(sum)
		if version == "v1" && err == nil && hmac.Equal(raw, mac.Sum(nil)) {
			return nil
		}
	}
	return fmt.Errorf("no signature of %q is right", header.Get("webhook-signature"))
}

// inbox keeps what was received, and answers by turns.
type inbox struct {
	mu      sync.Mutex
	headers []http.Header
	bodies  []string
	answers []func(w http.ResponseWriter, r *http.Request) // of each call; none is 204
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	n := len(b.bodies)
	b.headers, b.bodies = append(b.headers, r.Header), append(b.bodies, string(body))
	b.mu.Unlock()
	if n < len(b.answers) {
		b.answers[n](w, r)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func receive(t *testing.T, b *inbox) (address string) {
	t.Helper()
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	return s.URL
}

func status(n int, pairs ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(pairs); i += 2 {
			w.Header().Set(pairs[i], pairs[i+1])
		}
		w.WriteHeader(n)
		_, _ = io.WriteString(w, "the body of the answer")
	}
}

var key = "whsec_" + base64.StdEncoding.EncodeToString([]byte(keyBytes))

func TestPass_SignsAndRepeatsUnderTheSameID(t *testing.T) {
	b := &inbox{answers: []func(http.ResponseWriter, *http.Request){status(500)}}
	address := receive(t, b)
	w := newWorld(t, values{"file:key": key + "\n", "file:url": address + "/path?query"}, "127.0.0.1")
	const body = `{"type":"run.failed","text":"ü"}`
	w.waiting = []api.DeliveryTask{{ID: "dlv_1", Send: &api.SendNotification{URLRef: "file:url", SecretRef: "file:key", Body: body}}}
	w.onClaim = func(api.DeliveryClaim) { w.now = w.now.Add(time.Minute) }
	var sum deliverer.Summary
	for range 2 {
		s, err := w.Pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum.Claimed, sum.Done, sum.Failed = sum.Claimed+s.Claimed, sum.Done+s.Done, sum.Failed+s.Failed
	}
	if sum.Claimed != 2 || sum.Done != 1 || sum.Failed != 1 {
		t.Errorf("%+v", sum)
	}
	host := strings.TrimPrefix(address, "http://")
	want := []api.DeliveryResult{{Attempt: 1, Detail: host + " answered 500"}, {Attempt: 2, IsDone: true, Detail: host + " answered 204"}}
	if d := cmp.Diff(want, w.results["dlv_1"]); d != "" {
		t.Errorf("reported (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{body, body}, b.bodies); d != "" {
		t.Fatalf("received (-want +got):\n%s", d)
	}
	var sent []string
	for i, h := range b.headers {
		if err := verify(h, b.bodies[i]); err != nil {
			t.Error(err)
		}
		sent = append(sent, h.Get("webhook-timestamp"))
		if h.Get("webhook-id") != "dlv_1" || h.Get("content-type") != "application/json" {
			t.Errorf("sent with %v", h)
		}
	}
	if at, _ := strconv.ParseInt(sent[0], 10, 64); at != 1_700_000_060 || sent[0] == sent[1] {
		t.Errorf("sent at %v, each time when it was not", sent)
	}
	for _, secret := range []string{key, keyBytes, "query", "/path"} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log shows %s", secret)
		}
	}
}

func TestPass_ClaimsUntilThereIsNoMoreAndTellsWhatCame(t *testing.T) {
	b := &inbox{}
	address := receive(t, b)
	w := newWorld(t, nil, "127.0.0.1")
	for i := range 13 {
		task := api.DeliveryTask{ID: fmt.Sprint("dlv_", i), Send: &api.SendNotification{URL: address, Body: "{}"}}
		if i == 7 {
			task.Send = nil // what only a newer version knows
			w.onClaim = func(api.DeliveryClaim) {
				w.waiting = slices.DeleteFunc(w.waiting, func(t api.DeliveryTask) bool { return t.Attempt > 0 }) // not due yet
			}
		}
		w.waiting = append(w.waiting, task)
	}
	s, err := w.Pass(t.Context())
	if d := cmp.Diff(deliverer.Summary{Claimed: 13, Done: 12, Failed: 1}, s); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if len(b.bodies) != 12 || b.headers[0].Get("webhook-signature") != "" {
		t.Errorf("%d received, with signature %q", len(b.bodies), b.headers[0].Get("webhook-signature"))
	}
	if got := w.results["dlv_7"]; len(got) != 1 || got[0].IsDone || got[0].IsPermanent || !strings.Contains(got[0].Detail, "older than the control plane") {
		t.Errorf("of a task without anything to do: %+v", got)
	}
}

func TestPass_AReportThatIsNotTakenIsCounted(t *testing.T) {
	w := newWorld(t, nil, "127.0.0.1")
	w.waiting = []api.DeliveryTask{{ID: "dlv_1", Send: &api.SendNotification{URL: receive(t, &inbox{})}}}
	w.lose = true
	if s, err := w.Pass(t.Context()); err != nil || s.Unreported != 1 || s.Done != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestPass_ClaimsNothingThatItHasNoTimeFor(t *testing.T) {
	w := newWorld(t, nil)
	w.waiting = []api.DeliveryTask{{ID: "dlv_1"}}
	ctx, cancel := context.WithTimeout(t.Context(), 29*time.Second)
	defer cancel()
	if s, err := w.Pass(ctx); err != nil || w.claims != 0 || !s.More {
		t.Errorf("%+v after %d claims: %v", s, w.claims, err)
	}
}

// What is told to end finishes what it claimed, and claims no more.
func TestPass_ToldToEndItFinishesWhatItClaimed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &inbox{answers: []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, _ *http.Request) { cancel() }}}
	w := newWorld(t, nil, "127.0.0.1")
	address := receive(t, b)
	for i := range 6 {
		w.waiting = append(w.waiting, api.DeliveryTask{ID: fmt.Sprint("dlv_", i), Send: &api.SendNotification{URL: address}})
	}
	if s, err := w.Pass(ctx); err != nil || s.Done != 5 || !s.More || w.claims != 1 {
		t.Errorf("%+v after %d claims: %v", s, w.claims, err)
	}
}

func TestSend_FollowsNoRedirect(t *testing.T) {
	other := receive(t, &inbox{answers: []func(http.ResponseWriter, *http.Request){func(http.ResponseWriter, *http.Request) { t.Error("followed") }}})
	for _, n := range []int{301, 302, 303, 307, 308} {
		w := newWorld(t, nil, "127.0.0.1")
		got := w.one(t, api.SendNotification{URL: receive(t, &inbox{answers: []func(http.ResponseWriter, *http.Request){status(n, "Location", other)}})})
		if got.IsDone || !strings.Contains(got.Detail, fmt.Sprintf("answered %d: redirects are not followed", n)) || strings.Contains(got.Detail, other) {
			t.Errorf("%d: %+v", n, got)
		}
	}
}

func TestSend_CallsNoPrivateAddressThatIsNotListed(t *testing.T) {
	b := &inbox{}
	port := strings.TrimPrefix(receive(t, b), "http://127.0.0.1")
	for name, tc := range map[string]struct {
		in      api.SendNotification
		private []string
	}{
		"an address":             {api.SendNotification{URL: "https://127.0.0.1" + port + "/path"}, nil},
		"a name of this machine": {api.SendNotification{URL: "https://localhost" + port + "/path"}, nil},
		// Only small letters make it the name of this machine before it is looked up.
		"a name that leads to one":    {api.SendNotification{URL: "https://LocalHost" + port + "/path"}, []string{"10.0.0.0/8"}},
		"an address from a reference": {api.SendNotification{URLRef: "file:url"}, []string{"10.0.0.1"}},
		"the metadata of a machine":   {api.SendNotification{URL: "https://169.254.169.254/path"}, nil},
	} {
		w := newWorld(t, values{"file:url": "https://[::ffff:127.0.0.1]" + port + "/path"}, tc.private...)
		got := w.one(t, tc.in)
		if got.IsDone || !got.IsPermanent || !strings.Contains(got.Detail, setting) || strings.Contains(got.Detail, "path") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(b.bodies) != 0 {
		t.Error("a private address was called")
	}
}

func TestSend_TellsNothingOfWhatIsSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		in        api.SendNotification
		permanent bool
		want      string
	}{
		"a reference that is none":     {api.SendNotification{URLRef: "nothing"}, true, "url_ref: "},
		"a secret that is not there":   {api.SendNotification{URLRef: "file:none"}, false, "url_ref: there is no secret file:none"},
		"a key that is not there":      {api.SendNotification{URL: "https://example.com", SecretRef: "file:none"}, false, "example.com: secret_ref: there is no secret"},
		"no address":                   {api.SendNotification{URLRef: "file:word"}, true, "does not begin with https://"},
		"an address that is malformed": {api.SendNotification{URLRef: "file:bad"}, true, "is not one"},
		"an address with a password":   {api.SendNotification{URLRef: "file:user"}, true, "must not contain credentials"},
		"an address in clear":          {api.SendNotification{URLRef: "file:clear"}, true, "begins with https://"},
		"of another kind":              {api.SendNotification{URLRef: "file:db"}, true, "does not begin with https://"},
		"a key that is none":           {api.SendNotification{URL: "https://example.com", SecretRef: "file:word"}, true, "whsec_ and the base64 of 24 to 64 bytes"},
		"a key that is short":          {api.SendNotification{URL: "https://example.com", SecretRef: "file:short"}, true, "whsec_ and the base64 of 24 to 64 bytes"},
	} {
		w := newWorld(t, values{
			"file:word": "hunter2", "file:bad": "https://hunter2\x00", "file:user": "https://a:hunter2@example.com", "file:clear": "http://example.com/hunter2",
			"file:db": "postgres://hunter2/db", "file:short": "whsec_aHVudGVyMg==",
		})
		w.log = &strings.Builder{}
		w.waiting = []api.DeliveryTask{{ID: "dlv_1", Send: &tc.in}}
		w.onClaim = func(api.DeliveryClaim) {
			w.waiting = slices.DeleteFunc(w.waiting, func(t api.DeliveryTask) bool { return t.Attempt > 0 })
		}
		if _, err := w.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := w.results["dlv_1"][0]
		if got.IsDone || got.IsPermanent != tc.permanent || !strings.Contains(got.Detail, tc.want) {
			t.Errorf("%s: %+v", name, got)
		}
		if strings.Contains(got.Detail+w.log.String(), "hunter2") || strings.Contains(got.Detail, "aHVud") {
			t.Errorf("%s: what is secret is told: %+v", name, got)
		}
	}
}

func TestSend_AnAnswerIsBoundedInBytesAndTime(t *testing.T) {
	sent, ended := 0, make(chan struct{})
	endless := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		for piece := strings.Repeat("x", 4<<10); ; sent += len(piece) {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	}))
	endless.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(8 << 10); err != nil { // what is sent is then nearly what is read
			t.Error(err)
		}
		return ctx
	}
	endless.Start()
	t.Cleanup(endless.Close)
	w := newWorld(t, nil, "127.0.0.1")
	if got := w.one(t, api.SendNotification{URL: endless.URL}); !got.IsDone {
		t.Errorf("an endless answer: %+v", got)
	}
	<-ended
	if sent < 64<<10 || sent >= 1<<20 { // beside what is read, the buffers of the connection
		t.Errorf("%d bytes of an endless answer were taken", sent)
	}
	hang := make(chan struct{})
	address := receive(t, &inbox{answers: []func(http.ResponseWriter, *http.Request){func(http.ResponseWriter, *http.Request) { <-hang }}})
	t.Cleanup(func() { close(hang) })
	w = newWorld(t, nil, "127.0.0.1")
	if was := deliverer.SetCallTime(w.Deliverer, 50*time.Millisecond); was != 15*time.Second {
		t.Errorf("a call may take %s", was)
	}
	if got := w.one(t, api.SendNotification{URL: address + "/path"}); got.IsDone || got.IsPermanent || !strings.HasSuffix(got.Detail, ": it did not answer in time") {
		t.Errorf("an answer that does not come: %+v", got)
	}
}

func TestSend_SaysWhyThereIsNoAnswer(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	odd := receive(t, &inbox{answers: []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 hunter2 path\r\n\r\n")
		_ = conn.Close()
	}}})
	strange := httptest.NewUnstartedServer(nil)
	strange.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	strange.StartTLS()
	t.Cleanup(strange.Close)
	for address, want := range map[string]string{gone.URL: "connection refused", odd: "it did not answer as HTTP says", strange.URL: "its certificate is not trusted"} {
		got := newWorld(t, nil, "127.0.0.1").one(t, api.SendNotification{URL: address + "/path"})
		if got.IsDone || got.IsPermanent || !strings.Contains(got.Detail, want) || strings.Contains(got.Detail, "hunter2") {
			t.Errorf("%s: %+v, want %s", address, got, want)
		}
	}
}

func TestOutcome_IsOfTheStatus(t *testing.T) {
	const day = 24 * time.Hour
	for n := 200; n < 600; n++ {
		got := deliverer.Outcome(deliverer.Try{Host: "hooks.example.com", Status: n, RetryAfter: time.Minute})
		done := n < 300
		permanent := n >= 400 && n < 500 && n != 408 && n != 409 && n != 425 && n != 429
		wait := 60.0
		if done || permanent {
			wait = 0
		}
		if got.IsDone != done || got.IsPermanent != permanent || got.RetryAfterSeconds != wait || !strings.HasPrefix(got.Detail, fmt.Sprint("hooks.example.com answered ", n)) {
			t.Errorf("%d: %+v", n, got)
		}
	}
	long := deliverer.Outcome(deliverer.Try{Host: strings.Repeat("x", 3000), Err: &url.Error{Op: "Post", URL: "https://x/path", Err: io.EOF}})
	if len(long.Detail) > 500 || strings.Contains(long.Detail, "path") {
		t.Errorf("%d bytes: %s", len(long.Detail), long.Detail)
	}
	if d := api.ParseRetryAfter("86401", time.Now()); d != day {
		t.Errorf("a Retry-After of more than a day is %s", d)
	}
}

func TestNew_NamesWhatIsMissing(t *testing.T) {
	_, err := deliverer.New(&desk{}, deliverer.Config{})
	var mistakes workflow.Mistakes
	if !errors.As(err, &mistakes) || len(mistakes) != 3 {
		t.Errorf("%v, want three mistakes", err)
	}
}

// FuzzReadKey: what is read is what was meant, and nothing else is told.
func FuzzReadKey(f *testing.F) {
	for _, seed := range []string{key, key + "\n", "whsec_", "whsec_aHVudGVyMg==", "hunter2", "", "whsec_" + strings.Repeat("A", 200)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := deliverer.ReadKey(redact.New(text))
		if err != nil {
			if len(text) > 12 && strings.Contains(err.Error(), text) {
				t.Errorf("%v tells the secret", err)
			}
			return
		}
		if n := len(got.Reveal()); n < 24 || n > 64 {
			t.Errorf("a key of %d bytes", n)
		}
	})
}
