// Package gitlab calls the API of GitLab, gitlab.com or self-managed, as a githost.Host. It never sleeps and follows no
// redirect.
package gitlab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gitlab.com/gitlab-org/api/client-go/v2"

	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	perPage        = 100
	diffsPerPage   = 30 // GitLab before 18.0 answers 500 where more are asked for: gitlab-org/gitlab#427168
	maxDescription = 255
	maxDepth       = 22 // GitLab nests groups 20 deep
)

// The permissions that a token needs.
const (
	needsRead     = "the scope read_api or api, and the role Reporter in the project"
	needsComments = "the scope api, and the role Reporter in the project"
	needsStatuses = "the scope api, and the role Developer in the project"
)

// Host is GitLab's API with one credential. It is safe for concurrent use.
type Host struct {
	client *gitlab.Client
	token  redact.String
}

// unlimited is a limiter that does not wait: GitLab itself refuses calls that are too many.
type unlimited struct{}

func (unlimited) Wait(context.Context) error { return nil }

// New returns the host at an address; empty means https://gitlab.com. The client bounds time and bytes, and decides which
// addresses are called. New calls nobody.
func New(client *http.Client, address string, token redact.String) (*Host, error) {
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if token.Empty() {
		return nil, githost.Refuse("the token for GitLab is empty")
	}
	c, err := gitlab.NewClient(token.Reveal(),
		gitlab.WithURLWarningLogger(slog.New(slog.DiscardHandler)), gitlab.WithBaseURL(cmp.Or(address, "https://gitlab.com")),
		gitlab.WithHTTPClient(&own), gitlab.WithoutRetries(), gitlab.WithCustomLimiter(unlimited{}), gitlab.WithUserAgent("dayfly"))
	if err != nil {
		return nil, githost.Refuse("%.200q is not the address of a GitLab", address)
	}
	return &Host{c, token}, nil
}

// call is one operation for a caller.
type call struct {
	*Host

	project      string
	doing, needs string
}

func (h *Host) call(repository, doing, needs string) (call, error) {
	return call{h, repository, doing, needs}, githost.CheckRepository(repository, maxDepth)
}

// failed translates an error of the library.
func (c call) failed(response *gitlab.Response, err error) error {
	f := githost.FailedCall{Host: "GitLab", Doing: c.doing, Needs: c.needs, Cause: err, Secret: c.token}
	if response != nil && response.Response != nil {
		f.Status, f.Header = response.StatusCode, response.Header
	}
	if e, ok := errors.AsType[*gitlab.ErrorResponse](err); ok {
		f.Said = strings.TrimSuffix(strings.TrimPrefix(e.Message, "{message: "), "}")
	}
	return githost.Classify(f, time.Now())
}

// missing says whether an answer means that there is no such thing.
func missing(response *gitlab.Response) bool {
	return response != nil && response.Response != nil && response.StatusCode == http.StatusNotFound
}

// Read implements githost.Host.
func (h *Host) Read(ctx context.Context, r githost.Read) (githost.Facts, error) {
	c, err := h.call(r.Repository, fmt.Sprintf("read merge request %d of %s", r.Number, r.Repository), needsRead)
	if err != nil {
		return githost.Facts{}, err
	}
	if r.Number == 0 {
		c.doing = fmt.Sprintf("find the merge request of %s that commit %s merged", r.Repository, r.Commit)
		if r.Number, err = c.mergedAs(ctx, r.Commit); err != nil || r.Number == 0 {
			return githost.Facts{}, err
		}
	}
	merge, err := c.merge(ctx, r.Number)
	if err != nil {
		return githost.Facts{}, err
	}
	names, err := c.files(ctx, r.Number)
	if err != nil {
		return githost.Facts{}, err
	}
	head := merge.SHA
	if merge, err = c.merge(ctx, r.Number); err != nil {
		return githost.Facts{}, err
	}
	if merge.SHA != head {
		return githost.Facts{}, &githost.Error{Message: fmt.Sprintf("merge request %d of %s was pushed to while it was read", r.Number, r.Repository)}
	}
	f := githost.Facts{
		Number: r.Number, State: githost.State(merge.State), Head: head, HeadRepository: r.Repository,
		Fork: merge.SourceProjectID != merge.TargetProjectID, BaseRef: merge.TargetBranch,
	}
	switch merge.State {
	case "merged":
		f.MergeCommit = made(&merge.BasicMergeRequest)
	case "opened":
		f.State = githost.Open
	}
	if f.Fork {
		if f.HeadRepository, err = c.path(ctx, merge.SourceProjectID); err != nil {
			return githost.Facts{}, err
		}
	}
	// It is "1000+" where there are more than GitLab counts, and empty until they are counted.
	counted, err := strconv.Atoi(merge.ChangesCount)
	f.Files, f.FilesTruncated = names.Files(counted)
	f.FilesTruncated = f.FilesTruncated || err != nil
	if merge.Author != nil {
		if f.Author, err = c.person(ctx, merge.Author.ID, merge.Author.Username); err != nil {
			return githost.Facts{}, err
		}
	}
	if r.CommentID == 0 {
		return f, nil
	}
	f.Comment, err = c.comment(ctx, r.Number, r.CommentID, f.Author)
	return f, err
}

