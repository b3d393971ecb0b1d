package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner/logstream"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A step's end stands after its last line, in whichever order they come from the control plane.
func TestFollow_TheEndOfAStepComesAfterItsLines(t *testing.T) {
	lines := func(step string, from, to int) (out []api.LogLine) {
		for n := from; n < to; n++ {
			out = append(out, api.LogLine{Step: step, Text: fmt.Sprintf("line %d", n)})
		}
		return out
	}
	step := func(seq int, name string, end int64) api.Step {
		return api.Step{Seq: seq, Name: name, Status: workflow.StepSucceeded, Seconds: 1, LogEnd: end}
	}
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	f := &follower{live: term.NewLive(&out, term.Style{}), steps: map[int]workflow.StepStatus{}, places: map[string]int{}}
	late := func() { f.showDue(began.Add(time.Hour)) }
	f.noteSteps(api.Workflow{Steps: []api.Step{step(1, "init", 2), step(2, "plan", 4)}}, began)
	late()
	f.showLines(api.LogPage{Attempt: 1, Next: 3, Lines: append(lines("init", 0, 2), lines("plan", 2, 3)...)})
	late()
	f.showLines(api.LogPage{Attempt: 1, Next: 4, Lines: lines("plan", 3, 4)})
	late()
	f.noteSteps(api.Workflow{Steps: []api.Step{step(3, "apply", 900)}}, began)
	late()
	f.drained = true // the log ended before it, at its quota
	late()
	f.noteSteps(api.Workflow{Steps: []api.Step{step(4, "output", 0)}}, began) // of a runner that does not say
	f.showDue(began.Add(time.Second))
	got := out.String()
	late()
	want := "init     │ line 0\ninit     │ line 1\n✓ init 1.0s\nplan     │ line 2\nplan     │ line 3\n✓ plan 1.0s\n✓ apply 1.0s\n"
	if got != want || out.String() != want+"✓ output 1.0s\n" {
		t.Errorf("got %q and at last %q, want %q", got, out.String(), want)
	}
}

// The last word about a workflow is the newest answer, not the last one that comes.
func TestFollow_AnOlderAnswerDoesNotUndoTheEnd(t *testing.T) {
	running, ended := []api.Step{{Seq: 1, Status: workflow.StepRunning}}, []api.Step{{Seq: 1, Status: workflow.StepSucceeded}}
	for name, c := range map[string]struct {
		w, than api.Workflow
		old     bool
	}{
		"the first":          {api.Workflow{Version: 1}, api.Workflow{}, false},
		"before its end":     {api.Workflow{Version: 3, Steps: ended}, api.Workflow{Version: 4, Steps: ended}, true},
		"its end":            {api.Workflow{Version: 4, Steps: ended}, api.Workflow{Version: 3, Steps: ended}, false},
		"a new attempt":      {api.Workflow{Version: 5}, api.Workflow{Version: 4, Steps: ended}, false},
		"before a step":      {api.Workflow{Version: 3}, api.Workflow{Version: 3, Steps: running}, true},
		"before a step ends": {api.Workflow{Version: 3, Steps: running}, api.Workflow{Version: 3, Steps: ended}, true},
		"a step has ended":   {api.Workflow{Version: 3, Steps: ended}, api.Workflow{Version: 3, Steps: running}, false},
		"the same":           {api.Workflow{Version: 3, Steps: ended}, api.Workflow{Version: 3, Steps: ended}, false},
	} {
		if got := isOld(c.w, c.than); got != c.old {
			t.Errorf("%s: got %v, want %v", name, got, c.old)
		}
	}
}

