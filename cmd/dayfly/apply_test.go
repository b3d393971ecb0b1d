package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// everyKind describes things that name each other, each before those that it names.
const everyKind = `
kind: workspace
name: network
project: live
pool: trusted
engine: command
commands: {update: 'true'}
source: {directory: /src}
---
kind: project
name: live
parent: production
pool: trusted
---
kind: pool
name: trusted
concurrency: 3
labels: [gpu, arm]
assigned_workspaces: [network]
assigned_projects: [live]
---
kind: project
name: production
approval: {required: true, rules: ["changes>05"]}
---
kind: organization
default_pool: trusted
limit: 20
---
kind: issuer
name: ci
url: https://issuer.example.com
rules:
  - {claims: {sub: 12345}, becomes: service, role: viewer}
---
kind: schedule
name: nightly
cron: 0 3 * * MON-FRI
time_zone: Europe/Berlin
projects: [production]
workspaces: [network]
---
kind: notification
name: on-call
url: https://hooks.example.com/dayfly
secret_ref: file:hook
events: [stuck, failed]
projects: [production, live]
pool: trusted
---
kind: git_host
name: github
host: github
token_ref: file:github-token
pool: trusted
members:
  - {id: 583231, principal: anna, grants: {live: operator}}
`

func TestApply_CreatesReferencesAndIsIdempotent(t *testing.T) {
	w := newWorld(t)
	w.ok("principal", "create", "anna")
	file := w.put(everyKind)
	names := []string{"workspace network", "project live", "pool trusted", "project production", "organization", "issuer ci", "schedule nightly", "notification on-call", "git_host github"}
	apply := func(code int, args ...string) string {
		t.Helper()
		got := w.run(append([]string{"apply", "-f", file}, args...)...)
		if got.code != code {
			t.Fatalf("%v: got exit %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
		}
		return got.stdout
	}
	each := func(format string) (out []string) {
		for _, name := range names {
			out = append(out, fmt.Sprintf(format, name)+"\n")
		}
		return out
	}
	would := each("%s would be created")
	would[4] = "organization would be changed\n  - default_pool: \"default\"\n  + default_pool: \"trusted\"\n  - limit: 0\n  + limit: 20\n"
	has(t, "dry run", apply(cli.ExitDiffers, "--dry-run", "--detailed-exitcode"), would...)
	if there := value[[]api.Pool](w, "pool", "list"); len(there) != 1 {
		t.Fatalf("a dry run has made a pool: %+v", there)
	}
	made := each("%s is created")
	made[4] = "organization is changed\n"
	has(t, "apply", apply(cli.ExitDiffers, "--detailed-exitcode"), made...)
	has(t, "dry run again", apply(cli.ExitOK, "--dry-run", "--detailed-exitcode"), each("%s would be unchanged")...)
	has(t, "apply again", apply(cli.ExitOK, "--detailed-exitcode"), each("%s is unchanged")...)
	pool := value[api.Pool](w, "pool", "show", "trusted")
	if diff := cmp.Diff([]any{[]string{"network"}, []string{"live"}, false}, []any{pool.AssignedWorkspaces, pool.AssignedProjects, pool.AssignedToAll}); diff != "" {
		t.Errorf("the pool is assigned to (-want +got):\n%s", diff)
	}
	file = w.put("kind: pool\nname: trusted\nconcurrency: 4")
	has(t, "a pool whose document names one setting", apply(cli.ExitOK), "pool trusted is changed\n  - concurrency: 3\n  + concurrency: 4\n")
	if again := value[api.Pool](w, "pool", "show", "trusted"); len(again.AssignedProjects) != 1 {
		t.Errorf("a setting that the document does not name was changed: %+v", again)
	}
}

func TestApply_AMistakeNamesItsPlaceAndChangesNothing(t *testing.T) {
	w := newWorld(t)
	good := "kind: pool\nname: good"
	for says, doc := range map[string]string{
		":4: document 2: kind: want git_host, issuer, notification, organization, policy_group, pool, project, schedule, waiver, workspace": "kind: server\nname: x",
		":5: document 2: concurrency: want a whole number":                            "kind: pool\nconcurrency: many",
		":4: document 2: name: give the project a name":                               "kind: project\nparent: global",
		":5: document 2: token: unknown field":                                        "kind: pool\ntoken: x",
		"document 2: pool good is described in":                                       good,
		":4: document 2: project live: parent: there is no project lvie":              "kind: project\nname: live\nparent: lvie",
		":4: document 2: pool other: assigned_workspaces: there is no workspace typo": "kind: pool\nname: other\nassigned_workspaces: [typo]",
		":4: document 2: schedule x: workspaces: there is no workspace typo":          "kind: schedule\nname: x\ncron: '@daily'\nworkspaces: [typo]",
		":4: document 2: organization: default_pool: there is no pool typo":           "kind: organization\ndefault_pool: typo",
		":4: document 2: project live: approval.rules":                                "kind: project\nname: live\napproval: {required: true, rules: [sometimes]}",
		`:4: document 2: workspace one: there is no pool "typo"`:                      described("one") + "\npool: typo",
		"there is no terminal to ask on: use --yes":                                   "kind: organization\nlog_retention_days: 7",
		"describes no workspace|takeover|report|-f":                                   good,
		"not a pool: that is for dayfly apply -f|run|file":                            good,
	} {
		says, command, other := strings.Cut(says, "|")
		file := w.put(good, doc)
		args := []string{"apply", "-f", file}
		switch {
		case command == "run|file":
			args = []string{"run", w.put(good)}
		case other:
			args = append(strings.Split(command, "|"), w.put(good))
		}
		got := w.run(args...)
		if got.code != cli.ExitUsage && got.code != cli.ExitRefused || !strings.Contains(got.stderr, says) {
			t.Errorf("%q: got %+v, want it to say %q", doc, got, says)
		}
		if got := w.run("apply", "-f", file, "--detailed-exitcode"); !other && got.code != cli.ExitUsage && got.code != cli.ExitFailed {
			t.Errorf("%q with --detailed-exitcode: exit %d", doc, got.code)
		}
	}
	if there := value[[]api.Pool](w, "pool", "list"); len(there) != 1 {
		t.Errorf("something was changed: %+v", there)
	}
}

func TestApply_TakesTheFilesOfADirectoryInTheirOrder(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	for name, doc := range map[string]string{"b.yml": described("b"), "a.yaml": "kind: project\nname: a", "c.txt": "no", "below/d.yaml": described("d")} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := w.in(t.Context(), described("e"), "apply", "-f", dir, "-f", "-")
	if want := "project a is created\nworkspace b is created\nworkspace e is created\n"; got.stdout != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// pick returns one of some values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func some[T any](r *rand.Rand, of ...T) []T {
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:r.IntN(len(of)+1)]
}

