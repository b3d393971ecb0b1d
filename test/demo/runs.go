package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// admin is a client of the first admin.
func (d *demo) admin() *client.Client {
	cl, err := d.up.Client(d.up.Token)
	must(err)
	return cl
}

// until waits for something that others bring about.
func (d *demo) until(what string, holds func() bool) {
	for limit := time.Now().Add(3 * time.Minute); !holds(); {
		if time.Now().After(limit) {
			die("it did not come to this: %s\n%s", what, d.out)
		}
		must(wait.For(d.ctx, 100*time.Millisecond))
	}
}

// projects makes projects, pools and workspaces.
func (d *demo) projects() {
	heading("A tree of projects, and two pools with labels")
	d.show("project", "create", "payments")
	d.show("project", "create", "payments-prod", "--parent", "payments")
	pool := value[api.PoolToken](d, "pool", "create", "second", "--description", "its agent has a token", "--label", "vpc")
	note("pool second was created; its token goes to dayfly agent through the environment")
	d.agent("second", "DAYFLY_TOKEN="+pool.Token)
	d.quiet("pool", "create", "third", "--description", "its agent has no token of its own", "--label", "vpc", "--label", "audited", "--project", "payments")
	d.issuer = provider.New("ES256", "RS256")
	d.issuer.ClientID, d.issuer.Pending = "dayfly-cli", 1
	d.issuer.User = map[string]any{"sub": "alice", "email": "alice@example.com", "groups": []string{"platform"}}
	d.issuer.URL = "http://" + d.serve("127.0.0.1", d.issuer, plain)
	file := filepath.Join(d.temp, "token")
	token := d.issuer.Token("RS256", map[string]any{"sub": "agent-of-third", "aud": "urn:dayfly:org:default", "email": nil, "groups": nil})
	must(os.WriteFile(file, []byte(token), 0o600))
	d.applyShown("an issuer of tokens, and who becomes what by them:", fmt.Sprintf(`kind: issuer
name: acme
url: %s
login: {client_id: dayfly-cli}
rules:
  - {claims: {sub: agent-of-third}, becomes: pool, pool: third}
  - claims: {email: "*@example.com"}
    becomes: user
    name_claim: email
    groups_claim: groups
    groups:
      platform: {grants: {payments: operator}}
`, d.issuer.URL))
	note("the agent of pool third gets its pool token for a token of that issuer, which lies in a file")
	d.agent("third", "DAYFLY_OIDC_TOKEN_FILE="+file, "DAYFLY_ORGANIZATION_NAME=default", "DAYFLY_RUNNER_POOL_ID=third")
	d.until("three pools are healthy", func() bool { return strings.Count(d.quiet("pool", "list"), " healthy ") == 3 })
	d.show("pool", "list")

	heading("Workspaces of examples/, and two of the projects: whichever pool has their labels runs them")
	names := []string{"command", "slow"}
	if d.engine != "" {
		names = append(names, "basic", "failing-plan", "drift")
	}
	for _, name := range names {
		d.example(name)
	}
	for _, w := range []struct{ name, project, labels string }{{"ledger", "payments", "vpc"}, {"vault", "payments-prod", "vpc, audited"}} {
		d.apply(fmt.Sprintf(`{name: %s, project: %s, labels: [%s], engine: command, source: {directory: %s/command},
  commands: {update: 'echo "$DAYFLY_WORKSPACE is deployed"'}}`, w.name, w.project, w.labels, examples()))
	}
	d.show("workspace", "list")
	d.show("pool", "explain", "ledger")
	d.says("^second +yes", "^third +yes", "^default +no")
	d.show("pool", "explain", "vault")
	d.says("^second +no", "^third +yes")
}

// applyShown shows documents and applies them.
func (d *demo) applyShown(what, documents string) {
	note("%s", what)
	indent("      ", documents)
	d.apply(documents)
}

