package controlplane_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// From a colleague's pull request to its approved apply, whatever the store loses.
func TestPull_IsPreviewedReviewedAndApplied(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.reviewed(required(), func(ws *api.Workspace) {
			ws.Role, ws.PreviewRole = netRole, netPreview
			ws.Secrets = []api.Secret{{Env: "A", Ref: "file:a"}, {Env: "B", Ref: "file:b", Preview: true}}
		})
		f := w.forge(api.HostGitHub)
		f.event("pull_request-opened")
		f.status("pending", headSum)
		wf := f.only()
		if tr := wf.Trigger; tr == nil || tr.Kind != api.TriggerPullRequest || tr.Name != "forge" || tr.Number != 2 || tr.Commit != headSum || wf.Operation != workflow.Preview || wf.For != workflow.Update {
			t.Fatalf("the run is %+v of %+v", wf, tr)
		}
		if spec := f.frozen(wf.ID); arn(spec.Role) != netPreview || names(spec.Secrets) != "B" || spec.Source.Git.Ref != headSum {
			t.Errorf("it gets %s, %s and %+v", arn(spec.Role), names(spec.Secrets), spec.Source.Git)
		}
		if f.body() != "" {
			t.Errorf("it says, before anything is known:\n%s", f.body())
		}
		f.plans(one)
		if n := f.works(); n != 1 {
			t.Errorf("the end of the run leads to %d deliveries, want 1", n)
		}
		f.answers(planned, "waiting for approval", "dayfly apply")
		f.status("success", headSum)

		f.says(annaID, "dayfly apply net")
		r := f.reviewOf(wf.ID, api.ReviewApproved)
		if len(r.Votes) != 1 || r.Votes[0].By != "anna" {
			t.Errorf("the review is %+v", r)
		}
		f.answers("approved by anna, and run " + r.Applies + " applies it")
		if id := f.ends(workflow.Succeeded); id != r.Applies {
			t.Errorf("%s ended, want %s", id, r.Applies)
		}
		f.works()
		f.answers("applied")
		f.status("success", headSum)
		if f.says(annaID, "dayfly apply"); !strings.Contains(f.body(), "approved by anna") || len(f.reviewOf(wf.ID, api.ReviewApproved).Votes) != 1 {
			t.Errorf("said twice:\n%s", f.body())
		}
		f.pass()
		if n := f.runs(); n != 2 {
			t.Errorf("there are %d runs", n)
		}
	})
}

// A comment command means what was shown before it.
func TestPull_NothingIsAppliedThatWasNotShown(t *testing.T) {
	f := pulls(t, memory.New(), required())
	f.event("pull_request-opened")
	wf := f.only()
	f.says(annaID, "dayfly apply")
	f.answers("Nothing was applied", "were not shown here before your comment")
	f.plans(one)
	body := f.writes(annaID, "dayfly apply") // written before our comment says the plan
	f.works()
	f.sends("issue_comment", body)
	f.works()
	f.answers("were not shown here before your comment")
	f.reviewOf(wf.ID, api.ReviewWaiting)

	f.clock.advance(time.Minute)
	body = f.writes(annaID, "dayfly apply")
	f.pushes(newerSum) // between the review and the comment's event
	f.sends("issue_comment", body)
	f.works()
	f.reviewOf(wf.ID, api.ReviewRejected)
	if now := f.only(); now.ID == wf.ID || now.Trigger.Commit != newerSum {
		t.Errorf("the run is %+v", now)
	}
	f.answers("Nothing was applied")

	f.facts.Head = strings.Repeat("8", 40) // pushed, and its event does not arrive
	f.says(annaID, "dayfly apply")
	f.answers("Nothing was applied: commit " + f.facts.Head + " was pushed after the previews that you have seen")
	if n := f.runs(); n != 3 {
		t.Errorf("there are %d runs, want the previews of 3 commits", n)
	}
}