var hard = []string{"", "plain", "yes", "null", "0123", "1e3", "a: b", "- x", "# no", "line\nline\n", "  in\n out", "\ttab\nline", `"quoted"`, "ü☃", "~", "2026-01-02", "trailing "}

// described makes a document of each kind with settings by chance.
func byChance(r *rand.Rand) []any {
	approval := pick(r, nil, &api.Approval{}, &api.Approval{Required: true}, &api.Approval{Required: true, NotBySubmitter: true, Expires: "24h", Rules: []string{"destroys", "changes > 5"}})
	text := func() *string { return new(pick(r, hard...)) }
	names := func() *[]string { return new(append([]string{}, some(r, "b", "a", "c")...)) }
	workspace := map[string]any{
		"kind": "workspace", "name": "one", "engine": "tofu", "description": pick(r, hard...), "source": map[string]any{"directory": "/src"},
		"variables":   map[string]any{"text": pick(r, hard...), "number": pick(r, 0, 1.5, -12, 9007199254740991), "list": []any{1, pick(r, hard...), nil, true}, "deep": map[string]any{pick(r, "a", "b c", "d.e"): map[string]any{}}},
		"environment": map[string]string{"A": pick(r, hard...)}, "max_active": r.IntN(5), "default_priority": r.IntN(200) - 100,
	}
	if r.IntN(2) == 0 {
		workspace["source"] = map[string]any{"git": map[string]any{"url": "https://example.com/x.git", "ref": pick(r, "v1.0", "123", "main"), "path": "a/b"}}
		workspace["state"] = pick(r, map[string]any{"kind": "source", "backend_config": map[string]any{"bucket": "b", "n": 5}}, map[string]any{"kind": "directory"}, map[string]any{"kind": "s3", "bucket": "states", "region": "eu-west-1"}, map[string]any{"workspace": "prod"})
		workspace["secrets"] = []api.Secret{{Env: "TOKEN", Ref: "file:token", Preview: r.IntN(2) == 0}}
		workspace["approval"] = pick(r, api.Approval{Required: true}, api.Approval{Required: true, Expires: "90m"})
		workspace["labels"] = []string{"arm"}
		workspace["max_runtime"], workspace["size"] = pick(r, "30m", "2h"), pick(r, "small", "2048/8192")
	}
	type pool struct {
		Kind string `json:"kind"`
		api.PoolSettings
	}
	type project struct {
		Kind string `json:"kind"`
		api.ProjectSettings
	}
	type organization struct {
		Kind string `json:"kind"`
		api.OrganizationSettings
	}
	type issuer struct {
		Kind string `json:"kind"`
		api.Issuer
	}
	type schedule struct {
		Kind string `json:"kind"`
		api.Schedule
	}
	type gitHost struct {
		Kind string `json:"kind"`
		api.GitHost
	}
	type notification struct {
		Kind string `json:"kind"`
		api.Notification
	}
	return []any{
		workspace,
		pool{"pool", api.PoolSettings{
			Name: new("trusted"), Description: text(), IsDisabled: new(r.IntN(2) == 0), AllowMultipleInstances: new(r.IntN(2) == 0), AssignedToAll: new(r.IntN(2) == 0),
			AssignedStacks: names(), AssignedNamespaces: names(), Labels: names(), Concurrency: new(r.IntN(9)), EnabledTypes: new(some(r, workflow.Types()...)), RolePath: new(pick(r, "", "/dayfly/trusted/")),
		}},
		project{"project", api.ProjectSettings{Name: new("live"), Description: text(), Pool: new(pick(r, "", "default")), Approval: approval}},
		project{"project", api.ProjectSettings{Name: new("global"), Description: text(), Approval: approval}},
		organization{"organization", api.OrganizationSettings{Approval: approval, Limit: new(r.IntN(9)), LogRetention: new(pick(r, 90, 180))}},
		issuer{"issuer", api.Issuer{
			Name: "ci", URL: "https://issuer.example.com", Audiences: some(r, "x", "y"), Algorithms: some(r, "RS256", "ES384"), IsDisabled: r.IntN(2) == 0,
			Pipelines: pick(r, nil, &api.Pipelines{Kind: "gitlab"}, &api.Pipelines{Kind: "github", Host: "Git.example.com"}),
			Rules:     []api.TrustRule{{Description: pick(r, hard...), Claims: map[string]string{"sub": pick(r, "123", "x*", "yes", "1.0")}, Becomes: "service", Role: "viewer"}},
		}},
		notification{"notification", api.Notification{
			Name: "on-call", Description: pick(r, hard...), URLRef: "file:hook", Format: api.FormatSlack, Events: some(r, "failed", "drift"), Projects: some(r, "live", "global"),
			Pool: pick(r, "", "trusted"), IsDisabled: r.IntN(2) == 0,
		}},
		schedule{"schedule", api.Schedule{
			Name: "nightly", Description: pick(r, hard...), Cron: pick(r, "@daily", "*/20  3 * * MON"), TimeZone: pick(r, "", "UTC", "Asia/Tokyo"), Spread: pick(r, "", "0s", "90s"),
			Workspaces: pick(r, []string{"one"}, nil), Projects: []string{"live", "global"}, Type: pick(r, "", workflow.InsightsScan, workflow.PolicyEvaluation), IsPaused: r.IntN(2) == 0,
		}},
		gitHost{"git_host", api.GitHost{
			Name: "lab", Description: pick(r, hard...), Kind: api.HostGitLab, URL: pick(r, "", "https://git.example.com/"), TokenRef: "file:git", Pool: pick(r, "", "trusted"),
			Members: []api.Member{{ID: 8, Principal: "bob", Role: pick(r, "viewer", "operator"), Grants: map[string]string{"live": "operator"}}}, IsDisabled: r.IntN(2) == 0,
		}},
	}
}

