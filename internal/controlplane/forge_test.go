package controlplane_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The people at the forge, by their numbers there. 21031067 sends the recorded events.
const (
	annaID  = 21031067
	bobID   = 8
	eveID   = 666
	headSum = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"
	mergeTo = "c4295bd74fb0f4fda03689c3df3f2803b658fd85"
)

var newerSum = strings.Repeat("9", 40)

// planned is the line of workspace net in our comment, once its plan of one is known.
const planned = "| `net` | 1 | 0 | 0 | 0 | "

// forge is a git host with one pull request, and the pool's side that calls it.
type forge struct {
	*world
	kind     string
	secret   string
	facts    api.PullFacts // but for the comment
	comments map[int64]api.CommentFacts
	last     int64
	ours     int64          // number of our comment
	shown    []api.ShowPull // all that was written, in order
	events   int
}

func settings(kind string, members ...api.Member) api.GitHost {
	return api.GitHost{Name: "forge", Kind: kind, URL: "https://forge.example", TokenRef: "file:git", Members: members}
}

func operator(id int64, name string) api.Member {
	return api.Member{ID: id, Principal: name, Role: api.RoleOperator}
}

// forge registers a git host at which a colleague has opened a pull request.
func (w *world) forge(kind string, members ...api.Member) *forge {
	w.t.Helper()
	if len(members) == 0 {
		members = []api.Member{operator(annaID, "anna"), operator(bobID, "bob")}
	}
	for _, m := range members {
		if !strings.Contains(m.Principal, "/") { // of an issuer
			w.principal(m.Principal)
		}
	}
	_, _, err := w.plane.GitHosts.Put(w.ctx(), w.admin, settings(kind, members...))
	w.must(err)
	made, err := w.plane.RotateWebhookSecret(w.ctx(), w.admin, "forge")
	w.must(err)
	return &forge{
		world: w, kind: kind, secret: made.Secret, comments: map[int64]api.CommentFacts{}, last: 1000,
		facts: api.PullFacts{State: api.PullOpen, Head: headSum, HeadRepository: "example/infra", BaseRef: "main", Author: api.Person{ID: annaID, Login: "anna", CanWrite: true}, Files: []string{"main.tf"}},
	}
}

func (f *forge) disable(off bool) {
	f.t.Helper()
	in := settings(f.kind, operator(annaID, "anna"), operator(bobID, "bob"))
	in.IsDisabled = off
	_, _, err := f.plane.GitHosts.Put(f.ctx(), f.admin, in)
	f.must(err)
}

// pulls is a world with a pull request at GitHub, of which a workspace is concerned.
func pulls(t *testing.T, st store.Store, approval *api.Approval, members ...api.Member) *forge {
	t.Helper()
	return pullsOf(newWorld(t, st), approval, members...)
}

func pullsOf(w *world, approval *api.Approval, members ...api.Member) *forge {
	w.t.Helper()
	w.reviewed(approval)
	return w.forge(api.HostGitHub, members...)
}

// recorded is the body of a recorded event, changed.
func (f *forge) recorded(name string, change func(map[string]any)) []byte {
	f.t.Helper()
	raw, err := os.ReadFile("../githost/webhook/testdata/" + f.kind + "-" + name + ".json")
	f.must(err)
	var event map[string]any
	f.must(json.Unmarshal(raw, &event))
	if change != nil {
		change(event)
	}
	f.events++
	event["sent"] = f.events // each body is another
	raw, err = json.Marshal(event)
	f.must(err)
	return raw
}

func (f *forge) signed(event string, body []byte) http.Header {
	h := http.Header{}
	if f.kind == api.HostGitLab {
		h.Set("X-Gitlab-Event", event)
		h.Set("X-Gitlab-Token", f.secret)
		return h
	}
	h.Set("X-GitHub-Event", event)
	h.Set("X-Hub-Signature-256", githosttest.Sign(f.secret, body))
	return h
}

func (f *forge) sends(event string, body []byte) api.WebhookTaken {
	f.t.Helper()
	out, err := f.plane.Webhook(f.ctx(), "default", "forge", f.signed(event, body), body)
	f.must(err)
	return out
}

// event sends a recorded event of the pull request, and lets the pool's side do what follows.
func (f *forge) event(name string) {
	f.t.Helper()
	kind := "pull_request"
	if f.kind == api.HostGitLab {
		kind = "Merge Request Hook"
	}
	if out := f.sends(kind, f.recorded(name, nil)); !out.IsTaken {
		f.t.Fatalf("%s was not taken: %s", name, out.Reason)
	}
	f.works()
}

func (f *forge) pushes(commit string) {
	f.t.Helper()
	f.facts.Head = commit
	f.event("pull_request-synchronize")
}

// writes puts a comment at the forge, and returns its event.
func (f *forge) writes(author int64, text string) []byte {
	f.t.Helper()
	f.last++
	at := f.clock.now()
	f.comments[f.last] = api.CommentFacts{ID: f.last, Author: api.Person{ID: author}, Text: text, Created: at, Updated: at}
	return f.recorded("issue_comment-created", func(e map[string]any) {
		c := e["comment"].(map[string]any)
		c["id"], c["body"] = f.last, text
		c["user"].(map[string]any)["id"] = author
	})
}

