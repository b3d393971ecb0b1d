package browser_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// line is a line of the log as the page shows it.
type line struct {
	N    int
	Text string
}

// lines are the lines that the page shows.
func (b *tab) lines() []line {
	b.t.Helper()
	return eval[[]line](b, `[...document.querySelectorAll("#log [id^=L]")].filter(e => /^L\d+$/.test(e.id)).map(e => ({N: Number(e.id.slice(1)), Text: e.textContent}))`)
}

func TestLog_GrowsAndGoesOnOverARestart(t *testing.T) {
	s := up(t)
	s.plays("network")
	id := s.submit("network", workflow.Preview)
	a := s.act()
	rows := 0
	grow := func(until int) {
		t.Helper()
		for rows < until {
			rows++
			a.logs("plan", fmt.Sprintf("row %d.", rows))
		}
	}
	b := s.enters()
	b.goes("/runs/" + id)
	grow(1)
	b.sees("row 1.")
	grow(60)
	b.sees("row 60.")
	b.expects("ERR_|503|502")
	s.Kill()
	b.waits(`document.body.innerText.match(/connection|reach|again/i)`) // it is said
	s.start()
	grow(100)
	b.sees("row 100.")
	grow(150)
	a.ends(api.Result{Outcome: workflow.Succeeded})
	b.sees("row 150.")
	b.sees("succeeded")
	lines := b.lines()
	for i, l := range lines {
		if want := fmt.Sprintf("row %d.", i+1); l.N != i+1 || !strings.Contains(l.Text, want) {
			t.Fatalf("line %d is %q where %q should be", l.N, l.Text, want)
		}
	}
	if len(lines) != 150 {
		t.Errorf("the page shows %d lines", len(lines))
	}
}

func TestLog_OfManyLinesOpensFastAndAnywhere(t *testing.T) {
	s := up(t)
	s.plays("network")
	id := s.submit("network", workflow.Preview)
	a := s.act()
	const many = 100_000
	lines := make([]string, many)
	for i := range lines {
		lines[i] = fmt.Sprintf("row %d: aws_instance.web[%d]: Refreshing state...", i+1, i%97)
	}
	a.did("plan", 0, workflow.StepSucceeded, "", lines...)
	a.ends(api.Result{Outcome: workflow.Succeeded})
	b := s.enters()
	began := time.Now()
	b.goes("/runs/" + id)
	b.sees("row 100000:")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the page took %s", took)
	}
	b.sees("100000 lines")
	b.goes("/runs/" + id + "?line=50000#L50000")
	b.sees("row 50000:")
	b.waits(inWindow(50_000))
	if n := len(b.lines()); n > 5000 {
		t.Errorf("the page has %d lines", n)
	}
	b.fills("#log input[name=q]", "row 77777:")
	b.presses("\r")
	b.waits(`location.search.includes("q=")`)
	b.clicks("#log a", "77777")
	b.waits(`location.search.includes("line=77777")`)
	b.sees("row 77776:")

	// What the link of the download gives to whoever is signed in.
	to := eval[string](b, `document.querySelector("#log a[download]").href`)
	got := b.downloads(to)
	if n := strings.Count(got, "\n"); n != many || !strings.HasSuffix(got, lines[many-1]+"\n") {
		t.Errorf("the download has %d lines", n)
	}
}

// downloads fetches an address as the person of the tab.
func (b *tab) downloads(address string) string {
	b.t.Helper()
	got, err := chromedp.Call(b.ctx, network.GetCookies, network.GetCookiesParams{URLs: []string{address}})
	b.must(err)
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, address, nil)
	b.must(err)
	for _, c := range got.Cookies {
		req.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	res, err := http.DefaultClient.Do(req)
	b.must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	b.must(err)
	return string(body)
}

func TestLog_FollowsUntilSomebodyScrolls(t *testing.T) {
	s := up(t)
	s.plays("network")
	id := s.submit("network", workflow.Preview)
	a := s.act()
	b := s.enters()
	b.goes("/runs/" + id)
	more := func(n int) {
		for i := range n {
			a.logs("plan", fmt.Sprintf("%d of %d", i+1, n))
		}
	}
	const follows, stands = `document.querySelector("#log button")?.innerText.includes("Following")`, `document.querySelector("#log button")?.innerText === "Follow"`
	b.waits(follows + " || " + stands)
	if eval[bool](b, stands) { // the page is too long to show the log
		b.clicks("#log button")
	}
	b.waits(follows)
	more(200)
	b.waits(inWindow(200))
	eval[bool](b, `(document.getElementById("L20").scrollIntoView({behavior: "instant"}), true)`)
	b.waits(stands)
	more(30)
	b.waits(`document.getElementById("L230")`)
	if eval[bool](b, inWindow(230)) || !eval[bool](b, inWindow(20)) {
		t.Error("the log follows although somebody reads above")
	}
	b.clicks("#log button")
	b.waits(inWindow(230))
	// The step that went well is folded, which makes the page shorter.
	a.did("plan", 0, workflow.StepSucceeded, "")
	a.logs("apply", "its first line")
	b.waits(inWindow(231))
	b.waits(find("summary", "plan") + `.parentElement.open === false`)
	b.waits(follows)
	a.logs("apply", strings.Split(strings.Repeat("and more\n", 60), "\n")...)
	b.waits(inWindow(291))
	a.ends(api.Result{Outcome: workflow.Succeeded})
	b.waits(`!document.querySelector("#log button")`)
}

func TestLog_OfAPlanThatWaitsIsNotFollowed(t *testing.T) {
	s := up(t)
	s.plays("network", guarded)
	id := s.submit("network", workflow.Update)
	a := s.act()
	a.logs("plan", "one line")
	a.plans(networkPlan)
	b := s.enters()
	b.goes("/runs/" + id)
	b.sees("one line")
	b.sees("in 2d") // the script has run
	if eval[bool](b, `Boolean(`+find("#log button", "Follow")+`)`) {
		t.Error("a log that is complete can be followed")
	}
}

// inWindow says whether a line of the log is where it can be read.
func inWindow(n int) string {
	return fmt.Sprintf(`(() => {
		const r = document.getElementById("L%d")?.getBoundingClientRect()
		return Boolean(r) && r.top < innerHeight && r.bottom > 0
	})()`, n)
}
