package policy_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/cmd/dayfly-policy/internal/policy"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// Whatever a package and an input are, the answer is one that a runner can read and the control plane takes.
func FuzzEvaluate(f *testing.F) {
	for _, s := range []struct{ rego, data, input string }{
		{"package main\n\ndeny contains msg if { some r in input.r; msg := {\"msg\": r.m, \"address\": r.a} }\n", "a: [1]", `{"r": [{"m": "x", "a": "y"}]}`},
		{"package main\n\nwarn contains sprintf(\"%v %s\", [data, input]) if data.a\n", `{"a": {"b": "\ud800"}}`, `{"x": 1e999}`},
		{"package main\n\ndeny[msg] { msg := \"old\" }\n", "- a", `[]`},
		{"package main\n\nviolation := data.a\n", "a: !!binary x\n---\n", `{"": null}`},
		{"package main\n\ndeny contains x if x := input[_][_]\n", "&a [*a]", `{"a": {"b": "\u0000"}}`},
	} {
		f.Add([]byte(s.rego), []byte(s.data), []byte(s.input))
	}
	f.Fuzz(func(t *testing.T, rego, data, input []byte) {
		dir := write(t, map[string]string{"main.rego": string(rego), "data.yaml": string(data)})
		got, err := policy.Evaluate(t.Context(), dir, input, time.Second)
		if err != nil {
			return
		}
		checkAnswer(t, got)
	})
}

func checkAnswer(t *testing.T, got api.PackageAnswer) {
	t.Helper()
	if got.Rules == 0 && got.Error == "" {
		t.Error("no rule was evaluated, and there is no error")
	}
	if len(got.Findings) > policy.MaxFindings || len(got.Error) > 1000 || !utf8.ValidString(got.Error) {
		t.Errorf("%d findings, the error %q", len(got.Findings), got.Error)
	}
	for _, f := range got.Findings {
		if f.Message == "" || len(f.Message) > 1000 || len(f.Address) > 1000 || len(f.Rule) > 255 || !utf8.ValidString(f.Message+f.Address+f.Rule) {
			t.Errorf("got %+v", f)
		}
	}
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var again api.PackageAnswer
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
}

func FuzzReadQuery(f *testing.F) {
	for _, s := range []string{`{"input": {"a": 1}, "packages": [{"name": "a", "directory": "/nowhere"}]}`, `{"input": null}`, `{"packages": {}}`, `{"input": 1}{}`, "\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := policy.ReadQuery(bytes.NewReader(raw))
		if err != nil {
			return
		}
		for i := range q.Packages {
			q.Packages[i].Directory = "/dev/null" // the names of directories are the runner's own
		}
		got, err := policy.Answer(t.Context(), q, time.Second)
		if err != nil {
			return
		}
		if len(got.Packages) != len(q.Packages) {
			t.Errorf("%d packages, %d answers", len(q.Packages), len(got.Packages))
		}
		for i, a := range got.Packages {
			if a.Name != q.Packages[i].Name || a.Error == "" {
				t.Errorf("got %+v", a)
			}
		}
	})
}
