package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var attribute = regexp.MustCompile(`<div id="live" data-attempt="(\d*)" data-last="(\d*)" data-from="(-?\d*)" data-seen="(\w*)" data-again="(\d*)">`)

// live asks for changes, and returns the answer and what it says about the next request.
func (s *site) live(id, query string) (page, from, seen, again string) {
	s.t.Helper()
	page = s.get("/runs/" + id + "/live?" + query)
	m := attribute.FindStringSubmatch(page)
	if m == nil {
		s.t.Fatalf("got %s", page)
	}
	return page, m[3], m[4], m[5]
}

func TestLive_SendsWhatIsNewAndThenWaits(t *testing.T) {
	s := newSite(t)
	w, job, run := s.running()
	s.logs(job, run, 0, "plan", "one")
	page, from, seen, again := s.live(w.ID, "attempt=1&from=0&seen=")
	has(t, page, `data-part="head"`, `<details data-step="plan" open>`, ">one</span>")
	if from != "1" || again != "0" {
		t.Errorf("go on at %s after %s ms, want 1, 0", from, again)
	}
	var got string
	var wait sync.WaitGroup
	wait.Go(func() { got, from, seen, again = s.live(w.ID, "attempt=1&from=1&seen="+seen) })
	s.logs(job, run, 1, "plan", "two")
	wait.Wait()
	has(t, got, ">two</span>", `id="L2"`)
	hasNot(t, got, ">one</span>", "data-part")
	s.end(job, run, api.Result{Outcome: workflow.Succeeded, LogEnd: 2})
	page, _, seen, again = s.live(w.ID, "attempt=1&from=2&seen="+seen)
	has(t, page, "succeeded", `data-part="head"`, "<title>update of net · succeeded · dayfly</title>")
	has(t, page, "data-done")
	if again != "" {
		t.Errorf("a run that is over wants another request after %q ms", again)
	}
	if page, _, _, _ := s.live(w.ID, "attempt=1&from=-1&seen="+seen); strings.Contains(page, "data-part") {
		t.Errorf("a part that the page has is sent again: %s", page)
	}
}

func TestLive_TellsOfAStateThatChangesWithoutALine(t *testing.T) {
	s := newSite(t)
	w, _, _ := s.running()
	_, _, seen, _ := s.live(w.ID, "attempt=1&from=0&seen=")
	var page string
	var wait sync.WaitGroup
	wait.Go(func() { page, _, _, _ = s.live(w.ID, "attempt=1&from=0&seen="+seen) })
	_, err := s.plane.Cancel(t.Context(), s.admin, w.ID, api.WithReason{})
	s.must(err)
	wait.Wait()
	has(t, page, "Cancelling.")
}

func TestLive_DoesNotWaitWhereTooManyDo(t *testing.T) {
	s := newSite(t)
	s.server.Config.Handler = console.New(s.plane, console.Config{Waiting: 1, Wait: 20 * time.Second})
	w, job, run := s.running()
	_, _, seen, _ := s.live(w.ID, "attempt=1&from=0&seen=")
	var waits sync.WaitGroup
	for range 2 { // one of them waits, whichever comes first; the other is answered at once and asks again
		waits.Go(func() {
			if _, _, _, again := s.live(w.ID, "attempt=1&from=0&seen="+seen); again == "3000" {
				s.logs(job, run, 0, "plan", "a line")
			}
		})
	}
	waits.Wait()
}

func TestLive_IsForThoseWhoMaySeeTheRun(t *testing.T) {
	s := newSite(t)
	w, _, _ := s.running()
	if res, _ := s.do(http.MethodGet, "/runs/wf_nosuch/live?from=0", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("got %s", res.Status)
	}
	s.cookie = nil
	if res, page := s.do(http.MethodGet, "/runs/"+w.ID+"/live?from=0", nil); res.StatusCode == http.StatusOK {
		t.Errorf("nobody got %s", page)
	}
}

func TestLive_ALookThatPanicsIsAnError(t *testing.T) {
	if err := console.Look(t.Context(), func() { panic("broken") }); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
}

// The findings of one viewer's look go only to people who may see the run.
func TestLive_SharesALookWithThoseWhoMaySeeTheRun(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"payments", "shop"} {
		_, err := s.plane.CreateProject(t.Context(), s.admin, "", api.ProjectSettings{Name: new(name)})
		s.must(err)
	}
	s.workspace("net", func(w *api.Workspace) { w.Project = "payments" })
	w := s.submit("net", workflow.Update)
	job, run := s.start()
	s.logs(job, run, 0, "plan", "first")
	_, _, seen, _ := s.live(w.ID, "attempt=1&from=0&seen=")
	viewers := []*http.Cookie{s.cookie}
	for i := range 12 {
		s.as(fmt.Sprintf("pat-%d", i), "", map[string]string{"payments": api.RoleViewer})
		viewers = append(viewers, s.cookie)
	}
	s.as("mal", "", map[string]string{"shop": api.RoleAdmin})
	outsider := s.cookie
	s.cookie = nil
	ask := func(who *http.Cookie) (int, string) {
		res, page := s.do(http.MethodGet, "/runs/"+w.ID+"/live?attempt=1&from=1&seen="+seen, nil, func(r *http.Request) {
			r.AddCookie(who)
			r.Header.Set(console.HeaderLive, "1")
		})
		return res.StatusCode, page
	}
	refused := func(when string) {
		if status, page := ask(outsider); status != http.StatusForbidden || strings.Contains(page, "the secret") || strings.Contains(page, "data-heads") {
			t.Errorf("%s somebody of another project got %d %s", when, status, page)
		}
	}
	refused("before the others")
	before := s.reads.Load()
	got := make([]string, len(viewers))
	var wait sync.WaitGroup
	for i, who := range viewers {
		wait.Go(func() {
			status, page := ask(who)
			if _, lines, ok := strings.Cut(page, "<div data-heads>"); status == http.StatusOK && ok {
				got[i] = lines
			}
		})
	}
	refused("while they wait")
	s.logs(job, run, 1, "plan", "the secret")
	refused("while they are answered")
	wait.Wait()
	refused("after them")
	for i := range got {
		if !strings.Contains(got[i], ">the secret</span>") || got[i] != got[0] {
			t.Errorf("viewer %d got %q, and the first %q", i, got[i], got[0])
		}
	}
	t.Logf("%d viewers cost %d reads", len(viewers), s.reads.Load()-before)
}
