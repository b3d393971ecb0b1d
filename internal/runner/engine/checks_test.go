package engine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestChecks_CountsOnlyCheckBlocksThatFail(t *testing.T) {
	s, err := readPlan([]byte(`{"format_version":"1.2","checks":[
		{"address":{"kind":"check","to_display":"module.m.check.z"},"status":"fail","instances":[{"address":{"to_display":"module.m[\"key\"].check.z"},"status":"fail","problems":[{"message":"planted"}]}]},
		{"address":{"kind":"check","to_display":"check.a"},"status":"error"},
		{"address":{"kind":"check","to_display":"check.passes"},"status":"pass"},
		{"address":{"kind":"check","to_display":"check.later"},"status":"unknown"},
		{"address":{"kind":"output_value","to_display":"output.o"},"status":"fail"},
		{"address":{"kind":"resource","to_display":"x.y"},"status":"fail"},
		{"address":{"kind":"var","to_display":"var.v"},"status":"fail"}]}`), mode{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&api.Checks{Failing: 2, Names: []string{"check.a", "module.m.check.z"}}, s.checks.result()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var many checks
	for i := range 25 {
		many.add("check", fmt.Sprintf("check.c%02d", 24-i), "fail")
	}
	if got := many.result(); got.Failing != 25 || len(got.Names) != maxChecks || got.Names[0] != "check.c00" {
		t.Errorf("of many got %+v", got)
	}
}

func TestMergePlans_NamesTheUnitsOfChecks(t *testing.T) {
	all, err := mergePlans(map[string]summary{"net": {checks: checks{"check.b"}}, "app": {checks: checks{"check.a"}}, ".": {checks: checks{"check.c"}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&api.Checks{Failing: 3, Names: []string{"app/check.a", "check.c", "net/check.b"}}, all.checks.result()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
