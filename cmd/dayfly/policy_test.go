package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestPolicy_GroupsAndWaivers(t *testing.T) {
	w := newWorld(t)
	w.workspace("network")
	until := time.Now().AddDate(0, 1, 0).Format(time.DateOnly)
	w.ok("apply", "-f", w.put("kind: policy_group\nname: buckets\nenforcement: waivable\nworkspaces: [network]\nsource: {git: {url: https://github.com/example/policies, ref: v1}}\n"))
	has(t, "groups", w.ok("policy", "list"), "buckets", "waivable", "network", "https://github.com/example/policies", "active")
	has(t, "group", w.ok("policy", "show", "buckets"), "enforcement     waivable", "workspaces      network", "edited by       admin")

	waiver := w.put("kind: waiver\nname: logs\ngroup: buckets\nrule: main.deny\nworkspace: network\nreason: it moves\nuntil: " + until + "\n")
	w.ok("apply", "-f", waiver)
	has(t, "again", w.ok("apply", "-f", waiver), "is unchanged")
	has(t, "waivers", w.ok("waiver", "list"), "logs", "buckets", "main.deny", until, "admin", "it moves")
	has(t, "waiver", w.ok("waiver", "show", "logs"), "given by        admin", "reason          it moves")
	if got := value[api.Waiver](w, "waiver", "show", "logs"); got.Address != "" || got.GivenBy != "admin" {
		t.Errorf("got %+v", got)
	}

	if got := w.run("policy", "delete", "buckets", "--yes"); got.code != cli.ExitRefused {
		t.Errorf("a group with a waiver: got %+v", got)
	} else {
		has(t, "refused", got.stderr, "logs")
	}
	w.ok("waiver", "delete", "logs", "--yes")
	w.ok("policy", "delete", "buckets", "--yes")
	has(t, "none", w.ok("policy", "list")+w.ok("waiver", "list"), "no policy groups", "no waivers")
}

func TestPolicyTest_RunsTheProgram(t *testing.T) {
	w := newWorld(t)
	t.Setenv("PATH", t.TempDir())
	if got := w.run("policy", "test", "rules"); got.code != cli.ExitFailed {
		t.Errorf("without the program: got %+v", got)
	} else {
		has(t, "missing", got.stderr, "dayfly-policy is neither beside this program nor in PATH")
	}

	// It gets its arguments and nothing of the environment, and its exit code is the command's.
	bin := t.TempDir()
	script := "#!/bin/sh\necho \"[\\\"$*\\\", \\\"$SECRET\\\"]\"\necho why >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(bin, api.PolicyProgram), []byte(script), 0o700); err != nil { // #nosec G306 -- it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("SECRET", "hidden")
	got := w.run("policy", "test", "rules", "--plan", "plan.json")
	if want := (answer{3, "[\"test --plan=plan.json -- rules\", \"\"]\n", "why\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = w.run("policy", "test", "rules", "-o", "yaml")
	if want := (answer{3, "- test --output=json -- rules\n- \"\"\n", "why\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
