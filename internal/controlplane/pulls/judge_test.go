package pulls_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pulls"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

var (
	head  = strings.Repeat("a", 40)
	newer = strings.Repeat("b", 40)
	noon  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	anna  = &api.Member{ID: 7, Principal: "anna", Role: api.RoleOperator}
)

// C20: a pull request is a stranger's code until somebody says otherwise.
func TestJudge_DecidesByWhatTheHostSaysNow(t *testing.T) {
	own := func(change ...func(*api.PullFacts)) api.PullFacts {
		f := api.PullFacts{State: api.PullOpen, Head: head, Author: api.Person{ID: 5, Login: "eve", CanWrite: true}}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	fork := func(f *api.PullFacts) { f.IsFork = true }
	stranger := func(f *api.PullFacts) { f.Author.CanWrite = false }
	pushed := func(f *api.PullFacts) { f.Head = newer }
	wrote := func(text string) func(*api.PullFacts) {
		return func(f *api.PullFacts) {
			f.Comment = &api.CommentFacts{ID: 3, Author: api.Person{ID: 7}, Text: text, Created: noon, Updated: noon}
		}
	}
	said := func(text string) *record.Said { return &record.Said{Comment: 3, Author: 7, Text: text} }
	shown := func(at time.Time) record.Pull {
		return record.Pull{State: api.PullOpen, Head: head, Previews: []record.PullPreview{
			{Workspace: "network", Run: "wf_1", Commit: head, Shown: at}, {Workspace: "dns", Run: "wf_2", Commit: head, Shown: at},
		}}
	}
	before, both := noon.Add(-time.Minute), []string{"wf_1", "wf_2"}
	for name, tc := range map[string]struct {
		pull  record.Pull
		facts api.PullFacts
		said  *record.Said
		by    *api.Member
		want  pulls.Verdict
		note  string // is part of the answer
	}{
		"a colleague's is previewed":           {facts: own(), want: pulls.Verdict{Preview: true}},
		"a fork waits":                         {facts: own(fork), note: "it comes from a fork"},
		"an author without write access waits": {facts: own(stranger), note: "may not write"},
		"a released commit of a fork is previewed": {
			pull: record.Pull{State: api.PullOpen, Head: head, Released: head}, facts: own(fork), want: pulls.Verdict{Preview: true, Released: head},
		},
		"a newer commit of a fork waits again, and the old previews are cancelled": {
			pull: func() record.Pull { p := shown(before); p.Released = head; return p }(), facts: own(fork, pushed),
			want: pulls.Verdict{Released: head, Cancel: both}, note: "it comes from a fork",
		},
		"a newer commit of a colleague is previewed in place of the old one": {
			pull: shown(before), facts: own(pushed), want: pulls.Verdict{Preview: true, Cancel: both},
		},
		"a member releases a fork's commit": {
			facts: own(fork, wrote("dayfly preview "+head)), said: said("dayfly preview " + head), by: anna,
			want: pulls.Verdict{Released: head, Preview: true, Anew: true},
		},
		"a release of a commit that is not the newest is refused": {
			facts: own(fork, pushed, wrote("dayfly preview "+head)), said: said("dayfly preview " + head), by: anna, note: "was not released",
		},
		"a release without the commit is none": {
			facts: own(fork, wrote("dayfly preview")), said: said("dayfly preview"), by: anna, note: "it comes from a fork",
		},
		"a stranger releases nothing": {
			facts: own(fork, wrote("dayfly preview "+head)), said: said("dayfly preview " + head), note: "not a member",
		},
		"a member applies what was shown before": {
			pull: shown(before), facts: own(wrote("dayfly apply")), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Preview: true, Apply: both, Stays: both},
		},
		"a member applies one workspace": {
			pull: shown(before), facts: own(wrote("dayfly apply dns")), said: said("dayfly apply dns"), by: anna,
			want: pulls.Verdict{Preview: true, Apply: []string{"wf_2"}, Stays: both},
		},
		"a plan that was shown after the comment is not applied": {
			pull: shown(noon.Add(time.Second)), facts: own(wrote("dayfly apply")), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Preview: true, Stays: both}, note: "not shown here before your comment",
		},
		"a plan that was never shown is not applied": {
			pull: shown(time.Time{}), facts: own(wrote("dayfly apply")), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Preview: true, Stays: both}, note: "not shown here before your comment",
		},
		"a push between the review and the comment applies nothing": {
			pull: shown(before), facts: own(pushed, wrote("dayfly apply")), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Preview: true, Cancel: both}, note: "was pushed after the previews",
		},
		"a comment that its host does not have is not obeyed": {
			pull: shown(before), facts: own(), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Preview: true, Stays: both}, note: "is gone",
		},
		"a comment of somebody else is not obeyed": {
			pull: shown(before), facts: own(wrote("dayfly apply")), said: &record.Said{Comment: 3, Author: 8, Text: "dayfly apply"}, by: anna,
			want: pulls.Verdict{Preview: true, Stays: both}, note: "not the one that was announced",
		},
		"a comment that says something else by now is not obeyed": {
			pull: shown(before), facts: own(wrote("dayfly preview")), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Preview: true, Stays: both}, note: "not the one that was announced",
		},
		"a member cancels": {
			pull: shown(before), facts: own(wrote("dayfly cancel")), said: said("dayfly cancel"), by: anna,
			want: pulls.Verdict{Preview: true, Cancel: both, Stays: both}, note: "Cancelled by anna",
		},
		"a closed one is cancelled": {
			pull: shown(before), facts: own(func(f *api.PullFacts) { f.State = api.PullClosed }), want: pulls.Verdict{Cancel: both, Stays: both},
		},
		"a command on a closed one is refused": {
			pull: shown(before), facts: own(func(f *api.PullFacts) { f.State = api.PullClosed }, wrote("dayfly apply")), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Cancel: both, Stays: both}, note: "the pull request is closed",
		},
		"a command on a merged one is refused": {
			pull: shown(before), facts: own(func(f *api.PullFacts) { f.State = api.PullMerged }, wrote("dayfly apply")), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Merged: true, Stays: both}, note: "the pull request is merged",
		},
		"one that was opened again says how to preview it": {
			pull: func() record.Pull { p := shown(before); p.State = api.PullClosed; return p }(), facts: own(),
			want: pulls.Verdict{Preview: true, Stays: both}, note: "comment dayfly preview",
		},
		"a comment that was edited by anyone is not obeyed": {
			pull: shown(before), facts: own(wrote("dayfly apply"), func(f *api.PullFacts) { f.Comment.Updated = noon.Add(time.Hour) }), said: said("dayfly apply"), by: anna,
			want: pulls.Verdict{Preview: true, Stays: both}, note: "was edited",
		},
		"a merged one keeps its approvals": {
			pull: shown(before), facts: own(func(f *api.PullFacts) { f.State = api.PullMerged }), want: pulls.Verdict{Merged: true, Stays: both},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := pulls.Judge(tc.pull, tc.facts, tc.said, tc.by)
			if text := got.Waits + got.Note; tc.note == "" && text != "" || !strings.Contains(text, tc.note) {
				t.Errorf("it answers %q, want %q in it", text, tc.note)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(pulls.Verdict{}, "Waits", "Note")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
