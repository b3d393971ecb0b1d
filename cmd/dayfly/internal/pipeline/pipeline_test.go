package pipeline_test

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/pipeline"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

var (
	one, two, three = strings.Repeat("1", 40), strings.Repeat("2", 40), strings.Repeat("3", 40)
	none            = strings.Repeat("0", 40)
)

// onGitHub is the environment of a job there, with changes.
func onGitHub(with map[string]string) func(string) string {
	env := map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "Example/infra", "GITHUB_SHA": two, "GITHUB_SERVER_URL": "https://github.com", "GITHUB_EVENT_NAME": "pull_request",
		"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "dayfly", "GITHUB_TOKEN": "ghs_x", "GITHUB_EVENT_PATH": "/event.json",
	}
	return over(env, with)
}

func onGitLab(with map[string]string) func(string) string {
	env := map[string]string{
		"GITLAB_CI": "true", "CI_PROJECT_PATH": "group/sub/infra", "CI_SERVER_URL": "https://gitlab.example.com",
		"CI_COMMIT_SHA": two, "CI_COMMIT_BEFORE_SHA": none, "CI_JOB_ID": "11", "CI_JOB_URL": "https://gitlab.example.com/j/11",
		"DAYFLY_ID_TOKEN": "eyJ", "DAYFLY_GITLAB_TOKEN": "glpat-x",
	}
	return over(env, with)
}

func over(env, with map[string]string) func(string) string {
	for name, value := range with {
		env[name] = value
	}
	return func(name string) string { return env[name] }
}

// shown is a job as a test compares it, with its secrets.
type shown struct {
	Job                      pipeline.Job
	Token, IDToken, TokenKey string
}

func show(j pipeline.Job) shown {
	s := shown{Token: j.Token.Reveal(), IDToken: j.IDToken.Reveal(), TokenKey: j.TokenKey.Reveal()}
	j.Token, j.IDToken, j.TokenKey = redact.String{}, redact.String{}, redact.String{}
	s.Job = j
	return s
}