func TestPull_AForkWaitsForTheReleaseOfThatCommit(t *testing.T) {
	for name, change := range map[string]func(*forge){
		"a fork":          func(f *forge) { f.facts.IsFork, f.facts.Author = true, api.Person{ID: eveID} },
		"no write access": func(f *forge) { f.facts.Author = api.Person{ID: eveID} },
	} {
		t.Run(name, func(t *testing.T) {
			f := pulls(t, memory.New(), required())
			change(f)
			f.event("pull_request-fork")
			f.answers("nothing of this pull request runs yet", "dayfly preview "+headSum)
			f.status("pending", headSum)
			f.says(eveID, "dayfly preview "+headSum)
			f.answers("user 666 of the git host is not a member here")
			f.says(annaID, "dayfly preview")
			f.says(annaID, "dayfly preview "+newerSum)
			f.answers("Commit " + newerSum + " was not released")
			if n := f.runs(); n != 0 {
				t.Fatalf("%d runs that nobody has released", n)
			}
			f.says(annaID, "dayfly preview "+headSum)
			wf := f.only()
			f.plans(one)
			f.works()
			f.answers(planned)
			if r := f.reviewOf(wf.ID, api.ReviewWaiting); !slices.Contains(r.Submitters.Names(), "anna") {
				t.Errorf("who has released it is not a submitter: %v", r.Submitters)
			}
			f.pushes(newerSum)
			f.answers("nothing of this pull request runs yet", "dayfly preview "+newerSum)
			f.reviewOf(wf.ID, api.ReviewRejected)
			if n := f.runs(); n != 1 {
				t.Errorf("%d runs after a push that nobody has released", n)
			}
			f.says(bobID, "dayfly preview "+newerSum)
			if now := f.only(); now.Trigger.Commit != newerSum {
				t.Errorf("the run is of %+v", now.Trigger)
			}
		})
	}
}

// A release counts where who gave it may run something, now and later.
func TestPull_AReleaseIsOnlyForWhatItsMemberMayRun(t *testing.T) {
	w := newWorld(t, memory.New())
	_, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("mine")})
	w.must(err)
	w.reviewed(required())
	w.repository("other", "https://forge.example/example/infra", func(ws *api.Workspace) { ws.Project, ws.Source.Git.Path = "mine", "other" })
	carl := api.Member{ID: 9, Principal: "carl", Grants: map[string]string{"mine": api.RoleOperator}}
	f := w.forge(api.HostGitHub, operator(annaID, "anna"), carl, api.Member{ID: 10, Principal: "vic", Role: api.RoleViewer})
	f.facts.IsFork, f.facts.Author = true, api.Person{ID: eveID}
	f.event("pull_request-fork")
	f.says(10, "dayfly preview "+headSum)
	f.answers("not previewed", "viewer")
	if n := f.runs(); n != 0 {
		t.Fatalf("a viewer's release made %d runs", n)
	}
	f.facts.Files = []string{"other/main.tf"}
	f.says(9, "dayfly preview "+headSum+" other")
	if n := f.runs(); n != 1 {
		t.Fatalf("there are %d runs, want that of project mine\n%s", n, f.body())
	}
	f.facts.Files = []string{"other/main.tf", "main.tf"} // as of a pull request that is for another branch now
	f.event("pull_request-edited-base")
	if n := f.runs(); n != 1 {
		t.Errorf("there are %d runs: the release of one project counts for another\n%s", n, f.body())
	}
	_, _, err = f.plane.GitHosts.Put(f.ctx(), f.admin, settings(api.HostGitHub, operator(annaID, "anna")))
	f.must(err)
	f.repository("third", "https://forge.example/example/infra", func(ws *api.Workspace) { ws.Project = "mine" })
	f.event("pull_request-edited-base")
	f.answers("the person who released the commit is no longer a member")
}

// An event is a reason to look: what it says counts only if the host says the same.
func TestPull_AForgedCommentIsNotObeyed(t *testing.T) {
	for name, tc := range map[string]struct {
		host func(*api.CommentFacts)
		want string
	}{
		"of somebody else": {func(c *api.CommentFacts) { c.Author.ID = eveID }, "not the one that was announced"},
		"another text":     {func(c *api.CommentFacts) { c.Text = "nice work" }, "not the one that was announced"},
		"edited":           {func(c *api.CommentFacts) { c.Updated = c.Updated.Add(time.Minute) }, "its comment was edited"},
		"gone":             {nil, "its comment is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			f := pulls(t, memory.New(), required())
			wf := f.previewed()
			f.clock.advance(time.Minute)
			body := f.writes(annaID, "dayfly apply")
			c := f.comments[f.last]
			if delete(f.comments, f.last); tc.host != nil {
				tc.host(&c)
				f.comments[f.last] = c
			}
			f.sends("issue_comment", body)
			f.works()
			f.answers("The command was not carried out", tc.want)
			if r := f.reviewOf(wf.ID, api.ReviewWaiting); len(r.Votes) > 0 {
				t.Errorf("votes: %+v", r.Votes)
			}
		})
	}
}

