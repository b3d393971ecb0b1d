package rules_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestCheckApproval_NormalizesRulesAndNamesMistakes(t *testing.T) {
	for _, c := range []struct {
		in, want *api.Approval
		field    string
	}{
		{in: nil, want: nil},
		{in: &api.Approval{}, want: nil},
		{in: &api.Approval{Required: true}, want: &api.Approval{Required: true}},
		{
			in:   &api.Approval{Required: true, NotBySubmitter: true, AfterMerge: true, Expires: "90m", Rules: []string{" destroys", "changes>05 ", "changes  > 5", "replaces"}},
			want: &api.Approval{Required: true, NotBySubmitter: true, AfterMerge: true, Expires: "90m", Rules: []string{"destroys", "changes > 5", "replaces"}},
		},
		{in: &api.Approval{Required: true, Expires: "168h"}, want: &api.Approval{Required: true, Expires: "168h"}},
		{in: &api.Approval{NotBySubmitter: true}, field: "approval.required"},
		{in: &api.Approval{AfterMerge: true}, field: "approval.required"},
		{in: &api.Approval{Expires: "1h"}, field: "approval.required"},
		{in: &api.Approval{Rules: []string{"destroys"}}, field: "approval.required"},
		{in: &api.Approval{Required: true, Expires: "0s"}, field: "approval.expires"},
		{in: &api.Approval{Required: true, Expires: "-1h"}, field: "approval.expires"},
		{in: &api.Approval{Required: true, Expires: "168h1s"}, field: "approval.expires"},
		{in: &api.Approval{Required: true, Expires: "a day"}, field: "approval.expires"},
		{in: &api.Approval{Required: true, Expires: strings.Repeat("0", 50) + "h1s"}, field: "approval.expires"},
		{in: &api.Approval{Required: true, Rules: []string{"destroys", "Destroys"}}, field: "approval.rules[1]"},
		{in: &api.Approval{Required: true, Rules: []string{""}}, field: "approval.rules[0]"},
		{in: &api.Approval{Required: true, Rules: []string{"changes"}}, field: "approval.rules[0]"},
		{in: &api.Approval{Required: true, Rules: []string{"changes > -1"}}, field: "approval.rules[0]"},
		{in: &api.Approval{Required: true, Rules: []string{"changes >= 1"}}, field: "approval.rules[0]"},
		{in: &api.Approval{Required: true, Rules: []string{"changes > 1000001"}}, field: "approval.rules[0]"},
		{in: &api.Approval{Required: true, Rules: []string{"destroys > 1"}}, field: "approval.rules[0]"},
		{in: &api.Approval{Required: true, Rules: make([]string, 11)}, field: "approval.rules"},
	} {
		got, err := rules.CheckApproval("approval", c.in)
		field := ""
		if e, ok := errors.AsType[*workflow.Error](err); ok {
			field = e.Field
		}
		if field != c.field || !cmp.Equal(got, c.want) {
			t.Errorf("%+v is %+v, %v; want %+v and field %q", c.in, got, err, c.want, c.field)
		}
	}
}

