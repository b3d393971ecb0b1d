package arch_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/arch"
)

// The real tree keeps the package map.
func TestTree_KeepsThePackageMap(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 10 {
		t.Fatalf("go list found %d packages: that cannot be the whole tree", len(pkgs))
	}
	for _, v := range arch.Check(pkgs) {
		t.Error(v)
	}
}

// What is gone from the tree is gone from the map.
func TestTree_HasEveryPackageOfTheMap(t *testing.T) {
	there := map[string]bool{}
	for _, p := range list(t) {
		there[strings.TrimPrefix(p.ImportPath, arch.Module+"/")] = true
	}
	for _, name := range arch.Names() {
		if !there[name] {
			t.Errorf("the package map names %s, which is not there", name)
		}
	}
}

// root is the root of the repository, seen from this directory.
const root = "../.."

// sources returns every Go file of the tree. Walking it has a second use: go test sees which
// directories and files a test looked at, and so does not answer from its cache when one of them
// changed, which it could not know from the go list that a test runs.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(p, ".go") {
			files = append(files, p)
			_, err = os.Stat(p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// No name begins as an id does; workflow has what ids begin with.
func TestNames_AreNoIDs(t *testing.T) {
	prefix, found := regexp.MustCompile(`(?:NewID\(|\bIDs: |IDs += )"([a-z]+_)"`), map[string]bool{}
	for _, file := range sources(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range prefix.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
			if workflow.CheckNoID(m[1]+"x") == nil {
				t.Errorf("%s: a name may begin with %s", file, m[1])
			}
		}
	}
	if len(found) < 12 {
		t.Errorf("found only %v", found)
	}
}

// list asks the go command for every package of every module.
func list(t *testing.T) []arch.Package {
	t.Helper()
	return listed[arch.Package](t, "-json=ImportPath,Name,Doc,GoFiles,Imports,TestImports,XTestImports", "./...")
}

// listed is what go list says in JSON of packages, by patterns as they are written at the root, in the order of the modules.
func listed[T any](t *testing.T, flags string, patterns ...string) (all []T) {
	t.Helper()
	sources(t) // where the modules lie
	for line := range strings.Lines(output(t, root+"/scripts/modules", patterns...)) {
		there := strings.Fields(line)
		args := slices.Concat([]string{"list", "-C", root + "/" + there[0]}, strings.Fields(flags), there[1:])
		for d := json.NewDecoder(strings.NewReader(output(t, "go", args...))); ; {
			var p T
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("go list: %v", err)
			}
			all = append(all, p)
		}
	}
	return all
}