func TestPull_CommandsAreForMembersWithARole(t *testing.T) {
	members := []api.Member{operator(annaID, "anna"), {ID: 10, Principal: "vic", Role: api.RoleViewer}, {ID: 11, Principal: "otto", Grants: map[string]string{"mine": api.RoleOperator}}}
	w := newWorld(t, memory.New())
	_, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("mine")})
	w.must(err)
	w.reviewed(required())
	f := w.forge(api.HostGitHub, members...)
	wf := f.previewed()
	for _, tc := range []struct {
		who        int64
		text, want string
	}{
		{eveID, "dayfly apply", "user 666 of the git host is not a member here"},
		{10, "dayfly apply", "viewer"},
		{11, "dayfly apply", "in other projects only"},
		{10, "dayfly cancel", "Not cancelled: net: "},
		{11, "dayfly preview", "not previewed"},
	} {
		f.says(tc.who, tc.text)
		f.answers(tc.want)
		if r := f.reviewOf(wf.ID, api.ReviewWaiting); len(r.Votes) > 0 || f.runs() != 1 {
			t.Errorf("%s of %d: %+v", tc.text, tc.who, r.Votes)
		}
	}
	f.says(annaID, "dayfly preview no-such")
	f.answers("does not concern workspace no-such")
	f.says(annaID, "dayfly fly")
	f.answers("dayfly does not know")
	f.says(annaID, "dayfly preview")
	if now := f.only(); now.ID == wf.ID {
		t.Error("a member's preview is the one before")
	}
	f.says(annaID, "dayfly cancel")
	f.answers("Cancelled by anna")
	f.is(f.only().ID, workflow.Cancelled, workflow.ReasonCancelled)
}

// The author of the pull request does not approve it, where that is required: at the host they are the same person.
func TestPull_NotBySubmitterHoldsForTheAuthor(t *testing.T) {
	f := pulls(t, memory.New(), &api.Approval{Required: true, NotBySubmitter: true})
	wf := f.previewed()
	f.says(annaID, "dayfly apply")
	f.answers("must be approved by somebody else")
	f.reviewOf(wf.ID, api.ReviewWaiting)
	f.says(bobID, "dayfly apply")
	f.answers("net: approved by bob.")
	f.approves(f.person("carl"), wf.ID) // two are needed, because the authors of the commits are not known
	f.reviewOf(wf.ID, api.ReviewApproved)
}

