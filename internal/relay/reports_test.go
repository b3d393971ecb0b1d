package relay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/relay"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var _ relay.Reports = queue.Queue(nil)

// kept is a queue that a test looks into.
type kept struct {
	mu     sync.Mutex
	bodies [][]byte
	groups []string
	err    error
}

func (k *kept) Send(_ context.Context, body []byte, group string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	k.bodies, k.groups = append(k.bodies, body), append(k.groups, group)
	return nil
}

const goodResult = `{"outcome":"succeeded","log_end":42,"outputs":[{"name":"a","value":1.50}]}`

func problemText(t *testing.T, err error) string {
	t.Helper()
	text, err := json.Marshal(api.ProblemFor(err))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReports_AreKeptForTheGroupOfTheirTicket(t *testing.T) {
	u, k := newUpstream(), &kept{}
	u.err = errors.New("connection refused")
	h := u.relay(t, relay.Config{Reports: k})
	call(t, h, "result", "wf_1", goodResult)
	call(t, h, "result", "wf_2", goodResult)
	if d := cmp.Diff([]string{"default/wf_1", "default/wf_2"}, k.groups); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
}

func TestReports_OnlyAResultThatCannotBeTakenNowIsKept(t *testing.T) {
	busy := problemText(t, workflow.Refuse(workflow.ErrBusy, "", "busy"))
	for name, c := range map[string]struct {
		call, body string
		status     int
		text       string
		err        error
		kept       bool
		want       int
	}{
		"away":                   {"result", goodResult, 0, "", errors.New("connection refused"), true, 202},
		"busy":                   {"result", goodResult, 503, busy, nil, true, 202},
		"failed":                 {"result", goodResult, 500, problemText(t, errors.New("bug")), nil, true, 202},
		"a gateway's 502":        {"result", goodResult, 502, "<html>", nil, true, 202},
		"a gateway's 403":        {"result", goodResult, 403, "<html>", nil, true, 202},
		"taken":                  {"result", goodResult, 200, `{"cancel":false}`, nil, false, 200},
		"over":                   {"result", goodResult, 410, problemText(t, workflow.Refuse(workflow.ErrOver, "", "over")), nil, false, 410},
		"another boot":           {"result", goodResult, 409, problemText(t, workflow.Refuse(workflow.ErrAlreadyStarted, "", "no")), nil, false, 409},
		"wrong":                  {"result", goodResult, 422, problemText(t, workflow.Refuse(workflow.ErrInvalid, "", "no")), nil, false, 422},
		"too many":               {"result", goodResult, 429, problemText(t, workflow.Refuse(workflow.ErrTooMany, "", "no")), nil, false, 429},
		"no result":              {"result", `{"outcome":"running"}`, 503, busy, nil, false, 503},
		"no JSON":                {"result", `{`, 503, busy, nil, false, 503},
		"an outcome twice":       {"result", `{"outcome":"failed","outcome":"succeeded"}`, 503, busy, nil, false, 503},
		"in another case":        {"result", `{"Outcome":"succeeded"}`, 503, busy, nil, false, 503},
		"twice, with a tail":     {"result", `{"outcome":"failed","outcome":"succeeded","tail":{}}`, 503, busy, nil, false, 503},
		"too long for the queue": {"result", `{"outcome":"failed","detail":"` + strings.Repeat("x", relay.MaxReport-100) + `"}`, 503, busy, nil, false, 503},
		"a start is never kept":  {"start", "{}", 503, busy, nil, false, 503},
		"a heartbeat is never":   {"heartbeat", "{}", 503, busy, nil, false, 503},
		"logs are never":         {"logs", "{}", 503, busy, nil, false, 503},
		"steps are never":        {"steps", "{}", 503, busy, nil, false, 503},
		"a spec is never":        {"spec", "", 503, busy, nil, false, 503},
	} {
		t.Run(name, func(t *testing.T) {
			u, k := newUpstream(), &kept{}
			u.err = c.err
			u.answer = func(seen) (int, string) { return c.status, c.text }
			w := call(t, u.relay(t, relay.Config{Reports: k}), c.call, "wf_1", c.body)
			if w.Code != c.want || (len(k.bodies) == 1) != c.kept {
				t.Fatalf("%d %s, %d kept", w.Code, w.Body, len(k.bodies))
			}
			if !c.kept {
				return
			}
			in, err := relay.DecodeReport(k.bodies[0])
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(k.bodies[0]), token) {
				t.Error("the token lies in the queue")
			}
			if _, err := ring.Open(in.Ticket, time.Now()); err != nil {
				t.Errorf("the ticket does not open: %v", err)
			}
			in.Ticket, in.SentAtMS = "", 0
			want := relay.Report{Job: "wf_1", Attempt: 1, Task: "task-1", Boot: "0123", LogEnd: 42, Result: json.RawMessage(goodResult)}
			if d := cmp.Diff(want, in); d != "" {
				t.Errorf("kept (-want +got):\n%s", d)
			}
			if d := cmp.Diff([]string{"default/wf_1"}, k.groups); d != "" {
				t.Errorf("groups (-want +got):\n%s", d)
			}
			for _, secret := range []string{token, ticketOf(k.bodies[0])} {
				if strings.Contains(u.log.String(), secret) {
					t.Errorf("the log shows %q", secret)
				}
			}
		})
	}
}

