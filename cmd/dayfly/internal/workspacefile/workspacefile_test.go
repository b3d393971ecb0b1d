package workspacefile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const full = `
name: network
description: the network
engine: tofu
engine_version: ~> 1.10
source:
  git:
    url: https://example.com/infra.git
    ref: v1.2.3
    path: network
    token_ref: file:git-token
state: {kind: s3, bucket: states, region: eu-west-1}
variables:
  cidr: 10.0.0.0/16
  zones: [a, b]
  count: 3
  ratio: 0.5
  day: 2026-01-02
  public: false
  tags: {team: core}
  none: null
environment: &env
  LANG: C
secrets:
  - {env: TOKEN, ref: file:token}
  - {file: key.pem, ref: env:KEY}
pool: trusted
size: medium
max_runtime: 30m
max_active: 2
default_priority: -5
approval: {required: true, not_by_submitter: false, after_merge: true, expires: 24h, rules: [destroys, changes > 5]}
---
name: second
engine: command
commands: {update: make apply}
environment: *env
source: {directory: code}
---
name: third
engine: terraform
---
`

func TestParse_EveryFieldIsPassedOn(t *testing.T) {
	got, err := workspacefile.Parse("w.yaml", "/base", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := []api.Workspace{
		{
			Name: "network", Description: "the network", RunSettings: api.RunSettings{
				Engine: "tofu", EngineVersion: "~> 1.10",
				Source:      api.Source{Git: &api.GitSource{URL: "https://example.com/infra.git", Ref: "v1.2.3", Path: "network", TokenRef: "file:git-token"}},
				Variables:   map[string]any{"cidr": "10.0.0.0/16", "zones": []any{"a", "b"}, "count": 3, "ratio": 0.5, "day": "2026-01-02", "public": false, "tags": map[string]any{"team": "core"}, "none": nil},
				Environment: map[string]string{"LANG": "C"},
				Secrets:     []api.Secret{{Env: "TOKEN", Ref: "file:token"}, {File: "key.pem", Ref: "env:KEY"}},
			},
			State: &api.State{Kind: "s3", Bucket: "states", Region: "eu-west-1"},
			Pool:  "trusted", Size: "medium", MaxRuntime: "30m", MaxActive: 2, DefaultPriority: -5,
			Approval: &api.Approval{Required: true, AfterMerge: true, Expires: "24h", Rules: []string{"destroys", "changes > 5"}},
		},
		{
			Name: "second", RunSettings: api.RunSettings{
				Engine: "command", Commands: map[string]string{"update": "make apply"},
				Environment: map[string]string{"LANG": "C"}, Source: api.Source{Directory: "/base/code"},
			},
		},
		{Name: "third", RunSettings: api.RunSettings{Engine: "terraform", Source: api.Source{Directory: "/base"}}},
	}
	numbers := cmp.FilterValues(func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }, cmp.Ignore())
	if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool {
		return strings.Contains(p.String(), "Variables") && len(p) > 3
	}, numbers)); diff != "" {
		t.Errorf("workspaces (-want +got):\n%s", diff)
	}
}

