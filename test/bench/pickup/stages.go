package main

import (
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/cloud"
)

// seen is what was seen of one pick-up from outside: calls of AWS, invocations, requests to the control plane.
type seen struct {
	calls       []awsim.Record
	invocations []lambdahost.Report
	requests    []cloud.Request
	control     string // the names of the functions; this one serves claims and what the dispatcher asks
	poller      string
	dispatcher  string
}

// stage is one part of the way from the submit to the task. The parts follow one another without a gap, so that
// they are the way that counts: whatever shortens one of them shortens the whole.
type stage struct {
	name     string
	from, to time.Time
}

// stages finds the way of the only workflow that was picked up. It is empty where something on it was not seen.
func (s seen) stages() []stage {
	run, ok := s.call("ecs.RunTask", time.Time{})
	if !ok {
		return nil
	}
	direct := strings.Contains(run.Caller.ARN, "PollerRole")
	asked, ok1 := s.request("/v1/jobs/states", run.Began)
	handled, ok2 := s.invocation(s.dispatcher, asked.Began)
	sent, ok3 := s.call("sqs.SendMessageBatch", handled.Started)
	if direct {
		sent, ok3 = s.call("sqs.SendMessageBatch", run.Began)
		ok1, ok2 = true, true
	}
	claim, ok4 := s.request("/v1/claims", sent.Began)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return nil
	}
	var out []stage
	add := func(name string, from, to time.Time) { out = append(out, stage{name, from, to}) }
	polled, _ := s.invocation(s.poller, claim.Began)
	submit, submitted := s.request("/v1/workflows", claim.Ended)
	woken, wake := s.call("lambda.Invoke", polled.Started)
	switch {
	case submitted && claim.Began.Before(submit.Ended) && !wake: // it was waiting
		add("submit answered, seen by the waiting claim, claimed", submit.Ended, claim.Ended)
	default:
		if submitted && wake {
			add("submit: checked, committed", submit.Began, woken.Began)
			add("wake: accepted by Lambda", woken.Began, woken.Time)
			add("wake: the poller begins", woken.Time, polled.Started)
		}
		add("poller: ready to claim", polled.Started, claim.Began)
		add("claim: API and start of the control plane", claim.Began, s.serving(claim).Started)
		add("claim: decided and answered", s.serving(claim).Started, claim.Ended)
	}
	add("poller: message made", claim.Ended, sent.Began)
	add("queue: message taken", sent.Began, sent.Time)
	if direct {
		add("poller: launch made", sent.Time, run.Began)
		add("RunTask", run.Began, run.Time)
		return out
	}
	add("queue: the dispatcher begins", sent.Time, handled.Started)
	add("dispatcher: ready to ask", handled.Started, asked.Began)
	add("still wanted: API and start of the control plane", asked.Began, s.serving(asked).Started)
	add("still wanted: answered", s.serving(asked).Started, asked.Ended)
	add("dispatcher: launch made", asked.Ended, run.Began)
	add("RunTask", run.Began, run.Time)
	return out
}

// call is the latest of an operation that ended before a time; zero means the first of all.
func (s seen) call(name string, before time.Time) (out awsim.Record, ok bool) {
	for _, c := range s.calls {
		if c.Service+"."+c.Operation != name || !before.IsZero() && c.Time.After(before) {
			continue
		}
		if ok = true; out.Time.IsZero() || !before.IsZero() {
			out = c
		}
	}
	return out, ok
}

// request is the latest of a path that began before a time.
func (s seen) request(path string, before time.Time) (out cloud.Request, ok bool) {
	for _, r := range s.requests {
		if r.Method == "POST" && r.Path == path && r.Began.Before(before) && r.Began.After(out.Began) {
			out, ok = r, true
		}
	}
	return out, ok
}

// invocation is the latest of a function that was started before a time.
func (s seen) invocation(function string, before time.Time) (out lambdahost.Report, ok bool) {
	for _, r := range s.invocations {
		if r.Function == function && !r.Started.After(before) && r.Started.After(out.Started) {
			out, ok = r, true
		}
	}
	return out, ok
}

// serving is the invocation of the control plane that a request began.
func (s seen) serving(r cloud.Request) lambdahost.Report {
	ours := slices.DeleteFunc(slices.Clone(s.invocations), func(i lambdahost.Report) bool {
		return i.Function != s.control || i.Began.Before(r.Began) || i.Began.After(r.Ended)
	})
	if len(ours) == 0 {
		return lambdahost.Report{Started: r.Began}
	}
	return slices.MinFunc(ours, func(a, b lambdahost.Report) int { return a.Began.Compare(b.Began) })
}

// short is a name without what all names have in common.
func short(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "dayfly-wake-"), "dayfly-")
}
