package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// running is a run that has started.
func (s *site) running() (api.Workflow, api.Job, api.Run) {
	s.t.Helper()
	s.workspace("net")
	w := s.submit("net", workflow.Update)
	job, run := s.start()
	return w, job, run
}

// numbered are n lines of a log, from a number on.
func numbered(first, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("this is line %d.", first+i))
	}
	return out
}

// steps reports steps of a run.
func (s *site) steps(job api.Job, run api.Run, steps ...api.Step) {
	s.t.Helper()
	_, err := s.plane.Steps(s.t.Context(), job.Token, run, api.Steps{Steps: steps})
	s.must(err)
}

// has fails unless a page has each of some texts.
func has(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if !strings.Contains(page, s) {
			t.Errorf("the page does not have %q:\n%.3000s", s, page)
		}
	}
}

// hasNot fails if a page has one of some texts.
func hasNot(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if strings.Contains(page, s) {
			t.Errorf("the page has %q", s)
		}
	}
}

func TestLog_FoldsStepsAndOpensTheOneThatRuns(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	s.logs(job, run, 0, "init", "initializing")
	s.logs(job, run, 1, "plan", "\x1b[32m+ create\x1b[0m <b>", "second")
	s.steps(job, run, api.Step{Seq: 1, Name: "init", Status: workflow.StepSucceeded, StartedAt: time.Now(), Seconds: 12, LogEnd: 1},
		api.Step{Seq: 2, Name: "plan", Status: workflow.StepRunning, StartedAt: time.Now()})
	page := s.get("/runs/" + w.ID)
	has(t, page, `<details data-step="init"><summary`, `<details data-step="plan" open><summary`, "12s", "2 lines", `href="/runs/`+w.ID+`?line=2#L2"`,
		`<div id="L2">`, `<span><span class="term-fg32">+ create</span> &lt;b&gt;</span></div>`, `data-from="3"`, `data-again="0"`)
	hasNot(t, page, "<b> ", "<details data-step=\"init\" open")
}

func TestLog_OpensTheFailedStep(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	s.logs(job, run, 0, "plan", "boom")
	s.logs(job, run, 1, "unlock", "done")
	failed := api.Step{Seq: 1, Name: "plan", Status: workflow.StepFailed, StartedAt: time.Now(), Seconds: 1, LogEnd: 1}
	s.steps(job, run, failed, api.Step{Seq: 2, Name: "unlock", Status: workflow.StepSucceeded, StartedAt: time.Now(), Seconds: 1, LogEnd: 2})
	s.end(job, run, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, LogEnd: 2})
	page := s.get("/runs/" + w.ID)
	has(t, page, `<details data-step="plan" open>`, `<details data-step="unlock">`)
	hasNot(t, page, "data-live") // nothing will change
}

func TestLog_OfARunThatEndedHasNoStepAtWork(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	s.logs(job, run, 0, "plan", "one")
	s.steps(job, run, api.Step{Seq: 1, Name: "plan", Status: workflow.StepRunning, StartedAt: time.Now()})
	hasNot(t, s.get("/runs/"+w.ID), "not finished", "data-done")
	s.end(job, run, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonRunnerError, LogEnd: 1})
	page := s.get("/runs/" + w.ID)
	has(t, page, `<details data-step="plan" open>`, `<span class="warn" aria-hidden="true">◌</span>`, "not finished")
	_, log, _ := strings.Cut(page, `id="log"`)
	hasNot(t, log, "running")
}

func TestLog_LinkOfALineOpensTheLinesAroundIt(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	for first := 0; first < 6000; first += 3000 {
		s.logs(job, run, int64(first), "plan", numbered(first+1, 3000)...)
	}
	page := s.get("/runs/" + w.ID)
	has(t, page, "line 4001.", "line 6000.", "6000 lines", "Earlier lines", `data-from="6000"`)
	hasNot(t, page, "line 4000.", "Later lines")
	page = s.get("/runs/" + w.ID + "?line=2500")
	has(t, page, "line 1501.", "line 2500.", "line 3500.", "Earlier lines", "Later lines", `?line=3500#L3500`, `data-from="-1"`)
	hasNot(t, page, "line 1500.", "line 3501.")
	page = s.get("/runs/" + w.ID + "?line=99999")
	has(t, page, "line 6000.")
}

