package ci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/pipeline"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/deliverer"
	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
)

const hostTime = 30 * time.Second // for one request to a git host

// hostOf is the git host of a job, with the job's token; nil where the job has none.
func hostOf(job pipeline.Job) (githost.Host, error) {
	bounded := &http.Client{Timeout: hostTime, Transport: smallAnswers{http.DefaultTransport}}
	switch {
	case job.Host == "":
		return nil, nil //nolint:nilnil // as documented
	case job.Token.Empty() && job.Host == pipeline.GitHub:
		return nil, errors.New("the variable GITHUB_TOKEN is not set (env: GITHUB_TOKEN: ${{ github.token }})")
	case job.Token.Empty():
		return nil, fmt.Errorf("the variable %s is not set: it holds a project access token with the scope api", pipeline.EnvGitLabToken)
	}
	return deliverer.Open(job.Host, job.Server, bounded, job.Token)
}

// smallAnswers bounds the size of an answer.
type smallAnswers struct{ next http.RoundTripper }

func (s smallAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, githost.MaxBody)
	}
	return response, err
}

// report writes the comment, the status, the run's summary and the result. A refusal of the host loses no result.
func (r *ciRun) report(ctx context.Context) {
	r.post(ctx)
	r.status(ctx)
	said := strings.TrimPrefix(pullrequest.Render(r.comment, pullrequest.Limit(r.job.Host)), pullrequest.Marker(r.comment.Organization, r.comment.Key)+"\n")
	if r.job.Summary != "" {
		if err := appendTo(r.job.Summary, said); err != nil {
			r.a.Say("the run's summary is not written: %v", err)
		}
	}
	var err error
	if r.a.JSON() {
		err = r.a.Encode(r.results())
	} else {
		err = r.a.Print("\n%s", strings.TrimSuffix(said, "\n"))
	}
	if err != nil {
		r.a.Say("the result is not printed: %v", err)
	}
}

// post writes the one comment. Where nothing changes, only one that is there already is edited.
func (r *ciRun) post(ctx context.Context) {
	if r.host == nil || r.of.NoComment || !r.job.PullRequest() {
		return
	}
	c := r.comment
	only := pullrequest.Silent(c)
	c.Posted = true
	_, err := r.host.Comment(ctx, githost.Comment{
		Repository: r.job.Path, Number: r.job.Number, Marker: pullrequest.Marker(c.Organization, c.Key), Body: pullrequest.Render(c, pullrequest.Limit(r.job.Host)), OnlyEdit: only,
	})
	if err != nil {
		r.a.Say("the comment is not written: %s", term.Clean(err.Error()))
	}
}

// status sets the status of the head commit.
func (r *ciRun) status(ctx context.Context) {
	if r.host == nil {
		return
	}
	state, description := pullrequest.Status(r.comment)
	err := r.host.Status(ctx, githost.Status{
		Repository: r.job.Path, Commit: r.job.Head, State: githost.StatusState(state), Context: r.context(), Description: description, URL: r.job.Page,
	})
	if err != nil {
		r.a.Say("the status is not set: %s", term.Clean(err.Error()))
	}
}

// ciResult is a line of the result for programs.
type ciResult struct {
	Workspace string `json:"workspace"`
	Workflow  string `json:"workflow,omitempty"`
	State     string `json:"state,omitempty"`
	Applies   string `json:"applies,omitempty"`
	Refused   string `json:"refused,omitempty"`
	Add       int    `json:"add"`
	Change    int    `json:"change"`
	Destroy   int    `json:"destroy"`
	Import    int    `json:"import,omitempty"`
	Move      int    `json:"move,omitempty"`
	Forget    int    `json:"forget,omitempty"`
}

func (r *ciRun) results() []ciResult {
	out := []ciResult{}
	for _, p := range r.comment.Previews {
		one := ciResult{Workspace: p.Run.Workspace, Workflow: p.Run.ID, State: string(p.Run.State), Refused: p.Refused}
		if p.Apply != nil && p.Apply.ID != p.Run.ID {
			one.Applies = p.Apply.ID
		}
		if result := p.Run.Result; result != nil && result.Changes != nil {
			c := *result.Changes
			one.Add, one.Change, one.Destroy, one.Import, one.Move, one.Forget = c.Add, c.Change, c.Destroy, c.Import, c.Move, c.Forget
		}
		out = append(out, one)
	}
	return out
}

func appendTo(path, said string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(said)
	return errors.Join(err, f.Close())
}
