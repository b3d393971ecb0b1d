// Package pipeline describes the job of a team's own pipeline: its repository and commit, its pull request, the
// changed files, and the token with which it proves that to others. The author of the pipeline controls everything
// that it reads, so no rights of the job depend on it.
package pipeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/redact"
)

// The hosts whose pipelines are known.
const (
	GitHub = "github"
	GitLab = "gitlab"
)

// Variables that a team sets in its own pipeline, because GitLab predefines none for these tokens.
const (
	EnvIDToken     = "DAYFLY_ID_TOKEN"     //nolint:gosec // the name of a variable
	EnvGitLabToken = "DAYFLY_GITLAB_TOKEN" //nolint:gosec // as above
)

// Job describes the job as far as the environment does. Everything but Commit may be missing where no host is known.
type Job struct {
	Host       string // GitHub or GitLab; empty: neither
	Repository string // address, such as https://github.com/example/infra
	Server     string // address of the host, such as https://github.com
	Path       string // of the repository at its host, as the host writes it
	Commit     string // that the job is of, and that runs
	Head       string // the commit whose status people look at: of a pull request the last of its branch, else Commit
	Base       string // the commit that it is compared with; empty: not known, such as for a new branch
	Branch     string // that a pull request is for, or that was pushed to; empty: not known
	Number     int    // of the pull request; 0: it is of none
	Fork       bool   // whether the pull request comes from another repository
	Try        string // names the run of the pipeline and its attempt
	Page       string // address of the run's page
	Summary    string // file that the host shows as the run's summary; empty: it has none

	Token redact.String // for the host's API; empty: there is none

	// IDToken is the job's OIDC token. Where it is empty, one is requested from GitHub with TokenURL and TokenKey; where
	// they are empty too, the job has none.
	IDToken  redact.String
	TokenURL string
	TokenKey redact.String
}

// PullRequest reports whether the job is of a pull request.
func (j Job) PullRequest() bool { return j.Number != 0 }

// Read reads the environment. event returns the content of the file in which GitHub describes the event. The names
// are those of GitHub's "Variables reference" and of GitLab's "Predefined CI/CD variables reference".
func Read(getenv func(string) string, event func(path string) ([]byte, error)) (Job, error) {
	switch {
	case getenv("GITHUB_ACTIONS") == "true":
		return github(getenv, event)
	case getenv("GITLAB_CI") == "true":
		return gitlab(getenv)
	}
	return Job{IDToken: redact.New(getenv(EnvIDToken))}, nil
}

// payload has the fields of GitHub's description of an event that are read.
type payload struct {
	Before      string `json:"before"` // of a push
	PullRequest *struct {
		Number int `json:"number"`
		Base   struct {
			SHA string `json:"sha"`
		} `json:"base"`
		Head struct {
			SHA  string `json:"sha"`
			Repo *struct {
				FullName string `json:"full_name"`
			} `json:"repo"` // null where the fork is gone
		} `json:"head"`
	} `json:"pull_request"`
	MergeGroup *struct { // of a merge queue: the commits to be merged, on a branch of their own
		BaseSHA string `json:"base_sha"`
		BaseRef string `json:"base_ref"`
	} `json:"merge_group"`
}

