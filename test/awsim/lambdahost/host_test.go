package lambdahost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/hosttest"
)

type self struct {
	PID   int
	Calls int
	Event json.RawMessage
}

func TestInvoke_AnswersAndUsesTheWarmEnvironmentAgain(t *testing.T) {
	reports := make(chan lambdahost.Report, 2)
	h := host(t, lambdahost.Config{Observe: func(r lambdahost.Report) { reports <- r }})
	var first, second self
	answer(t, h, do{"text": "hello"}, &first)
	answer(t, h, do{"text": "again"}, &second)
	if string(first.Event) != `{"text":"hello"}` {
		t.Errorf("the function saw %s", first.Event)
	}
	if first.PID != second.PID || second.Calls != 2 {
		t.Errorf("processes %d and %d, %d calls in the second; want one process with 2", first.PID, second.PID, second.Calls)
	}
	cold, warm := <-reports, <-reports
	if got := h.Stats("fn"); got.Invocations != 2 || got.ColdStarts != 1 || got.Errors != 0 || got.Died != 0 {
		t.Errorf("stats %+v, want 2 invocations, 1 cold start", got)
	}
	if !cold.Cold || cold.Init <= 0 || cold.PeakMemory < 1<<20 || warm.Cold || warm.Init != 0 {
		t.Errorf("reports %+v and %+v, want a cold one with init and memory, and a warm one", cold, warm)
	}
}

func TestInvoke_GivesTheFunctionWhatLambdaGives(t *testing.T) {
	h := host(t, lambdahost.Config{Region: "eu-west-1"}, func(f *lambdahost.Function) {
		f.Environment = map[string]string{"OWN": "value"}
		f.Credentials = lambdahost.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "TOKEN"}
		f.MemoryMB = 256
	})
	t.Setenv("LEAK", "from the test's own environment")
	var env []string
	answer(t, h, do{"do": "environment"}, &env)
	for _, want := range []string{
		"OWN=value", "AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=AKID", "AWS_SECRET_ACCESS_KEY=SECRET", "AWS_SESSION_TOKEN=TOKEN",
		"AWS_LAMBDA_FUNCTION_NAME=fn", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256", "AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/fn", "_HANDLER=bootstrap", "LAMBDA_TASK_ROOT=" + filepath.Dir(built), "TZ=:UTC",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment lacks %s", want)
		}
	}
	if slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, "LEAK=") }) {
		t.Error("the test's own environment came through")
	}
	var lc struct {
		ID, ARN, Trace string
		Deadline       int64
	}
	began := time.Now()
	r := invoke(t, h, do{"do": "context"})
	if err := json.Unmarshal(r.Payload, &lc); err != nil {
		t.Fatal(err)
	}
	if lc.ID != r.RequestID || lc.ARN != "arn:aws:lambda:eu-west-1:123456789012:function:fn" || !strings.HasPrefix(lc.Trace, "Root=1-") {
		t.Errorf("context %+v, want the request %s", lc, r.RequestID)
	}
	if d := time.UnixMilli(lc.Deadline).Sub(began); d <= 0 || d > 2*wait {
		t.Errorf("deadline %s after the call, want about %s", d, wait)
	}
}

func TestInvoke_ErrorsOfTheFunction(t *testing.T) {
	for _, c := range []struct {
		name       string
		event      do
		kind, text string
		survives   bool
	}{
		{"an error", do{"do": "fail", "text": "no such thing"}, "errorString", "no such thing", true},
		{"a panic", do{"do": "panic", "text": "dead"}, "string", "dead", false},
		{"an exit", do{"do": "exit"}, "Runtime.ExitError", "exit status 3", false},
		{"an answer that is too large", do{"do": "big", "size": lambdahost.MaxSyncAnswer + 1}, "Function.ResponseSizeTooLarge", "exceeded maximum allowed payload size", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := host(t, lambdahost.Config{})
			var before, after self
			answer(t, h, do{}, &before)
			kind, text := said(t, invoke(t, h, c.event))
			if kind != c.kind || !strings.Contains(text, c.text) {
				t.Errorf("error %s: %s; want %s: %s", kind, text, c.kind, c.text)
			}
			answer(t, h, do{}, &after)
			if survived := before.PID == after.PID; survived != c.survives {
				t.Errorf("the environment survived: %t, want %t", survived, c.survives)
			}
		})
	}
}