func TestWants_SaysWhatForInSentences(t *testing.T) {
	level := func(of string, wants ...string) rules.Requirement {
		return rules.Requirement{Of: of, Approval: api.Approval{Required: true, Rules: wants}}
	}
	plan := func(c api.Changes) api.Result { return api.Result{Plan: &api.PlanMade{}, Changes: &c} }
	cut := plan(api.Changes{Add: 1})
	cut.Truncated = true
	strict := level("project payments", "destroys")
	strict.NotBySubmitter, strict.Expires = true, "24h"
	merge := level("the organization", "destroys")
	merge.AfterMerge = true
	long := level("the workspace")
	long.Expires = "168h"
	for name, c := range map[string]struct {
		levels  []rules.Requirement
		op      workflow.Operation
		preview api.Result
		want    rules.Wanted
	}{
		"no level": {preview: plan(api.Changes{Destroy: 1}), want: rules.Wanted{Expires: 72 * time.Hour}},
		"an empty plan": {
			levels: []rules.Requirement{long}, preview: api.Result{Plan: &api.PlanMade{Empty: true}, Changes: &api.Changes{}},
			want: rules.Wanted{Expires: 168 * time.Hour},
		},
		"each level by itself": {
			levels: []rules.Requirement{level("the organization"), strict, level("project ledger", "replaces"), long}, preview: plan(api.Changes{Add: 1, Destroy: 2}),
			want: rules.Wanted{
				Why: []string{"the organization: it changes something", "project payments: it destroys 2 resources", "the workspace: it changes something"}, NotBySubmitter: true, Expires: 24 * time.Hour,
			},
		},
		"a level that does not want it adds no condition": {
			levels: []rules.Requirement{strict}, preview: plan(api.Changes{Add: 1}), want: rules.Wanted{Expires: 24 * time.Hour},
		},
		"after the merge, also where nothing is wanted": {
			levels: []rules.Requirement{merge, long}, preview: api.Result{Plan: &api.PlanMade{Empty: true}}, want: rules.Wanted{AfterMerge: true, Expires: 72 * time.Hour},
		},
		"a replaced resource is destroyed": {
			levels: []rules.Requirement{level("the workspace", "destroys", "replaces", "changes > 0", "changes > 1")}, preview: plan(api.Changes{Add: 1, Destroy: 1, Replace: 1}),
			want: rules.Wanted{Why: []string{"the workspace: it destroys 1 resource, it replaces 1 resource, it makes 1 change, more than 0"}, Expires: 72 * time.Hour},
		},
		"a state that is pushed": {
			levels: []rules.Requirement{strict}, op: workflow.StatePush, preview: api.Result{Plan: &api.PlanMade{Empty: true}, Changes: &api.Changes{}},
			want: rules.Wanted{Why: []string{"project payments: it puts another state in place of the present one"}, NotBySubmitter: true, Expires: 24 * time.Hour},
		},
		"no counts": {
			levels: []rules.Requirement{level("the workspace", "destroys")}, preview: api.Result{Plan: &api.PlanMade{}},
			want: rules.Wanted{Why: []string{"the workspace: its changes are unknown"}, Expires: 72 * time.Hour},
		},
		"nothing that counts": {
			levels: []rules.Requirement{level("the workspace", "destroys")}, preview: plan(api.Changes{Drift: 1}),
			want: rules.Wanted{Why: []string{"the workspace: its changes are not counted"}, Expires: 72 * time.Hour},
		},
		"a refresh takes over the drift": {
			levels: []rules.Requirement{level("the workspace", "destroys")}, op: workflow.Refresh, preview: plan(api.Changes{Drift: 1}), want: rules.Wanted{Expires: 72 * time.Hour},
		},
		"a list that was cut": {
			levels: []rules.Requirement{level("the workspace", "destroys", "changes > 5")}, preview: cut,
			want: rules.Wanted{Why: []string{"the workspace: the list of its changes is incomplete, and may be longer than 5"}, Expires: 72 * time.Hour},
		},
		"a rule of a later version": {
			levels: []rules.Requirement{level("the workspace", "costs > 5")}, preview: plan(api.Changes{Add: 1}),
			want: rules.Wanted{Why: []string{`the workspace: this version does not know the rule "costs > 5"`}, Expires: 72 * time.Hour},
		},
	} {
		if d := cmp.Diff(rules.Wants(c.levels, c.op, c.preview), c.want); d != "" {
			t.Errorf("%s: got -, want +\n%s", name, d)
		}
	}
}

// planned is a plan as the naive reference sees it: the action on each resource.
func planned(r *rand.Rand) api.Result {
	c := api.Changes{}
	for i := range r.IntN(6) {
		one := api.ResourceChange{Address: fmt.Sprint("x.", i), Action: []string{"create", "update", "delete", "replace", "forget", "move", "drift", "no-op"}[r.IntN(8)]}
		switch r.IntN(4) {
		case 0:
			if one.Action == "update" || one.Action == "replace" || one.Action == "no-op" {
				one.Imported = true
				c.Import++
			}
		case 1:
			if one.Action == "update" || one.Action == "replace" || one.Action == "delete" {
				one.From = "y"
				c.Move++
			}
		}
		switch one.Action {
		case "create":
			c.Add++
		case "update":
			c.Change++
		case "delete":
			c.Destroy++
		case "replace":
			c.Add, c.Destroy, c.Replace = c.Add+1, c.Destroy+1, c.Replace+1
		case "drift":
			c.Drift++
		case "move":
			c.Move++
			one.From = "y"
		}
		c.Resources = append(c.Resources, one)
	}
	for i := range r.IntN(3) {
		c.Outputs = append(c.Outputs, api.OutputChange{Name: fmt.Sprint(i), Action: "update"})
	}
	return api.Result{Plan: &api.PlanMade{}, Changes: &c}
}

// naively is whether a level wants a plan, decided from the list of its resources.
func naively(a api.Approval, op workflow.Operation, c api.Changes) bool {
	all, destroyed, replaced := len(c.Outputs), false, false
	for _, one := range c.Resources {
		if one.Action != "no-op" && (one.Action != "drift" || op == workflow.Refresh) || one.Imported {
			all++
		}
		destroyed = destroyed || one.Action == "delete" || one.Action == "replace"
		replaced = replaced || one.Action == "replace"
	}
	if len(a.Rules) == 0 || all == 0 {
		return true
	}
	for _, s := range a.Rules {
		n := all
		_, err := fmt.Sscanf(s, "changes > %d", &n)
		if s == "destroys" && destroyed || s == "replaces" && replaced || err == nil && all > n {
			return true
		}
	}
	return false
}