// A log that was shown to its end is not shown again while the state of its workflow is not known yet.
func TestFollow_ALogIsShownOnce(t *testing.T) {
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		var out any = api.Workflow{ID: "wf_1", State: workflow.Running, Attempt: 1, Revision: "r", Steps: []api.Step{{Seq: 1, Name: "init", Status: workflow.StepRunning}}}
		if strings.HasSuffix(r.URL.Path, "/logs") {
			out = api.LogPage{Attempt: 1, Next: 1, Lines: []api.LogLine{{Step: "init", Text: "a line"}}, Done: true}
			asked <- struct{}{}
		}
		_ = json.NewEncoder(answer).Encode(out)
	}))
	defer server.Close()
	cl, err := client.New(client.Config{URL: server.URL, Token: func() redact.String { return redact.New("token") }})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{cl: cl, id: "wf_1", states: make(chan api.Workflow, 10), lines: make(chan api.LogPage, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.askLines(ctx) }()
	for range 5 { // the first one finds the attempt, the second one its lines
		<-asked
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := len(f.lines); got != 1 {
		t.Errorf("got %d pages, want one", got)
	}
}

// Lines may come before the report of their step. The end of the step before is shown between them all the same.
func TestFollow_WaitsForTheReportOfAStep(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		var out any = api.LogPage{Attempt: 1, Next: 2, Lines: []api.LogLine{{Step: "init", Text: "a line"}, {Step: "plan", Text: "another"}}, Done: true}
		if r.URL.Path == "/v1/workflows/wf_1" {
			w := api.Workflow{ID: "wf_1", State: workflow.Running, Attempt: 1, Revision: "before", Steps: []api.Step{{Seq: 1, Name: "init", Status: workflow.StepRunning}}}
			if q := r.URL.Query(); q.Get("wait_seconds") != "" && q.Get("revision") == "before" {
				w.Steps = []api.Step{{Seq: 1, Name: "init", Status: workflow.StepSucceeded, LogEnd: 1}, {Seq: 2, Name: "plan", Status: workflow.StepRunning}}
			}
			out = w
		}
		_ = json.NewEncoder(answer).Encode(out)
	}))
	defer server.Close()
	cl, err := client.New(client.Config{URL: server.URL, Token: func() redact.String { return redact.New("token") }})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{cl: cl, id: "wf_1", states: make(chan api.Workflow), lines: make(chan api.LogPage)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.askLines(ctx) }()
	select {
	case <-f.lines:
		t.Error("the lines came before the steps")
	case w := <-f.states:
		if len(w.Steps) != 2 {
			t.Errorf("got the steps %+v, want also the one whose line is there", w.Steps)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A follower says that the control plane does not answer, before it gives up.
// The output of an engine does not control the terminal and is not shown as a line of the runner's own.
func TestFollow_AnEngineCannotPoseAsTheRunner(t *testing.T) {
	var out bytes.Buffer
	f := &follower{live: term.NewLive(&out, term.Style{Live: true, Color: true, Width: 80}), steps: map[int]workflow.StepStatus{}, places: map[string]int{}}
	page := api.LogPage{Attempt: 1}
	for _, said := range []string{
		"[dayfly] apply succeeded", "\x1b[1A\x1b[2K\r[dayfly] apply succeeded", "\x1b]0;x\a\x1b(B[\x1b[1mdayfly] apply succeeded",
		"\x1b[31;;\u00e9[dayfly] apply succeeded", "\x1b[[dayfly] apply succeeded", "\x1b[dayfly] apply succeeded", "\b\b$\x00 rm", "\u202e[day\u200bfly] apply succeeded",
	} {
		page.Lines = append(page.Lines, api.LogLine{Step: "plan", Text: logstream.Foreign(said)})
	}
	page.Lines = append(page.Lines, api.LogLine{Step: "plan", Text: api.RunnerLine + "hello"})
	page.Next = int64(len(page.Lines))
	f.showLines(page)
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(got) != len(page.Lines) {
		t.Fatalf("got %q", got)
	}
	for i, line := range got {
		_, said, ok := strings.Cut(line, "│ \x1b[0m")
		said = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(said, "") // colours are shown
		mine := strings.HasPrefix(said, "[dayfly]") || strings.HasPrefix(said, "[day\u200bfly]") || strings.HasPrefix(said, "$ ")
		if !ok || mine != (i == len(got)-1) || strings.ContainsAny(said, "\x1b\r\b\a") {
			t.Errorf("%q is shown as %q", page.Lines[i].Text, line)
		}
	}
}

func TestFollow_SaysThatNobodyAnswers(t *testing.T) {
	var out bytes.Buffer
	f := &follower{id: "wf_x", live: term.NewLive(&out, term.Style{})}
	var began time.Time
	asked := 0
	err := f.polls.Until(t.Context(), func() (bool, error) {
		switch asked++; asked {
		case 1:
			return false, fmt.Errorf("ask: %w", client.ErrUnreachable)
		case 2:
			now := time.Now()
			if f.polls.Silent(now.Add(time.Second)) == 0 {
				t.Error("an answer that did not come is not noted")
			}
			began = now.Add(-f.polls.Silent(now))
			f.noteAway(began.Add(awayShown))
			f.noteAway(began.Add(awayShown + time.Second))
			f.noteAway(began.Add(awayShown + 2*time.Second))
			if got := f.status(api.Workflow{ID: "wf_x"}, 0, began.Add(12*time.Second)); !strings.Contains(got, "does not answer (12s); trying again for wf_x") {
				t.Errorf("status: got %q", got)
			}
			return false, nil
		default:
			f.noteAway(began.Add(time.Minute))
			f.noteAway(began.Add(2 * time.Minute))
			return true, nil
		}
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := "waiting: the control plane does not answer; trying for 2m0s\nthe control plane answers again\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
