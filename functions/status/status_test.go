package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/relay"
	storememory "github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	task = "arn:aws:ecs:us-east-1:123456789012:task/dayfly/0123456789abcdef0123456789abcdef"
	role = "dayfly-default-task"
)

func sample(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "events", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// world is the function before a real control plane, and behind a real queue.
type world struct {
	t     *testing.T
	f     *function
	plane *controlplane.Plane
	admin controlplane.Principal
	pool  controlplane.Principal
	queue *memory.Queue
	ring  *ticket.Keyring
	job   api.Job
	shown []string // tickets
	log   strings.Builder

	mu     sync.Mutex
	away   bool
	hidden map[string]time.Duration
}

// RoundTrip is the way to the control plane.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	away := w.away
	w.mu.Unlock()
	if away {
		return nil, errors.New("connection refused")
	}
	return client.InMemory(httpapi.New(w.plane, httpapi.Config{})).RoundTrip(r)
}

func (w *world) Hide(_ context.Context, receipt string, d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hidden[receipt] = d
	return nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// newWorld is one in which a job is claimed and launched.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, plane: controlplane.New(storememory.New(), controlplane.Config{}), hidden: map[string]time.Duration{}}
	ctx := t.Context()
	token, err := w.plane.Bootstrap(ctx, "default")
	w.must(err)
	w.admin, err = w.plane.Authenticate(ctx, token)
	w.must(err)
	token, err = w.plane.EnsurePoolToken(ctx, "default", "default", "stack")
	w.must(err)
	w.pool, err = w.plane.Authenticate(ctx, token)
	w.must(err)
	_, _, err = w.plane.PutWorkspace(ctx, w.admin, api.Workspace{
		Name: "net", RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"update": "true"}},
		State: &api.State{Kind: api.StateSource},
	})
	w.must(err)
	_, err = w.plane.Submit(ctx, w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update})
	w.must(err)
	claimed, err := w.plane.Claim(ctx, w.pool, api.Claim{Instance: "stack", Max: 1})
	w.must(err)
	w.job = claimed.Jobs[0]
	w.must(w.plane.Launch(ctx, w.pool, w.job.ID, api.Launch{Attempt: 1, Kind: api.LaunchAccepted, Task: task}))

	key := ticket.GenerateKey()
	text, err := ticket.FormatKeys(key)
	w.must(err)
	keys := boot.NewKeys(boot.NewSecret("the ticket keys", nil, func(context.Context) (string, error) { return string(text), nil }))
	w.ring, err = ticket.NewKeyring(key)
	w.must(err)
	w.queue, err = memory.New(memory.Config{})
	w.must(err)
	log := slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := relay.New(keys, nil, relay.Config{
		URL: "https://cp.example.com", Transport: w, Log: log, Hold: -1, Forward: forwardTime,
		Caller: caller, TaskRole: role, Know: keys.Know, Reports: w.queue,
	})
	w.must(err)
	w.f = newFunction(r, w, log)
	return w
}

func (w *world) ticket() string {
	w.t.Helper()
	sealed, err := w.ring.Seal(ticket.Claims{Job: w.job.ID, Attempt: w.job.Attempt, Token: redact.New(w.job.Token), Expires: time.Now().Add(time.Hour), Group: "default/net", Organization: "default", WorkspaceID: w.job.Needs.WorkspaceID})
	w.must(err)
	w.shown = append(w.shown, sealed)
	return sealed
}

// call makes a runner's call out of a sample.
func (w *world) call(name, body string, change ...func(*events.APIGatewayProxyRequest)) events.APIGatewayProxyResponse {
	w.t.Helper()
	var e events.APIGatewayProxyRequest
	w.must(json.Unmarshal(sample(w.t, "status-start"), &e))
	e.Path, e.Body = "/v1/jobs/"+w.job.ID+"/"+name, body
	if name == "spec" {
		e.HTTPMethod = http.MethodGet
	}
	set(&e, api.HeaderTicket, w.ticket())
	for _, c := range change {
		c(&e)
	}
	raw, err := json.Marshal(e)
	w.must(err)
	out, err := w.f.Handle(w.t.Context(), raw)
	w.must(err)
	response, ok := out.(events.APIGatewayProxyResponse)
	if !ok {
		w.t.Fatalf("answered %T", out)
	}
	return response
}

func set(e *events.APIGatewayProxyRequest, name, value string) {
	e.Headers[name], e.MultiValueHeaders[name] = value, []string{value}
}

func (w *world) state() api.Workflow {
	w.t.Helper()
	wf, err := w.plane.Workflow(w.t.Context(), w.admin, w.job.ID)
	w.must(err)
	return wf
}

