package arch_test

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/arch"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{".", "docs", "examples"} {
		pages, err := filepath.Glob(filepath.Join(root, dir, "*.md"))
		if err != nil || len(pages) == 0 {
			t.Fatalf("got %d documents in %s, %v", len(pages), dir, err)
		}
		for _, page := range pages {
			names = append(names, filepath.Join(dir, filepath.Base(page)))
		}
	}
	return names
}

// Each row of the failure table names the test that shows it, and each test that any document
// names exists.
func TestDocuments_EveryTestThatTheyNameExists(t *testing.T) {
	declared := declaredTests(t)
	for _, doc := range documents(t) {
		for _, name := range arch.NamedTests(document(t, doc)) {
			// CONTRIBUTING shows the form of a name.
			if !declared[name] && doc != "CONTRIBUTING.md" {
				t.Errorf("%s names %s, which no test file declares", doc, name)
			}
		}
	}
	rows := arch.Table(document(t, "docs/failures.md"), "Failures")
	if len(rows) < 10 {
		t.Fatalf("the failure table has %d rows", len(rows))
	}
	notices := noticing(t, declared)
	for _, row := range rows {
		if len(row) != 4 || len(arch.NamedTests(row[len(row)-1])) == 0 {
			t.Errorf("a row of the failure table names no test in its fourth cell: %q", row)
		} else if !slices.ContainsFunc(arch.NamedTests(row[3]), func(name string) bool { return notices[name] }) {
			t.Errorf("no mistake of test/mutants is for a test of this row of the failure table: %q", row)
		}
	}
}

// noticing are the tests that notice a deliberate mistake.
func noticing(t *testing.T, declared map[string]bool) map[string]bool {
	t.Helper()
	patches, err := filepath.Glob("../mutants/*.patch")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			by, ok := strings.CutPrefix(line, "Noticed by: ")
			if !ok {
				continue
			}
			if words := strings.Fields(by); len(words) < 2 || !declared[strings.Split(words[1], "/")[0]] {
				t.Errorf("%s is noticed by a test that no file declares: %s", patch, by)
			} else {
				out[strings.Split(words[1], "/")[0]] = true
			}
		}
	}
	return out
}

// The package table of docs/packages.md says what the map says, no less and no more: each package in a row of its level,
// its children behind it.
func TestArchitecture_NamesEveryPackage(t *testing.T) {
	var got, rooms []string
	for _, row := range arch.Table(document(t, "docs/packages.md"), "All packages") {
		parents := []string{"", "internal"}
		for _, name := range arch.Code(row[1]) {
			for i, parent := range slices.Backward(parents) {
				full := strings.TrimPrefix(name, "internal/")
				if full = strings.TrimPrefix(parent+"/"+full, "/"); slices.Contains(arch.Names(), full) {
					parents = append(parents[:i+1], full)
					got = append(got, row[0]+" "+full)
					if parent == "internal/controlplane" {
						rooms = append(rooms, name)
					}
					break
				}
			}
		}
	}
	if diff := cmp.Diff(arch.Children("internal/controlplane"), rooms); diff != "" {
		t.Errorf("the rooms of the control plane (-map +table):\n%s", diff)
	}
	var want []string
	for _, name := range arch.Names() {
		level, ok := arch.Level(name)
		for parent := name; !ok; {
			parent = path.Dir(parent)
			level, ok = arch.Level(parent)
		}
		want = append(want, level+" "+name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the package table (-map +table):\n%s", diff)
	}
}

// The tree stands alone: what a reader cannot open must not be named.
func TestTree_NamesNoPlaceOutsideTheRepository(t *testing.T) {
	files := sources(t)
	for _, doc := range documents(t) {
		files = append(files, filepath.Join(root, doc))
	}
	for _, more := range []string{"Makefile", ".ci/run", ".golangci.yml"} {
		files = append(files, filepath.Join(root, more))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range []string{"/work/" + "main", "/work/" + "shared", "DES" + "IGN", "STYLE" + ".md", "FEAT" + "URES", "../" + "shared"} {
			if strings.Contains(string(text), place) {
				t.Errorf("%s names %s", strings.TrimPrefix(file, root+"/"), place)
			}
		}
	}
}

// declaredTests returns the names of all tests.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	declared := map[string]bool{}
	for _, file := range sources(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range arch.DeclaredTests(string(text)) {
			declared[name] = true
		}
	}
	return declared
}

// A name is a title. Details stand in the comment above the test.
func TestTests_HaveNamesOfAtMost50Characters(t *testing.T) {
	const limit = 50
	for name := range declaredTests(t) {
		if len(name) > limit {
			t.Errorf("%s has %d characters, at most %d are wanted", name, len(name), limit)
		}
	}
}

const made = `# A
text
## Repairs
| if | then | within | shown by |
|---|---|---|---|
| a dies | b | 1 min | ` + "`TestA_Holds`, `FuzzB`" + ` |
| c dies | d | at once | |

| another | table |
|---|---|
| x | y |
## B
| not | this |
|---|---|
| z | z |
`

func TestTable_FindsTheRowsBelowAHeading(t *testing.T) {
	want := []arch.Row{{"a dies", "b", "1 min", "`TestA_Holds`, `FuzzB`"}, {"c dies", "d", "at once", ""}}
	if diff := cmp.Diff(want, arch.Table(made, "Repairs")); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := arch.Table(made, "C"); len(got) != 0 {
		t.Errorf("got %q below a heading that is not there", got)
	}
}

func TestNames_AreFoundInTextAndSource(t *testing.T) {
	if diff := cmp.Diff([]string{"TestA_Holds", "FuzzB"}, arch.NamedTests(made)); diff != "" {
		t.Errorf("named (-want +got):\n%s", diff)
	}
	source := "package x\n\nfunc TestA_Holds(t *testing.T) {}\nfunc helper() {}\n// func TestNot(\nfunc FuzzB(f *testing.F) {}\n"
	if diff := cmp.Diff([]string{"TestA_Holds", "FuzzB"}, arch.DeclaredTests(source)); diff != "" {
		t.Errorf("declared (-want +got):\n%s", diff)
	}
}
