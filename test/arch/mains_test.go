package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/scripts/licenses/thirdparty"
	"github.com/dayfly-dev/dayfly/test/arch"
)

// A descriptor that a program was started with must not reach an engine, so each main calls this before anything that
// could start a process.
const firstCall = "child.CloseInherited()"

func TestMains_CloseFirstWhatTheyInherit(t *testing.T) {
	seen := 0
	for _, path := range sources(t) {
		tree, _, _ := strings.Cut(strings.TrimPrefix(path, root+"/"), "/")
		if !slices.Contains([]string{"cmd", "functions", "runnerimage"}, tree) || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || file.Name.Name != "main" || f.Recv != nil || f.Name.Name != "main" {
				continue
			}
			seen++
			if got := first(f); got != firstCall {
				t.Errorf("main of %s begins with %q, want %s", path, got, firstCall)
			}
		}
	}
	if seen < 7 {
		t.Errorf("found %d mains: that cannot be all of them", seen)
	}
}

// What a library costs every start of a program is paid by the one program that needs it.
func TestMains_OneLinksOPA(t *testing.T) {
	mains := programs(t, "", "cmd", "functions", "runnerimage")
	for name, deps := range mains {
		has := slices.ContainsFunc(deps, func(dep string) bool { return strings.HasPrefix(dep, "github.com/open-policy-agent/") })
		if want := name == "cmd/dayfly-policy"; has != want {
			t.Errorf("%s links OPA: %v, want %v", name, has, want)
		}
	}
	if len(mains) < 8 {
		t.Errorf("go list found %d mains: that cannot be all", len(mains))
	}
}

// The file of licenses that ships has those of all that is linked into the programs, and no other.
func TestMains_ShipTheLicensesOfWhatTheyLink(t *testing.T) {
	sources(t) // the modules' files too
	texts, err := thirdparty.Collect(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	has, err := os.ReadFile(root + "/" + thirdparty.File)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(has), "\n"), strings.Split(thirdparty.Format(texts), "\n")); diff != "" {
		t.Errorf("%s is not current (make licenses):\n%s", thirdparty.File, diff)
	}
}

// programs are the mains below some directories, each with all that it links.
func programs(t *testing.T, tags string, below ...string) map[string][]string {
	t.Helper()
	type program struct {
		ImportPath, Name string
		Deps             []string
	}
	var patterns []string
	for _, dir := range below {
		patterns = append(patterns, "./"+dir+"/...")
	}
	found := map[string][]string{}
	for _, p := range listed[program](t, "-tags="+tags+" -json=ImportPath,Name,Deps", patterns...) {
		if p.Name == "main" {
			found[strings.TrimPrefix(p.ImportPath, arch.Module+"/")] = p.Deps
		}
	}
	return found
}

// first is the first statement of a function, where it is an expression.
func first(f *ast.FuncDecl) string {
	if len(f.Body.List) == 0 {
		return ""
	}
	s, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return ""
	}
	return types.ExprString(s.X)
}
