package isolation_test

import (
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// noGit is why pull requests are not tried in containers.
const noGit = "a container has no network here to fetch code"

// said records an attempt that Dayfly must answer at the host with some words, and that must have started nothing more
// than these runs.
func (f *forge) said(what string, number int, words string, runs int) {
	f.w.T.Helper()
	answer := f.answer(number)
	now := len(f.runs())
	f.w.tried(what, strings.Contains(answer, words) && now == runs, "%d of %d runs; wanted %q, shown: %s", now, runs, words, brief(answer))
}

// brief is what an answer says in its lines of words.
func brief(answer string) string {
	var out []string
	for line := range strings.Lines(answer) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "`") || strings.HasPrefix(line, "* ") || strings.HasPrefix(line, "**") {
			out = append(out, line)
		}
	}
	return strings.Join(out, " ")
}

// fork: only the very commit runs that a member has released.
func (w *world) fork() {
	f := w.forge()
	f.workspace("none")
	first := f.commit("refs/pull/1/head", "thing.first")
	number := f.pull("eve", "eve/infra", first)
	const held = "nothing of this pull request runs yet, because it comes from a fork"
	f.tell("pull_request", f.PullEvent(repository, number, "opened", first))
	f.said("open one", number, held, 0)
	f.comments(number, "eve", "dayfly preview "+first)
	f.said("release it as its author", number, "is not a member here", 0)
	f.comments(number, "bob", "dayfly preview")
	f.said("have a member ask for a preview, who releases nothing", number, held, 0)
	f.comments(number, "bob", "dayfly preview "+first[:12])
	f.said("have a commit released by a part of its name", number, held, 0)
	f.comments(number, "bob", "dayfly apply")
	f.said("have a member apply it", number, held, 0)

	f.comments(number, "bob", "dayfly preview "+first) // this is the way
	released := f.previewed(number, first)
	if _, address := w.shown(released); address != "thing.first" || len(f.runs()) != 1 {
		w.T.Errorf("what was released shows %s, and there are %d runs", address, len(f.runs()))
	}

	second := f.commit("refs/pull/1/head", "thing.second")
	f.Push(repository, number, second, githosttest.File{Path: "address"})
	f.tell("pull_request", f.PullEvent(repository, number, "synchronize", second))
	f.said("push another commit after the release", number, "dayfly preview "+second, 1)
	f.said("keep the release of the commit before", number, held, 1)
	f.comments(number, "bob", "dayfly preview "+first)
	f.said("push another commit before the release", number, "was not released: the newest commit is "+second, 1)
	f.comments(number, "bob", "dayfly apply")
	f.said("have what was released before applied", number, "Nothing was applied: no preview can be applied", 1)
	state := w.read(w.stateFile(f.name))
	w.tried("change anything", state == "" && !slices.ContainsFunc(f.runs(), func(wf api.Workflow) bool { return wf.Trigger.Commit != first }), "the state is %q", state)

	f.Member(repository, "mallory", githosttest.Reads)
	third := f.commit("refs/heads/third", "thing.third")
	other := f.pull("mallory", "", third)
	f.tell("pull_request", f.PullEvent(repository, other, "opened", third))
	f.said("open one of the same repository without the right to write", other, "its author may not write to the repository", 1)
}

// nothingApplied records an attempt that must be answered with some words, and must have applied nothing.
func (f *forge) nothingApplied(what string, number int, preview api.Workflow, words string) {
	f.w.T.Helper()
	answer, state, wf := f.answer(number), f.w.read(f.w.stateFile(f.name)), f.w.Workflow(preview.ID)
	approves := func(v api.Vote) bool { return !v.Reject }
	held := wf.Review != nil && wf.Review.Applies == "" && !slices.ContainsFunc(wf.Review.Votes, approves)
	f.w.tried(what, held && state == "" && strings.Contains(answer, words), "the state is %q; wanted %q, shown: %s", state, words, brief(answer))
}

// applies lets bob apply what is shown, which must be this resource.
func (f *forge) applies(number int, preview api.Workflow, address string) {
	f.w.T.Helper()
	f.comments(number, "bob", "dayfly apply")
	wf := f.w.Workflow(preview.ID)
	if wf.Review == nil || wf.Review.Applies == "" {
		f.w.T.Fatalf("a true comment applies nothing: %+v: %s", wf.Review, f.answer(number))
	}
	f.w.Over(wf.Review.Applies)
	if state := f.w.read(f.w.stateFile(f.name)); !strings.Contains(state, address) {
		f.w.T.Errorf("a true comment: the state is %q:\n%s", state, f.w.Log(wf.Review.Applies, 0))
	}
}

