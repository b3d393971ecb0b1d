package ecs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	arnPrefix = "arn:aws:ecs:us-east-1:123456789012:task/dayfly/"
	arnOne    = arnPrefix + "0123456789abcdef0123456789abcdef"
	arnTwo    = arnPrefix + "fedcba9876543210fedcba9876543210"
)

var _ ecs.Client = (*awsecs.Client)(nil)

// service answers as a test says, to the real client.
type service struct {
	mu     sync.Mutex
	bodies map[string][]string // by operation
	answer func(operation string, n int) (status int, body string)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.bodies[operation] = append(s.bodies[operation], string(body))
	n := len(s.bodies[operation])
	s.mu.Unlock()
	status, out := s.answer(operation, n)
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, out)
}

func (s *service) calls(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bodies[operation])
}

func newService(t *testing.T, c ecs.Config, answer func(operation string, n int) (int, string)) (*service, *ecs.Launcher) {
	t.Helper()
	s := &service{bodies: map[string][]string{}, answer: answer}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	l, err := ecs.New(client(server.URL), c)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

func client(endpoint string) *awsecs.Client {
	return awsecs.New(awsecs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "none"}, nil
		}),
	})
}

func request() launcher.Request {
	return launcher.Request{
		Needs:    task.Needs{Attempt: 2, Organization: "acme", Workspace: "network <prod>", Pool: "prod", Size: "medium"},
		Workflow: "wf-1", Placement: "on-demand/subnet-b",
		Ticket: "eyJhbGciOiJkaXIifQ..x.y.z", Relay: "https://abc.execute-api.us-east-1.amazonaws.com/prod",
	}
}

// TestLaunch_SendsExactlyThis holds the call to ECS, byte for byte but for its layout.
func TestLaunch_SendsExactlyThis(t *testing.T) {
	spot := request()
	spot.Placement, spot.Size, spot.ReadsState = "spot/subnet-c", "8192/20480", true
	rich := config()
	rich.Cluster = "arn:aws:ecs:us-east-1:123456789012:cluster/dayfly"
	rich.AssignPublicIP, rich.SecurityGroups = true, nil
	for name, tc := range map[string]struct {
		config  ecs.Config
		request launcher.Request
	}{
		"on-demand": {config(), request()},
		"spot":      {rich, spot},
	} {
		s, l := newService(t, tc.config, func(string, int) (int, string) {
			return 200, `{"tasks":[{"taskArn":"` + arnOne + `","lastStatus":"PROVISIONING","desiredStatus":"RUNNING","createdAt":1.7e9}]}`
		})
		for range 2 {
			task, err := l.Launch(t.Context(), tc.request)
			want := launcher.Task{Ref: arnOne, Workflow: "wf-1", Attempt: 2, Phase: launcher.Starting, CreatedAt: time.Unix(1_700_000_000, 0).UTC()}
			if diff := cmp.Diff(want, task); err != nil || diff != "" {
				t.Fatalf("%s: got %v; task differs (-want +got):\n%s", name, err, diff)
			}
		}
		if got := s.bodies["RunTask"]; len(got) != 2 || got[0] != got[1] {
			t.Fatalf("%s: the same request gave different calls: %s", name, got)
		}
		golden(t, "runtask-"+name+".json", s.bodies["RunTask"][0])
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(got), "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s differs; run with -update if that is meant (-want +got):\n%s", name, diff)
	}
}

func TestClientToken_IsMadeOfJobAttemptAndPlacement(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*launcher.Request){
		"as it is":  func(*launcher.Request) {},
		"job":       func(r *launcher.Request) { r.Workflow = "wf-2" },
		"attempt":   func(r *launcher.Request) { r.Attempt = 3 },
		"placement": func(r *launcher.Request) { r.Placement = "spot/subnet-b" },
		"shifted":   func(r *launcher.Request) { r.Workflow, r.Attempt = "wf-12", 2 },
	} {
		r := request()
		change(&r)
		token := ecs.ClientToken(r)
		if len(token) != 64 || strings.Trim(token, "0123456789abcdef") != "" {
			t.Errorf("%s: got %q, want 64 characters of hex", name, token)
		}
		if other, ok := seen[token]; ok {
			t.Errorf("%s and %s have one token", name, other)
		}
		seen[token] = name
	}
	r := request()
	r.Ticket, r.Size, r.Relay = "other", "large", "https://elsewhere"
	if seen[ecs.ClientToken(r)] != "as it is" {
		t.Error("the token depends on more than job, attempt and placement")
	}
}

