package task_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/task"
)

// A name of the contract that another package spells is one that is forgotten when the contract changes. What an
// engine finds in its environment is a contract of its own, with people's commands.
func TestEnvironment_NamesAreSpelledHereAlone(t *testing.T) {
	others := map[string]bool{"runner/env.go": true, "runner/engine/command.go": true, "runner/engine/commands.go": true}
	names := full(t).Variables()
	word := regexp.MustCompile(`DAYFLY_[A-Z_]+`)
	for _, top := range []string{"../launcher", "../runner", "../embedded", "../dispatcher", "../agent", "../../cmd", "../../runnerimage"} {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "launchertest") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, name := range word.FindAllString(string(text), -1) {
				if _, ok := names[name]; ok && !others[strings.TrimPrefix(path, "../")] {
					t.Errorf("%s spells %s: use a field of task.Environment, or task.Name", path, name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := task.Name("Relay"); got != "DAYFLY_RELAY" {
		t.Errorf("got %q", got)
	}
}