func TestRead_TakesWhatEachHostSays(t *testing.T) {
	pull := `{"action": "synchronize", "number": 17, "pull_request": {"number": 17, "base": {"sha": "` + one + `"},
		"head": {"sha": "` + three + `", "repo": {"full_name": "example/Infra"}}}}`
	hub := pipeline.Job{
		Host: pipeline.GitHub, Path: "Example/infra", Repository: "https://github.com/Example/infra", Server: "https://github.com", Commit: two, Head: two,
		Try: "7/2/dayfly", Page: "https://github.com/Example/infra/actions/runs/7",
	}
	lab := pipeline.Job{
		Host: pipeline.GitLab, Path: "group/sub/infra", Repository: "https://gitlab.example.com/group/sub/infra", Server: "https://gitlab.example.com", Commit: two, Head: two,
		Try: "11", Page: "https://gitlab.example.com/j/11",
	}
	with := func(j pipeline.Job, change func(*pipeline.Job)) pipeline.Job {
		change(&j)
		return j
	}
	request := map[string]string{
		"CI_MERGE_REQUEST_IID": "3", "CI_MERGE_REQUEST_DIFF_BASE_SHA": one,
		"CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "group/sub/infra", "CI_MERGE_REQUEST_PROJECT_PATH": "group/sub/infra",
	}
	for _, c := range []struct {
		name  string
		env   func(string) string
		event string
		want  shown
	}{
		{"a pull request on GitHub", onGitHub(map[string]string{"ACTIONS_ID_TOKEN_REQUEST_URL": "https://x/?a=b", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "key"}), pull,
			shown{Token: "ghs_x", TokenKey: "key", Job: with(hub, func(j *pipeline.Job) { j.Number, j.Base, j.Head, j.TokenURL = 17, one, three, "https://x/?a=b" })}},
		{"one of a fork", onGitHub(nil), strings.ReplaceAll(pull, "example/Infra", "stranger/infra"),
			shown{Token: "ghs_x", Job: with(hub, func(j *pipeline.Job) { j.Number, j.Base, j.Head, j.Fork = 17, one, three, true })}},
		{"one of a fork that is gone", onGitHub(nil), strings.ReplaceAll(pull, `{"full_name": "example/Infra"}`, "null"),
			shown{Token: "ghs_x", Job: with(hub, func(j *pipeline.Job) { j.Number, j.Base, j.Head, j.Fork = 17, one, three, true })}},
		{"a push on GitHub", onGitHub(map[string]string{"GITHUB_STEP_SUMMARY": "/summary"}), `{"before": "` + one + `", "after": "` + two + `"}`,
			shown{Token: "ghs_x", Job: with(hub, func(j *pipeline.Job) { j.Base, j.Summary = one, "/summary" })}},
		{"a new branch on GitHub", onGitHub(nil), `{"before": "` + none + `"}`, shown{Token: "ghs_x", Job: hub}},
		{"a merge queue on GitHub", onGitHub(map[string]string{"GITHUB_EVENT_NAME": "merge_group", "GITHUB_REF_TYPE": "branch", "GITHUB_REF_NAME": "gh-readonly-queue/main/pr-7"}),
			`{"action": "checks_requested", "merge_group": {"head_sha": "` + two + `", "base_sha": "` + one + `", "base_ref": "refs/heads/main"}}`,
			shown{Token: "ghs_x", Job: with(hub, func(j *pipeline.Job) { j.Base, j.Branch = one, "main" })}},
		{"a schedule on GitHub", onGitHub(nil), `{"schedule": "0 3 * * *"}`, shown{Token: "ghs_x", Job: hub}},
		{"a merge request on GitLab", onGitLab(request), "",
			shown{Token: "glpat-x", IDToken: "eyJ", Job: with(lab, func(j *pipeline.Job) { j.Number, j.Base = 3, one })}},
		{"a merged result on GitLab", onGitLab(func() map[string]string {
			with := map[string]string{"CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": three, "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "stranger/infra"}
			for name, value := range request {
				if with[name] == "" {
					with[name] = value
				}
			}
			return with
		}()), "", shown{Token: "glpat-x", IDToken: "eyJ", Job: with(lab, func(j *pipeline.Job) { j.Number, j.Base, j.Head, j.Fork = 3, one, three, true })}},
		{"a push on GitLab", onGitLab(map[string]string{"CI_COMMIT_BEFORE_SHA": one}), "",
			shown{Token: "glpat-x", IDToken: "eyJ", Job: with(lab, func(j *pipeline.Job) { j.Base = one })}},
		{"a first push on GitLab", onGitLab(nil), "", shown{Token: "glpat-x", IDToken: "eyJ", Job: lab}},
		{"neither", over(map[string]string{"DAYFLY_ID_TOKEN": "eyJ"}, nil), "", shown{IDToken: "eyJ"}},
	} {
		got, err := pipeline.Read(c.env, func(string) ([]byte, error) { return []byte(c.event), nil })
		if diff := cmp.Diff(c.want, show(got), cmp.AllowUnexported(redact.String{})); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
}

func TestRead_RefusesWhatNoHostSays(t *testing.T) {
	for name, c := range map[string]struct {
		env   func(string) string
		event string
		want  string
	}{
		"no repository":      {onGitHub(map[string]string{"GITHUB_REPOSITORY": ""}), "{}", "GITHUB_REPOSITORY and GITHUB_SHA"},
		"no commit":          {onGitHub(map[string]string{"GITHUB_SHA": "main"}), "{}", "40 hexadecimal digits"},
		"a base with a flag": {onGitHub(nil), `{"before": "--output=/etc/passwd"}`, "the base of the change"},
		"no base":            {onGitHub(nil), `{"pull_request": {"number": 1, "head": {"sha": "` + two + `"}}}`, "does not say which pull request"},
		"a bad head":         {onGitHub(nil), `{"pull_request": {"number": 1, "head": {"sha": "x"}}}`, "the head of the pull request"},
		"the base's rights":  {onGitHub(map[string]string{"GITHUB_EVENT_NAME": "pull_request_target"}), "{}", "use on: pull_request"},
		"no event":           {onGitHub(nil), "nothing", "is not an event"},
		"a bad number":       {onGitLab(map[string]string{"CI_MERGE_REQUEST_IID": "-1"}), "", "CI_MERGE_REQUEST_IID"},
	} {
		_, err := pipeline.Read(c.env, func(string) ([]byte, error) { return []byte(c.event), nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	_, err := pipeline.Read(onGitHub(nil), func(string) ([]byte, error) { return nil, fs.ErrNotExist })
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an event that is not there: got %v", err)
	}
}

func FuzzRead_EventsAreRefusedOrNameCommits(f *testing.F) {
	f.Add(`{"before": "` + one + `"}`)
	f.Add(`{"pull_request": {"number": 9, "base": {"sha": "` + one + `"}, "head": {"sha": "` + two + `", "repo": null}}}`)
	f.Add(`{"pull_request": null, "before": 1}`)
	f.Fuzz(func(t *testing.T, event string) {
		j, err := pipeline.Read(onGitHub(nil), func(string) ([]byte, error) { return []byte(event), nil })
		if err == nil && (len(j.Head) != 40 || j.Base != "" && len(j.Base) != 40 || j.PullRequest() && j.Base == "") {
			t.Errorf("%q: got %+v", event, j)
		}
	})
}

func TestSubject_GitHubGivesATokenForTheAudience(t *testing.T) {
	answer := `{"count": 1, "value": "eyJhbGciOi"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case r.Header.Get("Authorization") != "Bearer key" || q.Get("api-version") != "2.0" || q.Get("audience") != "urn:dayfly:org:acme":
			w.WriteHeader(http.StatusForbidden)
		case answer == "":
			http.Redirect(w, r, "https://example.com/", http.StatusFound)
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	t.Cleanup(server.Close)
	subject := func(key string) (string, error) {
		j, err := pipeline.Read(onGitHub(map[string]string{
			"ACTIONS_ID_TOKEN_REQUEST_URL": server.URL + "/token?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": key,
		}), func(string) ([]byte, error) { return []byte("{}"), nil })
		if err != nil || !j.HasToken() {
			t.Fatal(err)
		}
		token, err := j.Subject(t.Context(), "urn:dayfly:org:acme")
		return token.Reveal(), err
	}
	if got, err := subject("key"); got != "eyJhbGciOi" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := subject("wrong"); err == nil || !strings.Contains(err.Error(), "id-token: write") || strings.Contains(err.Error(), "api-version") {
		t.Errorf("refused: got %v", err)
	}
	for _, answer = range []string{"", "{}", "no", `{"value": "` + strings.Repeat("x", 65<<10) + `"}`} {
		if got, err := subject("key"); got != "" || err == nil {
			t.Errorf("%.20q: got %.20q, %v", answer, got, err)
		}
	}
	j := pipeline.Job{TokenURL: "http://example.com/"}
	if _, err := j.Subject(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("plain http: got %v", err)
	}
	if (pipeline.Job{}).HasToken() {
		t.Error("a job without a token has one")
	}
}

// clone is a repository of this test, with git's own program.
type clone struct {
	t *testing.T
	pipeline.Git
}

func newClone(t *testing.T) *clone {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not on this machine")
	}
	c := &clone{t, pipeline.Git{Dir: t.TempDir(), Environ: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=T", "GIT_COMMITTER_EMAIL=t@example.com",
	}}}
	c.git("init", "--quiet", "--initial-branch=main")
	return c
}

func (c *clone) git(args ...string) {
	c.t.Helper()
	command := exec.CommandContext(c.t.Context(), "git", args...)
	command.Dir, command.Env = c.Dir, c.Environ
	if out, err := command.CombinedOutput(); err != nil {
		c.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// commit writes files and returns the commit that has them.
func (c *clone) commit(files ...string) string {
	c.t.Helper()
	for _, name := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(c.Dir, name)), 0o755), os.WriteFile(filepath.Join(c.Dir, name), []byte(name+"\n"), 0o600)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.git("add", "--all")
	c.git("commit", "--quiet", "--allow-empty", "--message", "change")
	hash, err := c.Commit(c.t.Context(), "HEAD")
	if err != nil || len(hash) != 40 {
		c.t.Fatal(hash, err)
	}
	return hash
}

func TestChanged_ListsWhatAPullRequestChanges(t *testing.T) {
	c := newClone(t)
	base := c.commit("a/main.tf", "b/old.tf")
	c.git("checkout", "--quiet", "-b", "topic")
	c.git("mv", "b/old.tf", "b/new \"é.tf")
	head := c.commit("c/main.tf")
	c.git("checkout", "--quiet", "main")
	later := c.commit("d/main.tf")

	want := []string{"b/new \"é.tf", "b/old.tf", "c/main.tf"}
	for _, from := range []string{base, later, "main"} {
		got, err := c.Changed(t.Context(), from, head, true)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("from %s: %v (-want +got):\n%s", from, err, diff)
		}
	}
	got, err := c.Changed(t.Context(), later, head, false)
	if diff := cmp.Diff(append(want, "d/main.tf"), got); diff != "" || err != nil {
		t.Errorf("of a push: %v (-want +got):\n%s", err, diff)
	}
	if got, err := c.Changed(t.Context(), head, head, true); len(got) != 0 || err != nil {
		t.Errorf("of nothing: got %q, %v", got, err)
	}
	if _, err := c.Changed(t.Context(), one, head, true); err == nil || !strings.Contains(err.Error(), "the clone lacks "+one) {
		t.Errorf("a commit that is not there: got %v", err)
	}
	if _, err := c.Changed(t.Context(), "--output=x", head, true); err == nil || !strings.Contains(err.Error(), "is not a revision") {
		t.Errorf("a flag: got %v", err)
	}
	elsewhere := pipeline.Git{Dir: t.TempDir(), Environ: c.Environ}
	if _, err := elsewhere.Changed(t.Context(), base, head, true); err == nil || !strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("no clone: got %v", err)
	}
}

func TestOrder_TakesNoFlagForACommit(t *testing.T) {
	c := newClone(t)
	if got, err := c.Order(t.Context(), "--upload-pack=x", c.commit("a")); got != "" || err == nil || !strings.Contains(err.Error(), "is not a commit") {
		t.Errorf("got %q, %v", got, err)
	}
	elsewhere := pipeline.Git{Dir: t.TempDir(), Environ: c.Environ}
	if _, err := elsewhere.Order(t.Context(), one, two); err == nil || !strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("no clone: got %v", err)
	}
}

func TestChanged_AShallowCloneIsToldHowToBeWhole(t *testing.T) {
	from := newClone(t)
	base := from.commit("a")
	from.git("checkout", "--quiet", "-b", "topic")
	from.commit("b")
	head := from.commit("c")
	from.git("checkout", "--quiet", "main")
	later := from.commit("d")

	shallow := pipeline.Git{Dir: filepath.Join(t.TempDir(), "clone"), Environ: from.Environ}
	from.git("clone", "--quiet", "--depth=1", "--no-single-branch", "file://"+from.Dir, shallow.Dir)
	for _, b := range []string{base, later} { // the one is not there, the other has no ancestors
		if _, err := shallow.Changed(t.Context(), b, head, true); err == nil || !strings.Contains(err.Error(), "fetch-depth: 0") || !strings.Contains(err.Error(), "GIT_DEPTH: 0") {
			t.Errorf("got %v", err)
		}
	}
	if got, err := shallow.Changed(t.Context(), later, head, false); err != nil || len(got) != 3 {
		t.Errorf("both commits are there: got %q, %v", got, err)
	}
	if got, err := shallow.Remote(t.Context()); err != nil || got != "file://"+from.Dir {
		t.Errorf("got remote %q, %v", got, err)
	}
}
