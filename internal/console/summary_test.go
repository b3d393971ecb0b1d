package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// after is a moment so many seconds after noon.
func after(seconds float64) *time.Time {
	at := noon.Add(time.Duration(seconds * float64(time.Second)))
	return &at
}

func TestSay_WhereARunStandsAndWhatIsNext(t *testing.T) {
	run := func(state workflow.State, change func(*api.Why)) api.Why {
		why := api.Why{Workflow: api.Workflow{
			Workspace: "net", Type: workflow.Deployment, Operation: workflow.Update, State: state, SubmittedBy: "ci", SubmittedAt: noon,
			Attempt: 2, Instance: "agent", Task: "arn:task", ClaimedAt: after(60), StartedAt: after(120),
		}, NextAt: after(3600)}
		if state.Terminal() {
			why.Workflow.EndedAt = after(180)
		}
		change(&why)
		return why
	}
	review := func(change func(*api.Review)) func(*api.Why) {
		return func(why *api.Why) {
			r := api.Review{Status: api.ReviewWaiting, Needed: 1, ExpiresAt: *after(7200), Why: []string{"project pay: it destroys 1 resource"}}
			change(&r)
			why.Workflow.Operation, why.Workflow.Review = workflow.Preview, &r
			why.Workflow.Result = &api.Result{Changes: &api.Changes{Add: 3, Destroy: 2, Replace: 1}}
		}
	}
	for name, one := range map[string]struct {
		why  api.Why
		want string
	}{
		"pending": {run(workflow.Pending, func(w *api.Why) { w.Waiting = "pool x, which is disabled" }),
			"Pending. It waits for pool x, which is disabled. Submitted by ci [12:00]. It fails if it still waits [13:00]."},
		"on its way": {run(workflow.Claimed, func(w *api.Why) { w.Code, w.Waiting = "start", "its task arn:aws:ecs:x:1:task/c/0f8a to start" }),
			"Claimed. It waits for its task 0f8a to start. Attempt 2 was claimed by agent [12:01]. If it does not start, it is claimed again [13:00]."},
		"refused": {run(workflow.Claimed, func(w *api.Why) { w.Code, w.Waiting = "launch", "a launch that was refused (capacity): zone a is full" }),
			"Claimed. It waits for a launch that was refused (capacity): zone a is full. Attempt 2 was claimed by agent [12:01]. The launch is tried again [13:00]."},
		"running": {run(workflow.Running, func(w *api.Why) {
			w.Workflow.Steps = []api.Step{{Name: "init", Status: workflow.StepSucceeded}, {Name: "apply", Status: workflow.StepRunning, StartedAt: *after(130)}}
		}), "Running step apply. The step began [12:02]. It is stopped if it still runs [13:00]."},
		"cancelling": {run(workflow.Running, func(w *api.Why) {
			w.Workflow.CancelRequested, w.Timeline = true, []api.Event{{Kind: "cancel_requested", Actor: "ann", At: *after(150)}}
		}), "Cancelling. Its engine is interrupted and gets time to stop. ann asked for it [12:02]. An engine that does not stop is killed."},
		"handed over": {run(workflow.Running, func(w *api.Why) { w.Code = "result" }),
			"Running. Its task has ended well, and its result is on its way. Without the result it fails [13:00]."},
		"applied": {run(workflow.Succeeded, func(w *api.Why) {
			w.Workflow.Result = &api.Result{Changes: &api.Changes{Add: 3, Change: 1, Destroy: 1, Replace: 1}}
		}), "Succeeded. It replaced 1 resource, changed 1 and added 2. It ran for 1m00s and ended [12:03]."},
		"failed": {run(workflow.Failed, func(w *api.Why) {
			w.Workflow.Reason, w.Workflow.Detail = workflow.ReasonSourceFailed, "no such ref"
			w.Workflow.Steps = []api.Step{{Name: "source", Status: workflow.StepFailed, Text: "git: exit 128"}}
		}), "Failed. The source could not be fetched: no such ref. Step source: git: exit 128. It ran for 1m00s and ended [12:03]. Check its address, ref, token (source.git.token_ref) and network."},
		"failed in a step": {run(workflow.Failed, func(w *api.Why) {
			w.Workflow.Reason, w.Workflow.Detail = workflow.ReasonStepFailed, "plan failed with exit code 1: Error: Invalid value"
		}), "Failed in plan with exit code 1: Error: Invalid value. It ran for 1m00s and ended [12:03]. The end of its log has the cause."},
		"cancelled": {run(workflow.Cancelled, func(w *api.Why) { w.Workflow.StartedAt, w.Workflow.Detail = nil, "cancelled by ann: wrong branch" }),
			"Cancelled by ann: wrong branch. It ended [12:03]."},
		"waits for approval": {run(workflow.Succeeded, review(func(*api.Review) {})),
			"Waiting for approval. It would destroy 1 resource, replace 1 and add 2. Anyone with the operator role can approve it. The plan expires [14:00]. An approval is required by project pay: it destroys 1 resource."},
		"not by me": {run(workflow.Succeeded, review(func(r *api.Review) {
			r.NotBySubmitter, r.Submitters, r.Needed, r.Why = true, api.PrincipalRefs{{ID: "prn_me", Name: "me"}, {ID: "prn_ann", Name: "ann"}}, 2, nil
		})), "Waiting for approval. It would destroy 1 resource, replace 1 and add 2. Anyone with the operator role but me and ann (you are among the submitters) can approve it. It needs 2 approvals of different people and has 0. The plan expires [14:00]."},
		"after the merge": {run(workflow.Succeeded, review(func(r *api.Review) {
			r.AfterMerge, r.Needed, r.NeededWhy, r.Why = true, 2, "the authors are not known", nil
		})), "Waiting for approval. It would destroy 1 resource, replace 1 and add 2. Anyone with the operator role can approve it. It needs 2 approvals of different people and has 0, because the authors are not known. After the merge, its approvals carry over to the plan of the merged commit, if all planned changes are equal. The plan expires [14:00]."},
		"waits for the merge": {run(workflow.Succeeded, review(func(r *api.Review) { r.Status = api.ReviewMerge })),
			"Succeeded. It would destroy 1 resource, replace 1 and add 2. It ran for 1m00s and ended [12:03]. The plan is approved: after the merge, its approvals carry over to the plan of the merged commit, if all planned changes are equal."},
		"merged": {run(workflow.Succeeded, review(func(r *api.Review) { r.Status, r.CarriedFrom = api.ReviewApproved, "wf_a" })),
			"Succeeded. It would destroy 1 resource, replace 1 and add 2. It ran for 1m00s and ended [12:03]. The plan is approved, and another run applies it. Approvals were carried over from wf_a, because all planned changes are equal."},
		"carried over": {run(workflow.Succeeded, review(func(r *api.Review) { r.Status, r.CarriedTo = api.ReviewCarried, "wf_b" })),
			"Succeeded. It would destroy 1 resource, replace 1 and add 2. It ran for 1m00s and ended [12:03]. Its approvals were carried over to the plan of wf_b, because all planned changes are equal."},
		"rejected": {run(workflow.Succeeded, review(func(r *api.Review) { r.Status = api.ReviewRejected })),
			"Succeeded. It would destroy 1 resource, replace 1 and add 2. It ran for 1m00s and ended [12:03]. The plan is rejected: a new preview makes a new one."},
	} {
		if diff := cmp.Diff(one.want, console.Sentences(one.why, "prn_me")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	lost := console.Sentences(run(workflow.Failed, func(w *api.Why) {
		w.Workflow.Reason, w.Workflow.SlotHeld = workflow.ReasonRunnerLost, true
	}), "prn_me")
	if !strings.Contains(lost, "may be half changed") || !strings.Contains(lost, "is still held: nothing proves yet that the task has ended; it is free at the latest [13:00]") {
		t.Errorf("a lost run says %s", lost)
	}
}

func TestTimeline_TellsEveryPhase(t *testing.T) {
	at := func(seconds float64, kind string) api.Event {
		return api.Event{At: *after(seconds), Kind: kind, Text: kind}
	}
	step := func(name string, from, took float64) api.Step {
		return api.Step{Name: name, Status: workflow.StepSucceeded, StartedAt: *after(from), Seconds: took}
	}
	for name, one := range map[string]struct {
		w      api.Workflow
		events []api.Event
		want   string
	}{
		"a plain run": {
			api.Workflow{State: workflow.Succeeded, StartedAt: after(43), EndedAt: after(62), Steps: []api.Step{step("source", 43, 2), step("init", 45, 6), step("plan", 51, 11)}},
			[]api.Event{at(0, "submitted"), at(4, "claimed"), at(4.5, "queued"), at(5, "launched"), at(43, "started"), at(62, "result")},
			"waiting 4.0s, queued 1.0s, provisioning 38s, source 2.0s, init 6.0s, plan 11s",
		},
		"refusals and a retry": {
			api.Workflow{State: workflow.Running, StartedAt: after(100), Steps: []api.Step{{Name: "plan", Status: workflow.StepRunning, StartedAt: *after(101)}}},
			[]api.Event{at(10, "claimed"), at(11, "launch_refused"), at(20, "launch_refused"), at(30, "launched"), at(40, "lapsed"), at(50, "claimed"), at(52, "launched"), at(100, "started")},
			"waiting 20s, queued 3.0s, provisioning 1m17s; launch_refused; launch_refused; lapsed, plan 19s so far",
		},
		"three attempts": {
			api.Workflow{State: workflow.Claimed},
			[]api.Event{at(1, "claimed"), at(2, "launched"), at(3, "started"), at(20, "silence"), at(21, "claimed"), at(22, "launched"), at(23, "started"), at(40, "task_stopped"), at(41, "claimed")},
			"waiting 3.0s, queued 1m21s so far, provisioning 2.0s, running 34s; silence; task_stopped",
		},
		"pending again": {
			api.Workflow{State: workflow.Pending, Steps: []api.Step{{Name: "plan", Status: workflow.StepRunning, StartedAt: *after(4)}}},
			[]api.Event{at(1, "claimed"), at(2, "launched"), at(3, "started"), at(20, "silence")},
			"waiting 1m41s so far, queued 1.0s, provisioning 1.0s, running 17s; silence",
		},
		"cancelled while it waited": {
			api.Workflow{State: workflow.Cancelled, EndedAt: after(9)}, []api.Event{at(0, "submitted"), at(9, "cancelled")}, "waiting 9.0s; cancelled",
		},
		"ended without a start": {
			api.Workflow{State: workflow.Failed, EndedAt: after(9)}, []api.Event{at(1, "claimed"), at(9, "launch_failed")}, "waiting 1.0s, queued 8.0s; launch_failed",
		},
		"the runner's clock is behind": {
			api.Workflow{State: workflow.Succeeded, StartedAt: after(10), EndedAt: after(20), Steps: []api.Step{step("plan", -500, 4), step("apply", -496, 5)}},
			[]api.Event{at(1, "claimed"), at(2, "launched"), at(10, "started")}, "waiting 1.0s, queued 1.0s, provisioning 8.0s, plan 4.0s, apply 5.0s",
		},
		"the runner's clock is ahead": {
			api.Workflow{State: workflow.Succeeded, StartedAt: after(10), EndedAt: after(20), Steps: []api.Step{step("plan", 5000, 4), step("apply", 5004, 5)}},
			[]api.Event{at(1, "claimed"), at(2, "launched"), at(10, "started")}, "waiting 1.0s, queued 1.0s, provisioning 8.0s, plan 4.0s, apply 5.0s",
		},
		"an approval": {
			api.Workflow{State: workflow.Succeeded, StartedAt: after(1), EndedAt: after(2), Review: &api.Review{Status: api.ReviewWaiting, ExpiresAt: *after(9999), Votes: []api.Vote{{By: "ann", At: *after(60)}}}},
			[]api.Event{at(0.5, "claimed"), at(0.6, "launched"), at(1, "started")}, "waiting 0.5s, queued 0.1s, provisioning 0.4s, running 1.0s, approval 1m58s so far; approved by ann",
		},
	} {
		one.w.SubmittedAt = noon
		words, places := console.Timeline(one.w, one.events, *after(120))
		if diff := cmp.Diff("Timeline: "+one.want, words); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, p := range places {
			if p[0] < 0 || p[1] < p[0] || p[1] > 100.001 {
				t.Errorf("%s: a bar lies at %v", name, p)
			}
		}
	}
}

func TestTimeline_AShortStepIsSeenNextToALongWait(t *testing.T) {
	w := api.Workflow{State: workflow.Succeeded, SubmittedAt: noon, StartedAt: after(4*3600 + 2), EndedAt: after(4*3600 + 3),
		Steps: []api.Step{{Name: "source", StartedAt: *after(4*3600 + 2), Seconds: 0.1}}}
	_, places := console.Timeline(w, []api.Event{{Kind: "claimed", At: *after(4 * 3600)}, {Kind: "launched", At: *after(4*3600 + 1)}, {Kind: "started", At: *after(4*3600 + 2)}}, noon)
	short, long := places[len(places)-1], places[0]
	if short[1]-short[0] < 1 || long[1]-long[0] < 50 {
		t.Errorf("the step lies at %v, the wait at %v", short, long)
	}
}

func TestPlan_AnAddressIsCutIntoModuleAndRest(t *testing.T) {
	for address, want := range map[string][2]string{
		"aws_subnet.a":                             {"", "aws_subnet.a"},
		"module.edge.aws_subnet.a[0]":              {"module.edge", "aws_subnet.a[0]"},
		`module.a["x.y]\"z"].module.b[1].data.c.d`: {`module.a["x.y]\"z"].module.b[1]`, "data.c.d"},
		"module.":        {"", "module."},
		`module.a["open`: {"", `module.a["open`},
		"module.a":       {"", "module.a"},
	} {
		if name, rest := console.SplitAddress(address); name != want[0] || rest != want[1] {
			t.Errorf("%s is cut into %q and %q", address, name, rest)
		}
	}
}
