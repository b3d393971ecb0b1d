package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
)

func plain(l net.Listener) net.Listener { return l }

// alice does something as the one user of the issuer, with a home of her own.
func (d *demo) alice(does func()) {
	admin := d.home
	d.home = d.dir("alice", 0o700)
	does()
	d.home = admin
}

// person is somebody who logs in and may run what belongs to one project.
func (d *demo) person() {
	heading("A person logs in with that issuer")
	d.alice(func() {
		note("the issuer of this demo lets its one user in, alice of group platform, without asking")
		d.show("login", d.up.URL, "--device")
		d.show("whoami")
		d.says("^name +acme/alice@example.com$", "payments", "in projects only")
		d.show("workspace", "list")
		w := d.run("Her project: two pools may claim it, and the first one does", "succeeded", nil, "ledger", "--op", "update", "--yes")
		if !slices.Contains([]string{"second", "third"}, w.Pool) || w.SubmittedBy != "acme/alice@example.com" {
			die("pool %s ran it for %s", w.Pool, w.SubmittedBy)
		}
		d.show("workflow", "show", w.ID)
		if w := d.run("A project below hers: one pool has both labels", "succeeded", nil, "vault", "--op", "update", "--yes"); w.Pool != "third" {
			die("pool %s ran it", w.Pool)
		}
		heading("What is not hers: dayfly run command --op update --yes")
		d.showCode(2, "run", "command", "--op", "update", "--yes")
	})
	heading("What the admin sees of that: dayfly audit")
	d.show("audit", "--outcome", "refused")
	d.says("acme/alice@example.com +workflow")
	d.show("audit", "verify")
}

// push commits what there is in the clone, pushes it to a branch and returns the commit.
func (d *demo) push(branch, message string) string {
	d.repo("add", ".")
	d.repo("commit", "--quiet", "--message", message)
	d.repo("push", "--quiet", "origin", "HEAD:refs/heads/"+branch)
	return d.repo("rev-parse", "HEAD")
}

// job is dayfly ci in the clone, as a job of GitHub Actions at the commit that is checked out.
func (d *demo) job(event, description string, args ...string) {
	commit := d.repo("rev-parse", "HEAD")
	file := filepath.Join(d.forge.dir, "event.json")
	must(os.WriteFile(file, []byte(description), 0o600))
	program, err := filepath.Abs(filepath.Join(".cache", "bin", "dayfly"))
	must(err)
	c := d.command(append([]string{"ci"}, args...)...)
	c.Path, c.Dir = program, d.forge.clone
	c.Env = append([]string{"HOME=" + d.forge.dir}, append(d.env,
		"DAYFLY_URL="+d.up.URL, "GITHUB_ACTIONS=true", "GITHUB_EVENT_NAME="+event, "GITHUB_EVENT_PATH="+file, "GITHUB_REPOSITORY="+repository,
		"GITHUB_SERVER_URL="+d.forge.url, "GITHUB_SHA="+commit, "GITHUB_RUN_ID="+commit[:8], "GITHUB_RUN_ATTEMPT=1", "GITHUB_JOB=dayfly",
		"GITHUB_TOKEN="+d.forge.api.Token().Reveal(), "ACTIONS_ID_TOKEN_REQUEST_TOKEN="+d.forge.key,
		"ACTIONS_ID_TOKEN_REQUEST_URL="+d.forge.url+"/token?event="+event+"&sha="+commit)...)
	note("$ dayfly ci %s", strings.Join(args, " "))
	code := d.call(c)
	indent("      ", d.out)
	if code != 0 {
		die("that exited with %d", code)
	}
}

// pullRequest is the story of one, from its preview to the merge.
func (d *demo) pullRequest() {
	if d.engine == "" {
		return
	}
	heading("A pull request through dayfly ci, on a git server of this machine")
	d.write("git/clone/live/hub/main.tf", "output \"spokes\" {\n  value = 0\n}\n")
	base := d.push("main", "a hub without spokes")
	d.applyShown("the issuer of the pipelines' tokens; none of them is stored anywhere:", fmt.Sprintf(`kind: issuer
name: hub
url: %s
pipelines: {kind: github, host: %q}
rules:
  - {claims: {repository: %s}, becomes: service, grants: {payments: operator}}
`, d.forge.issuer.URL, d.forge.url[strings.Index(d.forge.url, "//")+2:], repository))
	d.apply("{name: hub, project: payments, engine: " + d.engine + ", approval: {required: true}, source: " + d.forge.source("live/hub") + "}")
	note("carol changes live/hub on a branch, and opens a pull request")
	d.repo("checkout", "--quiet", "-b", "spokes")
	d.write("git/clone/live/hub/main.tf", "resource \"terraform_data\" \"spoke\" {\n  input = \"10.20.0.0/16\"\n}\noutput \"spokes\" {\n  value = 1\n}\n")
	head := d.push("spokes", "a first spoke")
	d.forge.api.Open(githosttest.Pull{Repository: repository, Author: "carol", Head: head})
	d.repo("checkout", "--quiet", "--detach", base) // as the host does: the job is of the merge that it tries
	d.repo("merge", "--quiet", "--no-ff", "--message", "try", "spokes")
	d.repo("push", "--quiet", "origin", "HEAD:refs/pull/1/merge")
	d.job("pull_request", fmt.Sprintf(`{"pull_request": {"number": 1, "base": {"sha": %q}, "head": {"sha": %q, "repo": {"full_name": %q}}}}`, base, head, repository))
	d.says("^hub: live/hub/main.tf is below live/hub$", "1 waiting for approval", `\+ +add +terraform_data.spoke`)
	m := regexp.MustCompile(`(?m)^preview of hub for update submitted +(wf_[^ ]+)$`).FindStringSubmatch(d.out)
	if m == nil {
		die("that names no preview")
	}
	note("what the pull request shows then:")
	d.out = ""
	for _, c := range d.forge.api.Comments(repository, 1) {
		d.out += fmt.Sprintf("comment of %s:\n%s\n", c.Author, c.Text)
	}
	for _, s := range d.forge.api.Statuses(repository, head) {
		d.out += fmt.Sprintf("status %s: %s: %s\n", s.Context, s.State, s.Description)
	}
	indent("      ", d.out)
	d.says("^comment of dayfly-bot:$", "terraform_data.spoke", "^status dayfly: success: 1 workspace: 1 waiting for approval$")
	heading("Alice, who did not write it, approves the plan of the pull request")
	d.alice(func() {
		d.approve("What the pull request showed is applied, and nothing else", []string{"^✓ check .*1 to add", "^  1 added", "^  spokes = 1$"}, m[1])
	})
	heading("The pull request is merged: the pipeline of main finds nothing left to do")
	d.repo("checkout", "--quiet", "main")
	d.repo("merge", "--quiet", "--no-ff", "--message", "merge pull request 1", "spokes")
	d.repo("push", "--quiet", "origin", "main")
	d.forge.api.Merge(repository, 1, d.repo("rev-parse", "HEAD"))
	d.job("push", fmt.Sprintf(`{"before": %q}`, base), "--apply")
	d.says("1 without changes")
	d.show("output", "hub")
	d.says("^spokes += 1$|^spokes +1$")
}
