package lambdahost_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/hosttest"
)

// built is the function of the tests, as Lambda would get it.
var built string

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m, &built)) }

// wait bounds what a test waits for: a failure, never a judgement.
const wait = hosttest.Wait

func ctxOf(t *testing.T) context.Context { return hosttest.Context(t) }

// host makes a host with one function, fn.
func host(t *testing.T, cfg lambdahost.Config, change ...func(*lambdahost.Function)) *lambdahost.Host {
	t.Helper()
	cfg.InitTimeout = cmp.Or(cfg.InitTimeout, wait)
	if cfg.Log == nil {
		cfg.Log = func(function, line string) { t.Logf("%s: %s", function, line) }
	}
	h := lambdahost.New(cfg)
	t.Cleanup(h.Close)
	put(t, h, change...)
	return h
}

func put(t *testing.T, h *lambdahost.Host, change ...func(*lambdahost.Function)) {
	t.Helper()
	f := lambdahost.Function{Name: "fn", Bootstrap: built, Timeout: wait}
	for _, c := range change {
		c(&f)
	}
	if err := h.Put(f); err != nil {
		t.Fatal(err)
	}
}

func invoke(t *testing.T, h *lambdahost.Host, event any) lambdahost.Result {
	t.Helper()
	r, err := h.Invoke(ctxOf(t), "fn", payload(t, event))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answer is an invocation that must succeed.
func answer(t *testing.T, h *lambdahost.Host, event any, into any) {
	t.Helper()
	r := invoke(t, h, event)
	if r.FunctionError != "" {
		t.Fatalf("the function failed: %s", r.Payload)
	}
	if err := json.Unmarshal(r.Payload, into); err != nil {
		t.Fatalf("the answer %s: %v", r.Payload, err)
	}
}

type do map[string]any

func payload(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// said is what the function's error is.
func said(t *testing.T, r lambdahost.Result) (kind, text string) {
	t.Helper()
	var v struct{ ErrorType, ErrorMessage string }
	if r.FunctionError != "Unhandled" {
		t.Fatalf("function error %q, want Unhandled; payload %s", r.FunctionError, r.Payload)
	}
	if err := json.Unmarshal(r.Payload, &v); err != nil {
		t.Fatalf("the error %s: %v", r.Payload, err)
	}
	return v.ErrorType, v.ErrorMessage
}

func refusal(t *testing.T, err error) lambdahost.ServiceError {
	t.Helper()
	e, ok := errors.AsType[*lambdahost.ServiceError](err)
	if !ok {
		t.Fatalf("error %v, want one of the service", err)
	}
	return *e
}

// with sets variables of the function, by name and value.
func with(pairs ...string) func(*lambdahost.Function) {
	return func(f *lambdahost.Function) {
		f.Environment = map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			f.Environment[pairs[i]] = pairs[i+1]
		}
	}
}

func write(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
