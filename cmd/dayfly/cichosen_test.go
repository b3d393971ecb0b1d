package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// newApplied is the world of a protected branch whose first commit was applied to both workspaces.
func newApplied(t *testing.T) (c *ciWorld, first string) {
	t.Helper()
	c = newCI(t, "http://127.0.0.1:1")
	c.outcome = adds
	c.agent(func(spec api.Spec) api.Result { return c.outcome(spec) })
	first = c.git("rev-parse", "HEAD")
	c.push(strings.Repeat("0", 40))
	c.ok("ci", "--apply", "--all")
	c.at(map[string]string{"network": first, "dns": first})
	return c, first
}

// merge brings a change of files to main, as the merge of a pull request does.
func (c *ciWorld) merge(files ...string) string {
	c.t.Helper()
	c.git("checkout", "--quiet", "-B", "topic", "main")
	c.commit(files...)
	c.git("checkout", "--quiet", "main")
	c.git("merge", "--quiet", "--no-ff", "--message", "merge", "topic")
	return c.git("rev-parse", "HEAD")
}

// jobOf is the job of the push of a commit to main.
func (c *ciWorld) jobOf(commit, before string) {
	c.t.Helper()
	c.git("checkout", "--quiet", "--detach", commit)
	c.push(before)
	c.git("checkout", "--quiet", "main")
}

// at checks which commit was applied last to each workspace.
func (c *ciWorld) at(want map[string]string) {
	c.t.Helper()
	for name, commit := range want {
		w, err := c.plane.Workspace(c.t.Context(), c.admin, name)
		if err != nil || w.Applied == nil || w.Applied.Commit != commit {
			c.t.Errorf("%s is at %+v, want %s (%v)", name, w.Applied, commit, err)
		}
	}
}

// submitted lists the workspaces of all runs so far, the newest first.
func (c *ciWorld) submitted() (names []string) {
	c.t.Helper()
	list, err := c.plane.Workflows(c.t.Context(), c.admin, runs.Filter{Limit: 100})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, w := range list.Items {
		names = append(names, w.Workspace)
	}
	return names
}

// since runs a command and checks which workspaces got runs.
func (c *ciWorld) since(code int, want []string, args ...string) answer {
	c.t.Helper()
	before := len(c.submitted())
	got := c.run(args...)
	all := c.submitted()
	names := slices.Sorted(slices.Values(all[:len(all)-before]))
	if got.code != code || !slices.Equal(names, want) {
		c.t.Errorf("%v: exit %d, runs of %v, want %d, %v\n%s", args, got.code, names, code, want, got.stderr)
	}
	return got
}

// A host cancels the job that waits when a third one comes: GitHub keeps one pending job of a concurrency group.
func TestCIApply_ACancelledMergeIsTakenAlong(t *testing.T) {
	c, _ := newApplied(t)
	skipped := c.merge("live/network/main.tf")
	last := c.merge("live/dns/main.tf")
	c.jobOf(last, skipped)
	got := c.since(cli.ExitOK, []string{"dns", "network"}, "ci", "--apply")
	has(t, "stderr", got.stderr, "network: live/network/main.tf is below live/network; also applies the changes of "+pullrequest.Short(skipped)+", which were not applied\n")
	if strings.Count(got.stderr, "also applies") != 1 {
		t.Errorf("dns has only the changes of the push:\n%s", got.stderr)
	}
	c.at(map[string]string{"network": last, "dns": last})

	token, err := c.plane.CreateToken(t.Context(), c.admin, api.NewToken{Name: "me", Role: api.RoleViewer})
	if err != nil {
		t.Fatal(err)
	}
	c.env["DAYFLY_API_TOKEN"] = token.Value
	has(t, "show", c.ok("workspace", "show", "network"), last+" by wf_")
	if file := c.ok("workspace", "show", "network", "-o", "yaml"); strings.Contains(file, last) {
		t.Errorf("the workspace file has the applied commit:\n%s", file)
	}
}

// GitLab's resource groups have no order by default, and any host repeats the job of an older push.
func TestCIApply_AnOlderCommitIsRefusedAsAWhole(t *testing.T) {
	c, first := newApplied(t)
	older := c.merge("live/network/main.tf", "live/dns/main.tf")
	newer := c.merge("live/network/main.tf")
	c.jobOf(newer, older)
	c.since(cli.ExitOK, []string{"dns", "network"}, "ci", "--apply")
	c.jobOf(older, first)
	for _, args := range [][]string{{}, {"--all"}, {"--base", first}} {
		got := c.since(cli.ExitRefused, nil, append([]string{"ci", "--apply"}, args...)...)
		has(t, "stderr", got.stderr, "network: commit "+pullrequest.Short(older)+" of this job is older than "+pullrequest.Short(newer)+", which wf_", "nothing is submitted", "--older")
		if strings.Contains(got.stderr, "dns: commit") != (len(args) > 0) {
			t.Errorf("%v: an unchanged workspace is refused, or a chosen one is not:\n%s", args, got.stderr)
		}
	}
	c.since(cli.ExitFailed, nil, "ci", "--apply", "--detailed-exitcode")
	c.since(cli.ExitOK, nil, "ci", "--apply", "--workspace", "dns") // the newer commit changed nothing of it
	c.at(map[string]string{"network": newer, "dns": newer})
	got := c.since(cli.ExitOK, []string{"network"}, "ci", "--apply", "--older")
	has(t, "stderr", got.stderr, "applies "+pullrequest.Short(older)+", which is older than "+pullrequest.Short(newer))
	c.at(map[string]string{"network": older, "dns": newer})
	c.since(cli.ExitUsage, nil, "ci", "--older")
}

