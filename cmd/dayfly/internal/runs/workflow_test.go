package runs

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestOutput_AValueOfSeveralLinesStandsInOne(t *testing.T) {
	for want, value := range map[string]any{
		`plain "text" é`: `plain "text" é`, `"-----BEGIN\nabc\n"`: "-----BEGIN\nabc\n", `"a\x1b[2Jb"`: "a\x1b[2Jb", `a[U+200B]b`: "a\u200bb", `{"k":"a\nb"}`: map[string]any{"k": "a\nb"},
	} {
		if got := output(api.Output{Value: value}); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

func TestChangesOf(t *testing.T) {
	for want, changes := range map[string]*api.Changes{
		"-": nil, "none": {}, "+1 ~2 -3": {Add: 1, Change: 2, Destroy: 3, Drift: 4}, "4 drifted": {Drift: 4}, "6 in the state": {Import: 1, Move: 2, Forget: 3},
	} {
		if got := changesOf(api.Workflow{Changes: changes}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