// forgedComment: a webhook says what is not so, with the true signature.
func (w *world) forgedComment() {
	f := w.forge()
	f.workspace("none")
	head := f.commit("refs/heads/change", "thing.true")
	number, other := f.pull("carol", "", head), f.pull("carol", "", f.commit("refs/heads/other", "thing.other"))
	f.tell("pull_request", f.PullEvent(repository, number, "opened", head))
	preview := f.previewed(number, head)
	const apply, gone, another = "dayfly apply", "its comment is gone", "its comment is not the one that was announced"
	try := func(what string, id int64, author, words string) {
		w.T.Helper()
		f.tell("issue_comment", f.CommentEvent(repository, number, id, author, apply))
		f.nothingApplied(what, number, preview, words)
	}
	try("a comment that nobody wrote", 999_999, "bob", gone)
	try("a stranger's comment as a member's", f.say(number, "eve", apply), "bob", another)
	try("a stranger's comment", f.say(number, "eve", apply), "eve", "is not a member here")
	try("a member's comment of other text", f.say(number, "bob", "looks good"), "bob", another)
	try("a member's comment that only quotes it", f.say(number, "bob", "> "+apply), "bob", another)
	try("a member's comment on another pull request", f.say(other, "bob", apply), "bob", gone)
	edited := f.say(number, "bob", "looks good")
	f.Edit(edited, apply)
	try("a member's comment that somebody has edited", edited, "bob", "its comment was edited")
	deleted := f.say(number, "bob", apply)
	f.Delete(deleted)
	try("a member's comment that was deleted", deleted, "bob", gone)
	f.applies(number, preview, "thing.true")
}

// moved: a push between the review and the comment that applies it.
func (w *world) moved() {
	f := w.forge()
	f.workspace("none")
	push := func(number int, address string) (sha string) {
		sha = f.commit("refs/heads/change", address)
		f.Push(repository, number, sha, githosttest.File{Path: "address"})
		return sha
	}
	first := f.commit("refs/heads/change", "thing.first")
	number := f.pull("carol", "", first)
	f.tell("pull_request", f.PullEvent(repository, number, "opened", first))
	reviewed := f.previewed(number, first)

	second := push(number, "thing.second") // of which the host has not told yet
	f.comments(number, "bob", "dayfly apply")
	f.nothingApplied("push before the comment, and hold back the news of it", number, reviewed, "Nothing was applied: commit "+second+" was pushed after")
	next := f.previewed(number, second)
	f.nothingApplied("have the new commit applied by that comment", number, next, "")

	early := f.say(number, "bob", "dayfly apply") // of which the host tells only after the next push
	third := push(number, "thing.third")
	f.tell("pull_request", f.PullEvent(repository, number, "synchronize", third))
	last := f.previewed(number, third)
	f.tell("issue_comment", f.CommentEvent(repository, number, early, "bob", "dayfly apply"))
	f.nothingApplied("push, and hold back the comment until the new plan is shown", number, last, "were not shown here before your comment")
	f.nothingApplied("have the plan before applied so", number, next, "were not shown here before your comment")
	f.applies(number, last, "thing.third")
	if state := w.read(w.stateFile(f.name)); strings.Contains(state, "thing.first") || strings.Contains(state, "thing.second") {
		w.T.Errorf("the state is %q", state)
	}
}

const (
	hiddenSecret = "a-secret-that-no-preview-gets-1846"
	shownSecret  = "a-secret-of-previews-5093"
)

// stranger: the code of a pull request looks for what only an approved run has. The same code finds it in that run.
func (w *world) stranger() {
	f := w.forge()
	w.secret("hidden", hiddenSecret)
	w.secret("shown", shownSecret)
	f.workspace("loot "+w.Data, func(in *api.Workspace) {
		in.Secrets = append(in.Secrets, api.Secret{Env: "HIDDEN", Ref: "file:hidden"}, api.Secret{File: "hidden", Ref: "file:hidden"},
			api.Secret{Env: "SHOWN", Ref: "file:shown", Preview: true})
	})
	head := f.commit("refs/heads/change", "thing.loot")
	number := f.pull("carol", "", head)
	f.tell("pull_request", f.PullEvent(repository, number, "opened", head))
	preview := f.previewed(number, head)
	log := w.Log(preview.ID, 0)
	tries := 0
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "tried ") {
			tries++
			w.record(strings.TrimSpace(line))
		}
	}
	if tries < 10 || !strings.Contains(log, "it has its secret of previews: true") {
		w.T.Errorf("the attack made %d attempts:\n%s", tries, log)
	}
	// What is looked for is there: a member's own run of the same workspace has it.
	own := w.Submit(api.Submit{Workspace: f.name, Operation: workflow.Preview})
	w.Over(own)
	for _, what := range []string{"BREACH (HIDDEN is set)", "BREACH (" + forwardedName + " is set)", "in the own environment: BREACH", "/hidden)"} {
		if text := w.Log(own, 0); !strings.Contains(text, what) {
			w.T.Errorf("a member's own run does not say %q:\n%s", what, text)
		}
	}
}