// The clone of an older job may have been made before the newer commit was pushed.
func TestCIApply_AnOldCloneIsRefused(t *testing.T) {
	c, first := newApplied(t)
	older := c.merge("live/network/main.tf")
	old := filepath.Join(t.TempDir(), "clone")
	c.git("clone", "--quiet", "file://"+c.clone, old)
	newer := c.merge("live/network/main.tf")
	c.jobOf(newer, older)
	c.since(cli.ExitOK, []string{"network"}, "ci", "--apply")
	c.jobOf(older, first)
	t.Chdir(old)
	has(t, "stderr", c.since(cli.ExitRefused, nil, "ci", "--apply").stderr, "older than "+pullrequest.Short(newer))
}

func TestCIApply_ARepeatedJobDoesWhatIsLeft(t *testing.T) {
	c, first := newApplied(t)
	fails := true
	c.outcome = func(spec api.Spec) api.Result {
		if spec.Workspace == "dns" && fails {
			return api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed}
		}
		return adds(spec)
	}
	head := c.merge("live/network/main.tf", "live/dns/main.tf")
	c.jobOf(head, first)
	c.since(cli.ExitFailed, []string{"dns", "network"}, "ci", "--apply")
	c.at(map[string]string{"network": head, "dns": first})
	fails = false
	c.env["GITHUB_RUN_ATTEMPT"] = "2"
	c.since(cli.ExitOK, []string{"dns"}, "ci", "--apply")
	has(t, "stderr", c.since(cli.ExitOK, nil, "ci", "--apply").stderr, "nothing is affected")
	c.env["GITHUB_RUN_ATTEMPT"] = "3"
	c.since(cli.ExitOK, []string{"dns", "network"}, "ci", "--apply", "--all")
	// A pipeline without a push, such as one of a schedule, knows where to begin as well.
	next := c.merge("live/dns/main.tf")
	c.jobOf(next, strings.Repeat("0", 40))
	c.since(cli.ExitOK, []string{"dns"}, "ci", "--apply")
}

func TestCIApply_AForcePushAppliesWhatDiffers(t *testing.T) {
	for name, tc := range map[string]struct {
		clone bool // a new one, which has only the present history of the branch
		gone  bool // the remote does not give the commit that was applied
		want  string
	}{
		"the clone has the commit":  {want: "network: live/network/main.tf is below live/network; compared with "},
		"the remote has the commit": {clone: true, want: "network: live/network/main.tf is below live/network; compared with "},
		"nobody has the commit":     {clone: true, gone: true, want: "is neither in this clone nor at its remote, as after a force push: all of it is applied"},
	} {
		t.Run(name, func(t *testing.T) {
			c, first := newApplied(t)
			away := c.merge("live/network/main.tf")
			c.jobOf(away, first)
			c.since(cli.ExitOK, []string{"network"}, "ci", "--apply")
			c.git("reset", "--quiet", "--hard", first)
			c.git("branch", "--quiet", "--force", "topic", first)
			now := c.merge("live/dns/main.tf")
			c.jobOf(now, away)
			if tc.clone {
				dir := filepath.Join(t.TempDir(), "clone")
				c.git("clone", "--quiet", "file://"+c.clone, dir)
				t.Chdir(dir)
			}
			if tc.gone {
				if err := os.Rename(c.clone, c.clone+"-gone"); err != nil {
					t.Fatal(err)
				}
			}
			got := c.since(cli.ExitOK, []string{"dns", "network"}, "ci", "--apply")
			has(t, "stderr", got.stderr, tc.want, pullrequest.Short(away))
			if strings.Contains(got.stderr, "also applies") {
				t.Errorf("nothing was missed:\n%s", got.stderr)
			}
			c.at(map[string]string{"network": now, "dns": now})
		})
	}
}

func TestCIApply_AShallowCloneThatDoesNotSuffice(t *testing.T) {
	c, _ := newApplied(t)
	skipped := c.merge("live/network/main.tf")
	last := c.merge("live/dns/main.tf")
	c.jobOf(last, skipped)
	clone := func(depth string) {
		dir := filepath.Join(t.TempDir(), "clone")
		c.git("clone", "--quiet", "--depth="+depth, "file://"+c.clone, dir)
		t.Chdir(dir)
	}
	clone("2")
	got := c.since(cli.ExitFailed, nil, "ci", "--apply")
	has(t, "stderr", got.stderr, "the clone is shallow and lacks ", "fetch-depth: 0", "GIT_DEPTH: 0")
	clone("3")
	has(t, "stderr", c.since(cli.ExitOK, []string{"dns", "network"}, "ci", "--apply").stderr, "also applies the changes of "+pullrequest.Short(skipped))
}

func TestCIApply_ANewWorkspaceBeginsAtThePush(t *testing.T) {
	c := newCI(t, "http://127.0.0.1:1")
	c.agent(adds)
	before := c.merge("live/network/main.tf")
	head := c.merge("live/dns/main.tf")
	c.jobOf(head, before)
	got := c.since(cli.ExitOK, []string{"dns"}, "ci", "--apply")
	has(t, "stderr", got.stderr, "compared with "+pullrequest.Short(before)+", the commit before this push", "dns, network")
	c.at(map[string]string{"dns": head})

	// A commit of another repository says nothing.
	w, err := c.plane.Workspace(t.Context(), c.admin, "dns")
	if err != nil {
		t.Fatal(err)
	}
	w.Source.Git.URL = c.host + "/acme/other.git"
	if _, _, err := c.plane.PutWorkspace(t.Context(), c.admin, w); err != nil {
		t.Fatal(err)
	}
	c.jobOf(head, head)
	c.env["GITHUB_REPOSITORY"] = "acme/other"
	has(t, "stderr", c.since(cli.ExitOK, nil, "ci", "--apply").stderr, "yet: dns\n")
}