func TestParse_EveryMistakeIsSaidWithItsLine(t *testing.T) {
	_, err := workspacefile.Parse("w.yaml", "/base", []byte(strings.Join([]string{
		"name: 5",                                // 1
		"engin: tofu",                            // 2
		"hooks: []",                              // 3
		"stack: dev",                             // 4
		"source: {directory: [x]}",               // 5
		"environment: {PORT: 80}",                // 6
		"environment: {}",                        // 7
		"max_active: many",                       // 8
		"secrets: {a: b}",                        // 9
		"version: 3",                             // 10
		"variables: {x: .inf, y: !!binary aGk=}", // 11
		"approval: {required: yes}",              // 12
		"engine: terrafrom",                      // 13
		"state: {kind: bucket}",                  // 14
	}, "\n")))
	wrong, ok := errors.AsType[workflow.Mistakes](err)
	if !ok || !errors.Is(err, workflow.ErrInvalid) {
		t.Fatalf("got %v, want mistakes that are ErrInvalid", err)
	}
	var got []string
	for _, m := range wrong {
		head, _, _ := strings.Cut(m, " has name, project, ")
		got = append(got, head)
	}
	want := []string{
		`w.yaml:1: name: want a string: put "5" into quotes`,
		"w.yaml:2: engin: unknown field: did you mean engine?",
		"w.yaml:5: source.directory: want a string",
		`w.yaml:6: environment.PORT: want a string: put "80" into quotes`,
		"w.yaml:7: environment: is given twice",
		"w.yaml:8: max_active: want a whole number",
		"w.yaml:9: secrets: want a list",
		"w.yaml:10: version: unknown field: without a line such as kind: schedule this is a workspace, which",
		`w.yaml:11: variables.x: ".inf" cannot be written as JSON`,
		`w.yaml:11: variables.y: want plain values, not "!!binary"`,
		"w.yaml:12: approval.required: want true or false",
		`w.yaml:13: engine: "terrafrom" is unknown: did you mean terraform?`,
		`w.yaml:14: state.kind: "bucket" is unknown: want source, directory, s3`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}

// A number that YAML reads as another one than is written is refused: the code would get the other one.
func TestParse_ANumberStaysWhatItIs(t *testing.T) {
	parse := func(number string) ([]api.Workspace, error) {
		return workspacefile.Parse("w.yaml", "/base", []byte("name: net\nvariables: {list: [{n: "+number+"}]}\n"))
	}
	for _, number := range []string{"020222070707", "08989", "1.10", "1.0", "0x1f", "0o17", "1_000", "+5", "1e3", "12345678901234567890123", "0.1234567890123456789012345", "-0"} {
		if _, err := parse(number); err == nil || !strings.Contains(err.Error(), "w.yaml:2: variables.list[0].n: the number \""+number+"\" would become ") {
			t.Errorf("%s: got %v", number, err)
		}
		if list, err := parse(`"` + number + `"`); err != nil || !reflect.DeepEqual(list[0].Variables["list"], []any{map[string]any{"n": number}}) {
			t.Errorf("%s in quotes: got %+v, %v", number, list, err)
		}
	}
	for _, number := range []string{"0", "5", "-7", "1.5", "0.1", "9007199254740993", "-9223372036854775808"} {
		list, err := parse(number)
		if err != nil || !reflect.DeepEqual(list[0].Variables["list"], []any{map[string]any{"n": json.Number(number)}}) {
			t.Errorf("%s: got %+v, %v", number, list, err)
		}
	}
}

func TestParse_ADocumentCannotGrowWithoutEnd(t *testing.T) {
	var b strings.Builder
	b.WriteString("name: x\nengine: tofu\nvariables:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	_, err := workspacefile.Parse("w.yaml", "/base", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestParse_NoWorkspaceIsAMistake(t *testing.T) {
	for _, text := range []string{"", "---\n", "# nothing\n", "- a\n", "x", "name: [", "a: &x {b: *x}"} {
		if got, err := workspacefile.Parse("w.yaml", "/base", []byte(text)); err == nil {
			t.Errorf("%q: got %v, want a refusal", text, got)
		}
	}
}

func TestRead_ADirectoryIsRelativeToTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, workspacefile.Name)
	if err := os.WriteFile(path, []byte("name: x\nengine: tofu\nsource: {directory: ../y}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := workspacefile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(dir), "y"); got[0].Source.Directory != want {
		t.Errorf("got %s, want %s", got[0].Source.Directory, want)
	}
	if _, err := workspacefile.Read(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want one that says that the file is not there", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("? {a: b}\n: c\n<<: {name: x}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := workspacefile.Parse("w.yaml", "/base", data)
		if (err == nil) != (len(list) > 0) {
			t.Errorf("got %d workspaces and %v", len(list), err)
		}
		for _, w := range list {
			if w.Source.Git == nil && !filepath.IsAbs(w.Source.Directory) {
				t.Errorf("got source %+v, want an absolute directory", w.Source)
			}
		}
	})
}