// output is what a program prints.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// The rules can fail: each made-up graph breaks one of them, or shows that a permitted import passes.
func TestCheck_MadeUpGraphs(t *testing.T) {
	tests := []struct {
		name    string
		pkg     string
		imports []string
		want    string // part of the one violation; empty for none
	}{
		{"vocabulary over the standard library", "internal/workflow", []string{"time"}, ""},
		{"vocabulary with a library", "internal/workflow", []string{"golang.org/x/sync/errgroup"}, "standard library only"},
		{"level 1 over level 0", "internal/api", []string{own("internal/workflow")}, ""},
		{"sideways on level 0", "internal/workflow", []string{own("internal/redact")}, "own level"},
		{"sideways on level 1", "internal/ticket", []string{own("internal/api")}, "own level"},
		{"sideways on level 2", "internal/client", []string{own("internal/controlplane")}, "own level"},
		{"upwards", "internal/api", []string{own("internal/client")}, "above it"},
		{"stage over level 1", "internal/poller", []string{own("internal/queue"), own("internal/api")}, ""},
		{"stage over level 2", "internal/poller", []string{own("internal/client")}, "levels 0 and 1 only"},
		{"stage over a stage", "internal/relay", []string{own("internal/reaper")}, "own level"},
		{"stage that chooses an adapter", "internal/dispatcher", []string{own("internal/queue/memory")}, "an adapter is chosen"},
		{"handler over the rules", "internal/httpapi", []string{own("internal/controlplane")}, ""},
		{"handler over the client", "internal/httpapi", []string{own("internal/client")}, "levels 0 and 1 and internal/controlplane only"},
		{"runner over the client", "internal/runner", []string{own("internal/client")}, ""},
		{"runner over its part", "internal/runner", []string{own("internal/runner/mask")}, ""},
		{"runner over the rules", "internal/runner", []string{own("internal/controlplane")}, "levels 0 and 1 and"},
		{"agent over a stage", "internal/agent", []string{own("internal/poller"), own("internal/launcher/process")}, ""},
		{"agent over the part of another", "internal/agent", []string{own("internal/runner/mask")}, "its parent only"},
		{"agent over embedded", "internal/agent", []string{own("internal/embedded")}, "above it"},
		{"embedded over agent and rules", "internal/embedded", []string{own("internal/agent"), own("internal/controlplane"), own("internal/store/sqlite")}, ""},
		{"adapter over its parent and level 1", "internal/store/sqlite", []string{own("internal/store"), own("internal/api")}, ""},
		{"adapter over its sibling", "internal/store/sqlite", []string{own("internal/store/memory")}, "a child imports its parent"},
		{"adapter over the rules", "internal/store/sqlite", []string{own("internal/controlplane")}, "a child imports its parent"},
		{"part over level 0", "internal/runner/engine", []string{own("internal/child")}, ""},
		{"part over its sibling", "internal/runner/engine", []string{own("internal/runner/mask")}, "its parent only"},
		{"adapter over its part", "internal/launcher/process", []string{own("internal/launcher/process/cleanup")}, ""},
		{"adapter over another's part", "internal/launcher/process", []string{own("internal/runner/mask")}, "its parent only"},
		{"adapter over what it shares", "internal/launcher/docker", []string{own("internal/launcher/taskdir"), own("internal/launcher")}, ""},
		{"adapter over what others share", "internal/launcher/ecs", []string{own("internal/launcher/taskdir")}, "internal/launcher/process may import"},
		{"agent over what adapters share", "internal/agent", []string{own("internal/launcher/taskdir")}, "internal/launcher/process may import"},
		{"what is shared over level 0", "internal/launcher/taskdir", []string{own("internal/launcher"), own("internal/task")}, ""},
		{"rules over the records", "internal/controlplane", []string{own("internal/controlplane/record")}, ""},
		{"part of the rules over one before it", "internal/controlplane/ledger", []string{own("internal/controlplane/record")}, ""},
		{"part of the rules over one behind it", "internal/controlplane/ledger", []string{own("internal/controlplane/catalog")}, "stand in order"},
		{"identity over the catalog", "internal/controlplane/identity", []string{own("internal/controlplane/catalog")}, "stand in order"},
		{"part of the rules over the whole", "internal/controlplane/runs", []string{own("internal/controlplane")}, "a part imports levels 0 and 1"},
		{"handler over a part of the rules", "internal/httpapi", []string{own("internal/controlplane/record")}, "its parent only"},
		{"part over its parent", "internal/runner/engine", []string{own("internal/runner")}, "a part imports levels 0 and 1"},
		{"conformance over its parent", "internal/store/storetest", []string{own("internal/store"), "testing", "github.com/google/go-cmp/cmp"}, ""},
		{"conformance over an implementation", "internal/store/storetest", []string{own("internal/store/memory")}, "a child imports its parent"},
		{"product over a conformance package", "internal/controlplane", []string{own("internal/store/storetest")}, "for tests only"},
		{"program over a conformance package", "cmd/dayfly", []string{own("internal/store/storetest")}, "for tests only"},
		{"product over a test tree", "internal/agent", []string{own("test/sim")}, "for tests only"},
		{"product over testing", "internal/agent", []string{"testing"}, "for tests only"},
		{"product over testing/synctest", "internal/agent", []string{"testing/synctest"}, "for tests only"},
		{"product over go-cmp", "internal/agent", []string{"github.com/google/go-cmp/cmp"}, "for tests only"},
		{"test tree over anything", "test/sim", []string{own("internal/agent"), own("internal/store/storetest"), "testing"}, ""},
		{"AWS for tests over itself", "test/awsim/sqs", []string{own("test/awsim/wire"), "testing"}, ""},
		{"AWS for tests over the product", "test/awsim/sqs", []string{own("internal/queue")}, "nothing of ours"},
		{"AWS for tests over a program", "test/awsim", []string{own("scripts/functions/bootstrap")}, "nothing of ours"},
		{"AWS for tests over another test tree", "test/awsim/ecs", []string{own("test/awsimilar")}, "nothing of ours"},
		{"test tree over the AWS for tests", "test/cloud", []string{own("test/awsim/sqs")}, ""},
		{"program over anything", "cmd/dayfly", []string{own("internal/agent"), own("internal/store/sqlite"), "github.com/alecthomas/kong"}, ""},
		{"program over its commands", "cmd/dayfly", []string{own("cmd/dayfly/internal/runs")}, ""},
		{"commands over what they share", "cmd/dayfly/internal/runs", []string{own("cmd/dayfly/internal/cli")}, ""},
		{"commands over other commands", "cmd/dayfly/internal/runs", []string{own("cmd/dayfly/internal/setup")}, "which has commands"},
		{"what commands share over commands", "cmd/dayfly/internal/cli", []string{own("cmd/dayfly/internal/runs")}, "which has commands"},
		{"program over another", "cmd/dayfly", []string{own("functions/poller")}, "belongs to a program"},
		{"function over what functions share", "functions/poller", []string{own("functions/internal/boot")}, ""},
		{"function over another", "functions/poller", []string{own("functions/dispatcher")}, "belongs to a program"},
		{"product over what functions share", "internal/agent", []string{own("functions/internal/boot")}, "belongs to a program"},
		{"product over a program", "internal/agent", []string{own("cmd/dayfly")}, "belongs to a program"},
		{"lambda in a function", "functions/poller", []string{"github.com/aws/aws-lambda-go/lambda"}, ""},
		{"lambda in a stage", "internal/poller", []string{"github.com/aws/aws-lambda-go/events"}, "only functions/"},
		{"lambda in the CLI", "cmd/dayfly", []string{"github.com/aws/aws-lambda-go/lambda"}, "only functions/"},
		{"SDK in an adapter", "internal/queue/sqs", []string{"github.com/aws/aws-sdk-go-v2/service/sqs"}, ""},
		{"SDK in a stage", "internal/dispatcher", []string{"github.com/aws/aws-sdk-go-v2/service/sqs"}, "may link"},
		{"SDK in another adapter", "internal/store/sqlite", []string{"github.com/aws/smithy-go"}, "may link"},
		{"git outside its part", "internal/controlplane", []string{"github.com/go-git/go-git/v5"}, "may link"},
		{"sqlite outside its adapter", "internal/embedded", []string{"modernc.org/sqlite"}, "may link"},
		{"product over what is banned", "internal/agent", []string{"io/ioutil"}, "use io and os"},
		{"package outside the map", "internal/util", nil, "not in the package map"},
		{"import of a package outside the map", "internal/agent", []string{own("internal/util")}, "not in the package map"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := tt.pkg[strings.LastIndex(tt.pkg, "/")+1:]
			doc := "Package " + name + " promises something."
			if rest, ok := strings.CutPrefix(tt.pkg, "cmd/"); ok && !strings.Contains(rest, "/") || strings.HasPrefix(tt.pkg, "functions/") {
				doc, name = "Command "+name+" runs something.", "main"
			}
			got := arch.Check([]arch.Package{{
				ImportPath: own(tt.pkg), Name: name, Doc: doc, GoFiles: []string{"a.go"}, Imports: tt.imports,
			}})
			if tt.want == "" {
				if len(got) > 0 {
					t.Fatalf("got %v, want no violation", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0].String(), tt.want) {
				t.Errorf("got %v, want one violation that says %q", got, tt.want)
			}
		})
	}
}