func TestWebhook_IsTakenOnceAndOnlyWithItsSignature(t *testing.T) {
	f := pulls(t, memory.New(), required())
	body := f.recorded("pull_request-opened", nil)
	refused := func(org, name string, h http.Header, body []byte) string {
		t.Helper()
		_, err := f.plane.Webhook(f.ctx(), org, name, h, body)
		wantErr(t, err, workflow.ErrUnauthenticated)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	h := f.signed("pull_request", body)
	texts := map[string]bool{
		refused("default", "forge", http.Header{}, body):                              true,
		refused("default", "forge", h, append([]byte(" "), body...)):                  true,
		refused("default", "no-such", h, body):                                        true,
		refused("no-such", "forge", h, body):                                          true,
		refused("../default", "forge", h, body):                                       true,
		refused("default", "forge", (&forge{secret: "x"}).signed("push", body), body): true,
	}
	if len(texts) != 1 {
		t.Errorf("the refusals show which things exist: %v", texts)
	}
	if out := f.sends("pull_request", body); !out.IsTaken {
		t.Fatal(out.Reason)
	}
	f.works()
	f.only()
	shown := len(f.shown)
	for _, event := range []string{"pull_request", "issue_comment"} { // the header is not signed
		if out, err := f.plane.Webhook(f.ctx(), "default", "forge", f.signed(event, body), body); out.IsTaken || err == nil && event == "pull_request" && !strings.Contains(out.Reason, "taken before") {
			t.Errorf("a replay as %s: %+v, %v", event, out, err)
		}
	}
	comment := f.writes(annaID, "dayfly preview")
	f.sends("issue_comment", comment)
	f.works()
	made := f.runs()
	f.live(2 * record.Day)
	if out := f.sends("issue_comment", comment); out.IsTaken {
		t.Errorf("a replay is taken: %+v", out)
	}
	if f.works(); f.runs() != made || len(f.shown) == shown {
		t.Errorf("%d runs, %d before; %d shown", f.runs(), made, len(f.shown))
	}
	for name, event := range map[string]string{"pull_request-labeled": "pull_request", "ping": "ping", "push": "push", "issue_comment-deleted": "issue_comment"} {
		if out := f.sends(event, f.recorded(name, nil)); out.IsTaken || out.Reason == "" {
			t.Errorf("%s: %+v", name, out)
		}
	}
	f.disable(true)
	refused("default", "forge", f.signed("pull_request", body), body)
	f.disable(false)
	if out := f.sends("pull_request", f.recorded("pull_request-opened", nil)); !out.IsTaken {
		t.Errorf("the secret of a git host that was changed: %+v", out)
	}
	_, err := f.plane.RotateWebhookSecret(f.ctx(), f.admin, "forge")
	f.must(err)
	refused("default", "forge", f.signed("pull_request", body), body)
	none := controlplane.New(f.store, controlplane.Config{Now: f.clock.now})
	_, err = none.Webhook(f.ctx(), "default", "forge", h, body)
	wantErr(t, err, workflow.ErrUnsupported)
}

func TestPull_AClosedOneIsCancelled(t *testing.T) {
	f := pulls(t, memory.New(), required())
	wf := f.previewed()
	f.facts.State = api.PullClosed
	f.event("pull_request-closed")
	f.reviewOf(wf.ID, api.ReviewRejected)
	f.says(annaID, "dayfly apply")
	f.answers("The command was not carried out: the pull request is closed")
	f.facts.State = api.PullOpen
	f.event("pull_request-opened")
	f.answers("comment dayfly preview for new ones")
	f.says(annaID, "dayfly preview")
	if now := f.only(); now.ID == wf.ID {
		t.Error("it is not previewed again")
	}
}

func TestPull_AMergeStartsRunsAndCarriesApprovals(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, event, commit string
	}{
		"github":                    {api.HostGitHub, "pull_request-merged", mergeTo},
		"gitlab, by a fast-forward": {api.HostGitLab, "merge_request-merge-ff", headSum},
		"gitlab, by a merge commit": {api.HostGitLab, "merge_request-merge", mergeTo},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			url := "https://forge.example/example/infra.git"
			if tc.kind == api.HostGitLab {
				url = "https://forge.example/example/team/infra.git"
			}
			onMerge := func(op workflow.Operation) func(*api.Workspace) {
				return func(ws *api.Workspace) {
					ws.Source = api.Source{Git: &api.GitSource{URL: url, Ref: "main"}}
					ws.PullRequests = &api.PullRequests{OnMerge: op}
				}
			}
			w.guarded(afterMerge(), onMerge(workflow.Update))
			f := w.forge(tc.kind)
			opened := map[string]string{api.HostGitHub: "pull_request-opened", api.HostGitLab: "merge_request-open"}[tc.kind]
			f.event(opened)
			pull := f.only()
			f.plans(one, valued(valuesSum, headSum))
			f.works()
			f.approves(f.person("bob"), pull.ID)
			f.reviewOf(pull.ID, api.ReviewMerge)
			f.works()

			f.facts.State, f.facts.MergeCommit = api.PullMerged, tc.commit
			f.event(tc.event)
			push := f.only()
			if tr := push.Trigger; push.ID == pull.ID || tr == nil || tr.Kind != api.TriggerPush || tr.Commit != tc.commit || push.For != workflow.Update {
				t.Fatalf("the run of the merge is %+v of %+v", push, tr)
			}
			f.plans(one, valued(valuesSum, tc.commit))
			r := f.reviewOf(push.ID, api.ReviewApproved)
			if r.CarriedFrom != pull.ID || r.Applies == "" {
				t.Errorf("the review is %+v", r)
			}
			f.ends(workflow.Succeeded)
			f.works()
			f.answers("applied")
			f.event(tc.event) // told again
			if n := f.runs(); n != 3 {
				t.Errorf("there are %d runs, want the preview, that of the merge and the one that applies it", n)
			}
		})
	}
}