// tailOf is the rest of a log, from a line on.
func tailOf(t *testing.T, first int64, texts ...string) *api.LogTail {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, text := range texts {
		if _, err := z.Write(api.LogLine{At: time.Unix(1, 0).UTC(), Step: "apply", Text: text}.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &api.LogTail{First: first, Lines: b.Bytes()}
}

// R5: the rest of a log goes with the result to a control plane that takes it, and else waits beside it.
func TestReports_KeepTheRestOfTheLog(t *testing.T) {
	texts := make([]string, 100)
	for i := range texts {
		texts[i] = rand.Text() // which does not compress
	}
	tail := tailOf(t, 40, texts...)
	tailText, err := json.Marshal(tail)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.TrimSuffix(goodResult, "}") + `,"new":{"a":1.50},"tail":` + string(tailText) + `}`
	same := func(text string, whole bool) bool {
		var got, want map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &got) != nil || json.Unmarshal([]byte(body), &want) != nil {
			return false
		}
		if !whole {
			delete(want, "tail")
		}
		return cmp.Equal(want, got)
	}
	u, k := newUpstream(), &kept{}
	r := u.relay(t, relay.Config{Reports: k})
	if w := call(t, r, "result", "wf_1", body); w.Code != 200 || len(u.made()) != 1 || !same(u.made()[0].Body, true) {
		t.Errorf("%d %s, forwarded %+v", w.Code, w.Body, u.made())
	}
	u.err = errors.New("connection refused")
	if w := call(t, r, "result", "wf_1", body); w.Code != 202 || len(k.bodies) != 1 {
		t.Fatalf("%d %s, %d kept", w.Code, w.Body, len(k.bodies))
	}
	in, err := relay.DecodeReport(k.bodies[0])
	if err != nil || !same(string(in.Result), false) || !cmp.Equal(tail, in.Tail) {
		t.Errorf("kept %+v, %v", in, err)
	}

	long := strings.Repeat("x", relay.MaxReport-len(tailText)-100)
	if w := call(t, r, "result", "wf_1", `{"outcome":"failed","detail":"`+long+`","tail":`+string(tailText)+`}`); w.Code != 202 || len(k.bodies) != 2 {
		t.Fatalf("%d %s, %d kept", w.Code, w.Body, len(k.bodies))
	}
	if in, err := relay.DecodeReport(k.bodies[1]); err != nil || in.Tail != nil || !strings.Contains(string(in.Result), long) {
		t.Errorf("what does not fit beside its result is kept: %v", err)
	}
	if w := call(t, r, "result", "wf_1", strings.TrimSuffix(goodResult, "}")+`,"tail":"none"}`); w.Code != 202 || len(k.bodies) != 3 {
		t.Errorf("%d %s, %d kept", w.Code, w.Body, len(k.bodies))
	}
}

// ticketOf is the ticket of a message.
func ticketOf(body []byte) string {
	in, _ := relay.DecodeReport(body)
	return in.Ticket
}

func TestReports_WhatCannotBeKeptStaysWithItsRunner(t *testing.T) {
	u, k := newUpstream(), &kept{err: errors.New("queue is away")}
	u.err = errors.New("connection refused")
	w := call(t, u.relay(t, relay.Config{Reports: k}), "result", "wf_1", goodResult)
	if w.Code != 503 || code(t, w) != "busy" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := call(t, u.relay(t, relay.Config{}), "result", "wf_1", goodResult); w.Code != 503 {
		t.Errorf("without a queue: %d %s", w.Code, w.Body)
	}
}

// The runner's own client must take the answer for "handed over", and learn no deadline from it.
func TestReports_TheRunnerHearsThatItIsHandedOver(t *testing.T) {
	u, k := newUpstream(), &kept{}
	u.err = errors.New("connection refused")
	server := httptest.NewServer(u.relay(t, relay.Config{Reports: k}))
	defer server.Close()
	runner, err := client.NewRunner(client.RunnerConfig{
		URL: server.URL, Credential: redact.New(seal(t, "wf_1", 1, time.Now().Add(time.Hour))),
		Run: api.Run{Workflow: "wf_1", Attempt: 1, Task: "task-1", Boot: strings.Repeat("a", 32)},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Succeeded, LogEnd: 7})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(api.Control{}, got); d != "" || len(k.bodies) != 1 {
		t.Errorf("%d kept; answer (-want +got):\n%s", len(k.bodies), d)
	}
}

// keep makes a message as the relay does.
func keep(t *testing.T, expires time.Time, change ...func(*relay.Report)) []byte {
	t.Helper()
	r := relay.Report{
		Ticket: seal(t, "wf_1", 1, expires), Job: "wf_1", Attempt: 1, Task: taskARN, Boot: "0123", LogEnd: 42,
		SentAtMS: time.Now().Add(-time.Hour).UnixMilli(), Result: json.RawMessage(goodResult),
	}
	for _, c := range change {
		c(&r)
	}
	body, err := relay.EncodeReport(r)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestDeliver_ForwardsAsTheRunnerWouldHave(t *testing.T) {
	u := newUpstream()
	if err := u.relay(t, relay.Config{}).Deliver(t.Context(), keep(t, time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	want := []seen{{Method: "POST", URL: "https://cp.example.com/base/v1/jobs/wf_1/result", Auth: "Bearer " + token, Body: goodResult, Header: http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"},
		"Dayfly-Attempt": {"1"}, "Dayfly-Task": {taskARN}, "Dayfly-Boot": {"0123"},
	}}}
	if d := cmp.Diff(want, u.made()); d != "" {
		t.Errorf("forwarded (-want +got):\n%s", d)
	}
}

// R5: the lines come before the result, so that nobody takes the log for whole without them.
func TestDeliver_BringsTheRestOfTheLogFirst(t *testing.T) {
	var many []string
	for n := range 3000 {
		many = append(many, fmt.Sprintf("line %d %s", n, strings.Repeat("x", 100)))
	}
	for name, c := range map[string]struct {
		tail    *api.LogTail
		refuse  int // what logs are answered with
		again   bool
		batches int
		result  bool
	}{
		"one batch":     {tailOf(t, 40, "line 40", "line 41"), 0, false, 1, true},
		"many":          {tailOf(t, 40, many...), 0, false, 3, true},
		"away":          {tailOf(t, 40, "line 40"), 503, true, 1, false},
		"too many":      {tailOf(t, 40, "line 40"), 429, true, 1, false},
		"over":          {tailOf(t, 40, "line 40"), 410, false, 1, true},
		"older":         {tailOf(t, 40, "line 40"), 416, false, 1, true},
		"too large":     {tailOf(t, 40, "line 40"), 413, false, 1, true},
		"no tail":       {&api.LogTail{First: 40, Lines: []byte("junk")}, 0, false, 0, true},
		"of old relays": {nil, 0, false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			u.answer = func(s seen) (int, string) {
				if c.refuse == 0 || !strings.HasSuffix(s.URL, "/logs") {
					return 200, "{}"
				}
				for _, k := range api.Kinds() {
					if k.Status == c.refuse {
						return c.refuse, problemText(t, workflow.Refuse(k.Err, "", "no"))
					}
				}
				return 500, ""
			}
			body := keep(t, time.Now().Add(time.Hour), func(r *relay.Report) { r.Tail = c.tail })
			if err := u.relay(t, relay.Config{}).Deliver(t.Context(), body); (err != nil) != c.again {
				t.Fatalf("error %v", err)
			}
			calls, next := u.made(), int64(40)
			for i, call := range calls {
				if strings.HasSuffix(call.URL, "/result") {
					if call.Body != goodResult || i != len(calls)-1 {
						t.Errorf("call %d is %+v", i, call)
					}
					continue
				}
				var in api.Logs
				if err := json.Unmarshal([]byte(call.Body), &in); err != nil || in.First != next || !in.Lost || call.Header.Get("Dayfly-Boot") != "0123" {
					t.Errorf("call %d: from %d on, want %d; %v", i, in.First, next, err)
				}
				next += int64(len(in.Lines))
			}
			if c.result {
				c.batches++
			}
			if len(calls) != c.batches {
				t.Errorf("%d calls, want %d", len(calls), c.batches)
			}
		})
	}
}

func TestDeliver_KeepsWhatPassesAndDropsWhatDoesNot(t *testing.T) {
	later := time.Now().Add(time.Hour)
	refuse := func(kind error) (int, string) {
		p := api.ProblemFor(workflow.Refuse(kind, "", "no"))
		return p.Status, problemText(t, workflow.Refuse(kind, "", "no"))
	}
	for name, c := range map[string]struct {
		body   []byte
		kind   error
		fail   error
		again  bool
		logged string
	}{
		"busy":             {keep(t, later), workflow.ErrBusy, nil, true, ""},
		"away":             {keep(t, later), nil, errors.New("connection refused"), true, ""},
		"too many":         {keep(t, later), workflow.ErrTooMany, nil, true, ""},
		"over":             {keep(t, later), workflow.ErrOver, nil, false, "result dropped: the control plane refuses it"},
		"another boot":     {keep(t, later), workflow.ErrAlreadyStarted, nil, false, "result dropped: the control plane refuses it"},
		"token revoked":    {keep(t, later), workflow.ErrRevoked, nil, false, "result dropped: the control plane refuses it"},
		"not there":        {keep(t, later), workflow.ErrNotFound, nil, false, "result dropped: the control plane refuses it"},
		"ticket expired":   {keep(t, time.Now().Add(-time.Minute)), nil, nil, false, "result dropped: its ticket has expired"},
		"key withdrawn":    {keep(t, later, func(r *relay.Report) { r.Ticket = strings.Replace(r.Ticket, ".", "x.", 1) }), nil, nil, true, ""},
		"ticket of others": {keep(t, later, func(r *relay.Report) { r.Job = "wf_2" }), nil, nil, false, "result dropped: its ticket is for another job"},
		"no report":        {[]byte("{}"), nil, nil, true, ""},
		"no JSON":          {[]byte("\x00"), nil, nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream()
			u.err = c.fail
			if c.kind != nil {
				u.answer = func(seen) (int, string) { return refuse(c.kind) }
			}
			err := u.relay(t, relay.Config{}).Deliver(t.Context(), c.body)
			if (err != nil) != c.again || errors.Is(err, relay.ErrUnread) != strings.HasPrefix(name, "no ") {
				t.Errorf("error %v", err)
			}
			if c.logged != "" && !strings.Contains(u.log.String(), "level=ERROR msg=\""+c.logged) {
				t.Errorf("log:\n%s", u.log.String())
			}
			if c.logged == "" && strings.Contains(u.log.String(), "level=ERROR") {
				t.Errorf("log:\n%s", u.log.String())
			}
		})
	}
}

// The runner would send less where all of it is refused; it is gone.
func TestDeliver_ARefusedResultIsSentWithoutItsDetails(t *testing.T) {
	u := newUpstream()
	u.answer = func(s seen) (int, string) {
		if strings.Contains(s.Body, `"outputs"`) {
			return 413, problemText(t, workflow.Refuse(workflow.ErrTooLarge, "", "no"))
		}
		return 200, `{}`
	}
	if err := u.relay(t, relay.Config{}).Deliver(t.Context(), keep(t, time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	calls := u.made()
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	var got api.Result
	if err := json.Unmarshal([]byte(calls[1].Body), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(api.Result{Outcome: workflow.Succeeded, LogEnd: 42, Truncated: true}, got); d != "" {
		t.Errorf("sent (-want +got):\n%s", d)
	}
}

func TestDeliver_WaitsAsLongAsItIsAsked(t *testing.T) {
	u := newUpstream()
	u.header.Set("Retry-After", "90")
	u.answer = func(seen) (int, string) { return 429, problemText(t, workflow.Refuse(workflow.ErrTooMany, "", "no")) }
	err := u.relay(t, relay.Config{}).Deliver(t.Context(), keep(t, time.Now().Add(time.Hour)))
	if got := api.RetryAfter(err); got != 90*time.Second {
		t.Errorf("retry after %s: %v", got, err)
	}
}

func TestLater_ManyDeliveriesInTheRetentionOfAReport(t *testing.T) {
	if relay.Later(0) != 5*time.Second || relay.Later(1) != 5*time.Second || relay.Later(2) != 10*time.Second || relay.Later(1000) != 6*time.Minute {
		t.Error(relay.Later(0), relay.Later(1), relay.Later(2), relay.Later(1000))
	}
	var all time.Duration
	n := 0
	for ; all < workflow.ReportRetention; n++ {
		all += relay.Later(n + 1)
	}
	if n >= 1000 {
		t.Errorf("%d deliveries within %s; SQS counts up to 1000", n, workflow.ReportRetention)
	}
}

// A queue takes neither of two characters that JSON does: what an engine printed could keep a result out of it.
func TestReports_OfAnyTextFitIntoAQueue(t *testing.T) {
	body := keep(t, time.Now().Add(time.Hour), func(r *relay.Report) {
		r.Result = json.RawMessage("{\"outcome\":\"failed\",\"detail\":\"a\uFFFEb\uFFFFc\\u0000\x7f\"}")
	})
	if err := queue.CheckBody(body); err != nil {
		t.Error(err)
	}
	r, err := relay.DecodeReport(body)
	var got api.Result
	if err = errors.Join(err, json.Unmarshal(r.Result, &got)); err != nil || got.Detail != "a\uFFFEb\uFFFFc\x00\x7f" {
		t.Errorf("it came back as %q, %v", got.Detail, err)
	}
}

// The relay's bound and the queue's must fit.
func TestReports_TheLongestReportFitsIntoAQueue(t *testing.T) {
	if relay.MaxReport > queue.MaxBody {
		t.Fatalf("a report has up to %d bytes, a queue takes %d", relay.MaxReport, queue.MaxBody)
	}
	body := keep(t, time.Now().Add(time.Hour), func(r *relay.Report) {
		r.Result = json.RawMessage(`{"outcome":"failed","detail":"` + strings.Repeat("x", relay.MaxReport-1200) + `"}`)
	})
	q, err := memory.New(memory.Config{})
	if err == nil {
		err = q.Send(t.Context(), body, "g")
	}
	if err != nil {
		t.Error(err)
	}
}

func FuzzDecodeReport(f *testing.F) {
	good, err := relay.EncodeReport(relay.Report{Ticket: "a.b", Job: "wf_1", Attempt: 1, Task: "t", Boot: "b", Result: json.RawMessage(goodResult)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"ticket":"a","job":"../x","attempt":1,"task":"t","boot":"b","result":{"outcome":"failed"}}`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := relay.DecodeReport(body)
		if err != nil {
			return
		}
		if strings.ContainsAny(r.Job, "/.%?#") || strings.ContainsAny(r.Task+r.Boot, "\r\n") {
			t.Errorf("took %+v", r)
		}
		again, err := relay.EncodeReport(r)
		if err != nil {
			return // longer, once it is spelled as we do
		}
		if _, err := relay.DecodeReport(again); err != nil {
			t.Errorf("%s does not decode: %v", again, err)
		}
	})
}