func randomApproval(r *rand.Rand) *api.Approval {
	if r.IntN(8) == 0 {
		return nil
	}
	a := &api.Approval{Required: true, NotBySubmitter: r.IntN(2) == 0, AfterMerge: r.IntN(2) == 0, Expires: []string{"", "1h", "80h"}[r.IntN(3)]}
	for _, s := range []string{"destroys", "replaces", "changes > 0", "changes > 3"} {
		if r.IntN(3) == 0 {
			a.Rules = append(a.Rules, s)
		}
	}
	return a
}

func TestWants_AgreesWithANaiveReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var levels []rules.Requirement
		for i := range r.IntN(3) {
			if a := randomApproval(r); a != nil {
				levels = append(levels, rules.Requirement{Of: fmt.Sprint("level ", i), Approval: *a})
			}
		}
		op, preview := []workflow.Operation{workflow.Update, workflow.Refresh}[r.IntN(2)], planned(r)
		want, others := 0, false
		for _, l := range levels {
			if naively(l.Approval, op, *preview.Changes) {
				want, others = want+1, others || l.NotBySubmitter
			}
		}
		got := rules.Wants(levels, op, preview)
		if len(got.Why) != want || got.NotBySubmitter != others {
			t.Fatalf("%+v of %s %+v: got %+v, want %d levels and not_by_submitter %t", levels, op, preview.Changes, got, want, others)
		}
		preview.Changes.Resources, preview.Changes.Outputs, preview.Truncated = nil, nil, true
		if cut := rules.Wants(levels, op, preview); len(cut.Why) < want {
			t.Fatalf("%+v of %s %+v: %d levels wanted the whole plan, and %+v the cut one", levels, op, preview.Changes, want, cut)
		}
	}
}

func TestTightens_KeepsEveryEarlierRequirement(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	tighter := 0
	for range 5_000 {
		before, after := randomApproval(r), randomApproval(r)
		if !rules.Tightens(before, after) {
			continue
		}
		tighter++
		levels := func(a *api.Approval) (out []rules.Requirement) {
			if a != nil {
				out = append(out, rules.Requirement{Of: "the workspace", Approval: *a})
			}
			return out
		}
		for range 50 {
			preview := planned(r)
			was, is := rules.Wants(levels(before), workflow.Update, preview), rules.Wants(levels(after), workflow.Update, preview)
			if len(was.Why) > len(is.Why) || was.NotBySubmitter && !is.NotBySubmitter || was.AfterMerge && !is.AfterMerge || before != nil && is.Expires > was.Expires {
				t.Fatalf("from %+v to %+v counts as stricter, and of %+v it wants %+v instead of %+v", before, after, preview.Changes, is, was)
			}
		}
	}
	if tighter < 500 {
		t.Errorf("only %d of the pairs are stricter", tighter)
	}
}

func TestTightens_ComparesStrictness(t *testing.T) {
	with := func(wants ...string) *api.Approval { return &api.Approval{Required: true, Rules: wants} }
	for _, c := range []struct {
		before, after *api.Approval
		want          bool
	}{
		{nil, with("destroys"), true},
		{with("destroys"), with("destroys"), true},
		{with("destroys"), with(), true},
		{with("replaces"), with("destroys"), true},
		{with("changes > 5"), with("changes > 4"), true},
		{with(), with("changes > 0"), false},
		{with("destroys"), with("replaces"), false},
		{with("changes > 4"), with("changes > 5"), false},
		{with("costs > 5"), with("changes > 0"), false},
		{with("destroys"), nil, false},
		{with("destroys"), &api.Approval{}, false},
		{with(), &api.Approval{Required: true, Expires: "73h"}, false},
		{&api.Approval{Required: true, Expires: "73h"}, with(), true},
		{&api.Approval{Required: true, NotBySubmitter: true}, with(), false},
		{&api.Approval{Required: true, AfterMerge: true}, with(), false},
		{with(), &api.Approval{Required: true, AfterMerge: true}, true},
	} {
		if got := rules.Tightens(c.before, c.after); got != c.want {
			t.Errorf("from %+v to %+v: got %t", c.before, c.after, got)
		}
	}
}

func FuzzCheckApproval_Rules(f *testing.F) {
	for _, s := range []string{"destroys", " replaces ", "changes > 5", "changes>00", "changes > 4294967296", "changes > 5 > 6", "changes > +1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := rules.CheckApproval("approval", &api.Approval{Required: true, Rules: []string{s}})
		if err != nil {
			if first != nil || len(err.Error()) > 300 {
				t.Fatalf("%q: %v and %v", s, first, err)
			}
			return
		}
		again, err := rules.CheckApproval("approval", first)
		if err != nil || !cmp.Equal(first, again) {
			t.Fatalf("%q is kept as %+v, and that as %+v: %v", s, first, again, err)
		}
		if words := strings.Fields(strings.ReplaceAll(first.Rules[0], ">", " ")); len(words) != 1 && words[0] != "changes" {
			t.Fatalf("%q is kept as %q", s, first.Rules[0])
		}
	})
}
