package api_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var sent = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func job() api.Job {
	return api.Job{
		Needs: task.Needs{
			Attempt: 2, Organization: "default", Workspace: "net", Pool: "main", Size: "small", StateKind: api.StateDirectory, StateKey: "ws_net",
			SourceDirectory: "/src/mit leerzeichen/ä\uFFFE", SecretRefs: []string{"file:a", "file:b"}, MaxRuntimeSeconds: 600,
		},
		ID: "wf_1", Token: "dfj_secret", Type: workflow.Deployment, Operation: workflow.Update, LaunchSeconds: 3600,
	}
}

func TestLaunchMessage_ComesBackAsItWasSent(t *testing.T) {
	want := api.NewLaunchMessage(job(), "sealed", sent)
	body, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "\uFFFE") {
		t.Errorf("SQS refuses a character of %q", body)
	}
	got, err := api.DecodeLaunchMessage(body)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("message (-want +got):\n%s", d)
	}
}

// The launch fields of a job reach the dispatcher. A field that every launcher may want belongs into task.Needs,
// which travels as it is.
func TestLaunchMessage_ForgetsNoFieldOfAJob(t *testing.T) {
	elsewhere := map[string]string{"ID": "Job"}
	m := reflect.ValueOf(api.NewLaunchMessage(job(), "sealed", sent))
	for f, v := range reflect.ValueOf(job()).Fields() {
		name := f.Name
		if other := elsewhere[f.Name]; other != "" {
			name = other
		}
		if got := m.FieldByName(name); f.Name != "Token" && (!got.IsValid() || v.IsZero() || !reflect.DeepEqual(got.Interface(), v.Interface())) {
			t.Errorf("the message forgets Job.%s: give LaunchMessage a field %s and fill it in NewLaunchMessage (internal/api/launch.go)", f.Name, name)
		}
	}
}

func TestLaunchMessage_HoldsNoToken(t *testing.T) {
	body, err := api.NewLaunchMessage(job(), "sealed", sent).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "dfj_secret") {
		t.Errorf("the job token is in the message: %s", body)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "message", api.NewLaunchMessage(job(), "sealed", sent))
	if strings.Contains(log.String(), "sealed") {
		t.Errorf("the ticket is in the log: %s", log.String())
	}
}

func TestLaunchMessage_SaysWhetherTheRunReadsState(t *testing.T) {
	for _, tc := range []struct {
		kind workflow.Type
		op   workflow.Operation
		want bool
	}{
		{workflow.Deployment, workflow.Preview, true},
		{workflow.Deployment, workflow.Update, false},
		{workflow.Deployment, workflow.Refresh, false},
		{workflow.Deployment, workflow.Destroy, false},
		{workflow.InsightsScan, "", true},
		{workflow.PolicyEvaluation, "", true},
	} {
		j := job()
		j.Type, j.Operation = tc.kind, tc.op
		if got := api.NewLaunchMessage(j, "t", sent).ReadsState; got != tc.want {
			t.Errorf("%s %s: reads state %t, want %t", tc.kind, tc.op, got, tc.want)
		}
	}
}

func TestLaunchMessage_WindowIsCountedFromWhenItWasSent(t *testing.T) {
	m := api.NewLaunchMessage(job(), "t", sent)
	for _, tc := range []struct {
		at   time.Time
		want time.Duration
	}{
		{sent, time.Hour},
		{sent.Add(20 * time.Minute), 40 * time.Minute},
		{sent.Add(2 * time.Hour), -time.Hour},
		{sent.Add(-time.Hour), time.Hour}, // a receiver whose clock is behind
	} {
		if got := m.Window(tc.at); got != tc.want {
			t.Errorf("at %s: window %s, want %s", tc.at, got, tc.want)
		}
	}
}