// merge reads a merge request. GitLab updates its changes some time after its head.
func (c call) merge(ctx context.Context, number int) (*gitlab.MergeRequest, error) {
	m, response, err := c.client.MergeRequests.GetMergeRequest(c.project, int64(number), nil, gitlab.WithContext(ctx))
	if err == nil && m.IID != int64(number) {
		err = errors.New("its answer is not a merge request")
	}
	switch {
	case err != nil:
		return nil, c.failed(response, err)
	case m.State == "locked":
		return nil, &githost.Error{Message: fmt.Sprintf("merge request %d of %s is being merged", number, c.project)}
	case m.SHA == "" || m.State == "opened" && m.DiffRefs.HeadSha != m.SHA:
		return nil, &githost.Error{Message: fmt.Sprintf("GitLab has not found the changes of merge request %d of %s yet", number, c.project)}
	}
	return m, nil
}

// made is the commit on the target branch that a merge made. A fast-forward makes none but that of a squash.
func made(m *gitlab.BasicMergeRequest) string {
	return cmp.Or(m.MergeCommitSHA, m.SquashCommitSHA, m.SHA)
}

// mergedAs finds the merge request whose merge made a commit; zero: none did.
func (c call) mergedAs(ctx context.Context, commit string) (int, error) {
	if err := githost.CheckCommit(commit); err != nil {
		return 0, err
	}
	list, response, err := c.client.Commits.ListMergeRequestsByCommit(c.project, commit, gitlab.WithContext(ctx))
	if err != nil {
		return 0, c.failed(response, err)
	}
	for _, m := range list {
		if m.State == "merged" && made(m) == commit && m.ProjectID == m.TargetProjectID {
			return int(m.IID), nil
		}
	}
	return 0, nil
}

// path is where a project is; empty if the credential does not see it.
func (c call) path(ctx context.Context, project int64) (string, error) {
	if project == 0 {
		return "", nil
	}
	p, response, err := c.client.Projects.GetProject(project, nil, gitlab.WithContext(ctx))
	if missing(response) {
		return "", nil
	}
	if err != nil {
		return "", c.failed(response, err)
	}
	return p.PathWithNamespace, nil
}

// files reads the changed files. Some versions of GitLab say nothing of pages: the last one is a short one.
func (c call) files(ctx context.Context, number int) (names githost.Names, err error) {
	for page := int64(1); page <= githost.MaxFiles/diffsPerPage; page++ {
		list, response, err := c.client.MergeRequests.ListMergeRequestDiffs(c.project, int64(number),
			&gitlab.ListMergeRequestDiffsOptions{ListOptions: gitlab.ListOptions{Page: page, PerPage: diffsPerPage}}, gitlab.WithContext(ctx))
		if err != nil {
			return names, c.failed(response, err)
		}
		for _, f := range list {
			names.Add(f.NewPath, f.OldPath)
		}
		if len(list) < diffsPerPage {
			break
		}
	}
	return names, nil
}

// person returns a user with the right to write, which developers and above have.
func (c call) person(ctx context.Context, id int64, login string) (githost.Person, error) {
	p := githost.Person{ID: id, Login: login}
	if id == 0 {
		return p, nil
	}
	m, response, err := c.client.ProjectMembers.GetInheritedProjectMember(c.project, id, gitlab.WithContext(ctx))
	if missing(response) {
		return p, nil
	}
	if err != nil {
		return p, c.failed(response, err)
	}
	p.CanWrite = m.State == "active" && m.AccessLevel >= gitlab.DeveloperPermissions
	return p, nil
}

func (c call) comment(ctx context.Context, number int, id int64, author githost.Person) (*githost.CommentFacts, error) {
	n, response, err := c.client.Notes.GetMergeRequestNote(c.project, int64(number), id, gitlab.WithContext(ctx))
	if missing(response) {
		return nil, nil //nolint:nilnil // no note is an answer
	}
	if err == nil && (n.ID != id || n.CreatedAt == nil || n.UpdatedAt == nil) {
		err = errors.New("its answer is not a note")
	}
	if err != nil {
		return nil, c.failed(response, err)
	}
	if n.System || n.NoteableIID != int64(number) {
		return nil, nil //nolint:nilnil // GitLab itself wrote it
	}
	by := author
	if n.Author.ID != author.ID {
		if by, err = c.person(ctx, n.Author.ID, n.Author.Username); err != nil {
			return nil, err
		}
	}
	return &githost.CommentFacts{ID: id, Author: by, Text: text.Cut(n.Body, githost.MaxText), Created: *n.CreatedAt, Updated: *n.UpdatedAt}, nil
}

