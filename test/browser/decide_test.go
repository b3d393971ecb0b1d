package browser_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// acts opens what an action says, gives a reason where one is given, and presses its button.
func (b *tab) acts(word, reason string) {
	b.t.Helper()
	b.opens(word)
	if reason != "" {
		b.fills(`details[open]:has(form) :is(textarea, input:not([type=hidden]))`, reason)
	}
	b.clicks("details[open]:has(form) button")
}

// opens opens what an action says.
func (b *tab) opens(word string) {
	b.t.Helper()
	b.clicks("summary", word)
	b.waits(find("details[open] > summary", word))
}

// planned is a preview whose plan waits for its approval.
func (s *server) planned(workspace string) string {
	s.t.Helper()
	s.plays(workspace, guarded)
	id := s.submit(workspace, workflow.Update)
	s.act().plans(networkPlan)
	return id
}

// review is what became of a plan.
func (s *server) review(id string) api.Review {
	s.t.Helper()
	w, err := s.people.Workflow(s.t.Context(), id)
	s.must(err)
	if w.Review == nil {
		s.t.Fatalf("%s has no review", id)
	}
	return *w.Review
}

func TestApprove_ThePlanIsReadAndApplied(t *testing.T) {
	s := up(t)
	id := s.planned("network")
	b := s.enters()
	b.goes("/")
	b.clicks("main a", "network")
	b.at("/runs/" + id)
	text := eval[string](b, `document.querySelector("main").textContent`) // with what is folded
	destroyed, created := strings.Index(text, "aws_nat_gateway.old"), strings.Index(text, "aws_vpc_endpoint.s3")
	if destroyed < 0 || created < destroyed {
		t.Errorf("what is destroyed does not stand before what is created: %d, %d", destroyed, created)
	}
	b.sees("in 2d") // the script writes times anew
	for _, want := range []string{"cidr_block", "private_subnet_ids"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan does not show %s", want)
		}
	}
	b.acts("Approve", "checked with the network team")
	b.sees("Your approval is recorded.")
	b.at("/runs/" + id)
	b.sees("approved")
	r := s.review(id)
	if r.Status != api.ReviewApproved || r.Applies == "" || len(r.Votes) != 1 || r.Votes[0].Comment != "checked with the network team" {
		t.Errorf("the review is %+v", r)
	}
	b.goes("/runs/" + id)
	if strings.Contains(b.text(), "is recorded") {
		t.Error("the notice is shown again")
	}
	b.clicks("main a[href$=" + strconv.Quote(r.Applies) + "]")
	b.at("/runs/" + r.Applies)
}

func TestReject_SaysWhy(t *testing.T) {
	s := up(t)
	id := s.planned("network")
	b := s.enters()
	b.goes("/runs/" + id)
	b.acts("Reject", "not this week")
	b.sees("not this week")
	b.sees("rejected")
	if r := s.review(id); r.Status != api.ReviewRejected {
		t.Errorf("the review is %+v", r)
	}
	if eval[bool](b, `Boolean(`+find("summary", "Approve")+`)`) {
		t.Error("a rejected plan can be approved")
	}
}

func TestApprove_AStalePlanIsRefusedWithASentence(t *testing.T) {
	s := up(t)
	id := s.planned("network")
	b := s.enters()
	b.goes("/runs/" + id)
	s.plays("network", guarded, func(ws *api.Workspace) { ws.Environment = map[string]string{"REGION": "eu-west-1"} })
	b.expects("409")
	b.acts("Approve", "looks good")
	b.sees("the settings of the workspace were changed")
	if r := s.review(id); r.Status != api.ReviewWaiting {
		t.Errorf("the review is %+v", r)
	}
	if got := eval[string](b, `document.querySelector('details[open]:has(form) :is(textarea, input:not([type=hidden]))')?.value ?? ""`); got != "looks good" {
		t.Errorf("what was typed is %q by now", got)
	}
}

func TestTwoPeople_SecondLearnsWhoDecidedFirst(t *testing.T) {
	s := up(t)
	id := s.planned("network")
	ada, bob := s.tab().signs(s.person("ada", api.RoleOperator)), s.tab().signs(s.person("bob", api.RoleOperator))
	eve := s.tab().signs(s.person("eve", api.RoleViewer))
	for _, b := range []*tab{ada, bob, eve} {
		b.goes("/runs/" + id)
	}
	bob.opens("Approve")
	ada.acts("Approve", "go")
	ada.sees("approved")
	eve.sees("approved")
	eve.sees("ada")
	bob.expects("409")
	bob.clicks("details[open]:has(form) button")
	bob.sees("was approved, and run")
	if r := s.review(id); len(r.Votes) != 1 || r.Votes[0].By != "ada" {
		t.Errorf("the review is %+v", r)
	}
}

