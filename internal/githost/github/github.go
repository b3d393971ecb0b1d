// Package github calls the API of GitHub, and of GitHub Enterprise Server, as a githost.Host. It never sleeps and follows
// no redirect.
package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-github/v89/github"

	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	perPage        = 100
	maxDescription = 140 // of a status
)

// The permissions that a token needs, by the names of a fine-grained token's permissions.
const (
	needsRead     = "the permissions Metadata: read and Pull requests: read"
	needsComments = "the permission Pull requests: write"
	needsStatuses = "the permission Commit statuses: write"
)

// Host is GitHub's API with one credential. It is safe for concurrent use.
type Host struct {
	client  *github.Client
	graphql string
	token   redact.String
}

// New returns the host at an address: https://github.com or empty for GitHub itself, else that of a GitHub Enterprise
// Server. The client bounds time and bytes, and decides which addresses are called. New calls nobody.
func New(client *http.Client, address string, token redact.String) (*Host, error) {
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	options := []github.ClientOptionsFunc{
		github.WithHTTPClient(&own), github.WithAuthToken(token.Reveal()), github.WithUserAgent("dayfly"), github.WithDisableRateLimitCheck(),
	}
	if address = strings.TrimRight(address, "/"); address != "" && address != "https://github.com" {
		options = append(options, github.WithEnterpriseURLs(address, address))
	}
	if token.Empty() {
		return nil, githost.Refuse("the token for GitHub is empty")
	}
	c, err := github.NewClient(options...)
	if err != nil {
		return nil, githost.Refuse("%.200q is not the address of a GitHub", address)
	}
	base, ok := strings.CutSuffix(c.BaseURL(), "/api/v3/")
	graphql := c.BaseURL() + "graphql"
	if ok {
		graphql = base + "/api/graphql"
	}
	return &Host{client: c, graphql: graphql, token: token}, nil
}

// call is one operation for a caller.
type call struct {
	*Host

	owner, name  string
	doing, needs string
}

func (h *Host) call(repository, doing, needs string) (call, error) {
	if err := githost.CheckRepository(repository, 2); err != nil {
		return call{}, err
	}
	owner, name, _ := strings.Cut(repository, "/")
	return call{h, owner, name, doing, needs}, nil
}

// failed translates an error of the library.
func (c call) failed(response *github.Response, err error) error {
	f := githost.FailedCall{Host: "GitHub", Doing: c.doing, Needs: c.needs, Cause: err, Secret: c.token}
	if response != nil && response.Response != nil {
		f.Status, f.Header = response.StatusCode, response.Header
	}
	if e, ok := errors.AsType[*github.ErrorResponse](err); ok {
		f.Said = e.Message
		for _, one := range e.Errors {
			f.Said += " " + strings.Join(strings.Fields(one.Field+" "+one.Code+" "+one.Message), " ")
		}
	}
	if e, ok := errors.AsType[*github.RateLimitError](err); ok {
		f.Said = e.Message
	}
	if e, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
		f.Said = e.Message
	}
	return githost.Classify(f, time.Now())
}

// missing says whether an answer means that there is no such thing.
func missing(response *github.Response) bool {
	return response != nil && response.Response != nil && response.StatusCode == http.StatusNotFound
}

// Read implements githost.Host.
func (h *Host) Read(ctx context.Context, r githost.Read) (githost.Facts, error) {
	c, err := h.call(r.Repository, fmt.Sprintf("read pull request %d of %s", r.Number, r.Repository), needsRead)
	if err != nil {
		return githost.Facts{}, err
	}
	if r.Number == 0 {
		c.doing = fmt.Sprintf("find the pull request of %s that commit %s merged", r.Repository, r.Commit)
		if r.Number, err = c.mergedAs(ctx, r.Commit); err != nil || r.Number == 0 {
			return githost.Facts{}, err
		}
	}
	pull, err := c.pull(ctx, r.Number)
	if err != nil {
		return githost.Facts{}, err
	}
	names, err := c.files(ctx, r.Number)
	if err != nil {
		return githost.Facts{}, err
	}
	head := pull.GetHead().GetSHA()
	if pull, err = c.pull(ctx, r.Number); err != nil {
		return githost.Facts{}, err
	}
	if pull.GetHead().GetSHA() != head {
		return githost.Facts{}, &githost.Error{Message: fmt.Sprintf("pull request %d of %s was pushed to while it was read", r.Number, r.Repository)}
	}
	f := githost.Facts{
		Number: r.Number, State: githost.State(pull.GetState()), Head: head, HeadRepository: pull.GetHead().GetRepo().GetFullName(),
		Fork: pull.GetHead().GetRepo().GetID() != pull.GetBase().GetRepo().GetID(), BaseRef: pull.GetBase().GetRef(),
	}
	if pull.GetMerged() {
		f.State, f.MergeCommit = githost.Merged, pull.GetMergeCommitSHA() // of an open one that is a merge that was only tried
	}
	f.Files, f.FilesTruncated = names.Files(pull.GetChangedFiles())
	if f.Author, err = c.person(ctx, pull.GetUser()); err != nil || r.CommentID == 0 {
		return f, err
	}
	f.Comment, err = c.comment(ctx, r.Number, r.CommentID, f.Author)
	return f, err
}