func TestPull_WithoutOnMergeAMergeStartsNothing(t *testing.T) {
	f := pulls(t, memory.New(), afterMerge())
	wf := f.previewed(valued(valuesSum, headSum))
	f.facts.State, f.facts.MergeCommit = api.PullMerged, mergeTo
	f.event("pull_request-merged")
	f.reviewOf(wf.ID, api.ReviewWaiting) // its approval can still be carried over to a pipeline's push
	if n := f.runs(); n != 1 {
		t.Errorf("there are %d runs", n)
	}
}

// A delivery whose result is lost is claimed again, and makes nothing twice.
func TestPull_AReadThatIsRepeatedMakesNothingTwice(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.reviewed(required())
		f := w.forge(api.HostGitHub)
		f.sends("pull_request", f.recorded("pull_request-opened", nil))
		lost := f.task()
		f.clock.advance(2*time.Minute + time.Second)
		again := f.task()
		if again.ID != lost.ID || again.Attempt != 2 {
			t.Fatalf("claimed %+v after %+v", again, lost)
		}
		f.does(lost) // said too late
		if _, err := f.plane.Workflows(f.ctx(), f.admin, controlplane.Filter{}); err != nil {
			t.Fatal(err)
		}
		if p := f.pull(); p.Head != "" {
			t.Errorf("the result of an earlier try counts: %+v", p)
		}
		f.does(again)
		first := f.only()
		f.does(again) // its answer was lost
		f.works()
		if f.only().ID != first.ID {
			t.Error("the run is another")
		}
		shown := len(f.shown)
		f.plans(one)
		f.works()
		if len(f.shown) != shown+1 {
			t.Errorf("the end is shown %d times", len(f.shown)-shown)
		}
	})
}

// The control plane dies when the run is submitted and its note is not: what reads the pull request is claimed again, and
// finds that run.
func TestPull_ACrashBeforeTheNoteMakesNothingTwice(t *testing.T) {
	st := &off{Store: memory.New()}
	f := pulls(t, st, required())
	f.sends("pull_request", f.recorded("pull_request-opened", nil))
	task := f.task()
	st.part = record.PullKey("default", "", "", 0).Part
	st.off = func([]store.Op) bool { return f.runs() > 0 }
	done := f.reads(*task.Host.Read)
	done.Attempt = task.Attempt
	if err := f.plane.DeliveryDone(f.ctx(), f.pool, task.ID, done); err == nil {
		t.Error("a call that was not recorded counts as done")
	}
	if p := f.pull(); f.runs() != 1 || len(p.Previews) > 0 {
		t.Errorf("%d runs, and %+v is noted: want a run without its note", f.runs(), p.Previews)
	}
	st.off = nil
	f.clock.advance(2*time.Minute + time.Second)
	f.works()
	if f.only(); f.runs() != 1 {
		t.Errorf("%d runs, want the one of before", f.runs())
	}
}

// The facts are older than those of another reading, which differ: the pull request is read again.
func TestPull_AnOldReadingDoesNotUndoANewerOne(t *testing.T) {
	f := pulls(t, memory.New(), required())
	f.sends("pull_request", f.recorded("pull_request-opened", nil))
	slow := f.task()
	old := f.reads(*slow.Host.Read)
	f.pushes(newerSum)
	wf := f.only()
	f.delivered(slow, old)
	if p := f.pull(); p.Head != newerSum {
		t.Errorf("the head is %s again", p.Head)
	}
	f.works()
	f.clock.advance(time.Minute)
	f.works()
	if now := f.only(); now.ID != wf.ID || now.State.Terminal() || f.runs() != 1 {
		t.Errorf("the run is %+v", now)
	}
	for _, d := range f.deliveries() {
		if d.State != api.DeliveryDone {
			t.Errorf("delivery %+v", d)
		}
	}
}

func TestPull_OneShowAtATime(t *testing.T) {
	f := pulls(t, memory.New(), required())
	f.event("pull_request-opened")
	f.plans(one)
	f.pass()
	under := f.task() // shows the plan
	for i := range 5 {
		body := f.writes(annaID, fmt.Sprintf("dayfly preview no-such-%d", i))
		f.sends("issue_comment", body)
	}
	for _, task := range f.tasks(f.pool, 10) {
		if task.Host.Read == nil {
			t.Fatalf("a second one shows the same pull request: %+v", task.Host)
		}
		f.does(task)
	}
	if n := f.works(); n != 0 {
		t.Errorf("%d deliveries while one is under way", n)
	}
	f.does(under)
	if n := f.works(); n != 1 {
		t.Errorf("%d deliveries follow, want 1 for all", n)
	}
	f.answers("no-such-4")
}