func TestCancel_InEachWindow(t *testing.T) {
	s := up(t)
	b := s.enters()
	s.plays("network")
	t.Run("waiting", func(*testing.T) {
		id := s.submit("network", workflow.Preview)
		b.goes("/runs/" + id)
		b.acts("Cancel", "by mistake")
		b.sees("cancelled")
		s.reaches(id, workflow.Cancelled)
	})
	t.Run("starting", func(*testing.T) {
		id := s.submit("network", workflow.Preview)
		job := s.claim()
		b.goes("/runs/" + id)
		b.acts("Cancel", "too late")
		eventually(t, job.ID+" is to be cancelled", func() bool {
			w, err := s.people.Workflow(t.Context(), id)
			s.must(err)
			return w.State == workflow.Cancelled || w.CancelRequested
		})
	})
	t.Run("running", func(*testing.T) {
		s.commands("work", "echo at work; while :; do sleep 1; done")
		id := s.submit("work", workflow.Preview)
		s.reaches(id, workflow.Running)
		b.goes("/runs/" + id)
		b.sees("at work")
		b.acts("Cancel", "enough")
		s.reaches(id, workflow.Cancelled)
		b.sees("cancelled")
		b.sees("enough")
	})
	t.Run("ended meanwhile", func(*testing.T) {
		s.plays("late")
		id := s.submit("late", workflow.Preview)
		b.goes("/runs/" + id)
		other := b.beside()
		other.goes("/runs/" + id)
		b.opens("Cancel")
		b.fills(`details[open]:has(form) :is(textarea, input:not([type=hidden]))`, "perhaps")
		a := s.act()
		a.did("plan", 0, workflow.StepRunning, "", "one line")
		for _, tab := range []*tab{b, other} {
			tab.waits(`document.title.includes("running")`)
			tab.sees("one line")
		}
		other.clicks("#log summary") // which gives it the focus
		eval[bool](other, `(window.marked = document.querySelector("[data-part=timeline] h2"), getSelection().selectAllChildren(marked), true)`)
		a.did("plan", 0, workflow.StepSucceeded, "")
		a.ends(api.Result{Outcome: workflow.Succeeded})
		for _, tab := range []*tab{b, other} {
			tab.sees("✓ Succeeded")
			tab.waits(`document.title.includes("succeeded")`)
		}
		b.waits(`document.querySelector("#to-cancel").value === "perhaps"`) // it has the focus
		b.clicks("h1")
		b.waits(find("summary", "Retry") + " && !document.querySelector('.act[open], #to-cancel')")
		other.waits(find("#log summary", "✓") + " && marked.isConnected")
		eval[bool](other, `(getSelection().removeAllRanges(), true)`)
		other.waits("!marked.isConnected")
		b.goes("/runs/" + id)
		if eval[bool](b, `Boolean(`+find("summary", "Cancel")+`)`) {
			t.Error("a run that has ended can be cancelled")
		}
	})
}

func TestTimeline_ShowsWhatWasRefusedAndTriedAgain(t *testing.T) {
	s := up(t)
	s.plays("search")
	id := s.submit("search", workflow.Preview)
	s.refusedAndRetried(id)
	b := s.enters()
	b.goes("/runs/" + id)
	b.waits(`document.querySelector("main svg")`)
	said := eval[string](b, `document.querySelector("main svg").parentElement.textContent`)
	for _, want := range []string{"refused", "plan"} {
		if !strings.Contains(said, want) {
			t.Errorf("the timeline does not say %q: %s", want, said)
		}
	}
}

func TestRetry_MakesARunThatNamesTheFirst(t *testing.T) {
	s := up(t)
	s.plays("network")
	id := s.submit("network", workflow.Preview)
	s.act().ends(api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "init failed"})
	b := s.enters()
	b.goes("/runs/" + id)
	b.sees("init failed")
	b.acts("Retry", "the registry is back")
	b.waits(`location.pathname.startsWith("/runs/") && location.pathname !== "/runs/` + id + `"`)
	b.sees("network")
}

func TestUnlock_IsAskedForOnThePageOfTheWorkspace(t *testing.T) {
	s := up(t)
	s.plays("billing")
	s.submit("billing", workflow.Update)
	s.act().ends(api.Result{
		Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "the lock is held",
		Lock: &api.Lock{ID: "5e1f3c1a-0d7e-4c3b-9b2f-1f6f0a3a8b11", Who: "runner@build-01", Operation: "OperationTypeApply"},
	})
	b := s.enters()
	b.goes("/workspaces/billing")
	b.sees("runner@build-01")
	b.opens("Release the lock")
	b.clicks("details[open]:has(form) label")
	b.clicks("details[open]:has(form) button")
	b.waits(`location.pathname.startsWith("/runs/")`)
	if job := s.claim(); job.Operation != workflow.StateUnlock {
		t.Errorf("the next run is %s", job.Operation)
	}
}

func TestWorkspace_StartsARun(t *testing.T) {
	s := up(t)
	s.commands("work", "echo from the page")
	b := s.enters()
	b.goes("/workspaces")
	b.clicks("main a", "work")
	b.at("/workspaces/work")
	b.fills("main input[name=message]", "to see whether it works")
	b.clicks("main form.new button")
	b.waits(`location.pathname.startsWith("/runs/")`)
	b.sees("to see whether it works")
	b.sees("succeeded")
	b.sees("from the page")
}
