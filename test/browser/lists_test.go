package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestRuns_TheFilterStandsInTheAddress(t *testing.T) {
	s := up(t)
	s.plays("network")
	s.plays("dns")
	failed := s.submit("network", workflow.Preview)
	s.act().ends(api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "init failed"})
	good := s.submit("dns", workflow.Preview)
	s.act().ends(api.Result{Outcome: workflow.Succeeded})
	row := func(id string) string { return `document.querySelector("main a[href$='` + id + `']")` }
	b := s.enters()
	b.goes("/runs")
	b.waits(row(failed) + " && " + row(good))
	eval[string](b, `document.querySelector("main select[name=state]").value = "failed"`)
	b.clicks("main form button")
	b.waits(`location.search.includes("state=failed")`)
	b.waits(row(failed) + " && !" + row(good))
	b.clicks("main a[href*='" + failed + "']")
	b.at("/runs/" + failed)
	eval[bool](b, `(history.back(), true)`)
	b.waits(`location.search.includes("state=failed") && document.readyState === "complete"`)
	if got := eval[string](b, `document.querySelector("main select[name=state]").value`); got != "failed" {
		t.Errorf("back at the list, the filter says %q", got)
	}
	if eval[bool](b, `Boolean(`+row(good)+`)`) {
		t.Error("back at the list, it is not filtered")
	}
	eval[bool](b, `(history.back(), true)`)
	b.waits(row(failed) + " && " + row(good))
}

func TestHome_ChangesByItself(t *testing.T) {
	s := up(t)
	b := s.enters()
	b.sees("dayfly run")
	s.plays("network", guarded)
	id := s.submit("network", workflow.Update)
	b.waits(`document.querySelector("main a[href$='` + id + `']")`)
	s.act().plans(networkPlan)
	b.sees("approve")
}

func TestPlan_OfManyResourcesIsReadInOneLook(t *testing.T) {
	s := up(t)
	s.plays("network", guarded)
	id := s.submit("network", workflow.Update)
	plan := api.Changes{Add: 1000, Destroy: 12, Replace: 10}
	for i := range 1000 {
		r := api.ResourceChange{Address: fmt.Sprintf("module.zone[%d].aws_instance.web[%d]", i/100, i), Action: "create"}
		switch {
		case i%500 == 1:
			r.Action = "delete"
		case i%100 == 2:
			r.Action, r.Forces = "replace", []string{"subnet_id"}
		}
		plan.Resources = append(plan.Resources, r)
	}
	s.act().plans(plan)
	b := s.enters()
	began := time.Now()
	b.goes("/runs/" + id)
	b.sees("aws_instance.web[1]")
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the page took %s", took)
	}
	b.waits(`/2 .*destroy.*10 .*replace.*990 .*add/.test(document.body.innerText)`)
	text := b.text()
	for i := range 1000 {
		if (i%500 == 1 || i%100 == 2) && !strings.Contains(text, fmt.Sprintf("aws_instance.web[%d]", i)) {
			t.Errorf("resource %d, which is destroyed, is folded", i)
		}
	}
	eval[int](b, `[...document.querySelectorAll("details")].filter(e => e.open = true).length`)
	text = b.text()
	for i := range 1000 {
		if !strings.Contains(text, fmt.Sprintf("aws_instance.web[%d]", i)) {
			t.Fatalf("the plan does not show resource %d", i)
		}
	}
	for _, i := range []int{1, 2, 501, 502} { // in the same module
		if at, created := strings.Index(text, fmt.Sprintf("web[%d]", i)), strings.Index(text, fmt.Sprintf("web[%d]", i/100*100+3)); at > created {
			t.Errorf("resource %d, which is destroyed, stands behind one that is created", i)
		}
	}
}