// example applies the workspace of an example: with the engine that there is, and a file that nobody else has.
func (d *demo) example(name string) {
	b, err := os.ReadFile(filepath.Join("examples", name, "workspace.yaml"))
	must(err)
	text := regexp.MustCompile(`(?m)^source: .*`).ReplaceAllString(string(b), "source: {directory: "+filepath.Join(examples(), name)+"}")
	text = regexp.MustCompile(`(?m)^engine: terraform.*`).ReplaceAllString(text, "engine: "+d.engine)
	text = strings.ReplaceAll(text, "/tmp/dayfly-drift.txt", filepath.Join(d.temp, "drift", "note.txt"))
	switch {
	case name == "command":
		text += "pool: second\n"
	case name != "slow" && d.config != "":
		text += "environment: {TF_CLI_CONFIG_FILE: " + d.config + "}\n"
	}
	d.apply(text)
}

// code writes the code of a workspace.
func (d *demo) code(name, text string) string {
	d.write(filepath.Join("code", name, "main.tf"), text)
	return filepath.Join(d.temp, "code", name)
}

// addresses are those of the resources that a run has changed, in order.
func addresses(w api.Workflow) (all []string) {
	if w.Result != nil && w.Result.Changes != nil {
		for _, r := range w.Result.Changes.Resources {
			all = append(all, r.Address)
		}
	}
	slices.Sort(all)
	return all
}

// lives are runs of workspaces from their begin to their end.
func (d *demo) lives() {
	if d.engine != "" {
		d.run("A preview: what an update would do", "succeeded", []string{"^  3 to add"}, "basic", "--op", "preview")
		made := d.run("The update: several steps, outputs, a sensitive one", "succeeded", []string{
			"^  3 added", "^✓ plan ", "^✓ apply ", "^✓ output ", "^  cidr = 10.20.0.0/16$", `^  password = \(sensitive\)$`,
		}, "basic", "--op", "update", "--yes")
		d.run("A second update: the state was kept, so its plan is empty", "succeeded", []string{"^  no changes$"}, "basic", "--op", "update", "--yes")
		gone := d.run("The destroy: exactly what was created", "succeeded", []string{"^  3 destroyed"}, "basic", "--op", "destroy", "--yes")
		if !slices.Equal(addresses(made), addresses(gone)) {
			die("%v was destroyed, and %v was created", addresses(gone), addresses(made))
		}
		d.run("One that fails in its plan, and says why", "failed (step_failed)", []string{"The environment must be dev, staging or prod"}, "failing-plan", "--op", "update", "--yes")
	}
	w := d.run("A plain command, on the second pool", "succeeded", []string{"^✓ before run: syntax ", "^  release = 1$", "^  service = web$"}, "command", "--op", "update", "--yes")
	if w.Pool != "second" {
		die("pool %s ran it", w.Pool)
	}
	d.apply(fmt.Sprintf(`{name: report, engine: command, source: {directory: %s/command},
  commands: {preview: 'mkdir $DAYFLY_ARTIFACTS/sbom && echo "{}" >$DAYFLY_ARTIFACTS/sbom/web.json'}}`, examples()))
	w = d.run("A command that leaves an artifact", "succeeded", []string{"^✓ artifacts .*1 file kept$"}, "report", "--op", "preview")
	d.show("artifact", "list", w.ID)
	d.says("^files/sbom/web.json +1 +3 ")
	file := filepath.Join(d.temp, "web.json")
	d.show("artifact", "get", w.ID, "files/sbom/web.json", "--to", file)
	if b, err := os.ReadFile(file); err != nil || string(b) != "{}\n" { //nolint:gosec // G304: our own
		die("the artifact is %q, %v", b, err)
	}

	heading("In the console, signed in with the link that dayfly up printed: dayfly run slow --op update --yes")
	d.story = d.submit("slow", "--op", "update", "--yes")
	seen, err := browse(d.ctx, d.up.Link(), d.story)
	must(err)
	d.seen = seen
	note("home and the page of the run show it: %s", d.seen)
	const at = "still at work after 2 s"
	d.ends("One that is cancelled while it runs", "cancelled", []string{at}, d.story, at)
}