func TestHandle_ARunFromStartToResult(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ name, body string }{
		{"start", "{}"}, {"spec", ""}, {"heartbeat", `{"step":"apply"}`},
		{"logs", `{"first":0,"lines":[{"at":"2026-05-04T12:00:00Z","text":"hello"}]}`},
		{"result", `{"outcome":"succeeded","log_end":1}`},
	} {
		got := w.call(c.name, c.body)
		if got.StatusCode != 200 {
			t.Fatalf("%s: %d %s", c.name, got.StatusCode, got.Body)
		}
		// Held heartbeats would be paid for.
		if c.name == "heartbeat" {
			var control api.Control
			w.must(json.Unmarshal([]byte(got.Body), &control))
			if control.HoldSeconds != 0 || control.HeartbeatSeconds != 30 {
				t.Errorf("heartbeat answered %+v", control)
			}
		}
	}
	if wf := w.state(); wf.State != workflow.Succeeded {
		t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
	}
	for _, secret := range append(w.shown, w.job.Token) {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log holds %q:\n%s", secret, w.log.String())
		}
	}
}

// The identity is the event's own. What a caller says of itself in a header is nothing.
func TestHandle_AForgedContextIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	var e events.APIGatewayProxyRequest
	w.must(json.Unmarshal(sample(t, "status-start"), &e))
	honest, err := json.Marshal(e.RequestContext)
	w.must(err)
	other := func(e *events.APIGatewayProxyRequest) {
		e.RequestContext.Identity.UserArn = strings.Replace(e.RequestContext.Identity.UserArn, "0123456789", "9876543210", 1)
	}
	for name, change := range map[string]func(*events.APIGatewayProxyRequest){
		"another task": other,
		"another role": func(e *events.APIGatewayProxyRequest) {
			e.RequestContext.Identity.UserArn = "arn:aws:sts::123456789012:assumed-role/admin/0123456789abcdef0123456789abcdef"
		},
		"nobody": func(e *events.APIGatewayProxyRequest) { e.RequestContext.Identity.UserArn = "" },
		"with a header": func(e *events.APIGatewayProxyRequest) {
			other(e)
			set(e, "X-GoLambdaProxy-ApiGw-Context", string(honest))
		},
		"in lower case": func(e *events.APIGatewayProxyRequest) {
			other(e)
			set(e, "x-golambdaproxy-apigw-context", string(honest))
		},
	} {
		got := w.call("start", "{}", change)
		var p api.Problem
		w.must(json.Unmarshal([]byte(got.Body), &p))
		if got.StatusCode != 403 || p.Code != "wrong_caller" {
			t.Errorf("%s: %d %s", name, got.StatusCode, got.Body)
		}
	}
	if wf := w.state(); wf.State != workflow.Claimed {
		t.Errorf("workflow is %s", wf.State)
	}
	forged := func(e *events.APIGatewayProxyRequest) { set(e, "X-GoLambdaProxy-ApiGw-Context", `{"identity":{}}`) }
	if got := w.call("start", "{}", forged); got.StatusCode != 200 {
		t.Errorf("an honest call with such a header: %d %s", got.StatusCode, got.Body)
	}
}

func TestHandle_Bodies(t *testing.T) {
	w := newWorld(t)
	encoded := func(e *events.APIGatewayProxyRequest) {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte("{}")), true
	}
	broken := func(e *events.APIGatewayProxyRequest) { e.Body, e.IsBase64Encoded = "%", true }
	if got := w.call("start", "", encoded); got.StatusCode != 200 {
		t.Errorf("base64: %d %s", got.StatusCode, got.Body)
	}
	if got := w.call("heartbeat", "", broken); got.StatusCode != 422 {
		t.Errorf("broken base64: %d %s", got.StatusCode, got.Body)
	}
	if got := w.call("steps", `{"steps":[{"text":"`+strings.Repeat("x", relay.MaxBody)+`"}]}`); got.StatusCode != 413 {
		t.Errorf("too long: %d %s", got.StatusCode, got.Body)
	}
	if got := w.call("start", "{}", func(e *events.APIGatewayProxyRequest) { e.Path = "/v1/claims" }); got.StatusCode != 404 {
		t.Errorf("another address: %d %s", got.StatusCode, got.Body)
	}
}