func TestApply_WhatGetPrintsIsUnchanged(t *testing.T) {
	w := newWorld(t)
	w.ok("principal", "create", "bob")
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test of many settings, the same each time
	show := [][]string{{"workspace", "get", "one"}, {"pool", "get", "trusted"}, {"project", "get", "live"}, {"project", "get", "global"}, {"organization", "get"}, {"issuer", "get", "ci"}, {"notification", "get", "on-call"}, {"schedule", "get", "nightly"}, {"git-host", "get", "lab"}}
	for range 6 {
		var given, printed []string
		for _, doc := range byChance(r) {
			data, err := json.Marshal(doc) // JSON is YAML
			if err != nil {
				t.Fatal(err)
			}
			given = append(given, string(data))
		}
		documents := strings.Join(given, "\n---\n")
		if got := w.in(t.Context(), documents, "apply", "-f", "-", "--yes"); got.code != cli.ExitOK {
			t.Fatalf("apply: %s%s of\n%s", got.stdout, got.stderr, documents)
		}
		for _, args := range show {
			text := w.ok(append(args, "-o", "yaml")...)
			if strings.Contains(text, "\nversion:") || strings.Contains(text, "\nid:") || strings.Contains(text, "created_at:") {
				t.Errorf("a document has fields that the control plane sets:\n%s", text)
			}
			printed = append(printed, text)
		}
		unchanged := func(origin, documents, mode string) {
			t.Helper()
			got := w.in(t.Context(), documents, "apply", "-f", "-", mode, "--detailed-exitcode")
			if got.code != cli.ExitOK || strings.Count(got.stdout, "unchanged\n") != len(show) {
				t.Errorf("%s of %s: got %+v\n%s", mode, origin, got, documents)
			}
		}
		unchanged("the output of get", strings.Join(printed, "\n---\n"), "--dry-run")
		unchanged("the output of get", strings.Join(printed, "\n---\n"), "--yes")
		unchanged("the documents themselves", documents, "--dry-run")
		if t.Failed() {
			return
		}
	}
}