func TestLaunch_RefusesForGoodBeforeItCalls(t *testing.T) {
	s, l := newService(t, config(), func(string, int) (int, string) { return 500, "{}" })
	for name, tc := range map[string]struct {
		change func(*launcher.Request)
		says   string
	}{
		"no ticket":         {func(r *launcher.Request) { r.Ticket = "" }, "has no workflow"},
		"unknown size":      {func(r *launcher.Request) { r.Size = "1024/1" }, "does not exist"},
		"unknown placement": {func(r *launcher.Request) { r.Placement = "on-demand/subnet-z" }, "is not one of this pool's"},
		"no placement":      {func(r *launcher.Request) { r.Placement = "" }, "is not one of this pool's"},
		"too long":          {func(r *launcher.Request) { r.Ticket = strings.Repeat("x", 8192) }, "ECS accepts 8192"},
		"state on disk":     {func(r *launcher.Request) { r.States.Own, r.States.Required = "acme/network", true }, "would be lost with an ECS task"},
		"directory source":  {func(r *launcher.Request) { r.SourceDirectory = "/srv/code" }, "a directory source is on one machine"},
		"local secrets":     {func(r *launcher.Request) { r.SecretRefs = []string{"vault:secret/db#password", "file:db"} }, "keep it in Secrets Manager"},
		"control character": {func(r *launcher.Request) { r.Relay = "https://x\n" }, "control character"},
	} {
		r := request()
		tc.change(&r)
		_, err := l.Launch(t.Context(), r)
		got, ok := errors.AsType[*launcher.Refusal](err)
		if !ok || !got.Permanent || got.Unknown || got.Reason != workflow.ReasonLaunchFailed || !strings.Contains(got.Text, tc.says) {
			t.Errorf("%s: got %+v, want a permanent refusal that says %q", name, err, tc.says)
		}
		if strings.Contains(err.Error(), "xxxx") {
			t.Errorf("%s: the ticket is in %q", name, err)
		}
	}
	if n := s.calls("RunTask"); n != 0 {
		t.Errorf("got %d calls, want none", n)
	}
}

