package ci

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/pipeline"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// chosen are the workspaces that the job is about, by name, each with its changed files.
func (c *Command) chosen(a *cli.App, cl *client.Client, job pipeline.Job, git pipeline.Git) ([]pullrequest.Workspace, error) {
	there, _, err := cli.Gather(a, cli.Everything, cl.Workspaces)
	if err != nil {
		return nil, err
	}
	host, path, _ := pullrequest.Repository(job.Repository)
	all := pullrequest.Of(there, host, path, job.Branch)
	for _, name := range c.Workspace {
		if !slices.ContainsFunc(all, func(w api.Workspace) bool { return w.Name == name }) {
			return nil, cli.Refused(fmt.Errorf("--workspace: %s is not among the workspaces of %s/%s that pull requests preview", name, host, path))
		}
	}
	if len(all) == 0 {
		a.Say("no workspace has its code in %s/%s: its source.git.url names another repository, or pull_requests is disabled", host, path)
	}
	if len(c.Workspace) > 0 {
		all = slices.DeleteFunc(all, func(w api.Workspace) bool { return !slices.Contains(c.Workspace, w.Name) })
	}

	slices.SortFunc(all, func(x, y api.Workspace) int { return strings.Compare(x.Name, y.Name) })
	s := ciChoice{a: a, of: c, job: job, git: git, host: host, path: path, changed: map[comparison][]string{}, orders: map[string]pipeline.Order{}}
	for _, w := range all {
		if err := s.consider(w); err != nil {
			return nil, err
		}
	}
	if len(s.never) > 0 {
		a.Say("compared with %s, the commit before this push, because no push was applied to them yet: %s", pullrequest.Short(job.Base), text.Some(s.never, 10))
	}
	if len(s.older) > 0 {
		return nil, cli.Refused(errors.Join(s.older...))
	}
	return s.chosen, nil
}

// ciChoice decides which workspaces the job is about. A host may cancel the job of a push, or run it after that of a
// later one. So the work of --apply does not follow from the push alone, but from the commit that was applied last to
// each workspace.
type ciChoice struct {
	a          *cli.App
	of         *Command
	job        pipeline.Job
	git        pipeline.Git
	host, path string                    // of the repository
	changed    map[comparison][]string   // files
	orders     map[string]pipeline.Order // of the commits that were applied last

	chosen []pullrequest.Workspace
	never  []string // workspaces that no commit of a push was applied to
	older  []error  // why the job must not be applied
}

// comparison is the base of the job's commit: a commit, or with fork the point where its branch forked from that
// one's.
type comparison struct {
	base string
	fork bool
}

// consider adds a workspace if the job is about it.
func (s *ciChoice) consider(w api.Workspace) error {
	// The changes of a pull request are those of its branch alone; those of a push, all differences between its two
	// ends.
	fork := s.job.PullRequest() || s.of.Base != "" || s.job.Host == ""
	if !s.of.Apply {
		return s.take(w, s.job.Base, fork, nil)
	}
	last := w.Applied
	if last == nil || last.Repository != s.host+"/"+s.path {
		switch {
		case s.of.All || s.of.Base != "":
		case s.job.Base == "":
			return cli.Usage(fmt.Errorf("the base of this commit is not known for %s, to which no push was applied: give --base COMMIT, or --all for all workspaces of the repository", w.Name))
		default:
			s.never = append(s.never, w.Name)
		}
		return s.take(w, s.job.Base, fork, nil)
	}

	order, known := s.orders[last.Commit]
	if !known {
		var err error
		if order, err = s.git.Order(s.a.Ctx, last.Commit, s.job.Head); err != nil {
			return &cli.ExitError{Code: cli.ExitFailed, Err: err}
		}
		s.orders[last.Commit] = order
	}
	then := func(one *pullrequest.Workspace) error { return s.judge(one, *last, order) }
	switch {
	case s.of.Base != "":
		return s.take(w, s.job.Base, fork, then)
	case order == pipeline.Unknown && !s.of.All:
		s.chosen = append(s.chosen, pullrequest.Workspace{Workspace: w, Why: fmt.Sprintf(
			"%s, which was applied last, is neither in this clone nor at its remote, as after a force push: all of it is applied; to apply only the differences, fetch that commit first", pullrequest.Short(last.Commit))})
		return nil
	}
	return s.take(w, last.Commit, false, then)
}

// take chooses a workspace whose code differs between base and the job's commit, or any where all are wanted. then is
// called with each.
func (s *ciChoice) take(w api.Workspace, base string, fork bool, then func(*pullrequest.Workspace) error) error {
	taken := []pullrequest.Workspace{{Workspace: w}}
	if !s.of.All {
		with := comparison{base, fork}
		files, known := s.changed[with]
		if !known {
			var err error
			if files, err = s.git.Changed(s.a.Ctx, base, s.job.Head, fork); err != nil {
				return &cli.ExitError{Code: cli.ExitFailed, Err: err}
			}
			s.changed[with] = files
		}
		taken = pullrequest.Affected([]api.Workspace{w}, s.host, s.path, s.job.Branch, files)
	}
	for i := range taken {
		if then != nil {
			if err := then(&taken[i]); err != nil {
				return err
			}
		}
	}
	s.chosen = append(s.chosen, taken...)
	return nil
}

// judge notes which changes are applied to a workspace beside those of the push, or why nothing may be applied.
func (s *ciChoice) judge(one *pullrequest.Workspace, last api.AppliedCommit, order pipeline.Order) error {
	was, now := pullrequest.Short(last.Commit), pullrequest.Short(s.job.Head)
	also := func(format string, args ...any) {
		one.Why = strings.TrimPrefix(one.Why+"; "+fmt.Sprintf(format, args...), "; ")
	}
	switch {
	case order == pipeline.After && s.of.Older:
		also("applies %s, which is older than %s, applied last", now, was)
	case order == pipeline.After:
		s.older = append(s.older, fmt.Errorf("%s: commit %s of this job is older than %s, which %s applied last, so nothing is submitted: run the job of the branch's newest commit, or give --older if %s is meant",
			one.Name, now, was, last.Workflow, now))
	case order == pipeline.Apart && s.of.Base == "" && !s.of.All:
		also("compared with %s, applied last, which is not in the history of %s, as after a force push", was, now)
	case order == pipeline.Before && s.job.Base != last.Commit && len(one.Files) > 0:
		missed, err := s.git.Missed(s.a.Ctx, last.Commit, s.job.Base, s.job.Head, one.Files)
		if err != nil {
			return &cli.ExitError{Code: cli.ExitFailed, Err: err}
		}
		for i := range missed {
			missed[i] = pullrequest.Short(missed[i])
		}
		if len(missed) > 0 {
			also("also applies the changes of %s, which were not applied", text.Some(missed, 5))
		}
	}
	return nil
}
