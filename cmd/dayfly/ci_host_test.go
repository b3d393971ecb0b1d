package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// newHosted is the world of a job whose host has an API, with pull request 1.
func newHosted(t *testing.T, kind githosttest.Kind) (*ciWorld, *githosttest.Server) {
	t.Helper()
	host := githosttest.New(kind)
	t.Cleanup(host.Stop)
	c := newCI(t, host.URL)
	c.git("checkout", "--quiet", "-b", "topic")
	host.Open(githosttest.Pull{Repository: "acme/infra", Author: "ada", Head: c.commit("live/network/main.tf")})
	c.env["GITHUB_TOKEN"] = host.Token().Reveal()
	return c, host
}

// again pushes to the branch of the pull request.
func (c *ciWorld) again(host *githosttest.Server, files ...string) (head string) {
	c.t.Helper()
	c.git("checkout", "--quiet", "topic")
	head = c.commit(files...)
	host.Push("acme/infra", 1, head)
	return head
}

func TestCI_OneCommentIsEditedInPlace(t *testing.T) {
	c, host := newHosted(t, githosttest.GitHub)
	outcome := adds
	c.agent(func(spec api.Spec) api.Result { return outcome(spec) })
	c.withPages()
	first := c.pull()
	c.ok("ci")
	said := host.Comments("acme/infra", 1)
	if len(said) != 1 || said[0].Author != githosttest.Bot {
		t.Fatalf("got %+v", said)
	}
	has(t, "comment", said[0].Text, "<!-- dayfly:default/ci -->", first[:12], "1 workspace: 1 planned", "net.main", "[planned]("+c.url+"/runs/wf_")
	want := []githosttest.Status{{Commit: first, State: "success", Context: "dayfly", Description: "1 workspace: 1 planned", URL: host.URL + "/acme/infra/actions/runs/11"}}
	if got := host.Statuses("acme/infra", first); len(got) != 1 || got[0].State != want[0].State || got[0].Context != want[0].Context || got[0].Description != want[0].Description || got[0].URL != want[0].URL {
		t.Errorf("got %+v, want %+v", got, want)
	}

	second := c.again(host, "live/dns/main.tf")
	outcome = func(spec api.Spec) api.Result {
		if spec.Workspace == "dns" {
			return api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed}
		}
		return api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{}}
	}
	c.pull()
	if got := c.run("ci"); got.code != cli.ExitFailed {
		t.Errorf("got %+v", got)
	}
	now := host.Comments("acme/infra", 1)
	if len(now) != 1 || now[0].ID != said[0].ID {
		t.Fatalf("got %d comments, want the first one edited", len(now))
	}
	has(t, "edited", now[0].Text, second[:12], "1 failed, 1 without changes")
	if got := host.Statuses("acme/infra", second); len(got) != 1 || got[0].State != "failure" {
		t.Errorf("got %+v", got)
	}
	c.ok("ci", "--workspace", "network", "--name", "other")
	if got := host.Comments("acme/infra", 1); len(got) != 1 {
		t.Errorf("nothing changes, and a comment was made: %+v", got[1:])
	}
	if got := host.Statuses("acme/infra", second); len(got) != 2 || got[1].Context != "dayfly/other" || got[1].State != "success" {
		t.Errorf("got %+v", got)
	}
}

func TestCI_NoCommentWhereNothingChangesOrNoneIsWanted(t *testing.T) {
	c, host := newHosted(t, githosttest.GitHub)
	outcome := func(api.Spec) api.Result { return api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{}} }
	c.agent(func(spec api.Spec) api.Result { return outcome(spec) })
	head := c.pull()
	has(t, "ci", c.ok("ci", "--detailed-exitcode"), "1 without changes")
	outcome = adds
	c.pull()
	c.ok("ci", "--no-comment")
	if got := host.Comments("acme/infra", 1); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	c.pull()
	c.ok("ci")
	outcome = func(api.Spec) api.Result { return api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{}} }
	c.pull()
	c.ok("ci")
	if got := host.Comments("acme/infra", 1); len(got) != 1 || !strings.Contains(got[0].Text, "1 without changes") {
		t.Errorf("the comment is out of date: %+v", got)
	}
	if got := host.Statuses("acme/infra", head); len(got) != 1 || got[0].Description != "1 workspace: 1 without changes" {
		t.Errorf("got %+v", got)
	}
}

func TestCI_ARefusedCommentLosesNoResult(t *testing.T) {
	c, host := newHosted(t, githosttest.GitHub)
	c.agent(adds)
	host.Member("acme/infra", githosttest.Bot, githosttest.Reads)
	host.Next(githosttest.Answer{Path: "/issues/1/comments", Status: 403, Body: `{"message": "Resource not accessible by integration"}`})
	c.pull()
	got := c.run("ci")
	if got.code != cli.ExitOK || !strings.Contains(got.stdout, "1 planned") {
		t.Errorf("got %+v", got)
	}
	has(t, "stderr", got.stderr, "the comment is not written: ", "Pull requests: write", "the status is not set: ", "Commit statuses: write")
	if strings.Contains(got.stderr, host.Token().Reveal()) {
		t.Error("the host's token shows")
	}
}

