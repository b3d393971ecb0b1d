// Package ci has the command for pipelines: it previews the changes of a pull request and reports them there, or
// applies merged changes.
package ci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/pipeline"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Command is dayfly ci.
type Command struct {
	Apply     bool     `help:"Apply the changes instead: for a pipeline of a protected branch. Plans that must be approved wait, unless their approval carries over from the pull request."`
	Older     bool     `help:"With --apply: apply this commit although a newer one of the branch was applied."`
	All       bool     `help:"All workspaces of the repository, changed or not."`
	Workspace []string `placeholder:"NAME" help:"Only these of the workspaces; may be repeated."`

	Base       string `placeholder:"COMMIT" help:"Commit that the change is compared with; default the one that the host names."`
	Commit     string `placeholder:"COMMIT" help:"Commit that is previewed; default the one that the host names, else HEAD."`
	Repository string `placeholder:"URL" help:"Address of the repository; default the one that the host names, else that of the remote origin."`

	Organization     string        `placeholder:"NAME" help:"Organization that the job logs in to with its OIDC token; default default."`
	Name             string        `placeholder:"NAME" help:"Distinguishes comment and status from those of other dayfly ci of the same pull request."`
	NoComment        bool          `help:"Write no comment; the status is set all the same."`
	Timeout          time.Duration `default:"1h" help:"Longest wait for the runs, such as 30m; they go on after it."`
	DetailedExitcode bool          `help:"Exit with 2 where all succeeded and something changes, and with 1 where the control plane refuses."`
}

// Run previews or applies the workspaces that the job is about.
func (c *Command) Run(a *cli.App) error {
	switch {
	case c.Timeout <= 0:
		return cli.Usage(fmt.Errorf("--timeout: want a duration above 0, not %s", c.Timeout))
	case len(c.Name) > 40 || strings.ContainsFunc(c.Name, func(r rune) bool { return !plainName(r) }):
		return cli.Usage(errors.New("--name: want at most 40 characters of A-Z, a-z, 0-9, _, . and -"))
	case c.Older && !c.Apply:
		return cli.Usage(errors.New("--older: goes with --apply; a preview may be of any commit"))
	}
	return cli.Detailed(c.DetailedExitcode, c.perform(a))
}

func plainName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r)
}

func (c *Command) perform(a *cli.App) error {
	job, err := pipeline.Read(a.Getenv, os.ReadFile)
	if err != nil {
		return cli.Usage(err)
	}
	git := pipeline.Git{Environ: a.Environ()}
	if job, err = c.resolved(a.Ctx, job, git); err != nil {
		return cli.Usage(err)
	}
	cl, err := c.connect(a, job)
	if err != nil {
		return err
	}
	chosen, err := c.chosen(a, cl, job, git)
	if err != nil {
		return err
	}

	r := &ciRun{a: a, cl: cl, of: c, job: job, comment: pullrequest.Comment{
		Organization: cmp.Or(c.Organization, cli.DefaultOrganization), Key: cmp.Or(c.Name, "ci"), Commit: job.Head,
	}}
	r.host, err = hostOf(job)
	if err != nil {
		a.Say("neither comment nor status is written: %v", err)
	}
	if address, err := credentials.Address(a.Getenv); err == nil && cli.ServesPages(a.Ctx, address) {
		r.pages = address
	}
	for _, w := range chosen {
		if w.Why != "" {
			a.Say("%s: %s", w.Name, w.Why)
		}
		r.comment.Previews = append(r.comment.Previews, pullrequest.Preview{Run: api.Workflow{Workspace: w.Name}})
	}
	return r.run()
}

// resolved is the job with the values of the flags, and with full hashes of commits.
func (c *Command) resolved(ctx context.Context, job pipeline.Job, git pipeline.Git) (_ pipeline.Job, err error) {
	if c.Commit != "" || job.Host == "" {
		if job.Commit, err = git.Commit(ctx, cmp.Or(c.Commit, "HEAD")); err != nil {
			return job, err
		}
		job.Head = job.Commit
	}
	job.Base = cmp.Or(c.Base, job.Base)
	if job.Repository = cmp.Or(c.Repository, job.Repository); job.Repository == "" {
		if job.Repository, err = git.Remote(ctx); err != nil {
			return job, fmt.Errorf("%w; name the repository with --repository", err)
		}
	}
	switch _, _, ok := pullrequest.Repository(job.Repository); {
	case !ok:
		return job, fmt.Errorf("%s is not the address of a repository at a git host: name it with --repository", text.Quote(job.Repository, 200))
	case c.Apply && job.PullRequest():
		return job, errors.New("--apply: is for pipelines of a protected branch; a pull request is applied by approving the plan of its preview")
	case job.Base == "" && !c.All && !c.Apply:
		return job, errors.New("the base of this commit is not known: give --base COMMIT, or --all for all workspaces of the repository")
	}
	return job, nil
}

// connect returns a client with the token that the control plane issues in exchange for the job's own; where the job
// has none, with that of the environment.
func (c *Command) connect(a *cli.App, job pipeline.Job) (*client.Client, error) {
	if !job.HasToken() {
		cl, err := a.Connect()
		if err != nil && a.Getenv(credentials.EnvToken) == "" {
			err = fmt.Errorf("the job has no OIDC token (GitHub Actions: permissions: id-token: write; GitLab CI: id_tokens: %s); %w", pipeline.EnvIDToken, err)
			if job.Fork {
				err = cli.Refused(errors.New("this pull request comes from a fork, whose pipelines get no OIDC token: a member pushes its commit to a branch of this repository to have it previewed"))
			}
		}
		return cl, err
	}
	address, err := credentials.Address(a.Getenv)
	if err == nil {
		err = credentials.CheckURL(credentials.EnvURL, address)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	bare, err := cli.Dial(credentials.Target{URL: address})
	if err != nil {
		return nil, err
	}

	audience := api.OrganizationPrefix + cmp.Or(c.Organization, cli.DefaultOrganization)
	life := max(api.DefaultLifetime, c.Timeout+api.DefaultLifetime/4)
	source := client.NewSecret("the token for this job", nil, func(ctx context.Context) (redact.String, time.Duration, error) {
		subject, err := job.Subject(ctx, audience)
		if err != nil {
			return redact.String{}, 0, err
		}
		out, err := bare.IssueToken(ctx, api.TokenRequest{
			GrantType: api.GrantExchange, SubjectToken: subject.Reveal(), SubjectTokenType: api.TokenTypeJWT, Audience: audience, Expiration: int(life / time.Second),
		})
		if said, ok := errors.AsType[*workflow.Error](err); ok && errors.Is(said, workflow.ErrUnauthenticated) {
			err = workflow.Refuse(workflow.ErrForbidden, "", "%s does not accept the job's OIDC token: %s", address, said.Message)
		}
		return redact.New(out.AccessToken), time.Duration(out.ExpiresIn) * time.Second, err
	})
	if _, err := source.Get(a.Ctx); err != nil {
		return nil, err // later it would look like a control plane that cannot be reached
	}
	return client.New(client.Config{URL: address, Source: source, UserAgent: "dayfly/" + cli.VersionText()})
}
