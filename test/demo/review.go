package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/net/webdav"
)

// approvals are plans that somebody must approve.
func (d *demo) approvals() {
	if d.engine == "" {
		return
	}
	heading("A workspace whose plans must be approved: dayfly run guarded --op update")
	dir := d.code("guarded", "resource \"terraform_data\" \"thing\" {\n}\noutput \"things\" {\n  value = 1\n}\n")
	d.apply(fmt.Sprintf("{name: guarded, engine: %s, source: {directory: %s}, approval: {required: true}}", d.engine, dir))
	first, second := d.planned("guarded"), d.planned("guarded")
	d.show("workflow", "list", "--state", "awaiting_approval")
	d.approve("What was approved is applied, and nothing else", []string{"^✓ check .*1 to add", "^  1 added", "^  things = 1$"}, first)
	heading("Another plan of the state before that is stale: dayfly workflow approve %s", second)
	d.showCode(2, "workflow", "approve", second, "--yes")
	d.says("plan_stale: .*its lineage was none.*plan again: dayfly workflow retry " + second)
	d.show("artifact", "list", first)
	d.says("^plan/bundle.tar +1 ")
	if d.target == "docker" {
		note("approvals with pulumi and terragrunt are left out: the image of container jobs has neither")
		return
	}
	d.approvedStack()
	d.approvedUnits()
}

// approvedStack is an update plan of Pulumi, with the language YAML, and no resource: each would need a provider.
func (d *demo) approvedStack() {
	heading("The same of a stack of Pulumi: dayfly run stack --op update")
	d.install("pulumi", "pulumi-language-yaml")
	set := d.command("secret", "set", "passphrase", "--data", filepath.Join(d.temp, "up"))
	set.Stdin = strings.NewReader("correct-horse-battery")
	if d.call(set) != 0 {
		die("dayfly secret set failed: %s", d.out)
	}
	d.write("code/stack/Pulumi.yaml", `name: stack
runtime: yaml
outputs: {thing: kept}
`)
	d.apply(`{name: stack, engine: pulumi, source: {directory: ` + d.dir("code/stack", 0o755) + `}, state: {kind: directory, workspace: dev},
  approval: {required: true}, secrets: [{env: PULUMI_CONFIG_PASSPHRASE, ref: "file:passphrase", preview: true}]}`)
	d.approve("The update plan of a stack is applied", []string{"^✓ apply", "^  thing = kept$"}, d.planned("stack"))
}

// approvedUnits are plans of a tree of Terragrunt, one for each unit. A server has their states.
func (d *demo) approvedUnits() {
	heading("The same of a tree of Terragrunt with two units: dayfly run units --op update")
	d.install("terragrunt")
	at := d.serve("127.0.0.1", &webdav.Handler{FileSystem: webdav.Dir(d.dir("states", 0o700)), LockSystem: webdav.NewMemLS()}, plain)
	for unit, needs := range map[string]string{"net": "", "app": "dependencies {\n  paths = [\"../net\"]\n}\n"} {
		d.write("code/units/"+unit+"/terragrunt.hcl", needs)
		d.write("code/units/"+unit+"/main.tf", fmt.Sprintf(`terraform {
  backend "http" {
    address       = "http://%s/%s"
    update_method = "PUT"
  }
}
resource "terraform_data" "thing" {
}
`, at, unit))
	}
	d.apply("{name: units, engine: terragrunt, source: {directory: " + d.dir("code/units", 0o755) + "}, approval: {required: true}}")
	d.approve("The plan of each unit is applied", []string{"^✓ check .*2 to add, in 2 units", "^✓ apply .*2 added, in 2 units"}, d.planned("units"))
}

// planned asks for an update: its preview, whose id it returns, has a plan that waits.
func (d *demo) planned(workspace string) string {
	d.showCode(7, "run", workspace, "--op", "update", "--yes")
	m := regexp.MustCompile(`(?m)^plan of (wf_[^:]*):`).FindStringSubmatch(d.out)
	if m == nil {
		die("that names no plan")
	}
	return m[1]
}

// approve approves the plan of a preview. The run that applies it must succeed and show what it must.
func (d *demo) approve(title string, wants []string, id string) {
	heading("%s: dayfly workflow approve %s", title, id)
	d.show("workflow", "approve", id, "--yes", "--comment", "as discussed")
	m := regexp.MustCompile(`(?m)^approved: (wf_[^ ]*) `).FindStringSubmatch(d.out)
	if m == nil {
		die("that names no run")
	}
	d.ends(title, "succeeded", wants, m[1])
}

