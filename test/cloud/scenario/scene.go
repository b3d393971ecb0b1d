package scenario

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// bucket is that of the engines' states, of this program's own: other programs may use the same S3.
var bucket = "states-" + strings.ToLower(rand.Text()[:8])

// giveUp ends a story that cannot go on.
type giveUp string

// scene is a story while it is told.
type scene struct {
	*world
	story string
	row   *Row
}

// begin begins a row of the table.
func (s *scene) begin(workspace, asked, what string) {
	s.row = &Row{Workflow: workspace + " " + asked, What: what}
	s.add(s.row)
}

// check notes what is not as it must be.
func (s *scene) check(ok bool, format string, args ...any) {
	if !ok {
		s.row.Wrong = append(s.row.Wrong, fmt.Sprintf(format, args...))
	}
}

// must ends the story on an error.
func (s *scene) must(err error) {
	if err == nil {
		return
	}
	if s.row == nil {
		s.begin(s.story, "", "to begin with")
	}
	panic(giveUp(err.Error()))
}

func rolePrefix(pool string) string {
	return "arn:aws:iam::" + wire.Account + ":role/dayfly/" + pool + "/"
}

// workspace registers a workspace of the private repository, with a role of its own.
func (s *scene) workspace(ctx context.Context, name, path string, change ...func(*api.Workspace)) {
	w := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: s.Engine,
			Source: api.Source{Git: &api.GitSource{URL: s.Git.URL, Path: path, TokenRef: s.secrets[0].arn}},
		},
		Pool: s.Cloud.Pool, Size: "256/512",
	}
	w.State = &api.State{Kind: api.StateS3, Bucket: bucket, Region: wire.Region, Endpoint: s.c.TaskAWSURL}
	for _, f := range change {
		f(&w)
	}
	if w.Engine == api.EngineCommand {
		w.State = nil
	}
	// The role trusts the id of the workspace, which is known once that is registered.
	made, _, err := s.c.Client.PutWorkspace(ctx, w)
	s.must(err)
	w.Role = s.c.WorkspaceRole(name, made.ID)
	_, _, err = s.c.Client.PutWorkspace(ctx, w)
	s.must(err)
}

// commands makes a workspace one of commands: operation and script, in turn.
func commands(pairs ...string) func(*api.Workspace) {
	return func(w *api.Workspace) {
		w.Engine, w.Commands = api.EngineCommand, map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			w.Commands[pairs[i]] = pairs[i+1]
		}
	}
}

// submit asks for an operation, or for a scan, and begins its row.
func (s *scene) submit(ctx context.Context, workspace, asked, what string) api.Workflow {
	s.begin(workspace, asked, what)
	in := api.Submit{Workspace: workspace, Operation: workflow.Operation(asked)}
	if asked == "scan" {
		in.Type, in.Operation = workflow.InsightsScan, ""
	}
	w, err := s.c.Client.Submit(ctx, in)
	s.must(err)
	return w
}

// until looks at a workflow until it is as wanted.
func (s *scene) until(ctx context.Context, id, wanted string, is func(api.Workflow) bool) api.Workflow {
	var w api.Workflow
	s.await(ctx, func() (bool, string) {
		var err error
		if w, err = s.c.Client.Workflow(ctx, id); err != nil {
			return false, err.Error()
		}
		if !is(w) && w.State.Terminal() {
			s.must(fmt.Errorf("it ended %s (%s) before it was %s: %s", w.State, w.Reason, wanted, w.Detail))
		}
		return is(w), fmt.Sprintf("it is %s in attempt %d, and was to be %s", w.State, w.Attempt, wanted)
	})
	return w
}

// await asks until the answer is yes.
func (s *scene) await(ctx context.Context, ask func() (bool, string)) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(s.Patience); ; {
		ok, why := ask()
		if ok {
			return
		}
		if time.Now().After(end) {
			s.must(fmt.Errorf("after %s: %s", s.Patience, why))
		}
		if s.Hasty && len(s.c.Problems()) > 0 {
			s.must(fmt.Errorf("there is a problem: %s", why))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.must(context.Cause(ctx))
		}
	}
}

// running waits for a workflow's start in an attempt.
func (s *scene) running(ctx context.Context, id string, attempt int) api.Workflow {
	return s.until(ctx, id, fmt.Sprintf("running in attempt %d", attempt), func(w api.Workflow) bool {
		return w.State == workflow.Running && w.Attempt == attempt
	})
}

// prints waits for a text in a workflow's log.
func (s *scene) prints(ctx context.Context, id, text string) {
	s.await(ctx, func() (bool, string) {
		page, err := s.c.Client.Logs(ctx, id, 0, 0, 5000, 0)
		if err != nil {
			return false, err.Error()
		}
		return slices.ContainsFunc(page.Lines, func(l api.LogLine) bool { return strings.Contains(l.Text, text) }), "its log does not have " + text
	})
}

