package webhook

import (
	"strings"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// The fields of GitHub's events that are read: docs.github.com, "Webhook events and payloads".
type (
	githubUser struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	}
	githubRepository struct {
		ID       int64  `json:"id"`
		FullName string `json:"full_name"`
	}
	githubPullEvent struct {
		Action string `json:"action"`
		Pull   struct {
			Number int64 `json:"number"`
			Head   struct {
				SHA        string            `json:"sha"`
				Repository *githubRepository `json:"repo"` // null where a fork was deleted
			} `json:"head"`
			Base struct {
				Ref string `json:"ref"`
			} `json:"base"`
			User           githubUser `json:"user"`
			Merged         bool       `json:"merged"`
			MergeCommitSHA string     `json:"merge_commit_sha"` // of one that is not merged: of a trial
		} `json:"pull_request"`
		Repository githubRepository `json:"repository"`
		Changes    struct {
			Base *struct{} `json:"base"` // with edited: it is for another branch now
		} `json:"changes"`
	}
	githubCommentEvent struct {
		Action string `json:"action"`
		Issue  struct {
			Number int64     `json:"number"`
			Pull   *struct{} `json:"pull_request"` // an issue has none
		} `json:"issue"`
		Comment struct {
			ID        int64      `json:"id"`
			User      githubUser `json:"user"`
			Body      string     `json:"body"`
			CreatedAt string     `json:"created_at"`
		} `json:"comment"`
		Repository githubRepository `json:"repository"`
	}
	githubPushEvent struct {
		Ref        string           `json:"ref"`
		After      string           `json:"after"`
		Repository githubRepository `json:"repository"`
		Sender     githubUser       `json:"sender"`
	}
)

func githubPull(body []byte) (Event, error) {
	in, err := decode[githubPullEvent](body)
	if err != nil {
		return Event{}, err
	}
	kinds := map[string]Kind{"opened": Opened, "reopened": Opened, "synchronize": Updated, "closed": Closed}
	kind, ok := kinds[in.Action]
	if in.Action == "edited" && in.Changes.Base != nil {
		kind, ok = Updated, true
	}
	if !ok {
		return ignored("no use is made of pull requests that are " + text.Quote(in.Action, 40)), nil
	}
	p := in.Pull
	e := Event{
		Kind: kind, Repository: in.Repository.FullName, RepositoryID: in.Repository.ID, Number: int(p.Number), Head: strings.ToLower(p.Head.SHA), BaseRef: p.Base.Ref,
		Fork:     p.Head.Repository == nil || p.Head.Repository.ID != in.Repository.ID,
		AuthorID: p.User.ID, Author: name(p.User.Login), Merged: kind == Closed && p.Merged,
	}
	checks := []check{
		path("repository.full_name", e.Repository), id("repository.id", e.RepositoryID), number("pull_request.number", p.Number), commit("pull_request.head.sha", e.Head),
		ref("pull_request.base.ref", e.BaseRef), id("pull_request.user.id", e.AuthorID),
	}
	if e.Merged {
		e.MergeCommit = strings.ToLower(p.MergeCommitSHA)
		checks = append(checks, commit("pull_request.merge_commit_sha", e.MergeCommit))
	}
	return known(e, first(checks...))
}

func githubComment(body []byte) (Event, error) {
	in, err := decode[githubCommentEvent](body)
	switch {
	case err != nil:
		return Event{}, err
	case in.Action != "created":
		return ignored("a comment counts as it was written first"), nil
	case in.Issue.Pull == nil:
		return ignored("the comment is on an issue"), nil
	}
	at, err := when("comment.created_at", in.Comment.CreatedAt)
	if err != nil {
		return Event{}, err
	}
	e := Event{
		Kind: Commented, Repository: in.Repository.FullName, RepositoryID: in.Repository.ID, Number: int(in.Issue.Number), CommentID: in.Comment.ID,
		Text: text.Head(in.Comment.Body, MaxText), At: at, AuthorID: in.Comment.User.ID, Author: name(in.Comment.User.Login),
	}
	return known(e, first(
		path("repository.full_name", e.Repository), id("repository.id", e.RepositoryID), number("issue.number", in.Issue.Number),
		id("comment.id", e.CommentID), id("comment.user.id", e.AuthorID),
	))
}

func githubPush(body []byte) (Event, error) {
	in, err := decode[githubPushEvent](body)
	if err != nil {
		return Event{}, err
	}
	e := Event{
		Repository: in.Repository.FullName, RepositoryID: in.Repository.ID, Ref: in.Ref, After: strings.ToLower(in.After), AuthorID: in.Sender.ID, Author: name(in.Sender.Login),
	}
	if err := first(path("repository.full_name", e.Repository), id("repository.id", e.RepositoryID), id("sender.id", e.AuthorID)); err != nil {
		return Event{}, err
	}
	return known(pushed(e, "ref", "after"))
}

// known is an event with all its required fields.
func known(e Event, err error) (Event, error) {
	if err != nil {
		return Event{}, err
	}
	return e, nil
}
