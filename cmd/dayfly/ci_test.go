package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// ciWorld is an organization that trusts the pipelines of repository acme/infra at a git host, and a clone of it. The
// workspaces network and dns have their code there.
type ciWorld struct {
	*world
	host   string // the git host's address
	clone  string
	issuer *provider.Provider
	admin  controlplane.Principal

	outcome func(api.Spec) api.Result // of runs, in newApplied

	mu     sync.Mutex
	claims map[string]any // of the job's token
}

// newCI makes the world of a job of GitHub Actions, whose host is at an address.
func newCI(t *testing.T, host string) *ciWorld {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not on this machine")
	}
	w, is, admin := newLoginWorld(t)
	c := &ciWorld{world: w, host: host, issuer: is, admin: admin, clone: t.TempDir()}
	_, _, err := w.plane.Issuers.Put(t.Context(), admin, api.Issuer{
		Name: "acme", URL: is.URL, Pipelines: &api.Pipelines{Kind: api.PipelinesGitHub, Host: strings.TrimPrefix(host, "http://")},
		Rules: []api.TrustRule{{Claims: map[string]string{"repository": "acme/infra"}, Becomes: api.KindService, Role: api.RoleOperator}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"network", "dns"} {
		_, _, err := w.plane.PutWorkspace(t.Context(), admin, api.Workspace{
			Name: name, RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Git: &api.GitSource{URL: host + "/acme/infra.git", Path: "live/" + name, Ref: "main"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	tokens := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer job-key" {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		c.mu.Lock()
		with := maps.Clone(c.claims)
		c.mu.Unlock()
		with["aud"] = r.URL.Query().Get("audience")
		_ = json.NewEncoder(rw).Encode(map[string]string{"value": is.Token("RS256", with)})
	}))
	t.Cleanup(tokens.Close)
	maps.Copy(w.env, map[string]string{
		"PATH": os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM": "1", "DAYFLY_URL": w.url,
		"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "acme/infra", "GITHUB_SERVER_URL": host, "GITHUB_RUN_ID": "1", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_JOB": "dayfly",
		"GITHUB_EVENT_PATH": filepath.Join(t.TempDir(), "event.json"), "GITHUB_STEP_SUMMARY": filepath.Join(t.TempDir(), "summary.md"),
		"ACTIONS_ID_TOKEN_REQUEST_URL": tokens.URL + "/?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "job-key",
	})
	c.git("init", "--quiet", "--initial-branch=main")
	c.commit("live/network/main.tf", "live/dns/main.tf", "README.md")
	t.Chdir(c.clone)
	return c
}

func (c *ciWorld) git(args ...string) string {
	c.t.Helper()
	command := exec.CommandContext(c.t.Context(), "git", args...)
	command.Dir = c.clone
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.env["HOME"], "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.com",
	}
	out, err := command.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit changes files and returns the commit that has them.
func (c *ciWorld) commit(files ...string) string {
	c.t.Helper()
	for _, name := range files {
		f := filepath.Join(c.clone, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, []byte(time.Now().String()), 0o600)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.git("add", "--all")
	c.git("commit", "--quiet", "--message", "change")
	return c.git("rev-parse", "HEAD")
}

// job puts the job of an event of a commit into the environment, with GitHub's description of it in the file and the
// token. Each is a new run of the pipeline.
func (c *ciWorld) job(event any, commit string, claims map[string]any) {
	c.t.Helper()
	text, err := json.Marshal(event)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(c.env["GITHUB_EVENT_PATH"], text, 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.env["GITHUB_SHA"], c.env["GITHUB_RUN_ID"] = commit, c.env["GITHUB_RUN_ID"]+"1"
	with := map[string]any{
		"sub": "repo:acme/infra", "email": nil, "repository": "acme/infra", "repository_id": "74", "actor": "ada", "actor_id": "1001", "sha": commit,
	}
	maps.Copy(with, claims)
	c.mu.Lock()
	c.claims = with
	c.mu.Unlock()
}

// pull is the job of pull request 1, whose branch is topic: GitHub tries to merge it first.
func (c *ciWorld) pull() (head string) {
	c.t.Helper()
	head, base := c.git("rev-parse", "topic"), c.git("rev-parse", "main")
	c.git("checkout", "--quiet", "--detach", "main")
	c.git("merge", "--quiet", "--no-ff", "--message", "merge", head)
	event := fmt.Sprintf(`{"pull_request": {"number": 1, "base": {"sha": %q}, "head": {"sha": %q, "repo": {"full_name": "acme/infra"}}}}`, base, head)
	c.env["GITHUB_EVENT_NAME"] = "pull_request"
	c.job(json.RawMessage(event), c.git("rev-parse", "HEAD"), map[string]any{"event_name": "pull_request", "ref": "refs/pull/1/merge", "ref_protected": "false"})
	return head
}

// push is the job of a push to main.
func (c *ciWorld) push(before string) {
	c.t.Helper()
	c.env["GITHUB_EVENT_NAME"] = "push"
	c.job(map[string]string{"before": before}, c.git("rev-parse", "HEAD"), map[string]any{"event_name": "push", "ref": "refs/heads/main", "ref_protected": "true"})
}

// adds is the outcome of runs that add something.
func adds(api.Spec) api.Result {
	return api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 1, Resources: []api.ResourceChange{{Address: "net.main", Action: "create"}}}}
}

func (c *ciWorld) summary() string {
	c.t.Helper()
	text, err := os.ReadFile(c.env["GITHUB_STEP_SUMMARY"])
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	return string(text)
}

func TestCI_PreviewsTheWorkspacesThatAreAffected(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.agent(adds)
	c.git("checkout", "--quiet", "-b", "topic")
	c.commit("live/network/main.tf")
	c.pull()
	merge := c.git("rev-parse", "HEAD")
	got := c.run("ci")
	if got.code != cli.ExitOK {
		t.Fatalf("got %+v", got)
	}
	has(t, "ci", got.stdout, "1 workspace: 1 planned", "| `network` | 1 | 0 | 0 | 0 |", "net.main")
	has(t, "ci", got.stderr, "network: live/network/main.tf is below live/network", "GITHUB_TOKEN is not set")
	has(t, "summary", c.summary(), "1 workspace: 1 planned")
	if strings.Contains(got.stdout+got.stderr, "dfu_") || strings.Contains(got.stdout+got.stderr, "eyJ") {
		t.Errorf("a token shows: %+v", got)
	}
	list, err := c.plane.Workflows(t.Context(), c.admin, runs.Filter{Limit: 10})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(list, err)
	}
	if tr := list.Items[0].Trigger; tr == nil || tr.Kind != api.TriggerPullRequest || tr.Number != 1 || tr.Commit != merge {
		t.Errorf("the run is of %+v, want pull request 1 at %s", tr, merge)
	}

	if again := c.run("ci", "--detailed-exitcode", "-o", "json"); again.code != cli.ExitDiffers || !strings.Contains(again.stdout, list.Items[0].ID) {
		t.Errorf("the same try makes another run, or has no changes: %+v", again)
	}
	c.env["GITHUB_RUN_ATTEMPT"] = "2"
	if again := c.run("ci", "-o", "json"); again.code != cli.ExitOK || strings.Contains(again.stdout, list.Items[0].ID) {
		t.Errorf("another try makes no run: %+v", again)
	}
	if got := c.run("ci", "--all", "--workspace", "dns", "-o", "name"); got.code != cli.ExitUsage {
		t.Errorf("-o name: %+v", got)
	}
	has(t, "all but one", c.ok("ci", "--all", "--workspace", "dns"), "1 workspace: 1 planned", "`dns`")
	if got := c.run("ci", "--apply"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "protected branch") {
		t.Errorf("--apply in a pull request: %+v", got)
	}
}

func TestCI_NothingIsAffected(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.git("checkout", "--quiet", "-b", "topic")
	c.commit("README.md")
	c.pull()
	for _, args := range [][]string{{"ci"}, {"ci", "--detailed-exitcode"}} {
		got := c.run(args...)
		if got.code != cli.ExitOK || !strings.Contains(got.stdout, "the change concerns no workspace") || !strings.Contains(got.stderr, "nothing is affected") {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	if got := c.run("ci", "--workspace", "other"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "other is not among") {
		t.Errorf("a workspace of another repository: %+v", got)
	}
}

func TestCI_AFailedPreviewFailsTheJobAndHidesDetails(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.agent(func(spec api.Spec) api.Result {
		if spec.Workspace == "dns" {
			return api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "the password hunter2 is wrong"}
		}
		return adds(spec)
	})
	c.git("checkout", "--quiet", "-b", "topic")
	c.commit("live/network/main.tf", "live/dns/main.tf")
	c.pull()
	for _, args := range [][]string{{"ci"}, {"ci", "--detailed-exitcode"}} {
		got := c.run(args...)
		if got.code != cli.ExitFailed || strings.Contains(got.stdout+got.stderr, "hunter2") {
			t.Errorf("%v: got %+v", args, got)
		}
		has(t, "stdout", got.stdout, "2 workspaces: 1 failed, 1 planned", "step failed")
		has(t, "stderr", got.stderr, "failed: dns")
	}
}

func TestCI_AShallowCloneIsToldSo(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.git("checkout", "--quiet", "-b", "topic")
	c.commit("live/network/main.tf")
	c.pull()
	shallow := filepath.Join(t.TempDir(), "clone")
	c.git("clone", "--quiet", "--depth=1", "file://"+c.clone, shallow)
	t.Chdir(shallow)
	got := c.run("ci")
	if got.code != cli.ExitFailed || !strings.Contains(got.stderr, "fetch-depth: 0") {
		t.Errorf("got %+v", got)
	}
}

func TestCI_WhatTheControlPlaneRefuses(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.git("checkout", "--quiet", "-b", "topic")
	c.commit("live/network/main.tf")
	c.pull()

	c.claims["repository"] = "stranger/infra"
	if got := c.run("ci"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "no rule of issuer acme") {
		t.Errorf("the token of another repository: %+v", got)
	}
	c.claims["exp"] = 1
	if got := c.run("ci"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "does not accept the job's OIDC token") {
		t.Errorf("an old token: %+v", got)
	}
	delete(c.claims, "exp")
	c.claims["repository"] = "acme/infra"
	c.claims["sha"] = strings.Repeat("1", 40)
	if got := c.run("ci"); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "submits runs of that one only") || !strings.Contains(got.stdout, "1 not previewed") {
		t.Errorf("the token of another commit: %+v", got)
	}
	c.env["ACTIONS_ID_TOKEN_REQUEST_TOKEN"] = "wrong"
	if got := c.run("ci"); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "id-token: write") {
		t.Errorf("no token is given: %+v", got)
	}
	delete(c.env, "ACTIONS_ID_TOKEN_REQUEST_URL")
	if got := c.run("ci"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "the job has no OIDC token") {
		t.Errorf("no token: %+v", got)
	}
	event, err := os.ReadFile(c.env["GITHUB_EVENT_PATH"])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.env["GITHUB_EVENT_PATH"], []byte(strings.ReplaceAll(string(event), "acme/infra", "stranger/infra")), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.run("ci"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "comes from a fork") {
		t.Errorf("a fork: %+v", got)
	}
	for _, args := range [][]string{{"--timeout", "0s"}, {"--name", "a b"}, {"--repository", "/srv/git"}} {
		if got := c.run(append([]string{"ci"}, args...)...); got.code != cli.ExitUsage {
			t.Errorf("%v: got %+v", args, got)
		}
	}
}

