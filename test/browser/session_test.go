package browser_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestFirstVisit_ThePrintedLinkSignsInOnce(t *testing.T) {
	s := up(t)
	link := s.Link()
	b := s.tab()
	b.goes(link)
	b.at("/")
	b.sees("dayfly run")
	if at := eval[string](b, `location.href + document.referrer + document.cookie + document.documentElement.outerHTML`); strings.Contains(at, link[strings.LastIndexAny(link, "=/#")+1:]) || strings.Contains(at, s.Token) {
		t.Errorf("the page still has what signed in: %s", at)
	}
	for _, path := range []string{"/runs", "/workspaces", "/pools"} {
		b.goes(path)
		b.sees("dayfly ") // an empty page says what to type
	}
	other := s.tab()
	other.expects("the server responded with a status of 40")
	other.goes(link)
	other.sees("this link was used before")
	if eval[bool](other, `Boolean(`+find("main button", "Open")+`)`) {
		t.Error("a link that was used offers to sign in")
	}
}

func TestSignIn_ReturnsToThePageThatWasAskedFor(t *testing.T) {
	s := up(t)
	s.plays("network")
	id := s.submit("network", workflow.Preview)
	b := s.tab()
	b.goes("/runs/" + id + "?line=1")
	b.sees("Sign in")
	b.expects("the server responded with a status of 401")
	b.fills("input[name=token]", "dfu_wrong")
	b.clicks("main button")
	b.waits(`document.querySelector("[role=alert]")`)
	b.fills("input[name=token]", s.Token)
	b.clicks("main button")
	b.at("/runs/" + id + "?line=1")
}

func TestExpiry_ALivePageSaysSoAndLeadsBack(t *testing.T) {
	s := up(t)
	s.plays("network")
	id := s.submit("network", workflow.Preview)
	a := s.act()
	a.logs("plan", "before")
	token := s.person("ada", api.RoleOperator)
	b := s.tab().signs(token)
	b.goes("/runs/" + id)
	b.sees("before")
	b.expects("the server responded with a status of 401")
	other := b.beside()
	other.goes("/pools")
	other.clicks("header button", "Sign out")
	other.sees("Sign in")
	a.logs("plan", "wakes the page")
	b.sees("You are signed out")
	a.logs("plan", "nobody may read this")
	if strings.Contains(b.text(), "nobody may read this") {
		t.Error("a page whose session has ended goes on")
	}
	b.clicks("[role=alert] a")
	b.fills("input[name=token]", token)
	b.clicks("main button")
	b.at("/runs/" + id)
	b.sees("nobody may read this")

	tokens, err := s.people.Tokens(t.Context(), "", 100)
	s.must(err)
	for _, tok := range tokens.Items {
		if tok.Name == "ada" {
			s.must(s.people.RevokeToken(t.Context(), tok.ID))
		}
	}
	// For some seconds what looks for news is answered by the last look at the session.
	eventually(t, "the page says that its token was revoked", func() bool {
		a.logs("plan", "wakes the page")
		return strings.Contains(b.text(), "You are signed out")
	})
}

func TestScriptsOff_PeopleSignInLookSearchAndCancel(t *testing.T) {
	s := up(t)
	s.plays("network")
	id := s.submit("network", workflow.Preview)
	a := s.act()
	a.did("plan", 0, workflow.StepSucceeded, "", "one line", "the needle in it", "another line")
	b := s.tab()
	b.scripts(false)
	b.goes(s.Link())
	b.clicks("main button")
	b.at("/")
	b.clicks("main a", "network")
	b.at("/runs/" + id)
	b.sees("the needle in it")
	b.fills("#log input[name=q]", "needle")
	b.presses("\r")
	b.waits(`location.search.includes("q=needle")`)
	b.sees("the needle in it")
	if strings.Contains(b.text(), "another line") {
		t.Error("the search shows what it was not asked for")
	}
	b.goes("/runs/" + id)
	a.logs("plan", "printed later")
	b.sees("printed later") // the page is fetched again
	b.clicks("main a", "Stop")
	b.waits(`location.search.includes("still") && document.readyState === "complete"`)
	b.acts("Cancel", "seen enough")
	b.at("/runs/" + id)
	w, err := s.people.Workflow(t.Context(), id)
	if s.must(err); !w.CancelRequested {
		t.Errorf("the run is %s", w.State)
	}
}
