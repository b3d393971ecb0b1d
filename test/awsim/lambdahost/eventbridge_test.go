package lambdahost_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
)

const stopped = `{"source":["aws.ecs"],"detail-type":["ECS Task State Change"],"detail":{"clusterArn":["c1","c2"],"lastStatus":["STOPPED"]}}`

func TestPutEvent_GoesToTheRulesThatMatch(t *testing.T) {
	reports := make(chan lambdahost.Report, 10)
	h := host(t, lambdahost.Config{Observe: func(r lambdahost.Report) { reports <- r }})
	if err := h.AddRule(lambdahost.Rule{Name: "stopped", Function: "fn", Pattern: json.RawMessage(stopped)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, source, detail string
		want                 int
	}{
		{"every value is one of the list", "aws.ecs", `{"clusterArn":"c2","lastStatus":"STOPPED","more":{"x":1}}`, 1},
		{"another source", "aws.ec2", `{"clusterArn":"c2","lastStatus":"STOPPED"}`, 0},
		{"another value", "aws.ecs", `{"clusterArn":"c3","lastStatus":"STOPPED"}`, 0},
		{"a field that is not there", "aws.ecs", `{"clusterArn":"c1"}`, 0},
		{"a list with one of the values", "aws.ecs", `{"clusterArn":["c0","c1"],"lastStatus":"STOPPED"}`, 1},
	} {
		got, err := h.PutEvent(lambdahost.Event{Source: c.source, DetailType: "ECS Task State Change", Detail: json.RawMessage(c.detail)})
		if err != nil || got != c.want {
			t.Errorf("%s: matched %d (%v), want %d", c.name, got, err, c.want)
		}
	}
	<-reports
	<-reports
	err := h.AddRule(lambdahost.Rule{Name: "prefix", Function: "fn", Pattern: json.RawMessage(`{"source":[{"prefix":"aws."}]}`)})
	if err == nil {
		t.Error("a pattern with an operator was taken, and would not have been followed")
	}
}

func TestSchedules_FireByTheClockAndOnDemand(t *testing.T) {
	clock := lambdahost.NewManualClock(time.Now())
	reports := make(chan lambdahost.Report, 10)
	h := host(t, lambdahost.Config{Clock: clock, Observe: func(r lambdahost.Report) { reports <- r }})
	if err := h.AddSchedule(lambdahost.Schedule{Name: "tick", Function: "fn", Every: time.Minute, Input: []byte(`{"text":"tick"}`)}); err != nil {
		t.Fatal(err)
	}
	if err := h.AddSchedule(lambdahost.Schedule{Name: "fast", Function: "fn", Every: time.Second}); err == nil {
		t.Error("a schedule of a second was taken, and the service knows none below a minute")
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(ctxOf(t))
	done := make(chan error)
	go func() { done <- h.RunSchedules(ctx) }()
	for range 3 {
		if err := clock.AwaitTimer(ctxOf(t), time.Minute); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Minute)
		if r := <-reports; r.FunctionError != "" {
			t.Errorf("%+v", r)
		}
	}
	cancel(over)
	if err := <-done; !errors.Is(err, over) {
		t.Errorf("ended with %v", err)
	}
	if err := h.Tick("tick", 2); err != nil {
		t.Fatal(err)
	}
	<-reports
	<-reports
	if err := h.Tick("other", 1); err == nil {
		t.Error("a schedule that is not there ticked")
	}
	if n := h.Stats("fn").Invocations; n != 5 {
		t.Errorf("%d invocations, want 3 by the clock and 2 on demand", n)
	}
}

// Without an input the scheduler sends an event of its own.
func TestTick_SendsTheSchedulersOwnEvent(t *testing.T) {
	lost := make(chan lambdahost.Failure, 1)
	none := 0
	h := host(t, lambdahost.Config{}, with("AT_INIT", "exit"), func(f *lambdahost.Function) {
		f.Async.MaximumRetryAttempts = &none
		f.Async.OnFailure = func(f lambdahost.Failure) { lost <- f }
	})
	if err := h.AddSchedule(lambdahost.Schedule{Name: "sweep", Function: "fn", Every: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := h.Tick("sweep", 1); err != nil {
		t.Fatal(err)
	}
	var event struct {
		Source     string   `json:"source"`
		DetailType string   `json:"detail-type"`
		Resources  []string `json:"resources"`
	}
	f := <-lost
	if err := json.Unmarshal(f.Payload, &event); err != nil {
		t.Fatal(err)
	}
	if event.Source != "aws.scheduler" || event.DetailType != "Scheduled Event" || len(event.Resources) != 1 ||
		event.Resources[0] != "arn:aws:scheduler:us-east-1:123456789012:schedule/default/sweep" {
		t.Errorf("sent %s", f.Payload)
	}
}
