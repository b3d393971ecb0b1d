package browser_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestKeyboard_FindsWalksAndOpens(t *testing.T) {
	s := up(t)
	s.plays("network")
	s.plays("dns")
	first := s.submit("network", workflow.Preview)
	s.act().ends(api.Result{Outcome: workflow.Succeeded})
	second := s.submit("dns", workflow.Preview)
	s.act().ends(api.Result{Outcome: workflow.Succeeded})
	b := s.enters()
	b.goes("/runs")
	b.presses("j")
	b.waits(`document.querySelector("tr.here a[href$='` + second + `']")`)
	b.presses("j")
	b.waits(`document.querySelector("tr.here a[href$='` + first + `']")`)
	b.presses("k")
	b.waits(`document.querySelector("tr.here a[href$='` + second + `']")`)
	b.presses(kb.Enter)
	b.at("/runs/" + second)
	b.presses("/")
	b.waits(`document.activeElement?.name === "q" && document.activeElement.closest("header")`)
	b.presses("network" + kb.Enter)
	b.at("/workspaces/network")
	b.presses("?")
	b.waits(`document.querySelector("dialog[open]")?.innerText.includes("j")`)
	b.presses(kb.Escape)
	b.waits(`!document.querySelector("dialog[open]")`)
	b.size(390)
	b.presses("/")
	b.waits(`document.activeElement?.name === "q" && document.activeElement.checkVisibility()`)
	b.presses("dns" + kb.Enter)
	b.at("/workspaces/dns")
}

func TestKeyboard_KeysAskBeforeTheyAct(t *testing.T) {
	s := up(t)
	id := s.planned("network")
	s.plays("dns")
	waiting := s.submit("dns", workflow.Preview)
	b := s.enters()
	b.goes("/runs/" + id)
	b.presses("a")
	b.waits(find("details[open] > summary", "Approve"))
	b.waits(`document.activeElement.closest("details[open]")`)
	if r := s.review(id); r.Status != api.ReviewWaiting {
		t.Fatalf("one key made it %s", r.Status)
	}
	b.tabsTo(`details[open]:has(form) :is(textarea, input:not([type=hidden]))`)
	b.presses("as agreed")
	b.tabsTo("details[open]:has(form) button")
	b.presses(kb.Enter)
	b.sees("approved")
	if r := s.review(id); r.Status != api.ReviewApproved || r.Votes[0].Comment != "as agreed" {
		t.Errorf("the review is %+v", r)
	}
	b.goes("/runs/" + waiting)
	b.presses("c")
	b.waits(find("details[open] > summary", "Cancel"))
	b.tabsTo("details[open]:has(form) button")
	b.presses(kb.Enter)
	b.sees("cancelled")
}

// tabsTo presses the tabulator until the focus is on an element of a selector.
func (b *tab) tabsTo(selector string) {
	b.t.Helper()
	for range 60 {
		if eval[bool](b, `document.activeElement.matches("`+selector+`")`) {
			return
		}
		b.presses(kb.Tab)
	}
	b.fail("the tabulator does not lead to %s", selector)
}

func TestKeyboard_TheTabulatorReachesEverything(t *testing.T) {
	d := up(t).demo()
	b := d.enters()
	for _, path := range []string{"/", "/runs", "/workspaces", "/workspaces/billing", "/pools", "/runs/" + d.approval, "/runs/" + d.failed} {
		b.goes(path)
		const controls = `[...document.querySelectorAll("a[href], button, summary, input:not([type=hidden], [type=radio]:not(:checked)), select, textarea")].filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled)`
		all := eval[int](b, `(window.reached = new Set(), window.unseen = [], `+controls+`.length)`)
		eval[bool](b, `(document.activeElement.blur(), true)`)
		for range all + 20 {
			b.presses(kb.Tab)
			if eval[bool](b, `(() => {
				const e = document.activeElement, style = getComputedStyle(e)
				if (e === document.body) return true
				if (style.outlineStyle === "none" && style.boxShadow === "none" && !reached.has(e)) unseen.push(e.outerHTML.slice(0, 80))
				reached.add(e)
				return false
			})()`) && eval[bool](b, `reached.size > 3`) {
				break
			}
		}
		if left := eval[[]string](b, controls+`.filter(e => !reached.has(e)).map(e => e.outerHTML.slice(0, 80))`); len(left) > 0 {
			t.Errorf("%s: the tabulator does not reach %q", path, left)
		}
		if got := eval[[]string](b, `unseen`); len(got) > 0 {
			t.Errorf("%s: the focus cannot be seen on %s", path, strings.Join(got, ", "))
		}
	}
}