// ends waits for the end of a workflow and checks it.
func (s *scene) ends(ctx context.Context, id string, state workflow.State, reason workflow.Reason, attempt int) api.Workflow {
	s.row.Expected = ended(state, reason)
	if attempt > 1 {
		s.row.Expected += fmt.Sprintf(", attempt %d", attempt)
	}
	w := s.until(ctx, id, "ended", func(w api.Workflow) bool { return w.State.Terminal() })
	s.row.Got = ended(w.State, w.Reason)
	if w.Attempt > 1 {
		s.row.Got += fmt.Sprintf(", attempt %d", w.Attempt)
	}
	s.row.Task = short(w.Task)
	if w.EndedAt != nil {
		s.row.Took = w.EndedAt.Sub(w.SubmittedAt)
	}
	s.check(w.State == state && w.Reason == reason, "it ended %s (%s), not %s (%s): %s", w.State, w.Reason, state, reason, w.Detail)
	s.check(w.Attempt == attempt, "it ended in attempt %d, not %d", w.Attempt, attempt)
	return w
}

// short is the end of a task's ARN.
func short(task string) string {
	task = task[strings.LastIndex(task, "/")+1:]
	return task[:min(len(task), 8)]
}

// counts checks the numbers of a plan.
func (s *scene) counts(w api.Workflow, add, change, destroy int) {
	if w.Result == nil || w.Result.Changes == nil {
		s.check(false, "it reports no changes")
		return
	}
	c := w.Result.Changes
	s.check(c.Add == add && c.Change == change && c.Destroy == destroy, "add, change, destroy are %d, %d, %d, not %d, %d, %d", c.Add, c.Change, c.Destroy, add, change, destroy)
}

// told checks that a timeline says something.
func (s *scene) told(ctx context.Context, id, text string) {
	page, err := s.c.Client.Timeline(ctx, id, "", 200)
	s.must(err)
	var all []string
	for _, e := range page.Items {
		all = append(all, e.Text)
	}
	s.check(strings.Contains(strings.Join(all, "\n"), text), "its timeline does not say %q: %q", text, all)
}

// tasks are those of a workflow, the oldest first.
func (s *scene) tasks(id string) []ecs.Task {
	return slices.DeleteFunc(s.c.ECS.Tasks(), func(t ecs.Task) bool { return t.Tags["dayfly:job"] != id })
}

// aTask waits for a task of a workflow that has come to a state.
func (s *scene) aTask(ctx context.Context, id, status string) (t ecs.Task) {
	s.await(ctx, func() (bool, string) {
		for _, t = range s.tasks(id) {
			if t.LastStatus == status {
				return true, ""
			}
		}
		return false, "none of its tasks is " + status
	})
	return t
}

// fated decides the fate of the tasks of a workspace.
func (s *scene) fated(workspace string, f ecs.Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates[workspace] = f
}

// s3 asks the S3 of the engines' states.
func (w *world) s3(ctx context.Context, method, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.c.AWSURL+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	resp, err := awsim.SignedClient(w.c.Admin, "s3").Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(body), err
}

// object is what the S3 keeps of a workspace's state; "" is nothing.
func (s *scene) object(ctx context.Context, workspace, suffix string) string {
	ws, err := s.c.Client.Workspace(ctx, workspace)
	s.must(err)
	status, body, err := s.s3(ctx, http.MethodGet, "/"+bucket+"/default/"+ws.ID+"/terraform.tfstate"+suffix)
	s.must(err)
	if status != http.StatusOK {
		return ""
	}
	return body
}

// logs reads the logs of all workflows as people do, and reports whether any of them has an attempt.
func (w *world) logs(ctx context.Context, row *Row) (launched bool) {
	page, err := w.c.Client.Workflows(ctx, client.Filter{Limit: 100})
	if err != nil {
		row.Wrong = append(row.Wrong, err.Error())
	}
	for _, r := range page.Items {
		launched = launched || r.Attempt > 0
		for attempt := 1; attempt <= r.Attempt; attempt++ {
			page, err := w.c.Client.Logs(ctx, r.ID, attempt, 0, 5000, 0)
			if err != nil {
				row.Wrong = append(row.Wrong, fmt.Sprintf("the log of %s: %v", r.ID, err))
				continue
			}
			for _, l := range page.Lines {
				w.Tap.Add("the log of a workflow", l.Text)
			}
		}
		w.Tap.Add("a workflow", fmt.Sprintf("%+v %+v", r, r.Result))
	}
	return launched
}