func TestInvoke_TimeOutKillsTheEnvironment(t *testing.T) {
	h := host(t, lambdahost.Config{}, func(f *lambdahost.Function) { f.Timeout = 300 * time.Millisecond })
	r := invoke(t, h, do{"do": "hang"})
	if kind, text := said(t, r); kind != "Sandbox.Timedout" || !strings.HasSuffix(text, "Task timed out after 0.30 seconds") {
		t.Errorf("error %s: %s", kind, text)
	}
	hosttest.Until(t, "the environment is gone", func() bool { return len(h.Environments("fn")) == 0 })
	if got := h.Stats("fn"); got.TimedOut != 1 || got.Died != 0 {
		t.Errorf("stats %+v, want one that timed out", got)
	}
}

func TestInvoke_GoesOnWithoutItsCaller(t *testing.T) {
	h := host(t, lambdahost.Config{})
	p := hosttest.NewPartner(t)
	ctx, cancel := context.WithCancelCause(ctxOf(t))
	gone := errors.New("went away")
	done := make(chan error)
	go func() {
		_, err := h.Invoke(ctx, "fn", payload(t, do{"do": "talk", "text": "began", "address": p.Address()}))
		done <- err
	}()
	said := p.Hear()
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("error %v, want the caller's own", err)
	}
	said.Reply(t, "end")
	hosttest.Until(t, "the invocation is over and its environment warm", func() bool {
		e := h.Environments("fn")
		return len(e) == 1 && e[0].State == lambdahost.Frozen
	})
}

// Nothing of a function runs between its invocations.
func TestFreeze_BackgroundWorkStandsStill(t *testing.T) {
	h := host(t, lambdahost.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var s self
	answer(t, h, do{"do": "background", "address": l.Addr().String()}, &s)
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	hosttest.Until(t, "the environment is frozen", func() bool { return h.Environments("fn")[0].State == lambdahost.Frozen })
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, state := range threads(t, s.PID) {
		if state != "T" {
			t.Errorf("a thread of the frozen environment is in state %s, want T (stopped)", state)
		}
	}
	var nothing any
	answer(t, h, do{"do": "join"}, &nothing) // it runs again, and what was begun goes on
	b := make([]byte, 1)
	if _, err := conn.Read(b); err != nil || b[0] != 'x' {
		t.Errorf("the background work answered %q, %v", b, err)
	}
}

// threads returns the state of each thread of a process.
func threads(t *testing.T, pid int) (out []string) {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		out = append(out, rest[:1])
	}
	return out
}

func TestConcurrency_OneEnvironmentForEachInvocation(t *testing.T) {
	two := 2
	h := host(t, lambdahost.Config{}, func(f *lambdahost.Function) { f.ReservedConcurrency = &two })
	p := hosttest.NewPartner(t)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := h.Invoke(ctxOf(t), "fn", payload(t, do{"do": "talk", "text": "here", "address": p.Address()}))
			results <- err
		}()
	}
	first, second := p.Hear(), p.Hear()
	if n := len(h.Environments("fn")); n != 2 {
		t.Errorf("%d environments for two invocations at once", n)
	}
	_, err := h.Invoke(ctxOf(t), "fn", []byte("{}"))
	if got := refusal(t, err); got.Status != 429 || got.Code != "TooManyRequestsException" || got.Reason != "ReservedFunctionConcurrentInvocationLimitExceeded" {
		t.Errorf("the third was refused with %+v", got)
	}
	first.Reply(t, "end")
	second.Reply(t, "end")
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got := h.Stats("fn"); got.Throttled != 1 || got.ColdStarts != 2 {
		t.Errorf("stats %+v, want 1 throttled and 2 cold starts", got)
	}
}