// says is a comment whose event arrives, and what follows from it. It returns what is answered.
func (f *forge) says(author int64, text string) string {
	f.t.Helper()
	f.clock.advance(time.Minute)
	f.sends("issue_comment", f.writes(author, text))
	f.works()
	return f.body()
}

// body is our comment as it is at the forge.
func (f *forge) body() string {
	f.t.Helper()
	for _, s := range slices.Backward(f.shown) {
		if s.Body != "" {
			return s.Body
		}
	}
	return ""
}

// reads answers a delivery that reads the pull request.
func (f *forge) reads(read api.ReadPull) api.DeliveryResult {
	facts := f.facts
	if c, ok := f.comments[read.Comment]; ok {
		facts.Comment = &c
	}
	return api.DeliveryResult{IsDone: true, Pull: &facts}
}

// shows answers a delivery that sets the status and edits the comment.
func (f *forge) shows(show api.ShowPull) api.DeliveryResult {
	f.shown = append(f.shown, show)
	out := api.DeliveryResult{IsDone: true}
	if show.Body != "" {
		if f.ours == 0 {
			f.last++
			f.ours = f.last
		} else if show.Comment != f.ours {
			f.t.Errorf("it writes comment %d, and ours is %d", show.Comment, f.ours)
		}
		out.Comment = &api.CommentShown{ID: f.ours, At: f.clock.now()}
	}
	return out
}

func (f *forge) does(t api.DeliveryTask) {
	f.t.Helper()
	switch call := t.Host; {
	case call == nil || call.Kind != f.kind || call.URL != "https://forge.example" || call.TokenRef != "file:git" || !strings.EqualFold(call.Repository, f.repo()):
		f.t.Fatalf("the task is %+v, %+v", t, call)
	case call.Read != nil:
		f.delivered(t, f.reads(*call.Read))
	case call.Show != nil:
		f.delivered(t, f.shows(*call.Show))
	}
}

func (f *forge) repo() string {
	if f.kind == api.HostGitLab {
		return "example/team/infra"
	}
	return "example/infra"
}

// works is the pool's side, until there is nothing to do. It returns how many deliveries it did.
func (f *forge) works() (n int) {
	f.t.Helper()
	f.pass() // sends the events that the failing store kept back
	for range 50 {
		tasks := f.tasks(f.pool, 10)
		if len(tasks) == 0 {
			return n
		}
		for _, t := range tasks {
			f.does(t)
			n++
		}
	}
	f.t.Fatal("the deliveries do not end")
	return n
}

// runs counts the runs that there are.
func (f *forge) runs() int {
	f.t.Helper()
	list, err := f.plane.Workflows(f.ctx(), f.admin, controlplane.Filter{})
	f.must(err)
	return len(list.Items)
}

// only is the one run of the pull request.
func (f *forge) only() api.Workflow {
	f.t.Helper()
	all := f.pull().Previews
	if len(all) != 1 || all[0].Run == "" {
		f.t.Fatalf("there are runs %+v, want 1\n%s", all, f.body())
	}
	return f.show(all[0].Run)
}

// previewed is the pull request with one preview, whose plan is in the comment.
func (f *forge) previewed(more ...func(*api.Result)) api.Workflow {
	f.t.Helper()
	f.event("pull_request-opened")
	wf := f.only()
	f.plans(one, more...)
	f.works()
	f.answers(planned, "waiting for approval")
	return wf
}

// answers checks what our comment says.
func (f *forge) answers(want ...string) {
	f.t.Helper()
	for _, w := range want {
		if !strings.Contains(f.body(), w) {
			f.t.Errorf("the comment does not say %q:\n%s", w, f.body())
		}
	}
}

// status checks the status that the forge shows.
func (f *forge) status(state, commit string) {
	f.t.Helper()
	if len(f.shown) == 0 {
		f.t.Fatal("nothing was shown")
	}
	if s := f.shown[len(f.shown)-1]; s.State != state || s.Commit != commit || s.Context != "dayfly" {
		f.t.Errorf("the status is %s of %s (%s), want %s of %s", s.State, s.Commit, s.Description, state, commit)
	}
}

// ends finishes the one run that can be claimed.
func (f *forge) ends(outcome workflow.State) string {
	f.t.Helper()
	job, r := f.started()
	f.must(f.result(job, r, outcome))
	return job.ID
}

func (f *forge) pull() record.Pull {
	f.t.Helper()
	page, err := f.store.Range(f.ctx(), store.Scan{Part: "pull/default", Limit: 10})
	f.must(err)
	if len(page.Records) != 1 {
		f.t.Fatalf("%d pull requests are stored", len(page.Records))
	}
	out, err := record.Decode[record.Pull](page.Records[0])
	f.must(err)
	return out
}
