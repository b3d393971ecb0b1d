package webhook

import (
	"strings"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// The fields of GitLab's events that are read: docs.gitlab.com, "Webhook events".
type (
	gitlabUser struct {
		ID       int64  `json:"id"`
		Username string `json:"username"`
	}
	gitlabProject struct {
		ID   int64  `json:"id"`
		Path string `json:"path_with_namespace"`
	}
	gitlabRequest struct {
		IID             int64  `json:"iid"`
		Action          string `json:"action"`
		OldRev          string `json:"oldrev"` // only where the head is another commit now
		TargetBranch    string `json:"target_branch"`
		SourceProjectID int64  `json:"source_project_id"` // null where a fork was deleted
		TargetProjectID int64  `json:"target_project_id"`
		AuthorID        int64  `json:"author_id"`
		LastCommit      struct {
			ID string `json:"id"`
		} `json:"last_commit"`
		MergeCommitSHA  string `json:"merge_commit_sha"`
		SquashCommitSHA string `json:"squash_commit_sha"`
	}
	gitlabMergeEvent struct {
		User    gitlabUser    `json:"user"`
		Project gitlabProject `json:"project"`
		Request gitlabRequest `json:"object_attributes"`
		Changes struct {
			TargetBranch *struct{} `json:"target_branch"`
		} `json:"changes"`
	}
	gitlabNoteEvent struct {
		User    gitlabUser    `json:"user"`
		Project gitlabProject `json:"project"`
		Note    struct {
			ID        int64  `json:"id"`
			Text      string `json:"note"`
			On        string `json:"noteable_type"` //nolint:misspell // GitLab spells it so
			AuthorID  int64  `json:"author_id"`
			CreatedAt string `json:"created_at"`
			System    bool   `json:"system"` // written by GitLab itself
			Action    string `json:"action"` // since 16.11; before, there were events of new comments only
		} `json:"object_attributes"`
		Request *gitlabRequest `json:"merge_request"`
	}
	gitlabPushEvent struct {
		Ref      string        `json:"ref"`
		After    string        `json:"after"`
		UserID   int64         `json:"user_id"`
		Username string        `json:"user_username"`
		Project  gitlabProject `json:"project"`
	}
)

// authorOf is the name of the user with an id, where the event has it.
func authorOf(id int64, u gitlabUser) string {
	if u.ID != id {
		return ""
	}
	return name(u.Username)
}

func gitlabMerge(body []byte) (Event, error) {
	in, err := decode[gitlabMergeEvent](body)
	if err != nil {
		return Event{}, err
	}
	r := in.Request
	kinds := map[string]Kind{"open": Opened, "reopen": Opened, "close": Closed, "merge": Closed}
	kind, ok := kinds[r.Action]
	if r.Action == "update" && (r.OldRev != "" || in.Changes.TargetBranch != nil) {
		kind, ok = Updated, true
	}
	if !ok {
		return ignored("no use is made of a merge request's " + text.Quote(r.Action, 40) + " without another commit"), nil
	}
	e := Event{
		Kind: kind, Repository: in.Project.Path, RepositoryID: in.Project.ID, Number: int(r.IID), Head: strings.ToLower(r.LastCommit.ID), BaseRef: r.TargetBranch,
		Fork: r.SourceProjectID == 0 || r.SourceProjectID != r.TargetProjectID, Merged: r.Action == "merge", AuthorID: r.AuthorID, Author: authorOf(r.AuthorID, in.User),
	}
	checks := []check{
		path("project.path_with_namespace", e.Repository), id("project.id", e.RepositoryID), number("object_attributes.iid", r.IID),
		commit("object_attributes.last_commit.id", e.Head), ref("object_attributes.target_branch", e.BaseRef), id("object_attributes.author_id", e.AuthorID),
	}
	if e.Merged {
		// A merge by fast-forward makes no commit of its own: the branch then ends at the squashed one, or at the head.
		e.MergeCommit = strings.ToLower(r.MergeCommitSHA)
		if e.MergeCommit == "" {
			e.MergeCommit = strings.ToLower(r.SquashCommitSHA)
		}
		if e.MergeCommit == "" {
			e.MergeCommit = e.Head
		}
		checks = append(checks, commit("object_attributes.merge_commit_sha", e.MergeCommit))
	}
	return known(e, first(checks...))
}

func gitlabNote(body []byte) (Event, error) {
	in, err := decode[gitlabNoteEvent](body)
	switch {
	case err != nil:
		return Event{}, err
	case in.Note.On != "MergeRequest":
		return ignored("the comment is not on a merge request"), nil
	case in.Note.System:
		return ignored("the comment was written by GitLab itself"), nil
	case in.Note.Action != "" && in.Note.Action != "create":
		return ignored("a comment counts as it was written first"), nil
	case in.Request == nil:
		return Event{}, first(check{"merge_request", false, "an object"})
	}
	at, err := when("object_attributes.created_at", in.Note.CreatedAt)
	if err != nil {
		return Event{}, err
	}
	r := in.Request
	e := Event{
		Kind: Commented, Repository: in.Project.Path, RepositoryID: in.Project.ID, Number: int(r.IID), Head: strings.ToLower(r.LastCommit.ID), BaseRef: r.TargetBranch,
		Fork: r.SourceProjectID == 0 || r.SourceProjectID != r.TargetProjectID, CommentID: in.Note.ID, Text: text.Head(in.Note.Text, MaxText), At: at,
		AuthorID: in.Note.AuthorID, Author: authorOf(in.Note.AuthorID, in.User),
	}
	return known(e, first(
		path("project.path_with_namespace", e.Repository), id("project.id", e.RepositoryID), number("merge_request.iid", r.IID),
		commit("merge_request.last_commit.id", e.Head), ref("merge_request.target_branch", e.BaseRef),
		id("object_attributes.id", e.CommentID), id("object_attributes.author_id", e.AuthorID),
	))
}

func gitlabPush(body []byte) (Event, error) {
	in, err := decode[gitlabPushEvent](body)
	if err != nil {
		return Event{}, err
	}
	e := Event{
		Repository: in.Project.Path, RepositoryID: in.Project.ID, Ref: in.Ref, After: strings.ToLower(in.After), AuthorID: in.UserID, Author: name(in.Username),
	}
	if err := first(path("project.path_with_namespace", e.Repository), id("project.id", e.RepositoryID), id("user_id", e.AuthorID)); err != nil {
		return Event{}, err
	}
	return known(pushed(e, "ref", "after"))
}
