package engine_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// What the control plane lets a workspace have is what a runner can run, and what the documents of the API name.
func TestEngines_EachHasItsRunner(t *testing.T) {
	runs := engine.Programs()
	var names []string
	for _, e := range api.Engines() {
		names = append(names, e.Name)
		if program, ok := runs[e.Name]; !ok || program != e.Program {
			t.Errorf("%s: has a runner: %t; that asks a program: %t, want %t", e.Name, ok, program, e.Program)
		}
	}
	if got := slices.Sorted(maps.Keys(runs)); !cmp.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("a runner has %v, and api.Engines %v", got, names)
	}
	field, _ := reflect.TypeFor[api.Workspace]().FieldByName("Engine")
	for _, name := range names {
		if !slices.Contains(strings.Split(field.Tag.Get("enum"), ","), name) {
			t.Errorf("%s is not in the enum of a workspace's engine", name)
		}
	}
}