// The result of a run that ended while the control plane was away.
func TestReports_RefusedResultIsDeliveredLater(t *testing.T) {
	w := newWorld(t)
	if got := w.call("start", "{}"); got.StatusCode != 200 {
		t.Fatalf("%d %s", got.StatusCode, got.Body)
	}
	w.setAway(true)
	if got := w.call("heartbeat", "{}"); got.StatusCode != 503 {
		t.Errorf("a heartbeat while it is away: %d %s", got.StatusCode, got.Body)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, text := range []string{"the last but one", "the last"} {
		_, err := z.Write(api.LogLine{At: time.Unix(1, 0), Text: text}.Append(nil))
		w.must(err)
	}
	w.must(z.Close())
	handover, err := json.Marshal(api.Handover{
		Result: api.Result{Outcome: workflow.Succeeded, LogEnd: 7}, Tail: &api.LogTail{First: 5, Lines: packed.Bytes()},
	})
	w.must(err)
	if got := w.call("result", string(handover)); got.StatusCode != 202 {
		t.Fatalf("%d %s", got.StatusCode, got.Body)
	}
	// The task ends well, and its state waits for the result.
	zero := 0
	w.must(w.plane.Lost(t.Context(), w.pool, w.job.ID, api.Lost{Attempt: 1, Task: task, ExitCode: &zero}))

	batch := w.receive(3)
	if out := w.deliver(batch); len(out.BatchItemFailures) != 1 || out.BatchItemFailures[0].ItemIdentifier != batch.Records[0].MessageId {
		t.Errorf("while it is away: %+v", out)
	}
	if d := cmp.Diff(map[string]time.Duration{batch.Records[0].ReceiptHandle: 20 * time.Second}, w.hidden); d != "" {
		t.Errorf("put off (-want +got):\n%s", d)
	}
	w.setAway(false)
	if wf := w.state(); wf.State != workflow.Running {
		t.Errorf("workflow is %s before its result came", wf.State)
	}
	for range 2 { // at least once
		if out := w.deliver(batch); len(out.BatchItemFailures) != 0 {
			t.Errorf("%+v", out)
		}
	}
	if wf := w.state(); wf.State != workflow.Succeeded {
		t.Errorf("workflow is %s (%s)", wf.State, wf.Reason)
	}
	page, err := w.plane.Logs(t.Context(), w.admin, w.job.ID, 0, 0, 0, 0)
	w.must(err)
	var texts []string
	for _, l := range page.Lines {
		texts = append(texts, l.Text)
	}
	if want := []string{"[dayfly] lines 0 to 4 are missing here: they could not be sent before their task was gone", "the last but one", "the last"}; !page.Done || !slices.Equal(texts, want) {
		t.Errorf("its log is %q, done %v", texts, page.Done)
	}
	if got := w.call("logs", `{"first":7,"lines":[{"at":"2026-05-04T12:00:00Z","text":"late"}]}`); got.StatusCode != 200 {
		t.Errorf("late lines: %d %s", got.StatusCode, got.Body)
	}
	if strings.Contains(w.log.String(), w.job.Token) || strings.Contains(batch.Records[0].Body, w.job.Token) {
		t.Error("the token was shown")
	}
}

func TestReports_OneThatIsNoneDoesNotSpoilTheOthers(t *testing.T) {
	w := newWorld(t)
	if got := w.call("start", "{}"); got.StatusCode != 200 {
		t.Fatalf("%d %s", got.StatusCode, got.Body)
	}
	w.setAway(true)
	w.call("result", `{"outcome":"succeeded","log_end":0}`)
	w.setAway(false)
	batch := w.receive(1)
	poison := batch.Records[0]
	poison.MessageId, poison.ReceiptHandle, poison.Body = "poison", "poison", "\x00{"
	batch.Records = []events.SQSMessage{poison, batch.Records[0]}
	for _, receives := range []string{"1", "700"} { // it comes again, as often as makes it a dead letter within its retention
		batch.Records[0].Attributes = map[string]string{"ApproximateReceiveCount": receives}
		if out := w.deliver(batch); len(out.BatchItemFailures) != 1 || out.BatchItemFailures[0].ItemIdentifier != "poison" {
			t.Errorf("%+v", out)
		}
		if d := cmp.Diff(map[string]time.Duration{poison.ReceiptHandle: unreadHide}, w.hidden); d != "" {
			t.Errorf("put off (-want +got):\n%s", d)
		}
	}
	if wf := w.state(); wf.State != workflow.Succeeded {
		t.Errorf("workflow is %s", wf.State)
	}
}

func TestReports_WithoutTimeTheyComeAgain(t *testing.T) {
	w := newWorld(t)
	if got := w.call("start", "{}"); got.StatusCode != 200 {
		t.Fatalf("%d %s", got.StatusCode, got.Body)
	}
	w.setAway(true)
	w.call("result", `{"outcome":"succeeded","log_end":0}`)
	w.setAway(false)
	ctx, cancel := context.WithTimeout(t.Context(), forwardTime)
	defer cancel()
	raw, err := json.Marshal(w.receive(1))
	w.must(err)
	out, err := w.f.Handle(ctx, raw)
	if got, ok := out.(events.SQSEventResponse); err != nil || !ok || len(got.BatchItemFailures) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if wf := w.state(); wf.State != workflow.Running {
		t.Errorf("workflow is %s", wf.State)
	}
}

func (w *world) setAway(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// receive makes an event of what lies in the queue, as the event source mapping does.
func (w *world) receive(receives int) events.SQSEvent {
	w.t.Helper()
	messages, err := w.queue.Receive(w.t.Context(), 10, 0)
	w.must(err)
	if len(messages) != 1 {
		w.t.Fatalf("%d messages in the queue", len(messages))
	}
	var e events.SQSEvent
	w.must(json.Unmarshal(sample(w.t, "sqs-reports"), &e))
	e.Records[0].Body, e.Records[0].ReceiptHandle = string(messages[0].Body), messages[0].Receipt
	e.Records[0].Attributes["ApproximateReceiveCount"] = string(rune('0' + receives))
	return e
}

func (w *world) deliver(batch events.SQSEvent) events.SQSEventResponse {
	w.t.Helper()
	raw, err := json.Marshal(batch)
	w.must(err)
	out, err := w.f.Handle(w.t.Context(), raw)
	w.must(err)
	answer, ok := out.(events.SQSEventResponse)
	if !ok {
		w.t.Fatalf("answered %T", out)
	}
	return answer
}

func TestDecode_TellsTheEventsApart(t *testing.T) {
	for name, want := range map[string]string{
		"status-start": "call", "status-heartbeat": "call", "sqs-reports": "reports",
		"sweep": "error", "http-api-claim": "error", "ecs-task-stopped": "error",
	} {
		call, reports, err := decode(sample(t, name))
		got := "error"
		switch {
		case err == nil && call != nil && reports == nil:
			got = "call"
		case err == nil && call == nil && len(reports) == 1:
			got = "reports"
		}
		if got != want {
			t.Errorf("%s: %s (%v), want %s", name, got, err, want)
		}
	}
	var report struct{ Body string }
	_, reports, _ := decode(sample(t, "sqs-reports"))
	report.Body = string(reports[0].Body)
	if _, err := relay.DecodeReport([]byte(report.Body)); err != nil {
		t.Errorf("the sample holds no report: %v", err)
	}
	for _, raw := range []string{"", "{}", "null", "[]", `{"Records":[]}`, `{"Records":[{"eventSource":"aws:sns"}]}`, `{"Records":[{"eventSource":"aws:sqs"}]}`, `{"httpMethod":"GET","Records":[{"eventSource":"aws:sqs"}]}`} {
		if _, _, err := decode([]byte(raw)); err == nil {
			t.Errorf("%q was taken", raw)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"status-start", "sqs-reports"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "events", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		call, reports, err := decode(raw)
		if err == nil && (call == nil) == (len(reports) == 0) {
			t.Errorf("%q is %+v and %+v", raw, call, reports)
		}
		if slices.ContainsFunc(reports, func(m queue.Message) bool { return m.ID == "" }) {
			t.Errorf("%q has a message that no answer can name", raw)
		}
	})
}

func TestBuild_TellsEveryMistakeAtOnce(t *testing.T) {
	_, err := build(func(string) string { return "" }, &strings.Builder{})
	if err == nil {
		t.Fatal("an empty environment was taken")
	}
	for _, name := range []string{
		"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "DAYFLY_SERVICE_URL", "DAYFLY_TICKET_KEYS_SECRET",
		"DAYFLY_TASK_ROLE_NAME", "DAYFLY_REPORTS_QUEUE_URL",
	} {
		if !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s is not named in: %v", name, err)
		}
	}
}

func TestBuild_TakesWhatTheStackSets(t *testing.T) {
	env := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "session",
		"DAYFLY_SERVICE_URL": "https://cp.example.com", "DAYFLY_TICKET_KEYS_SECRET": "arn:aws:secretsmanager:us-east-1:123456789012:secret:keys",
		"DAYFLY_TASK_ROLE_NAME": role, "DAYFLY_REPORTS_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/123456789012/reports",
	}
	f, err := build(func(name string) string { return env[name] }, &strings.Builder{})
	if err != nil || f == nil {
		t.Fatal(err)
	}
}
