package browser_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// hostile are texts that would be markup, script or a trick if one of them were not kept apart from the page.
var hostile = []string{
	`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`, `' onmouseover='alert(1)`,
	`</title></textarea></pre></main><h1>owned</h1>`, `javascript:alert(1)`, `{{constructor.constructor('alert(1)')()}}`,
	"\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07", "\x1b]0;title\x07", "\x1b]1338;url='javascript:alert(1)'\x07", "\x1b]1339;url=javascript:alert(1);content=x\x07",
	"\x1b[31;1m<b onclick=alert(1)>red</b>\x1b[0m", "\u202egnp.exe", "\x00\x07\x1b[2J\x1b[H", strings.Repeat("long", 500), `<!--`, `&lt;script&gt;`,
}

func TestHostile_NoForeignTextBecomesPartOfAPage(t *testing.T) {
	s := up(t)
	s.plays("h-_ostile_-", guarded, func(ws *api.Workspace) {
		ws.Description = hostile[1]
		ws.Source = api.Source{Directory: "/srv/" + hostile[2]}
	})
	id := s.submit("h-_ostile_-", workflow.Update, func(in *api.Submit) { in.Message = hostile[0] + hostile[4] })
	a := s.act()
	plan := api.Changes{Add: len(hostile)}
	for i, text := range hostile {
		plan.Resources = append(plan.Resources, api.ResourceChange{
			Address: fmt.Sprintf("x.y[%q]", text[:min(len(text), 900)]), Action: "create", Changed: []string{text[:min(len(text), 200)]}, Provider: hostile[2],
		})
		plan.Outputs = append(plan.Outputs, api.OutputChange{Name: fmt.Sprint(i, text[:min(len(text), 200)]), Action: "create"})
	}
	a.did(hostile[1], 0, workflow.StepSucceeded, hostile[0], hostile...)
	a.plans(plan)

	s.plays("other")
	failed := s.submit("other", workflow.Preview, func(in *api.Submit) { in.Message = hostile[3] })
	a = s.act()
	a.logs(hostile[0], hostile...)
	a.ends(api.Result{
		Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: strings.Join(hostile[:6], "\n"),
		Lock: &api.Lock{ID: hostile[1], Who: hostile[0], Path: hostile[4], Operation: hostile[2]},
	})

	b := s.enters()
	for _, path := range []string{"/", "/runs", "/runs/" + id, "/runs/" + failed, "/workspaces", "/workspaces/h-_ostile_-", "/workspaces/other", "/pools", "/runs?workspace=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E"} {
		b.expects("the server responded with a status of 400") // of a filter that cannot be
		b.goes(path)
		if got := eval[[]string](b, `[...document.querySelectorAll("img, iframe, object, embed, b[onclick], script:not([src^='/assets/']), a[href^='javascript'], [onerror], [onload], [onmouseover], [onclick]")].map(e => e.outerHTML)`); len(got) > 0 {
			t.Errorf("%s has %q", path, got)
		}
		if n := eval[int](b, `document.querySelectorAll("h1").length`); n != 1 || strings.Contains(eval[string](b, `document.querySelector("h1").innerText`), "owned") {
			t.Errorf("%s has %d first headings", path, n)
		}
		if strings.Contains(b.text(), "\u202e") {
			t.Errorf("%s shows a mark that turns the direction of the text", path)
		}
	}
	b.goes("/runs/" + id)
	b.sees(hostile[0])
	b.acts("Reject", hostile[1])
	b.sees("rejected")
	b.sees(hostile[1])
}
