package arch_test

import (
	"os"
	"path"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"github.com/dayfly-dev/dayfly/test/arch"
)

// What two modules of the product need, both need in the same version, so that a package is tested as it ships. The
// root needs none of those below it.
func TestModules_AgreeOnVersions(t *testing.T) {
	dirs := strings.Fields(output(t, root+"/scripts/modules"))
	if len(dirs) < 2 || dirs[0] != "." {
		t.Fatalf("the modules are %q, want the root and others", dirs)
	}
	versions := map[string]string{}
	for _, dir := range dirs {
		name := path.Join(dir, "go.mod")
		text, err := os.ReadFile(path.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := path.Join(arch.Module, dir); file.Module.Mod.Path != want {
			t.Errorf("%s is of module %s, want %s: internal packages go by it", name, file.Module.Mod.Path, want)
		}
		for _, need := range append(file.Require, &modfile.Require{Mod: module.Version{Path: "go", Version: file.Go.Version}}) {
			if dir == "." && strings.HasPrefix(need.Mod.Path, arch.Module+"/") {
				t.Errorf("the root needs %s", need.Mod.Path)
			}
			if has, ok := versions[need.Mod.Path]; ok && has != need.Mod.Version {
				t.Errorf("%s has %s, and a module before it %s", name, need.Mod, has)
			}
			versions[need.Mod.Path] = need.Mod.Version
		}
	}
}

// Patterns are written as at the root, whatever modules their packages are in.
func TestModules_TakePatternsOfTheRoot(t *testing.T) {
	for patterns, want := range map[string]string{
		"./...":                                   ". ./...\ncmd/dayfly-policy ./...\nrunnerimage/build ./...\n",
		"./runnerimage/... ./test/arch":           ". ./runnerimage/... ./test/arch\nrunnerimage/build ./...\n",
		"./cmd/dayfly-policy/internal/...":        "cmd/dayfly-policy ./internal/...\n",
		"./cmd/dayfly ./cmd/dayfly-policy":        ". ./cmd/dayfly\ncmd/dayfly-policy ./\n",
		arch.Module + "/runnerimage/build/layers": "runnerimage/build ./layers\n",
	} {
		if got := output(t, root+"/scripts/modules", strings.Fields(patterns)...); got != want {
			t.Errorf("%s:\n%swant\n%s", patterns, got, want)
		}
	}
}