// The tests of the AWS for tests keep its rule too.
func TestCheck_TestsBelowAWSSimImportNothingOfOurs(t *testing.T) {
	got := arch.Check([]arch.Package{
		{ImportPath: own("test/awsim/sqs"), TestImports: []string{own("internal/api")}, XTestImports: []string{own("test/cloud"), own("test/awsim/wire"), "testing"}},
		{ImportPath: own("test/cloud"), TestImports: []string{own("internal/api")}, XTestImports: []string{own("test/awsim")}},
	})
	if len(got) != 2 || got[0].Package != "test/awsim/sqs" || got[1].Package != "test/awsim/sqs" {
		t.Errorf("got %v, want two violations by test/awsim/sqs", got)
	}
}

func TestCheck_EveryPackageSaysWhatItPromises(t *testing.T) {
	pkgs := []arch.Package{
		{ImportPath: own("internal/queue"), Name: "queue", GoFiles: []string{"a.go"}},
		{ImportPath: own("internal/store"), Name: "store", Doc: "Keeps records.", GoFiles: []string{"a.go"}},
		{ImportPath: own("cmd/dayfly"), Name: "main", Doc: "Package main is the CLI.", GoFiles: []string{"a.go"}},
		{ImportPath: own("test/e2e"), Name: "e2e"}, // tests only: nothing to document
		{ImportPath: own("internal/api"), Name: "api", Doc: "Package api is the wire.", GoFiles: []string{"a.go"}},
	}
	var got []string
	for _, v := range arch.Check(pkgs) {
		got = append(got, v.Package)
	}
	if diff := cmp.Diff([]string{"internal/queue", "internal/store", "cmd/dayfly"}, got); diff != "" {
		t.Errorf("packages with a bad comment (-want +got):\n%s", diff)
	}
}

func own(rel string) string { return arch.Module + "/" + rel }