func (c call) pull(ctx context.Context, number int) (*github.PullRequest, error) {
	pull, response, err := c.client.PullRequests.Get(ctx, c.owner, c.name, number)
	if err == nil && (pull.GetNumber() != number || pull.GetHead().GetSHA() == "" || pull.GetBase().GetRepo().GetID() == 0) {
		err = errors.New("its answer is not a pull request")
	}
	if err != nil {
		return nil, c.failed(response, err)
	}
	return pull, nil
}

// mergedAs finds the pull request whose merge made a commit; zero: none did.
func (c call) mergedAs(ctx context.Context, commit string) (int, error) {
	if err := githost.CheckCommit(commit); err != nil {
		return 0, err
	}
	list, response, err := c.client.PullRequests.ListPullRequestsWithCommit(ctx, c.owner, c.name, commit, &github.ListOptions{PerPage: perPage})
	if err != nil {
		return 0, c.failed(response, err)
	}
	i := slices.IndexFunc(list, func(p *github.PullRequest) bool {
		return p.MergedAt != nil && p.GetMergeCommitSHA() == commit && strings.EqualFold(p.GetBase().GetRepo().GetFullName(), c.owner+"/"+c.name)
	})
	if i < 0 {
		return 0, nil
	}
	return list[i].GetNumber(), nil
}

func (c call) files(ctx context.Context, number int) (names githost.Names, err error) {
	for page := 1; page != 0 && page <= githost.MaxFiles/perPage; {
		list, response, err := c.client.PullRequests.ListFiles(ctx, c.owner, c.name, number, &github.ListOptions{Page: page, PerPage: perPage})
		if err != nil {
			return names, c.failed(response, err)
		}
		for _, f := range list {
			names.Add(f.GetFilename(), f.GetPreviousFilename())
		}
		page = response.NextPage
	}
	return names, nil
}

// person returns a user with the right to write. A deleted user, or an app, has none.
func (c call) person(ctx context.Context, user *github.User) (githost.Person, error) {
	p := githost.Person{ID: user.GetID(), Login: user.GetLogin()}
	if p.ID == 0 || p.Login == "" {
		return p, nil
	}
	level, response, err := c.client.Repositories.GetPermissionLevel(ctx, c.owner, c.name, p.Login)
	if missing(response) {
		return p, nil
	}
	if err != nil {
		return p, c.failed(response, err)
	}
	// The login may be another user's by now.
	p.CanWrite = level.GetUser().GetID() == p.ID && slices.Contains([]string{"admin", "maintain", "write"}, level.GetPermission())
	return p, nil
}

func (c call) comment(ctx context.Context, number int, id int64, author githost.Person) (*githost.CommentFacts, error) {
	got, response, err := c.client.Issues.GetComment(ctx, c.owner, c.name, id)
	if missing(response) {
		return nil, nil //nolint:nilnil // no comment is an answer
	}
	if err == nil && got.GetID() != id {
		err = errors.New("its answer is not a comment")
	}
	if err != nil {
		return nil, c.failed(response, err)
	}
	if !strings.HasSuffix(got.GetIssueURL(), fmt.Sprintf("/issues/%d", number)) {
		return nil, nil //nolint:nilnil // it is of another pull request
	}
	by := author
	if got.GetUser().GetID() != author.ID {
		if by, err = c.person(ctx, got.GetUser()); err != nil {
			return nil, err
		}
	}
	return &githost.CommentFacts{
		ID: id, Author: by, Text: text.Cut(got.GetBody(), githost.MaxText), Created: got.GetCreatedAt().Time, Updated: got.GetUpdatedAt().Time,
	}, nil
}