// A show that nobody does within a day blocks none of those after it, also where its pool has not asked since.
func TestPull_AShowThatIsGivenUpDoesNotBlockOthers(t *testing.T) {
	for name, after := range map[string]time.Duration{"the pool is back": 25 * time.Hour, "and its record is gone": 20 * record.Day} {
		t.Run(name, func(t *testing.T) {
			f := pulls(t, memory.New(), required())
			f.sends("pull_request", f.recorded("pull_request-opened", nil))
			f.does(f.task())
			f.only()
			first := f.pull().Showing
			f.clock.advance(after)
			f.pass()
			f.event("pull_request-edited-base")
			f.answers("waited for a day") // the state of its run meanwhile
			if p := f.pull(); p.Showing != "" || first == "" {
				t.Errorf("%s was given up, and %q is under way", first, p.Showing)
			}
			shown := len(f.shown)
			if after > 14*record.Day {
				return
			}
			f.disable(true)
			_, err := f.plane.ReplayDelivery(f.ctx(), f.admin, first)
			wantErr(t, err, workflow.ErrConflict)
			f.disable(false)
			_, err = f.plane.ReplayDelivery(f.ctx(), f.admin, first)
			f.must(err)
			if n := f.works(); n != 1 || len(f.shown) != shown+1 {
				t.Errorf("the replay led to %d deliveries", n)
			}
		})
	}
}

func TestPull_AGitHostThatIsDeletedIsLeftAlone(t *testing.T) {
	f := pulls(t, memory.New(), required())
	wf := f.previewed()
	f.sends("issue_comment", f.writes(annaID, "dayfly apply"))
	read := f.task()
	f.must(f.plane.GitHosts.Delete(f.ctx(), f.admin, "forge"))
	_, err := f.plane.ReplayDelivery(f.ctx(), f.admin, f.deliveries()[0].ID)
	wantErr(t, err, workflow.ErrConflict) // it is done
	f.does(read)
	f.reviewOf(wf.ID, api.ReviewWaiting)
	f.approves(f.person("carl"), wf.ID)
	if n := f.works(); n != 0 {
		t.Errorf("%d deliveries to a git host that was deleted", n)
	}
	body := f.recorded("pull_request-opened", nil)
	_, _, err = f.plane.GitHosts.Put(f.ctx(), f.admin, settings(api.HostGitHub))
	f.must(err)
	_, err = f.plane.Webhook(f.ctx(), "default", "forge", f.signed("pull_request", body), body)
	wantErr(t, err, workflow.ErrUnauthenticated) // another one of that name has another secret
}

// Reports of the pool's side are checked like any other input.
func TestPull_WhatNoHostSaysIsRefused(t *testing.T) {
	for name, change := range map[string]func(*api.PullFacts){
		"a state":        func(p *api.PullFacts) { p.State = "draft" },
		"a head":         func(p *api.PullFacts) { p.Head = "main" },
		"a merge commit": func(p *api.PullFacts) { p.State = api.PullMerged },
	} {
		t.Run(name, func(t *testing.T) {
			f := pulls(t, memory.New(), required())
			change(&f.facts)
			f.event("pull_request-opened")
			if d := f.stands(api.DeliveryFailed, 1); d.Kind != api.DeliverRead || d.Repository != "Example/Infra" || d.Number != 2 || d.Detail == "" {
				t.Errorf("the delivery is %+v", d)
			}
		})
	}
}

func TestProject_StaysWhileAGitHostMemberHasARole(t *testing.T) {
	w := newWorld(t, memory.New())
	_, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("mine")})
	w.must(err)
	_, _, err = w.plane.GitHosts.Put(w.ctx(), w.admin, settings(api.HostGitHub, api.Member{ID: 9, Principal: w.principal("carl").Name, Grants: map[string]string{"mine": api.RoleOperator}}))
	w.must(err)
	err = w.plane.DeleteProject(w.ctx(), w.admin, "mine")
	if wantErr(t, err, workflow.ErrInUse); err == nil || !strings.Contains(err.Error(), "forge") {
		t.Errorf("it says %v", err)
	}
	w.must(w.plane.GitHosts.Delete(w.ctx(), w.admin, "forge"))
	w.must(w.plane.DeleteProject(w.ctx(), w.admin, "mine"))
}