func TestLog_NumbersStayTrueWhereLinesWereLost(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	s.logs(job, run, 0, "plan", "one", "two")
	in := api.Logs{First: 10, Lost: true, Lines: []api.LogLine{{Step: "plan", Text: "eleven"}, {Step: "plan", Text: "twelve"}}}
	_, err := s.plane.AppendLogs(t.Context(), job.Token, run, in)
	s.must(err)
	page := s.get("/runs/" + w.ID)
	has(t, page, "12 lines")
	for n, text := range map[int]string{1: "one", 2: "two", 3: "[dayfly] lines 2 to 9", 11: "eleven", 12: "twelve"} {
		if ok, _ := regexp.MatchString(fmt.Sprintf(`<div id="L%d"><a [^>]*>%d</a><span>%s`, n, n, regexp.QuoteMeta(text)), page); !ok {
			t.Errorf("line %d is not %q", n, text)
		}
	}
}

func TestLog_PiecesOfALineAreOneLine(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	in := api.Logs{Lines: []api.LogLine{{Text: "first half, ", More: true}, {Text: "second half"}, {Text: strings.Repeat("x", 40000)}}}
	_, err := s.plane.AppendLogs(t.Context(), job.Token, run, in)
	s.must(err)
	page := s.get("/runs/" + w.ID)
	has(t, page, "<span>first half, second half</span>", `id="L3"`, "cut here")
	hasNot(t, page, `id="L2"`, strings.Repeat("x", 16<<10+1))
}

func TestLog_SearchGoesThroughAllOfIt(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	for first := 0; first < 4000; first += 2000 {
		s.logs(job, run, int64(first), "plan", numbered(first+1, 2000)...)
	}
	s.logs(job, run, 4000, "plan", "an \x1b[31mERR\x1b[0mor <here>")
	page := s.get("/runs/" + w.ID + "?q=errOR+%3Ch")
	has(t, page, "1 line found.", `an <mark>ERRor &lt;h</mark>ere&gt;`, "?line=4001#L4001")
	page = s.get("/runs/" + w.ID + "?q=line")
	has(t, page, "200 lines found up to line 200, where the search stopped.", "after=200&amp;q=line")
	has(t, s.get("/runs/"+w.ID+"?q=line&after=200"), "this is <mark>line</mark> 201.")
	has(t, s.get("/runs/"+w.ID+"?q=.*"), "0 lines found.")
}

func TestLog_EarlierAttemptsAndWhatIsMissing(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	w := s.submit("net", workflow.Update)
	has(t, s.get("/runs/"+w.ID), "No lines yet", "has taken the run")
	s.start()
	has(t, s.get("/runs/"+w.ID), "No lines yet: the run has started")
	if res, page := s.do(http.MethodGet, "/runs/"+w.ID+"?attempt=7", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("got %s: %s", res.Status, page)
	}
	if res, page := s.do(http.MethodGet, "/runs/"+w.ID+"?line=x", nil); res.StatusCode != http.StatusUnprocessableEntity && res.StatusCode != http.StatusBadRequest {
		t.Errorf("got %s: %s", res.Status, page)
	}
}

func TestLog_OfEachAttemptHasItsPage(t *testing.T) {
	c := newClock()
	s := newSite(t, c.of)
	s.workspace("net")
	w, err := s.plane.Submit(t.Context(), s.admin, "", api.Submit{Workspace: "net", Type: workflow.InsightsScan})
	s.must(err)
	for n := 1; n <= 3; n++ {
		job, run := s.start()
		s.logs(job, run, 0, "scan", fmt.Sprintf("attempt number %d.", n))
		if n < 3 {
			s.pass(c, 12) // of silence
		}
	}
	page := s.get("/runs/" + w.ID)
	has(t, page, "attempt number 3.", "?attempt=1#log", "?attempt=2#log", `aria-current="true">3</a>`, "data-latest")
	hasNot(t, page, "attempt number 1.", "attempt number 2.")
	page = s.get("/runs/" + w.ID + "?attempt=2")
	has(t, page, "attempt number 2.", `aria-current="true">2</a>`, "/log?attempt=2", `href="/runs/`+w.ID+`?attempt=2&amp;line=1#L1"`, `name="attempt" value="2"`, " data-done")
	hasNot(t, page, "attempt number 3.", "data-latest")
	has(t, s.get("/runs/"+w.ID+"?attempt=1&q=number"), "1 line found.", "attempt <mark>number</mark> 1.")
}