func github(getenv func(string) string, event func(string) ([]byte, error)) (Job, error) {
	if getenv("GITHUB_EVENT_NAME") == "pull_request_target" {
		return Job{}, errors.New("on: pull_request_target runs with the rights of the branch that the pull request is to be merged into, at its commit: use on: pull_request")
	}
	server, path := cmp.Or(getenv("GITHUB_SERVER_URL"), "https://github.com"), getenv("GITHUB_REPOSITORY")
	j := Job{
		Host: GitHub, Path: path, Repository: server + "/" + path, Server: server,
		Commit: getenv("GITHUB_SHA"), Head: getenv("GITHUB_SHA"), Branch: getenv("GITHUB_BASE_REF"),
		Try:     getenv("GITHUB_RUN_ID") + "/" + getenv("GITHUB_RUN_ATTEMPT") + "/" + getenv("GITHUB_JOB"),
		Page:    server + "/" + path + "/actions/runs/" + getenv("GITHUB_RUN_ID"),
		Summary: getenv("GITHUB_STEP_SUMMARY"), Token: redact.New(getenv("GITHUB_TOKEN")),
		TokenURL: getenv("ACTIONS_ID_TOKEN_REQUEST_URL"), TokenKey: redact.New(getenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN")),
	}
	if j.Branch == "" && getenv("GITHUB_REF_TYPE") == "branch" {
		j.Branch = getenv("GITHUB_REF_NAME")
	}
	if file := getenv("GITHUB_EVENT_PATH"); file != "" {
		text, err := event(file)
		if err != nil {
			return Job{}, fmt.Errorf("GITHUB_EVENT_PATH: %w", err)
		}
		if err := j.readEvent(text); err != nil {
			return Job{}, err
		}
	}
	return j.checked("GITHUB_REPOSITORY and GITHUB_SHA")
}

// readEvent sets the fields that GitHub's description of the event has.
func (j *Job) readEvent(event []byte) error {
	var p payload
	if err := json.Unmarshal(event, &p); err != nil {
		return fmt.Errorf("GITHUB_EVENT_PATH: the file is not an event: %w", err)
	}
	switch pull := p.PullRequest; {
	case pull != nil:
		j.Number, j.Base, j.Head = pull.Number, pull.Base.SHA, pull.Head.SHA
		j.Fork = pull.Head.Repo == nil || !strings.EqualFold(pull.Head.Repo.FullName, j.Path)
	case p.MergeGroup != nil:
		j.Base, j.Branch = p.MergeGroup.BaseSHA, strings.TrimPrefix(p.MergeGroup.BaseRef, "refs/heads/")
	case known(p.Before):
		j.Base = p.Before
	}
	return nil
}

func gitlab(getenv func(string) string) (Job, error) {
	server, path := cmp.Or(getenv("CI_SERVER_URL"), "https://gitlab.com"), getenv("CI_PROJECT_PATH")
	j := Job{
		Host: GitLab, Path: path, Repository: server + "/" + path, Server: server,
		Commit: getenv("CI_COMMIT_SHA"), Head: getenv("CI_COMMIT_SHA"), Branch: cmp.Or(getenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME"), getenv("CI_COMMIT_BRANCH")),
		Try:   getenv("CI_JOB_ID"), // a job that is repeated has another one
		Page:  cmp.Or(getenv("CI_JOB_URL"), getenv("CI_PIPELINE_URL")),
		Token: redact.New(getenv(EnvGitLabToken)), IDToken: redact.New(getenv(EnvIDToken)),
	}
	if number := getenv("CI_MERGE_REQUEST_IID"); number != "" {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return Job{}, fmt.Errorf("CI_MERGE_REQUEST_IID: want a number above 0, not %q", number)
		}
		j.Number, j.Base = n, getenv("CI_MERGE_REQUEST_DIFF_BASE_SHA")
		// Set where the pipeline is of the merged result, which only it has.
		j.Head = cmp.Or(getenv("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"), j.Commit)
		source, target := getenv("CI_MERGE_REQUEST_SOURCE_PROJECT_PATH"), getenv("CI_MERGE_REQUEST_PROJECT_PATH")
		j.Fork = source != target
	} else if before := getenv("CI_COMMIT_BEFORE_SHA"); known(before) {
		j.Base = before
	}
	return j.checked("CI_PROJECT_PATH and CI_COMMIT_SHA")
}

var (
	commitForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{40}$`) })
	noCommit   = strings.Repeat("0", 40) // stands for none
)

func known(commit string) bool { return commit != "" && commit != noCommit }

// checked refuses values that no host sets.
func (j Job) checked(names string) (Job, error) {
	switch {
	case j.Path == "" || !commitForm().MatchString(j.Commit):
		return Job{}, fmt.Errorf("%s: want a repository and a commit of 40 hexadecimal digits, not %q and %q", names, j.Path, j.Commit)
	case !commitForm().MatchString(j.Head):
		return Job{}, fmt.Errorf("the head of the pull request is %q; want 40 hexadecimal digits", j.Head)
	case j.Base != "" && !commitForm().MatchString(j.Base):
		return Job{}, fmt.Errorf("the base of the change is %q; want 40 hexadecimal digits", j.Base)
	case j.Number < 0 || j.Number > 0 && j.Base == "":
		return Job{}, errors.New("the host does not say which pull request this is, or what its base is")
	}
	return j, nil
}