// TestLaunch_OverridesAreCountedAsECSDoes finds the longest ticket that goes through: the JSON text has
// 8,192 characters then.
func TestLaunch_OverridesAreCountedAsECSDoes(t *testing.T) {
	s, l := newService(t, config(), func(string, int) (int, string) { return 200, `{"tasks":[{"taskArn":"` + arnOne + `"}]}` })
	taken := func(n int) bool {
		r := request()
		r.Ticket = strings.Repeat("&", n) // which ECS does not count as six
		_, err := l.Launch(t.Context(), r)
		return err == nil
	}
	low, high := 1, 8192
	for low+1 < high {
		if mid := (low + high) / 2; taken(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	if !taken(low) {
		t.Fatal("not even a short ticket is taken")
	}
	var sent struct {
		Overrides json.RawMessage `json:"overrides"`
	}
	bodies := s.bodies["RunTask"]
	if err := json.Unmarshal([]byte(bodies[len(bodies)-1]), &sent); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(sent.Overrides), `\u0026`, "&")
	if len(text) != 8192 {
		t.Errorf("the longest overrides that are taken have %d characters on the wire, want 8192", len(text))
	}
}

func TestLaunch_ClassifiesRefusals(t *testing.T) {
	problem := func(code, message string) string {
		b, _ := json.Marshal(map[string]string{"__type": code, "message": message})
		return string(b)
	}
	failure := func(reason, detail string) string {
		b, _ := json.Marshal(map[string]any{"tasks": []any{}, "failures": []any{map[string]string{"reason": reason, "detail": detail}}})
		return string(b)
	}
	const capacity = "Capacity is unavailable at this time. Please try again later or in a different availability zone"
	for name, tc := range map[string]struct {
		status    int
		body      string
		reason    workflow.Reason
		permanent bool
		unknown   bool
		says      string
	}{
		"throttled":            {400, problem("ThrottlingException", "Rate exceeded"), workflow.ReasonThrottled, false, false, "Rate exceeded"},
		"throttled, wrapped":   {400, problem("InvalidParameterException", "Rate exceeded (ErrorCode: Throttling)"), workflow.ReasonThrottled, false, false, "ErrorCode"},
		"quota":                {400, problem("ClientException", "You've reached the limit on the number of vCPUs you can run concurrently"), workflow.ReasonQuota, false, false, "vCPUs"},
		"capacity":             {400, problem("ClientException", capacity), workflow.ReasonCapacity, false, false, "subnet-b, on demand"},
		"capacity, status 200": {200, failure(capacity, ""), workflow.ReasonCapacity, false, false, "subnet-b, on demand"},
		"resources":            {200, failure("RESOURCE:ENI", "no addresses"), workflow.ReasonCapacity, false, false, "RESOURCE:ENI: no addresses"},
		"failure of a kind":    {200, failure("AGENT", ""), workflow.ReasonUnavailable, false, false, "AGENT"},
		"failure for good":     {200, failure("ATTRIBUTE", ""), workflow.ReasonLaunchFailed, true, false, "ATTRIBUTE"},
		"status 500":           {500, problem("ServerException", "Service Unavailable"), workflow.ReasonUnavailable, false, true, "did not answer"},
		"broken off":           {0, "", workflow.ReasonUnavailable, false, true, "did not answer"},
		"nonsense":             {200, "<html>", workflow.ReasonUnavailable, false, true, "did not answer"},
		"nothing at all":       {200, "{}", workflow.ReasonUnavailable, false, true, "neither a task nor a reason"},
		"denied":               {400, problem("AccessDeniedException", "User x is not authorized to perform: ecs:RunTask"), workflow.ReasonLaunchFailed, true, false, "iam:PassRole"},
		"expired":              {400, problem("ExpiredTokenException", "expired"), workflow.ReasonUnavailable, false, false, "own credentials"},
		"cluster":              {400, problem("ClusterNotFoundException", "Cluster not found."), workflow.ReasonLaunchFailed, true, false, "does not exist"},
		"definition":           {400, problem("ClientException", "TaskDefinition not found."), workflow.ReasonLaunchFailed, true, false, "does not exist"},
		"a parameter":          {400, problem("InvalidParameterException", "Invalid value for cpu"), workflow.ReasonLaunchFailed, true, false, "refuse it again"},
	} {
		s, l := newService(t, config(), func(string, int) (int, string) { return tc.status, tc.body })
		_, err := l.Launch(t.Context(), request())
		got, ok := errors.AsType[*launcher.Refusal](err)
		if !ok || got.Reason != tc.reason || got.Permanent != tc.permanent || got.Unknown != tc.unknown || !strings.Contains(got.Text, tc.says) {
			t.Errorf("%s: got %+v, want reason %s, permanent %t, unknown %t, and a text with %q", name, got, tc.reason, tc.permanent, tc.unknown, tc.says)
		}
		if n := s.calls("RunTask"); n != 1 {
			t.Errorf("%s: got %d calls, want one: a repeat would hide what became of the first", name, n)
		}
	}
}

// TestLaunch_WhatIsUnsettledStaysSo: a throttle after a lost answer says nothing about the lost call, so the
// refusal must still keep other placements from being tried.
func TestLaunch_WhatIsUnsettledStaysSo(t *testing.T) {
	problem := func(code, text string) string { return `{"__type":"` + code + `","message":"` + text + `"}` }
	for name, tc := range map[string]struct {
		body    string
		unknown bool
		reason  workflow.Reason
	}{
		"a throttle":            {problem("ThrottlingException", "Rate exceeded"), true, workflow.ReasonThrottled},
		"a throttle, wrapped":   {problem("InvalidParameterException", "Rate exceeded (ErrorCode: Throttling)"), true, workflow.ReasonThrottled},
		"no permission":         {problem("AccessDeniedException", "no"), true, workflow.ReasonUnavailable},
		"expired credentials":   {problem("ExpiredTokenException", "no"), true, workflow.ReasonUnavailable},
		"no capacity":           {problem("ClientException", "Capacity is unavailable at this time"), false, workflow.ReasonCapacity},
		"no quota":              {problem("ClientException", "You've reached the limit on the number of vCPUs you can run concurrently"), false, workflow.ReasonQuota},
		"refused for good":      {problem("InvalidParameterException", "no"), false, workflow.ReasonLaunchFailed},
		"a failure of capacity": {"", false, workflow.ReasonCapacity},
	} {
		_, l := newService(t, config(), func(string, int) (int, string) {
			if tc.body == "" {
				return 200, `{"tasks":[],"failures":[{"reason":"RESOURCE:ENI"}]}`
			}
			return 400, tc.body
		})
		r := request()
		r.MayHaveStarted = true
		got, ok := errors.AsType[*launcher.Refusal](second(l.Launch(t.Context(), r)))
		if !ok || got.Unknown != tc.unknown || got.Reason != tc.reason || got.Permanent != (tc.reason == workflow.ReasonLaunchFailed) {
			t.Errorf("%s: got %+v, want unknown %t, reason %s", name, got, tc.unknown, tc.reason)
		}
		r.MayHaveStarted = false
		if got, ok := errors.AsType[*launcher.Refusal](second(l.Launch(t.Context(), r))); !ok || got.Unknown {
			t.Errorf("%s, of a request that is settled: got %+v, want one that is known", name, got)
		}
	}
}

func TestLaunch_NoAnswerInTimeIsUnknown(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	c := config()
	c.CallTime = 20 * time.Millisecond
	_, l := newService(t, c, func(string, int) (int, string) { <-release; return 200, "{}" })
	_, err := l.Launch(t.Context(), request())
	if got, ok := errors.AsType[*launcher.Refusal](err); !ok || !got.Unknown || got.Permanent {
		t.Errorf("got %v, want a refusal that is unknown", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other := request()
	other.Attempt = 3
	if got, ok := errors.AsType[*launcher.Refusal](second(l.Launch(ctx, other))); !ok || got.Unknown {
		t.Errorf("not begun: got %+v, want a refusal that is known", got)
	}
	other.MayHaveStarted = true
	if got, ok := errors.AsType[*launcher.Refusal](second(l.Launch(ctx, other))); !ok || !got.Unknown {
		t.Errorf("not begun, and unsettled: got %+v, want a refusal that is unknown", got)
	}
}

func second[T any](_ T, err error) error { return err }

func TestLaunch_AdoptsWhatTheTokenStandsFor(t *testing.T) {
	conflict := func(arns ...string) string {
		b, _ := json.Marshal(map[string]any{"__type": "ConflictException", "message": "used", "resourceIds": arns})
		return string(b)
	}
	shown := func(arn, status, job, attempt string) string {
		return `{"taskArn":"` + arn + `","lastStatus":"` + status + `","overrides":{"containerOverrides":[{"name":"runner","environment":[` +
			`{"name":"DAYFLY_JOB","value":"` + job + `"},{"name":"DAYFLY_ATTEMPT","value":"` + attempt + `"}]}]}}`
	}
	for name, tc := range map[string]struct {
		conflict, describe string
		status             int
		want               string // the task; "": a refusal
		phase              launcher.Phase
		unknown            bool
	}{
		"it is shown":                {conflict(arnOne), `{"tasks":[` + shown(arnOne, "RUNNING", "wf-1", "2") + `]}`, 200, arnOne, launcher.Running, false},
		"it is not shown yet":        {conflict(arnOne), `{"tasks":[],"failures":[{"arn":"` + arnOne + `","reason":"MISSING"}]}`, 200, arnOne, launcher.Starting, false},
		"nobody can look":            {conflict(arnOne), `{"__type":"ThrottlingException"}`, 400, arnOne, launcher.Starting, false},
		"the one that lives":         {conflict(arnOne, arnTwo), `{"tasks":[` + shown(arnOne, "STOPPED", "wf-1", "2") + `,` + shown(arnTwo, "PENDING", "wf-1", "2") + `]}`, 200, arnTwo, launcher.Starting, false},
		"it has stopped":             {conflict(arnOne), `{"tasks":[` + shown(arnOne, "STOPPED", "wf-1", "2") + `]}`, 200, arnOne, launcher.Stopped, false},
		"it is another job's":        {conflict(arnOne), `{"tasks":[` + shown(arnOne, "RUNNING", "wf-2", "2") + `]}`, 200, "", "", false},
		"it is of an attempt before": {conflict(arnOne), `{"tasks":[` + shown(arnOne, "RUNNING", "wf-1", "1") + `]}`, 200, "", "", false},
		"the other one is ours":      {conflict(arnOne, arnTwo), `{"tasks":[` + shown(arnOne, "RUNNING", "wf-2", "2") + `]}`, 200, arnTwo, launcher.Starting, false},
		"no name":                    {conflict(), "", 200, "", "", true},
	} {
		_, l := newService(t, config(), func(operation string, _ int) (int, string) {
			if operation == "RunTask" {
				return 400, tc.conflict
			}
			return tc.status, tc.describe
		})
		task, err := l.Launch(t.Context(), request())
		if tc.want == "" {
			got, ok := errors.AsType[*launcher.Refusal](err)
			if !ok || got.Permanent || got.Unknown != tc.unknown {
				t.Errorf("%s: got %+v, want a refusal, unknown %t", name, err, tc.unknown)
			}
			continue
		}
		if err != nil || task.Ref != tc.want || task.Phase != tc.phase || task.Workflow != "wf-1" || task.Attempt != 2 {
			t.Errorf("%s: got %+v, %v; want task %s, %s", name, task, err, tc.want, tc.phase)
		}
	}
}
