package relay_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const taskARN = "arn:aws:ecs:us-east-1:123456789012:task/dayfly/0123456789abcdef0123456789abcdef"

func TestParseCaller(t *testing.T) {
	for arn, want := range map[string]relay.Identity{
		"arn:aws:sts::123456789012:assumed-role/dayfly-task/0123": {Account: "123456789012", Role: "dayfly-task", Session: "0123"},
		"arn:aws-us-gov:sts::123456789012:assumed-role/r/a@b.c":   {Account: "123456789012", Role: "r", Session: "a@b.c"},
		"":                                       {},
		"arn:aws:iam::123456789012:user/someone": {},
		"arn:aws:iam::123456789012:role/dayfly-task":                     {},
		"arn:aws:sts::123456789012:assumed-role/dayfly-task":             {},
		"arn:aws:sts::123456789012:assumed-role/dayfly-task/":            {},
		"arn:aws:sts::123456789012:assumed-role//0123":                   {},
		"arn:aws:sts::123456789012:assumed-role/path/dayfly-task/0123":   {},
		"arn:aws:sts::123456789012:federated-user/0123":                  {},
		"arn:aws:sts:us-east-1:123456789012:assumed-role/dayfly-task/01": {},
		"arn:aws:sts:::assumed-role/dayfly-task/0123":                    {},
	} {
		got, err := relay.ParseCaller(arn)
		if d := cmp.Diff(want, got); d != "" || (err != nil) != (want == relay.Identity{}) {
			t.Errorf("%q: %v (-want +got):\n%s", arn, err, d)
		}
	}
}

func FuzzParseCaller(f *testing.F) {
	f.Add("arn:aws:sts::123456789012:assumed-role/dayfly-task/0123")
	f.Add("arn:aws:sts::1:assumed-role/a/b:c")
	f.Fuzz(func(t *testing.T, arn string) {
		id, err := relay.ParseCaller(arn)
		if err == nil && !strings.HasSuffix(arn, ":"+id.Account+":assumed-role/"+id.Role+"/"+id.Session) {
			t.Errorf("%q was read as %+v", arn, id)
		}
	})
}

// callers is a gateway that says who calls by a header of the test's own.
func callers(req *http.Request) (relay.Identity, error) {
	arn := req.Header.Get("Test-Caller")
	if arn == "" {
		return relay.Identity{}, errors.New("no identity")
	}
	return relay.ParseCaller(arn)
}

func TestCaller_OnlyTheVeryTaskIsLetThrough(t *testing.T) {
	const session = "arn:aws:sts::123456789012:assumed-role/dayfly-task/0123456789abcdef0123456789abcdef"
	for name, c := range map[string]struct {
		caller, task string
		ok           bool
	}{
		"its own task":               {session, taskARN, true},
		"its own task, older form":   {session, "arn:aws:ecs:us-east-1:123456789012:task/0123456789abcdef0123456789abcdef", true},
		"another task":               {session, strings.Replace(taskARN, "0123456789", "9876543210", 1), false},
		"another account's task":     {session, strings.Replace(taskARN, "123456789012", "210987654321", 1), false},
		"a task that ends alike":     {strings.Replace(session, "0123456789abcdef0123456789abcdef", "f", 1), taskARN, false},
		"no ARN":                     {session, "0123456789abcdef0123456789abcdef", false},
		"a role of the same session": {strings.Replace(session, "dayfly-task", "dayfly-admin", 1), taskARN, false},
		"an account's user":          {"arn:aws:iam::123456789012:user/someone", taskARN, false},
		"nobody":                     {"", taskARN, false},
		"no task":                    {session, "", false},
		"another service":            {session, strings.Replace(taskARN, ":ecs:", ":batch:", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			r := u.relay(t, relay.Config{Caller: callers, TaskRole: "dayfly-task"})
			w := call(t, r, "start", "wf_1", "{}", func(req *http.Request) {
				req.Header.Set("Test-Caller", c.caller)
				req.Header.Set(api.HeaderTask, c.task)
			})
			if c.ok != (w.Code == 200) || c.ok != (len(u.made()) == 1) {
				t.Fatalf("%d %s after %d calls", w.Code, w.Body, len(u.made()))
			}
			if c.ok {
				return
			}
			if w.Code != 403 || code(t, w) != "wrong_caller" || w.Header().Get("Retry-After") == "" {
				t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
			}
			// A runner must not take it for the word of the control plane: a relay that is set up wrongly
			// would kill every apply.
			p := api.Problem{Status: 403, Code: code(t, w)}
			if err := p.Err(0); client.RunOver(err) || !client.Transient(err) {
				t.Errorf("a runner takes it for %v", err)
			}
		})
	}
}

func TestNew_WantsTheRoleOfTheTasksThatItChecks(t *testing.T) {
	_, err := relay.New(ring, nil, relay.Config{URL: "https://cp.example.com", Hold: -1, Caller: callers})
	if !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("error %v", err)
	}
}

// A gateway that checks signatures needs the Authorization header.
func TestTicket_InItsOwnHeader(t *testing.T) {
	u := newUpstream()
	own := func(req *http.Request) {
		req.Header.Set(api.HeaderTicket, strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIA/20261121/us-east-1/execute-api/aws4_request, SignedHeaders=host, Signature=00")
	}
	r := u.relay(t, relay.Config{})
	if w := call(t, r, "steps", "wf_1", "{}", own); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	got := u.made()[0]
	if got.Auth != "Bearer "+token || got.Header.Get(api.HeaderTicket) != "" {
		t.Errorf("forwarded with %v", got.Header)
	}
	w := call(t, r, "steps", "wf_1", "{}", own, func(req *http.Request) { req.Header.Set(api.HeaderTicket, "broken") })
	if w.Code != 401 {
		t.Errorf("a broken ticket: %d %s", w.Code, w.Body)
	}
	w = call(t, r, "steps", "wf_1", "{}", own, func(req *http.Request) { req.Header.Del(api.HeaderTicket) })
	if w.Code != 401 {
		t.Errorf("a signature is not a ticket: %d %s", w.Code, w.Body)
	}
}

// Keys that cannot be read must not end a run.
func TestKnow_TroubleWithTheKeysPasses(t *testing.T) {
	u := newUpstream()
	trouble := errors.New("secrets manager is away: arn:secret")
	known := ""
	r := u.relay(t, relay.Config{Know: func(_ context.Context, sealed string, _ time.Time) error {
		known = sealed
		return trouble
	}})
	w := call(t, r, "heartbeat", "wf_1", "{}")
	if w.Code != 503 || code(t, w) != "busy" || strings.Contains(w.Body.String(), "arn:secret") || len(u.made()) != 0 {
		t.Errorf("%d %s after %d calls", w.Code, w.Body, len(u.made()))
	}
	if strings.Count(known, ".") != 4 {
		t.Errorf("asked about %q", known)
	}
	trouble = nil
	if w := call(t, r, "heartbeat", "wf_1", "{}"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