func TestDecodeLaunchMessage_RefusesWhatIsNotAMessage(t *testing.T) {
	good, err := api.NewLaunchMessage(job(), "sealed", sent).Encode()
	if err != nil {
		t.Fatal(err)
	}
	change := func(old, replacement string) string {
		s := strings.Replace(string(good), old, replacement, 1)
		if s == string(good) {
			t.Fatalf("%q is not in %s", old, good)
		}
		return s
	}
	for name, tc := range map[string]struct {
		body string
		want error
	}{
		"empty":            {"", workflow.ErrInvalid},
		"not JSON":         {"hello", workflow.ErrInvalid},
		"null":             {"null", workflow.ErrInvalid},
		"array":            {"[]", workflow.ErrInvalid},
		"two messages":     {string(good) + string(good), workflow.ErrInvalid},
		"trailing bracket": {string(good) + "]", workflow.ErrInvalid},
		"cut off":          {string(good[:len(good)-1]), workflow.ErrInvalid},
		"wrong type":       {change(`"attempt":2`, `"attempt":"2"`), workflow.ErrInvalid},
		"attempt zero":     {change(`"attempt":2`, `"attempt":0`), workflow.ErrInvalid},
		"fraction":         {change(`"attempt":2`, `"attempt":2.5`), workflow.ErrInvalid},
		"no ticket":        {change(`"ticket":"sealed"`, `"ticket":""`), workflow.ErrInvalid},
		"no job":           {change(`"job":"wf_1"`, `"job":""`), workflow.ErrInvalid},
		"control byte":     {change(`"job":"wf_1"`, `"job":"wf\n1"`), workflow.ErrInvalid},
		"long job":         {change(`wf_1`, strings.Repeat("w", 129)), workflow.ErrInvalid},
		"no run time":      {change(`"max_runtime_seconds":600`, `"max_runtime_seconds":0`), workflow.ErrInvalid},
		"endless run time": {change(`"max_runtime_seconds":600`, `"max_runtime_seconds":1e300`), workflow.ErrInvalid},
		"number too large": {change(`"launch_seconds":3600`, `"launch_seconds":1e999`), workflow.ErrInvalid},
		"negative time":    {change(`"sent_at_ms":`, `"sent_at_ms":-`), workflow.ErrInvalid},
		"too long":         {string(good) + strings.Repeat(" ", api.MaxLaunchMessage), workflow.ErrTooLarge},
	} {
		if got, err := api.DecodeLaunchMessage([]byte(tc.body)); !errors.Is(err, tc.want) {
			t.Errorf("%s: decoded to %v, %v; want %v", name, got, err, tc.want)
		}
	}
}

// A newer poller may send more than this version knows: its messages are in flight during an
// upgrade.
func TestDecodeLaunchMessage_PassesOverNewerFields(t *testing.T) {
	good, err := api.NewLaunchMessage(job(), "sealed", sent).Encode()
	if err != nil {
		t.Fatal(err)
	}
	newer := `{"newer":true,` + string(good[1:])
	if _, err := api.DecodeLaunchMessage([]byte(newer)); err != nil {
		t.Errorf("a message with a newer field: %v", err)
	}
}

func TestEncode_RefusesWhatCouldNotBeDecoded(t *testing.T) {
	m := api.NewLaunchMessage(job(), "", sent)
	if _, err := m.Encode(); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("encoded a message without a ticket: %v", err)
	}
}

func TestSeconds_StaysWithinADuration(t *testing.T) {
	for _, tc := range []struct {
		in   float64
		want time.Duration
	}{{1.5, 1500 * time.Millisecond}, {0, 0}, {-2, -2 * time.Second}, {1e300, 1 << 62}, {-1e300, -(1 << 62)}, {math.NaN(), 0}} {
		if got := api.Seconds(tc.in); got != tc.want {
			t.Errorf("%g seconds: got %s, want %s", tc.in, got, tc.want)
		}
	}
}

func TestReportText_FitsAndStaysReadable(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", ""}, {"short", "short"}, {"a\xffb", "a?b"},
		{strings.Repeat("x", 1001), strings.Repeat("x", 1000)},
		{"x" + strings.Repeat("ä", 500), "x" + strings.Repeat("ä", 499)},
	} {
		if got := api.ReportText(tc.in); got != tc.want {
			t.Errorf("%.20q...: got %d bytes, want %d", tc.in, len(got), len(tc.want))
		}
	}
}

func TestProblem_OursKnowsEveryCodeOfTheTable(t *testing.T) {
	for _, err := range []error{workflow.ErrOver, workflow.ErrBusy, workflow.ErrNotReported, errors.New("internal")} {
		if p := api.ProblemFor(err); !p.Ours() {
			t.Errorf("code %q is not taken for ours", p.Code)
		}
	}
	for _, code := range []string{"", "Forbidden", "RUN_OVER"} {
		if (api.Problem{Code: code}).Ours() {
			t.Errorf("code %q is taken for ours", code)
		}
	}
}

func FuzzDecodeLaunchMessage(f *testing.F) {
	good, err := api.NewLaunchMessage(job(), "sealed", sent).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"attempt":1e400}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := api.DecodeLaunchMessage(body)
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("decoded but not encodable: %v", err)
		}
		back, err := api.DecodeLaunchMessage(again)
		if err != nil || fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", m) {
			t.Fatalf("not stable: %+v then %+v, %v", m, back, err)
		}
	})
}

func TestLaunchMessage_NamesBoundedThingsOfTheMachine(t *testing.T) {
	for name, change := range map[string]func(*api.LaunchMessage){
		"a long path":       func(m *api.LaunchMessage) { m.SourceDirectory = strings.Repeat("/a", 3000) },
		"a long inner path": func(m *api.LaunchMessage) { m.SourcePath = strings.Repeat("/a", 3000) },
		"a zero byte":       func(m *api.LaunchMessage) { m.SourceDirectory = "/a\x00b" },
		"many references":   func(m *api.LaunchMessage) { m.SecretRefs = make([]string, api.MaxSecretRefs+1) },
		"a long reference":  func(m *api.LaunchMessage) { m.SecretRefs = []string{strings.Repeat("x", 161)} },
	} {
		m := api.NewLaunchMessage(job(), "sealed", sent)
		change(&m)
		if _, err := m.Encode(); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}