// drift is what a scan finds. A schedule finds it again, see found.
func (d *demo) drift() {
	if d.engine == "" {
		return
	}
	d.run("A file that can drift", "succeeded", []string{"^  1 added"}, "drift", "--op", "update", "--yes")
	file := filepath.Join(d.temp, "drift", "note.txt")
	if _, err := os.Stat(file); err == nil { // else it ended with its container
		must(os.WriteFile(file, []byte("changed by hand\n"), 0o644)) //nolint:gosec // the engine's user reads it
	}
	note("that file is not any more what it was")
	d.run("An insights scan, which finds the drift", "succeeded", []string{"1 drifted"}, "drift", "--op", "scan")
	note("from now on a schedule scans it each minute; what it found is shown later")
	d.apply(`{kind: schedule, name: each-minute, cron: "* * * * *", spread: 0s, workspaces: [drift]}`)
}

// found is the drift that the schedule finds, and the end of the story.
func (d *demo) found() {
	if d.engine != "" {
		heading("A schedule that finds drift: dayfly schedule show each-minute")
		ended, id := regexp.MustCompile(`(?m)^drift .* (wf_[^ ]+) +succeeded `), ""
		d.until("a run of the schedule has ended", func() bool {
			m := ended.FindStringSubmatch(d.quiet("schedule", "show", "each-minute"))
			if m != nil {
				id = m[1]
			}
			return m != nil
		})
		d.show("schedule", "show", "each-minute")
		if w := d.ends("A scan that nobody asked for finds the drift", "succeeded", []string{"1 drifted"}, id); w.Trigger == nil || w.Trigger.Kind != api.TriggerSchedule {
			die("it was started by %+v", w.Trigger)
		}
		d.show("schedule", "delete", "each-minute", "--yes")
	}
	heading("All workflows: dayfly workflow list")
	d.show("workflow", "list", "-n", "50")
	heading("The story of one of them: dayfly why %s", d.story)
	d.show("why", d.story)
}

// takeOver is code that an engine ran before Dayfly did.
func (d *demo) takeOver() {
	if d.engine == "" {
		return
	}
	heading("Code that ran before: %s init and apply by hand", d.engine)
	dir := d.code("network", "resource \"terraform_data\" \"thing\" {\n  input = \"made by hand\"\n}\n")
	d.write("code/network/workspace.yaml", "engine: "+d.engine+"\nsource: {directory: .}\n")
	for _, args := range [][]string{{"init"}, {"apply", "-auto-approve"}} {
		c := exec.CommandContext(d.ctx, filepath.Join(d.temp, "engine", d.engine), append([]string{"-chdir=" + dir, args[0], "-input=false", "-no-color"}, args[1:]...)...) //nolint:gosec // the engine
		c.Env = append([]string{"HOME=" + d.home}, d.env...)
		if d.call(c) != 0 {
			die("%s %s failed: %s", d.engine, args[0], d.out)
		}
	}
	must(exec.CommandContext(d.ctx, "chmod", "-R", "a+rX", dir).Run())
	d.run("Its state lies beside it: no run begins on an empty one", "failed (state_elsewhere)", []string{"--take-over"}, dir, "--op", "preview")
	d.run("The same, taken over: there is nothing to add", "succeeded", []string{"^  no changes$"}, dir, "--op", "update", "--yes", "--take-over")
	d.run("A preview after that: the state is known", "succeeded", []string{"^  no changes$"}, dir, "--op", "preview")
}

// outcomes is the table at the end.
func (d *demo) outcomes(took time.Duration) error {
	heading("Outcomes")
	for _, line := range d.results {
		note("%s", line)
	}
	if d.engine == "" {
		note("left out, because ENGINE=none: all that needs an engine")
	}
	if d.bad > 0 {
		return fmt.Errorf("%d of %d workflows did not end as expected", d.bad, len(d.results))
	}
	note("all %d workflows ended as they must, in %s; jobs ran with deploy target %s", len(d.results), took.Round(time.Second), d.target)
	note("one of them was seen in the console, at %s", d.seen)
	return nil
}
