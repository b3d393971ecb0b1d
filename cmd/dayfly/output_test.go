package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

func TestOutput_YAMLHasTheFieldsOfJSONInTheirOrder(t *testing.T) {
	for _, text := range []string{
		`{"z":"a","a":[{"m":1,"f":1.5,"t":true,"none":null}],"empty":[],"nothing":{}}`,
		`{"looks":"true","number":"0123","date":"2026-01-01","old":"yes","lines":"a\nb\n","colon":"a: b","tag":"!x","ctl":"\u001b[1m\u2028"}`,
		`[]`,
		`["one","2","- x"]`,
	} {
		var b bytes.Buffer
		a := &cli.App{Stdout: &b, Output: "yaml"}
		if err := a.Encode(json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := yaml.Unmarshal(b.Bytes(), &got); err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if strings.HasPrefix(text, `{"z"`) && !strings.HasPrefix(b.String(), "z: a\na:\n  - m: 1\n    f: 1.5\n") {
			t.Errorf("got\n%s", b.String())
		}
	}
}

func TestOutput_NamesAreWhatOtherCommandsTake(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	w.workspace("two")
	id := strings.TrimSpace(w.ok("run", "one"))
	w.ok("project", "create", "payments")
	w.ok("token", "create", "ci")
	token := value[[]struct{ ID string }](w, "token", "list")[0].ID
	for want, args := range map[string][]string{
		"one\ntwo\n":         {"workspace", "list"},
		"one\n":              {"workspace", "show", "one"},
		id + "\n":            {"workflow", "list"},
		id + "\n\n":          {"why", id},
		"default\n":          {"pool", "list"},
		"global\npayments\n": {"project", "list"},
		"default\n\n":        {"pool", "explain", "one"},
	} {
		if got := w.ok(append(args, "-o", "name")...); got != strings.TrimSpace(want)+"\n" {
			t.Errorf("%v: got %q, want %q", args, got, want)
		}
	}
	if got := w.ok("token", "list", "-o", "name"); !strings.Contains(got, token+"\n") {
		t.Errorf("got %q, want the id %s", got, token)
	}
}

// A token that is created and not printed is lost.
func TestOutput_RefusesAnUnsupportedFormatFirst(t *testing.T) {
	w := newWorld(t)
	for says, args := range map[string][]string{
		"-o name: dayfly pool create prints no list of names":        {"pool", "create", "build", "-o", "name"},
		"-o yaml: dayfly workflow logs prints a line for each entry": {"workflow", "logs", "x", "-o", "yaml"},
		"-o yaml: dayfly audit list prints a line for each entry":    {"audit", "-f", "-o", "yaml"},
		"-o json: dayfly up has only one form of output":             {"up", "-o", "json"},
		"-o json: dayfly server serve has only one form of output":   {"server", "-o", "json"},
	} {
		if got := w.run(args...); got.code != cli.ExitUsage || !strings.Contains(got.stderr, says) {
			t.Errorf("%v: got %+v, want exit 64 and %q", args, got, says)
		}
	}
	if got := w.ok("pool", "list", "-o", "name"); got != "default\n" {
		t.Errorf("got pools %q", got)
	}
}

func TestWorkflowList_IsNarrowedByOperationAndTime(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	preview := strings.TrimSpace(w.ok("run", "one"))
	update := strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
	for want, args := range map[string][]string{
		update + "\n" + preview + "\n": {"--since", "2h"},
		update + "\n":                  {"--op", "update", "--since", time.Now().Add(-48 * time.Hour).Format(time.DateOnly)},
		"":                             {"--since", time.Now().Add(time.Hour).Format(time.RFC3339)},
	} {
		if got := w.ok(append([]string{"workflow", "list", "-o", "name"}, args...)...); got != want {
			t.Errorf("%v: got %q, want %q", args, got, want)
		}
	}
	has(t, "none", w.ok("workflow", "list", "--op", "destroy"), "no such workflows")
}