func TestCI_APushToAProtectedBranchApplies(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.agent(adds)
	before := c.git("rev-parse", "HEAD")
	c.commit("live/dns/main.tf")
	c.push(before)
	got := c.run("ci", "--apply", "--detailed-exitcode")
	if got.code != cli.ExitDiffers {
		t.Fatalf("got %+v", got)
	}
	has(t, "apply", got.stdout, "1 workspace: 1 applied")
	list, err := c.plane.Workflows(t.Context(), c.admin, runs.Filter{Limit: 10})
	if err != nil || len(list.Items) != 1 || list.Items[0].Operation != workflow.Update || list.Items[0].Trigger.Kind != api.TriggerPush {
		t.Errorf("got %+v, %v", list.Items, err)
	}
	c.push(strings.Repeat("0", 40))
	if got := c.run("ci", "--apply"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--all") {
		t.Errorf("a new branch: %+v", got)
	}
	c.claims["ref_protected"] = "false"
	if got := c.run("ci", "--apply", "--all"); got.code != cli.ExitFailed || !strings.Contains(got.stderr, "its ref refs/heads/main is not protected") {
		t.Errorf("a branch that is not protected: %+v", got)
	}
}

func TestCI_OutsideOfAPipelineFlagsSayWhatAHostWould(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.agent(adds)
	delete(c.env, "GITHUB_ACTIONS")
	if got := c.run("ci", "--base", "main"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "no OIDC token") && !strings.Contains(got.stderr, "--repository") {
		t.Errorf("without a remote: %+v", got)
	}
	c.git("remote", "add", "origin", c.host+"/acme/infra.git")
	c.git("checkout", "--quiet", "-b", "topic")
	c.commit("live/network/main.tf")
	token, err := c.plane.CreateToken(t.Context(), c.admin, api.NewToken{Name: "me", Role: api.RoleOperator})
	if err != nil {
		t.Fatal(err)
	}
	c.env["DAYFLY_API_TOKEN"] = token.Value
	has(t, "ci", c.ok("ci", "--base", "main"), "1 workspace: 1 planned", "`network`")
	if got := c.run("ci"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--base") {
		t.Errorf("without a base: %+v", got)
	}
}

func TestCI_AnInterruptCancelsWhatItSubmitted(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.git("checkout", "--quiet", "-b", "topic")
	c.commit("live/network/main.tf", "live/dns/main.tf")
	c.pull()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stdout lockedBuffer
	stderr := lockedBuffer{written: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- command(ctx, []string{"ci"}, func(name string) string { return c.env[name] }, strings.NewReader(""), &stdout, &stderr)
	}()
	for strings.Count(stderr.String(), " submitted ") < 2 {
		<-stderr.written
	}
	interrupt()
	if code := <-ended; code != cli.ExitInterrupted {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
	list, err := c.plane.Workflows(t.Context(), c.admin, runs.Filter{Limit: 10})
	if err != nil || len(list.Items) != 2 {
		t.Fatal(list, err)
	}
	for _, one := range list.Items {
		if one.State != workflow.Cancelled {
			t.Errorf("%s of %s is %s", one.ID, one.Workspace, one.State)
		}
	}
	if got := c.run("ci", "--timeout", "1ms", "--all", "--name", "again"); got.code != cli.ExitTimeout {
		t.Errorf("in no time: got %+v", got)
	}
}
