package scenario

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/sts"
)

const (
	forge      = "forge" // name of the git host
	ofPreviews = "-Role" // ends the names of roles of previews
)

// pullRequest is one that a git host tells of by its webhook: the deliverer reads it, a task previews it with the role
// and the secrets of previews, and a member's comment applies what was shown.
func pullRequest(ctx context.Context, s *scene) {
	const name = "pulled"
	host := s.Git.host
	var ahead atomic.Int64 // seconds: comments are in the order in which they were written, and the host's clock has no fractions
	host.Clock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load()) * time.Second) })
	s.workspace(ctx, name, name, func(w *api.Workspace) {
		w.Approval = &api.Approval{Required: true}
		w.Secrets = []api.Secret{{Env: "TF_VAR_password", Ref: s.secrets[1].arn, Preview: true}}
	})
	w, err := s.c.Client.Workspace(ctx, name)
	s.must(err)
	w.PreviewRole, err = s.c.PreviewRole(w, bucket)
	s.must(err)
	_, _, err = s.c.Client.PutWorkspace(ctx, w)
	s.must(err)
	_, err = s.c.Client.CreatePrincipal(ctx, api.NewPrincipal{Name: "bob"})
	s.must(err)
	of := api.GitHost{
		Name: forge, Kind: api.HostGitHub, URL: s.Git.origin(), TokenRef: s.secrets[4].arn, Pool: s.Cloud.Pool,
		Members: []api.Member{{ID: host.User("bob"), Principal: "bob", Role: api.RoleOperator}},
	}
	_, _, err = s.c.Client.PutSetting(ctx, of)
	s.must(err)
	hook, err := s.c.Client.RotateWebhookSecret(ctx, forge)
	s.must(err)

	s.begin(name, "preview", "of a pull request, told by a webhook and read back")
	host.Member(repository, "carol", githosttest.Writes)
	number := host.Open(githosttest.Pull{Repository: repository, Author: "carol", Head: s.Git.change, Files: []githosttest.File{{Path: name + "/second.tf"}}})
	body := host.PullEvent(repository, number, "opened", s.Git.change)
	status := s.sends(ctx, "pull_request", githosttest.Sign("another secret", body), body)
	s.check(status == http.StatusUnauthorized, "an event with a wrong signature is answered %d", status)
	status = s.sends(ctx, "pull_request", githosttest.Sign(hook.Secret, body), body)
	s.check(status == http.StatusOK, "its event is answered %d", status)
	preview := s.ends(ctx, s.pulled(ctx, workflow.Preview).ID, workflow.Succeeded, "", 1)
	s.counts(preview, 2, 0, 0)
	s.shows(ctx, number, "waiting for approval")
	s.check(s.assumed(name+ofPreviews) && !s.assumed(name), "its preview has another role than that of previews")

	s.begin(name, "apply", "by a member's comment: exactly the plan shown")
	ahead.Add(5)
	id := host.Comment(repository, number, "bob", "dayfly apply")
	ahead.Add(5)
	body = host.CommentEvent(repository, number, id, "bob", "dayfly apply")
	status = s.sends(ctx, "issue_comment", githosttest.Sign(hook.Secret, body), body)
	s.check(status == http.StatusOK, "the event of the comment is answered %d", status)
	update := s.ends(ctx, s.pulled(ctx, workflow.Update).ID, workflow.Succeeded, "", 1)
	s.counts(update, 2, 0, 0)
	s.check(update.Task != preview.Task, "it ran in the task of the preview")
	s.check(s.assumed(name), "what was approved has another role than that of the workspace")
	s.prints(ctx, update.ID, "the password is ") // and what followed it is searched for in the end
	s.shows(ctx, number, "| applied |")
	all := host.Statuses(repository, s.Git.change)
	s.check(len(all) == 1 && all[0].State == "success", "the statuses of its commit are %+v", all)
	s.row.Wrong = append(s.row.Wrong, s.Tap.find("the secret of a webhook", hook.Secret)...)
	of.IsDisabled = true
	_, _, err = s.c.Client.PutSetting(ctx, of)
	s.must(err)
}

// assumed reports whether a task had a role.
func (s *scene) assumed(role string) bool {
	return slices.ContainsFunc(s.c.STS.Sessions(), func(one sts.Session) bool { return one.Role == rolePrefix(s.Cloud.Pool)+role })
}

// sends posts an event to the control plane as the git host does, and returns the status of the answer.
func (s *scene) sends(ctx context.Context, event, signature string, body []byte) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.c.URL+"/v1/webhooks/default/"+forge, bytes.NewReader(body))
	s.must(err)
	req.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {event}, "X-Hub-Signature-256": {signature}}
	resp, err := http.DefaultClient.Do(req)
	s.must(err)
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	s.must(err)
	s.Tap.Add("an answer to a webhook", string(said))
	return resp.StatusCode
}

// pulled waits until the pull request has started a run of an operation.
func (s *scene) pulled(ctx context.Context, of workflow.Operation) (w api.Workflow) {
	s.await(ctx, func() (bool, string) {
		page, err := s.c.Client.Workflows(ctx, client.Filter{Workspace: "pulled", Limit: 10})
		if err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(page.Items, func(one api.Workflow) bool {
			return one.Operation == of && one.Trigger != nil && one.Trigger.Commit == s.Git.change
		})
		if i >= 0 {
			w = page.Items[i]
		}
		return i >= 0, fmt.Sprintf("no %s of the pull request was started", of)
	})
	return w
}

// shows waits until our comment at the git host says something.
func (s *scene) shows(ctx context.Context, number int, text string) {
	s.await(ctx, func() (bool, string) {
		said := ""
		for _, c := range s.Git.host.Comments(repository, number) {
			if c.Author == githosttest.Bot {
				said = c.Text
			}
		}
		return strings.Contains(said, text), fmt.Sprintf("the comment does not say %q: %q", text, said)
	})
}