// onGitLab turns the job of GitHub in the environment into one of GitLab CI.
func (c *ciWorld) onGitLab(host *githosttest.Server, source string, claims map[string]any) {
	c.t.Helper()
	commit := c.git("rev-parse", "topic")
	with := map[string]any{
		"sub": "project_path:acme/infra", "email": nil, "project_path": "acme/infra", "project_id": "74", "user_login": "ada", "user_id": "1001", "sha": commit,
		"aud": api.OrganizationPrefix + "default", "pipeline_source": source,
	}
	maps.Copy(with, claims)
	maps.DeleteFunc(c.env, func(name, _ string) bool {
		return strings.HasPrefix(name, "GITHUB_") || strings.HasPrefix(name, "ACTIONS_")
	})
	maps.Copy(c.env, map[string]string{
		"GITLAB_CI": "true", "CI_PROJECT_PATH": "acme/infra", "CI_SERVER_URL": host.URL, "CI_JOB_ID": "9", "CI_JOB_URL": host.URL + "/j/9", "CI_PIPELINE_SOURCE": source,
		"CI_COMMIT_SHA": commit, "CI_COMMIT_BEFORE_SHA": strings.Repeat("0", 40), "CI_BUILDS_DIR": c.t.TempDir(), "CI_COMMIT_BRANCH": "", "CI_DEFAULT_BRANCH": "main",
		"DAYFLY_GITLAB_TOKEN": host.Token().Reveal(), "DAYFLY_ID_TOKEN": c.issuer.Token("RS256", with),
	})
	if source == "merge_request_event" {
		maps.Copy(c.env, map[string]string{
			"CI_MERGE_REQUEST_IID": "1", "CI_MERGE_REQUEST_DIFF_BASE_SHA": c.git("merge-base", "main", "topic"),
			"CI_MERGE_REQUEST_PROJECT_PATH": "acme/infra", "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "acme/infra",
		})
	}
	_, _, err := c.plane.Issuers.Put(c.t.Context(), c.admin, api.Issuer{
		Name: "acme", URL: c.issuer.URL, Pipelines: &api.Pipelines{Kind: api.PipelinesGitLab, Host: strings.TrimPrefix(host.URL, "http://")},
		Rules: []api.TrustRule{{Claims: map[string]string{"project_path": "acme/infra"}, Becomes: api.KindService, Role: api.RoleOperator}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// steps runs lines as a host's runner does: in a shell, with the job's environment and the additions of earlier
// steps to PATH.
func (c *ciWorld) steps(with map[string]string, scripts ...string) (out string, err error) {
	c.t.Helper()
	added := filepath.Join(c.t.TempDir(), "path")
	for _, script := range scripts {
		path, _ := os.ReadFile(added)
		command := exec.CommandContext(c.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
		command.Dir = c.clone
		env := maps.Clone(c.env)
		maps.Copy(env, with)
		env["PATH"] = strings.ReplaceAll(string(path), "\n", ":") + env["PATH"]
		env["GITHUB_PATH"], env[asProgram] = added, "1"
		command.Env = []string{noWait}
		for name, value := range env {
			command.Env = append(command.Env, name+"="+value)
		}
		said, err := command.CombinedOutput()
		if out += string(said); err != nil {
			return out, fmt.Errorf("%s: %w", script, err)
		}
	}
	return out, nil
}

// download puts this program where the examples get it from, which are told so.
func (c *ciWorld) download() {
	c.t.Helper()
	program := filepath.Join(c.t.TempDir(), "dayfly-linux")
	script := "#!/bin/sh\nexec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(program, []byte(script), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.env["DAYFLY_DOWNLOAD"], c.env["DAYFLY_SHA256"] = "file://"+program, fmt.Sprintf("%x", sha256.Sum256([]byte(script)))
	c.env["RUNNER_TEMP"] = c.t.TempDir()
}

// example reads a file of examples/ci.
func example[T any](t *testing.T, name string) (doc T) {
	t.Helper()
	for _, program := range []string{"bash", "curl", "sha256sum"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not on this machine")
		}
	}
	file, err := os.ReadFile(filepath.Join(examplesCI, name))
	if err == nil {
		err = yaml.Unmarshal(file, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// examplesCI is an absolute path: the tests change their directory.
var examplesCI, _ = filepath.Abs("../../examples/ci")

// The steps of the example for GitHub Actions work as documented, in a pull request and after its merge.
func TestExamples_GitHubActions(t *testing.T) {
	type step struct {
		Uses string
		Run  string
		With map[string]any
		Env  map[string]string
	}
	doc := example[struct {
		On          map[string]any
		Permissions map[string]string
		Env         map[string]string
		Jobs        map[string]struct {
			Permissions map[string]string
			Steps       []step
		}
	}](t, "github-actions.yml")
	if _, risky := doc.On["pull_request_target"]; risky || len(doc.Permissions) != 0 {
		t.Errorf("it runs on %v with %v", doc.On, doc.Permissions)
	}
	if want := map[string]string{"id-token": "write", "contents": "read", "pull-requests": "write", "statuses": "write"}; !maps.Equal(doc.Jobs["preview"].Permissions, want) {
		t.Errorf("the preview may %v, want %v", doc.Jobs["preview"].Permissions, want)
	}
	c, host := newHosted(t, githosttest.GitHub)
	c.agent(adds)
	c.download()
	run := func(job string) string {
		t.Helper()
		var scripts []string
		with := map[string]string{}
		for _, s := range doc.Jobs[job].Steps {
			if _, version, _ := strings.Cut(s.Uses, "@"); s.Uses != "" && (len(version) != 40 || s.With["fetch-depth"] != 0) {
				t.Errorf("%s: %s is not pinned by hash, or clones without its history", job, s.Uses)
			}
			if s.Run != "" {
				scripts = append(scripts, s.Run)
			}
			for name, value := range s.Env {
				if value != "${{ github.token }}" || name != "GITHUB_TOKEN" {
					t.Errorf("%s gives %s: %s", job, name, value)
				}
				with[name] = host.Token().Reveal()
			}
		}
		delete(c.env, "GITHUB_TOKEN") // a step has it only where the file says so
		out, err := c.steps(with, scripts...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	for name, value := range doc.Env {
		if _, known := c.env[name]; value != "${{ vars."+name+" }}" || !known {
			t.Errorf("env has %s: %s", name, value)
		}
	}
	c.pull()
	has(t, "preview", run("preview"), "1 workspace: 1 planned")
	if got := host.Comments("acme/infra", 1); len(got) != 1 || !strings.Contains(got[0].Text, "1 planned") {
		t.Errorf("got %+v", got)
	}
	before := c.git("rev-parse", "main")
	c.git("checkout", "--quiet", "main")
	c.git("merge", "--quiet", "--no-ff", "--message", "merge", "topic")
	host.Merge("acme/infra", 1, c.git("rev-parse", "HEAD"))
	c.push(before)
	has(t, "apply", run("apply"), "1 workspace: 1 applied")
	if got := host.Statuses("acme/infra", c.git("rev-parse", "HEAD")); len(got) != 1 || got[0].State != "success" {
		t.Errorf("got %+v", got)
	}
}

// The scripts of the example for GitLab CI do the same.
func TestExamples_GitLabCI(t *testing.T) {
	type job struct {
		Extends      string
		Variables    map[string]string
		IDTokens     map[string]struct{ Aud string } `yaml:"id_tokens"`
		BeforeScript []string                        `yaml:"before_script"`
		Script       []string
	}
	doc := example[struct {
		Dayfly         job `yaml:".dayfly"`
		Preview, Apply job
	}](t, "gitlab-ci.yml")
	if doc.Dayfly.Variables["GIT_DEPTH"] != "0" || doc.Dayfly.IDTokens["DAYFLY_ID_TOKEN"].Aud != api.OrganizationPrefix+"default" {
		t.Errorf("got %+v", doc.Dayfly)
	}
	c, host := newHosted(t, githosttest.GitLab)
	c.agent(adds)
	c.download()
	run := func(j job) string {
		t.Helper()
		if j.Extends != ".dayfly" {
			t.Errorf("it extends %q", j.Extends)
		}
		out, err := c.steps(nil, strings.Join(slices.Concat(doc.Dayfly.BeforeScript, j.Script), "\n"))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	c.onGitLab(host, "merge_request_event", map[string]any{"ref": "topic", "ref_type": "branch", "ref_protected": "false"})
	has(t, "preview", run(doc.Preview), "1 workspace: 1 planned")
	head := c.git("rev-parse", "topic")
	if got := host.Comments("acme/infra", 1); len(got) != 1 || !strings.Contains(got[0].Text, head[:12]) {
		t.Errorf("got %+v", got)
	}
	if got := host.Statuses("acme/infra", head); len(got) != 1 || got[0].State != "success" || got[0].Context != "dayfly" {
		t.Errorf("got %+v", got)
	}
	for name := range maps.Clone(c.env) {
		if strings.HasPrefix(name, "CI_MERGE_REQUEST_") {
			delete(c.env, name)
		}
	}
	before := c.git("rev-parse", "main")
	c.onGitLab(host, "push", map[string]any{"ref": "main", "ref_type": "branch", "ref_protected": "true"})
	c.env["CI_COMMIT_BEFORE_SHA"] = before
	has(t, "apply", run(doc.Apply), "1 workspace: 1 applied")
}
