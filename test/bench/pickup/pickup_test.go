package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
	"github.com/dayfly-dev/dayfly/test/cloud"
)

func TestSlowest_IsTheLeastRateOfAnySpan(t *testing.T) {
	var times []time.Time
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range 600 { // twenty a second, but for five seconds without any
		if i == 300 {
			at = at.Add(5 * time.Second)
		}
		times = append(times, at)
		at = at.Add(50 * time.Millisecond)
	}
	if got := slowest(times, 10*time.Second); got < 9.8 || got > 10.2 {
		t.Errorf("slowest ten seconds: %.2f a second, want 10", got)
	}
	if got := longestPause(times); got != 5050*time.Millisecond {
		t.Errorf("longest pause: %s", got)
	}
}

func TestSpread_AddsEachPartOfThePeriodOnce(t *testing.T) {
	got := slices.Sorted(slices.Values(spread(make(figures.Sample, 60), time.Minute)))
	for i, d := range got {
		if want := time.Duration(i)*time.Second + 500*time.Millisecond; (d - want).Abs() > time.Millisecond {
			t.Errorf("wait %d is %s, want %s", i, d, want)
		}
	}
}

func TestLoads_NeverCoolAScheduledPoller(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, l := range loads(quick, bySchedule) {
			if l.cold == everything {
				t.Errorf("%+v", l)
			}
		}
	}
	if !slices.ContainsFunc(loads(true, byWake), func(l load) bool { return l.cold == everything && l.judged }) {
		t.Error("a wake is not measured with cold functions")
	}
}

func TestReport_NamesEveryAim(t *testing.T) {
	var out bytes.Buffer
	r := report{w: &out}
	r.judge(true, "a", "1", "<= 2")
	r.judge(false, "b", "3", "<= 2")
	r.close(time.Minute)
	for _, want := range []string{"aim met: a <= 2, is 1", "aim missed: b <= 2, is 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
}

func TestLatency_NamesEveryFigure(t *testing.T) {
	text := stated.String()
	for name, d := range stated.calls {
		if !strings.Contains(text, name+" "+d.String()) {
			t.Errorf("%s is not in: %s", name, text)
		}
	}
	if !strings.Contains(nothing.String(), "no claim") {
		t.Errorf("the floor says: %s", nothing)
	}
}

func TestStages_FollowOneAnotherWithoutAGap(t *testing.T) {
	zero := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	call := func(service, operation string, began, ended int) awsim.Record {
		return awsim.Record{Service: service, Operation: operation, Began: at(began), Time: at(ended)}
	}
	request := func(path string, began, ended int) cloud.Request {
		return cloud.Request{Method: "POST", Path: path, Began: at(began), Ended: at(ended)}
	}
	run := func(function string, began, started int) lambdahost.Report {
		return lambdahost.Report{Function: function, Began: at(began), Started: at(started)}
	}
	woken := seen{
		control: "control", poller: "poller", dispatcher: "dispatcher",
		calls: []awsim.Record{
			call("lambda", "Invoke", 80, 95), call("sqs", "SendMessageBatch", 250, 260), call("sqs", "GetQueueAttributes", 290, 300),
			call("ecs", "RunTask", 340, 640),
		},
		requests: []cloud.Request{
			request("/v1/workflows", 0, 110), request("/v1/claims", 160, 249), request("/v1/jobs/wf_1/queued", 260, 330), request("/v1/jobs/states", 295, 338),
			request("/v1/claims", 262, 350),
		},
		invocations: []lambdahost.Report{
			run("control", 10, 20), run("poller", 145, 155), run("control", 170, 180), run("control", 270, 280), run("dispatcher", 280, 290), run("control", 305, 315),
		},
	}
	stages := woken.stages()
	if len(stages) != 14 || !stages[0].from.Equal(zero) || !stages[len(stages)-1].to.Equal(at(640)) {
		t.Errorf("%d stages from %v: %v", len(stages), zero, stages)
	}
	for i := range len(stages) - 1 {
		if !stages[i].to.Equal(stages[i+1].from) {
			t.Errorf("%q ends at %s, %q begins at %s", stages[i].name, stages[i].to.Sub(zero), stages[i+1].name, stages[i+1].from.Sub(zero))
		}
	}
	waited := woken
	waited.calls = woken.calls[1:]
	waited.requests = append([]cloud.Request{request("/v1/claims", -5000, 249)}, woken.requests[0], woken.requests[3])
	if stages := waited.stages(); len(stages) != 9 || !stages[0].from.Equal(at(110)) || !stages[0].to.Equal(at(249)) {
		t.Errorf("of a claim that waited: %v", stages)
	}
	woken.calls = nil
	if stages := woken.stages(); stages != nil {
		t.Errorf("of nothing: %v", stages)
	}
}

// The meter finds out who calls by the process at the other end of a connection, and lets it wait for its part of a
// processor and once for a handshake with each service.
func TestMeter_FindsTheProcessAndLetsItWait(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it asks the kernel of Linux")
	}
	m := newMeter(10 * time.Millisecond)
	m.step(lambdahost.Process{Function: "f", MemoryMB: 177, PID: os.Getpid()}, false)
	server := httptest.NewUnstartedServer(nil)
	var found *metered
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		found = m.of(conn)
		return ctx
	}
	server.Config.Handler = http.NotFoundHandler()
	server.Start()
	defer server.Close()
	res, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if found == nil || found.PID != os.Getpid() {
		t.Fatalf("found %+v, want this process", found)
	}
	wait := func(service string) time.Duration {
		began := time.Now()
		m.wait(t.Context(), found, service)
		return time.Since(began)
	}
	if d := wait("ecs"); d < 100*time.Millisecond {
		t.Errorf("a handshake of 10 ms at a tenth of a processor took %s", d)
	}
	if again := found.busy; !found.known["ecs"] || again.IsZero() {
		t.Error("it does not know the service now")
	}
	m.forget()
	if found.known["ecs"] {
		t.Error("it still knows the service after a time without calls")
	}
}

func TestHandshakeTime_IsMeasured(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it asks the kernel of Linux")
	}
	if d, err := handshakeTime(t.Context()); err != nil || d < 50*time.Microsecond || d > time.Second {
		t.Errorf("%s, %v", d, err)
	}
}