// Comment implements githost.Host.
func (h *Host) Comment(ctx context.Context, m githost.Comment) (githost.Posted, error) {
	c, err := h.call(m.Repository, fmt.Sprintf("write the comment on merge request %d of %s", m.Number, m.Repository), needsComments)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return githost.Posted{}, err
	}
	edit := func(id int64) (*gitlab.Note, *gitlab.Response, error) {
		return c.client.Notes.UpdateMergeRequestNote(c.project, int64(m.Number), id, &gitlab.UpdateMergeRequestNoteOptions{Body: &m.Body}, gitlab.WithContext(ctx))
	}
	if m.ID != 0 {
		n, response, err := edit(m.ID)
		if !missing(response) {
			return c.posted(n, response, err)
		}
	}
	id, err := c.own(ctx, m)
	switch {
	case err != nil:
		return githost.Posted{}, err
	case id == 0 && m.OnlyEdit:
		return githost.Posted{}, nil
	case id != 0:
		return c.posted(edit(id))
	}
	return c.posted(c.client.Notes.CreateMergeRequestNote(c.project, int64(m.Number), &gitlab.CreateMergeRequestNoteOptions{Body: &m.Body}, gitlab.WithContext(ctx)))
}

func (c call) posted(n *gitlab.Note, response *gitlab.Response, err error) (githost.Posted, error) {
	if err == nil && (n.ID == 0 || n.UpdatedAt == nil) {
		err = errors.New("its answer is not a note")
	}
	if err != nil {
		return githost.Posted{}, c.failed(response, err)
	}
	return githost.Posted{ID: n.ID, Updated: *n.UpdatedAt}, nil
}

// own finds the note with the marker that the credential's own user wrote; zero: there is none. Everybody can write the
// marker.
func (c call) own(ctx context.Context, m githost.Comment) (int64, error) {
	me, response, err := c.client.Users.CurrentUser(gitlab.WithContext(ctx))
	if err == nil && me.ID == 0 {
		err = errors.New("it does not say whose the token is")
	}
	if err != nil {
		return 0, c.failed(response, err)
	}
	by, up := "created_at", "asc"
	for page := int64(1); page != 0 && page <= githost.MaxComments/perPage; {
		list, response, err := c.client.Notes.ListMergeRequestNotes(c.project, int64(m.Number),
			&gitlab.ListMergeRequestNotesOptions{ListOptions: gitlab.ListOptions{Page: page, PerPage: perPage}, OrderBy: &by, Sort: &up}, gitlab.WithContext(ctx))
		if err != nil {
			return 0, c.failed(response, err)
		}
		for _, n := range list {
			if n.Author.ID == me.ID && !n.System && strings.HasPrefix(n.Body, m.Marker) {
				return n.ID, nil
			}
		}
		page = response.NextPage
	}
	return 0, nil
}

// alreadyPending is how GitLab refuses a status that it has.
// https://gitlab.com/gitlab-org/gitlab-foss/-/issues/25807
const alreadyPending = "Cannot transition status via :enqueue from :pending"

// Status implements githost.Host.
func (h *Host) Status(ctx context.Context, s githost.Status) error {
	c, err := h.call(s.Repository, fmt.Sprintf("set the status of commit %s of %s", s.Commit, s.Repository), needsStatuses)
	if err == nil {
		err = githost.CheckCommit(s.Commit)
	}
	if err != nil {
		return err
	}
	description := text.Cut(s.Description, maxDescription)
	o := &gitlab.SetCommitStatusOptions{State: gitlab.BuildStateValue(s.State), Name: &s.Context, Description: &description}
	if s.State == githost.Failure {
		o.State = gitlab.Failed
	}
	if s.URL != "" {
		o.TargetURL = &s.URL
	}
	_, response, err := c.client.Commits.SetCommitStatus(c.project, s.Commit, o, gitlab.WithContext(ctx))
	if e, ok := errors.AsType[*gitlab.ErrorResponse](err); ok && e.StatusCode == http.StatusBadRequest && strings.Contains(e.Message, alreadyPending) {
		return nil
	}
	if missing(response) {
		// GitLab sets none on a commit that is on no branch of the project: on that of a fork.
		// https://gitlab.com/gitlab-org/gitlab-foss/-/issues/24696
		if _, _, err := c.client.Commits.GetCommit(c.project, s.Commit, nil, gitlab.WithContext(ctx)); err == nil {
			return nil
		}
	}
	if err != nil {
		return c.failed(response, err)
	}
	return nil
}