// Comment implements githost.Host.
func (h *Host) Comment(ctx context.Context, m githost.Comment) (githost.Posted, error) {
	c, err := h.call(m.Repository, fmt.Sprintf("write the comment on pull request %d of %s", m.Number, m.Repository), needsComments)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return githost.Posted{}, err
	}
	body := &github.IssueComment{Body: &m.Body}
	if m.ID != 0 {
		got, response, err := c.client.Issues.EditComment(ctx, c.owner, c.name, m.ID, body)
		if !missing(response) {
			return c.posted(got, response, err)
		}
	}
	id, err := c.own(ctx, m)
	switch {
	case err != nil:
		return githost.Posted{}, err
	case id == 0 && m.OnlyEdit:
		return githost.Posted{}, nil
	case id != 0:
		return c.posted(c.client.Issues.EditComment(ctx, c.owner, c.name, id, body))
	}
	return c.posted(c.client.Issues.CreateComment(ctx, c.owner, c.name, m.Number, body))
}

func (c call) posted(got *github.IssueComment, response *github.Response, err error) (githost.Posted, error) {
	if err == nil && got.GetID() == 0 {
		err = errors.New("its answer is not a comment")
	}
	if err != nil {
		return githost.Posted{}, c.failed(response, err)
	}
	return githost.Posted{ID: got.GetID(), Updated: got.GetUpdatedAt().Time}, nil
}

// own finds the comment with the marker that the credential's own user wrote; zero: there is none. Everybody can write
// the marker.
func (c call) own(ctx context.Context, m githost.Comment) (int64, error) {
	me, err := c.viewer(ctx)
	if err != nil {
		return 0, err
	}
	for page := 1; page != 0 && page <= githost.MaxComments/perPage; {
		list, response, err := c.client.Issues.ListComments(ctx, c.owner, c.name, m.Number, &github.IssueListCommentsOptions{ListOptions: github.ListOptions{Page: page, PerPage: perPage}})
		if err != nil {
			return 0, c.failed(response, err)
		}
		for _, one := range list {
			if one.GetUser().GetID() == me && strings.HasPrefix(one.GetBody(), m.Marker) {
				return one.GetID(), nil
			}
		}
		page = response.NextPage
	}
	return 0, nil
}

// viewer is the credential's own user. REST shows it to the tokens of people only, not to those of apps and of
// Actions.
func (c call) viewer(ctx context.Context) (int64, error) {
	request, err := c.client.NewRequest(ctx, http.MethodPost, c.graphql, map[string]string{"query": "query { viewer { databaseId } }"})
	if err != nil {
		return 0, c.failed(nil, err)
	}
	var answer struct {
		Data struct {
			Viewer struct {
				DatabaseID int64 `json:"databaseId"`
			} `json:"viewer"`
		} `json:"data"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	response, err := c.client.Do(request, &answer)
	switch id := answer.Data.Viewer.DatabaseID; {
	case err != nil:
		return 0, c.failed(response, err)
	case id == 0 && len(answer.Errors) > 0: // GraphQL refuses with status 200
		return 0, githost.Classify(githost.FailedCall{
			Host: "GitHub", Doing: c.doing, Needs: c.needs, Status: http.StatusForbidden, Header: response.Header, Said: answer.Errors[0].Message, Secret: c.token,
		}, time.Now())
	case id == 0:
		return 0, c.failed(response, errors.New("it does not say whose the token is"))
	default:
		return id, nil
	}
}

// Status implements githost.Host.
func (h *Host) Status(ctx context.Context, s githost.Status) error {
	c, err := h.call(s.Repository, fmt.Sprintf("set the status of commit %s of %s", s.Commit, s.Repository), needsStatuses)
	if err == nil {
		err = githost.CheckCommit(s.Commit)
	}
	if err != nil {
		return err
	}
	state, description := string(s.State), text.Cut(s.Description, maxDescription)
	status := github.RepoStatus{State: &state, Context: &s.Context, Description: &description}
	if s.URL != "" {
		status.TargetURL = &s.URL
	}
	_, response, err := c.client.Repositories.CreateStatus(ctx, c.owner, c.name, s.Commit, status)
	if err != nil {
		return c.failed(response, err)
	}
	return nil
}