// setRange writes the code of hub-net, whose network has that range.
func (d *demo) setRange(cidr string) string {
	return d.code("hub-net", fmt.Sprintf("resource \"terraform_data\" \"net\" {\n  input = %q\n}\noutput \"cidr\" {\n  value = terraform_data.net.output\n}\n", cidr))
}

// tree is an update of hub-net and of what depends on it.
func (d *demo) tree() {
	d.show("run", "hub-net", "--downstream", "--op", "update", "--yes", "--follow")
}

// dependencies are two workspaces, of which one takes an output of the other.
func (d *demo) dependencies() {
	if d.engine == "" {
		return
	}
	heading("Two workspaces: services takes the range that hub-net has, and runs after it")
	services := d.code("services", `variable "cidr" {
}
resource "terraform_data" "service" {
  input = "a service in ${var.cidr}"
}
output "service" {
  value = terraform_data.service.output
}
`)
	d.apply(fmt.Sprintf(`{kind: workspace, name: services, engine: %s, source: {directory: %s}, inputs: [{workspace: hub-net, output: cidr}]}
---
{kind: workspace, name: hub-net, engine: %s, source: {directory: %s}}
`, d.engine, services, d.engine, d.setRange("10.30.0.0/16")))
	d.show("graph")
	d.says("^hub-net$", "services: cidr$")
	heading("A tree: an update of hub-net, then of what depends on it")
	d.tree()
	d.says("^hub-net +succeeded", "^services +succeeded", "succeeded, 2/2 done$")
	d.show("output", "services")
	d.says("a service in 10.30.0.0/16")
	note("the same again: nothing has changed for services")
	d.tree()
	d.says("^services +skipped +its inputs did not change$")
}

// policies are one that stops an apply, and a waiver that lets it pass. They lie in the repository, where jobs of each
// deploy target reach them.
func (d *demo) policies() {
	if d.engine == "" {
		return
	}
	heading("A package of policies, with its own tests: dayfly policy test")
	d.write("git/clone/rules/ranges.rego", `package ranges

deny_public contains {"msg": "a range must be private", "address": r.address} if {
	some r in input.resource_changes
	is_string(r.change.after.input)
	not net.cidr_contains("10.0.0.0/8", r.change.after.input)
}
`)
	d.write("git/clone/rules/ranges_test.rego", `package ranges

plan(cidr) := {"resource_changes": [{"address": "n", "change": {"after": {"input": cidr}}}]}

test_public_is_denied if count(deny_public) == 1 with input as plan("198.51.100.0/24")

test_private_passes if count(deny_public) == 0 with input as plan("10.1.0.0/16")
`)
	d.show("policy", "test", d.forge.clone+"/rules")
	d.says("^2 tests: 2 passed$")
	d.push("main", "rules for ranges")
	d.apply("{kind: policy_group, name: ranges, enforcement: waivable, workspaces: [hub-net], source: " + d.forge.source("rules") + "}")
	d.show("policy", "list")
	note("somebody gives hub-net a public range")
	d.setRange("198.51.100.0/24")
	d.run("A policy stops the apply", "failed (policy_failed)", []string{"^✗ policy ", "ranges.deny_public at terraform_data.net: a range must be private"}, "hub-net", "--op", "update", "--yes")
	d.show("output", "hub-net")
	d.says("10.30.0.0/16")
	note("the admin lets it pass for a day, and says why")
	d.apply(`{kind: waiver, name: partner-net, group: ranges, rule: ranges.deny_public, workspace: hub-net, address: terraform_data.net,
  reason: "a partner needs it, see NET-7", until: ` + time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly) + `}`)
	d.show("waiver", "list")
	d.run("With a waiver it is applied, and the waiver is named", "succeeded", []string{"^✓ policy ", "ranges.deny_public at terraform_data.net: .*NET-7"}, "hub-net", "--op", "update", "--yes")
	d.show("audit", "--limit", "40")
	d.says("policy.deny", "waiver.use")
	note("the tree again: its first workspace runs, and services has a new input now")
	d.tree()
	d.says("^services +succeeded")
	d.show("output", "services")
	d.says("a service in 198.51.100.0/24")
}