func TestConcurrency_TheAccountsIsShared(t *testing.T) {
	one, none := 1, 0
	h := host(t, lambdahost.Config{Concurrency: 2})
	put(t, h, func(f *lambdahost.Function) { f.Name, f.ReservedConcurrency = "reserved", &one })
	put(t, h, func(f *lambdahost.Function) { f.Name, f.ReservedConcurrency = "off", &none })
	p := hosttest.NewPartner(t)
	done := make(chan error)
	go func() {
		_, err := h.Invoke(ctxOf(t), "fn", payload(t, do{"do": "talk", "text": "here", "address": p.Address()}))
		done <- err
	}()
	running := p.Hear()
	_, err := h.Invoke(ctxOf(t), "fn", []byte("{}"))
	if got := refusal(t, err); got.Reason != "ConcurrentInvocationLimitExceeded" {
		t.Errorf("refused with %+v, want the account's limit, less what is reserved", got)
	}
	if _, err := h.Invoke(ctxOf(t), "reserved", []byte("{}")); err != nil {
		t.Errorf("the function with a reservation: %v", err)
	}
	_, err = h.Invoke(ctxOf(t), "off", []byte("{}"))
	if got := refusal(t, err); got.Status != 429 {
		t.Errorf("the function that is switched off was refused with %+v", got)
	}
	running.Reply(t, "end")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	h := host(t, lambdahost.Config{})
	for name, err := range map[string]error{
		"6 MB for a synchronous event":     last(h.Invoke(ctxOf(t), "fn", make([]byte, lambdahost.MaxSyncPayload+1))),
		"1 MB for an asynchronous event":   last(h.InvokeAsync("fn", make([]byte, lambdahost.MaxAsyncPayload+1))),
		"JSON for an asynchronous event":   last(h.InvokeAsync("fn", []byte("{"))),
		"a function that is there":         last(h.Invoke(ctxOf(t), "other", []byte("{}"))),
		"4 KB of environment":              h.Put(lambdahost.Function{Name: "fn", Bootstrap: built, Environment: map[string]string{"BIG": strings.Repeat("x", 4096)}}),
		"no variable that Lambda sets":     h.Put(lambdahost.Function{Name: "fn", Bootstrap: built, Environment: map[string]string{"AWS_REGION": "x"}}),
		"a time-out of at most 15 minutes": h.Put(lambdahost.Function{Name: "fn", Bootstrap: built, Timeout: time.Hour}),
	} {
		if got := refusal(t, err); got.Status < 400 || got.Status > 499 {
			t.Errorf("%s: refused with %+v, want a mistake of the caller", name, got)
		}
	}
	for _, name := range []string{"fn", "fn:live", h.ARN("fn"), h.ARN("fn") + ":live", "123456789012:function:fn"} {
		if _, err := h.Invoke(ctxOf(t), name, []byte("{}")); err != nil {
			t.Errorf("invoke %s: %v", name, err)
		}
	}
}

func last[T any](_ T, err error) error { return err }

func TestPut_ANewVersionGetsNewEnvironments(t *testing.T) {
	h := host(t, lambdahost.Config{})
	var before, after self
	answer(t, h, do{}, &before)
	put(t, h, func(f *lambdahost.Function) { f.Environment = map[string]string{"NEW": "1"} })
	answer(t, h, do{}, &after)
	if before.PID == after.PID {
		t.Error("an environment of the old version was used again")
	}
}

func TestIdle_EnvironmentsAreEnded(t *testing.T) {
	clock := lambdahost.NewManualClock(time.Now())
	h := host(t, lambdahost.Config{Clock: clock, IdleAfter: time.Minute})
	var s self
	answer(t, h, do{}, &s)
	if err := clock.AwaitTimer(ctxOf(t), time.Minute); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute)
	if n, got := len(h.Environments("fn")), h.Stats("fn"); n != 0 || got.Reaped != 1 {
		t.Errorf("%d environments left, stats %+v; want none, 1 reaped", n, got)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", s.PID)); !os.IsNotExist(err) {
		t.Errorf("its process: %v, want gone", err)
	}
}

func TestLatency_IsAddedOnTheHostsClock(t *testing.T) {
	clock := lambdahost.NewManualClock(time.Now())
	h := host(t, lambdahost.Config{Clock: clock, Latency: lambdahost.Latency{ColdStart: 100 * time.Second, Invoke: time.Second}})
	done := make(chan error, 1)
	for _, latency := range []time.Duration{101 * time.Second, time.Second} { // cold, then warm
		go func() {
			_, err := h.Invoke(ctxOf(t), "fn", []byte("{}"))
			done <- err
		}()
		if err := clock.AwaitTimer(ctxOf(t), latency); err != nil {
			t.Fatal(err)
		}
		clock.Advance(latency - time.Millisecond)
		select {
		case err := <-done:
			t.Fatalf("answered before %s had passed: %v", latency, err)
		default:
		}
		clock.Advance(time.Millisecond)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