func TestLog_ThatIsDoneIsNotFollowed(t *testing.T) {
	s := newSite(t)
	s.workspace("net", func(w *api.Workspace) {
		w.Engine, w.Commands, w.Approval = api.EngineTofu, nil, &api.Approval{Required: true}
	})
	w := s.submit("net", workflow.Update)
	job, run := s.start()
	s.logs(job, run, 0, "plan", "one")
	page := s.get("/runs/" + w.ID)
	has(t, page, `data-again="0"`)
	hasNot(t, page, "data-done")
	page, _, _, _ = s.live(w.ID, "attempt=1&from=0&seen=")
	hasNot(t, page, "data-done")
	planned := api.Result{Outcome: workflow.Succeeded, LogEnd: 1, Changes: &api.Changes{Add: 1}}
	planned.Plan = &api.PlanMade{Artifact: "plan/bundle.tar", Size: 1, SHA256: strings.Repeat("a", 64), Summary: strings.Repeat("b", 64)}
	s.end(job, run, planned)
	has(t, s.get("/runs/"+w.ID), `data-again="5000" data-done`) // somebody may approve it
	page, _, _, _ = s.live(w.ID, "attempt=1&from=1&seen=")
	has(t, page, "<div data-heads data-done>")
}

func TestLog_PastItsRetentionSaysSo(t *testing.T) {
	c := newClock()
	s := newSite(t, c.of)
	w, job, run := s.running()
	s.logs(job, run, 0, "plan", "one")
	s.end(job, run, api.Result{Outcome: workflow.Succeeded, LogEnd: 1})
	c.ahead = 91 * 24 * time.Hour
	s.as("later", api.RoleAdmin, nil) // the first session has expired
	page := s.get("/runs/" + w.ID)
	has(t, page, "Succeeded.", "is past its retention and is not kept any longer")
	hasNot(t, page, ">one</span>", "data-lines-of")
	has(t, s.get("/runs/"+w.ID+"?q=one"), "is past its retention")
	if res, page := s.do(http.MethodGet, "/runs/"+w.ID+"/log", nil); res.StatusCode != http.StatusGone || !strings.Contains(page, "is past its retention") {
		t.Errorf("got %s: %s", res.Status, page)
	}
}

func TestLog_DownloadIsPlainTextAndBounded(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	in := api.Logs{Lines: []api.LogLine{{Text: "\x1b[31mred\x1b[0m"}, {Text: "a ", More: true}, {Text: "b"}, {Text: "10%\r100%"}}}
	_, err := s.plane.AppendLogs(t.Context(), job.Token, run, in)
	s.must(err)
	s.logs(job, run, 4, "plan", numbered(5, 3000)...)
	res, got := s.do(http.MethodGet, "/runs/"+w.ID+"/log", nil)
	if want := "red\na b\n100%\n" + strings.Join(numbered(5, 3000), "\n") + "\n"; got != want {
		t.Errorf("got %.200q, want %.200q", got, want)
	}
	if got := res.Header.Get("Content-Disposition"); res.Header.Get("Content-Type") != "text/plain; charset=utf-8" || got != `attachment; filename="`+w.ID+`-1.log"` {
		t.Errorf("got %v", res.Header)
	}
	s.server.Config.Handler = console.New(s.plane, console.Config{Download: 1000})
	if _, got := s.do(http.MethodGet, "/runs/"+w.ID+"/log", nil); len(got) > 1200 || !strings.Contains(got, "dayfly workflow logs "+w.ID+" --attempt 1 has all of it") {
		t.Errorf("got %d bytes that end with %q", len(got), got[max(0, len(got)-100):])
	}
}
