// Package arch is the package map as code: which package may import which, who may link which
// library, and what every package owes its reader. It only judges a graph that it is given; the
// tests beside it give it the real one and made-up ones.
package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the path of the module at the root. Those of the modules below it begin with it, as their packages' do.
const Module = "github.com/dayfly-dev/dayfly"

// Package is what the rules need to know about one package, as `go list -json` tells it.
type Package struct {
	ImportPath string
	Name       string
	Doc        string   // first sentence of the package comment
	GoFiles    []string // files that are not tests
	Imports    []string // of those files

	TestImports  []string // of the test files in the package
	XTestImports []string // of the external test package
}

// A rule says where a package stands and what it may import besides the packages of levels 0
// and 1 below it.
type rule struct {
	level int
	also  []string // packages of higher levels than 1 that it may import
	any   bool     // it may import any package below its own level
	std   bool     // it links the standard library only
}

// The package map. Levels are numbers with room between them: a package imports lower ones only,
// never one of its own.
var rules = map[string]rule{
	"internal/workflow":      {level: 0, std: true},
	"internal/redact":        {level: 0, std: true},
	"internal/child":         {level: 0, std: true},
	"internal/text":          {level: 0, std: true},
	"internal/strict":        {level: 0, std: true},
	"internal/wait":          {level: 0, std: true},
	"internal/disk":          {level: 0, std: true},
	"internal/env":           {level: 0, std: true},
	"internal/task":          {level: 0, std: true},
	"internal/outbound":      {level: 0, std: true},
	"internal/awserr":        {level: 0},
	"internal/awssend":       {level: 0, std: true},
	"internal/awss3":         {level: 0},
	"internal/awss3/s3error": {level: 0, std: true},

	"internal/api":       {level: 10},
	"internal/blob":      {level: 10},
	"internal/ticket":    {level: 10},
	"internal/admission": {level: 10},
	"internal/oidc":      {level: 10},
	"internal/config":    {level: 10},
	"internal/queue":     {level: 10},
	"internal/launcher":  {level: 10},
	"internal/toolcache": {level: 10},
	"internal/githost":   {level: 10},
	"internal/secrets":   {level: 10},
	"internal/store":     {level: 10},

	"internal/providercache":   {level: 10},
	"internal/kind":            {level: 10, also: []string{"internal/api"}},
	"internal/runtext":         {level: 10, also: []string{"internal/api"}},
	"internal/pullrequest":     {level: 10, also: []string{"internal/api", "internal/runtext"}},
	"internal/githost/webhook": {level: 10, std: true},

	"internal/artifact": {level: 15},

	"internal/controlplane": {level: 20},
	"internal/client":       {level: 20},
	"internal/forward":      {level: 20},

	"internal/httpapi":    {level: 30, also: []string{"internal/controlplane"}},
	"internal/console":    {level: 30, also: []string{"internal/controlplane"}},
	"internal/poller":     {level: 30},
	"internal/dispatcher": {level: 30},
	"internal/relay":      {level: 30},
	"internal/reaper":     {level: 30},
	"internal/deliverer":  {level: 30, also: []string{"internal/githost/github", "internal/githost/gitlab"}},
	"internal/runner":     {level: 30, also: []string{"internal/client", "internal/secrets/local", "internal/secrets/vault", "internal/secrets/awssm"}},

	"internal/agent":    {level: 40, any: true},
	"internal/embedded": {level: 45, any: true},

	"cmd/dayfly-policy/internal/policy": {level: 20},
}

// Adapters implement their parent's interface over one technology; parts are the pieces of their
// parent; conformance packages hold adapters to their parent's contract and are for tests only.
var (
	adapters = map[string][]string{
		"internal/blob":     {"files", "s3"},
		"internal/githost":  {"github", "gitlab"},
		"internal/queue":    {"memory", "sqs"},
		"internal/launcher": {"ecs", "docker", "process", "taskdir"},
		"internal/secrets":  {"awssm", "local", "vault"},
		"internal/store":    {"memory", "sqlite", "dynamodb"},
	}
	// What some adapters of a parent have in common is imported by them alone.
	shared = map[string][]string{"internal/launcher/taskdir": {"internal/launcher/docker", "internal/launcher/process"}}
	parts  = map[string][]string{
		"internal/controlplane":     {"record", "rules", "ledger", "identity", "catalog", "runs", "schedules", "trees", "pulls", "notifications", "clock"},
		"internal/runner":           {"engine", "source", "mask", "logstream", "cloud", "credserver"},
		"internal/launcher/process": {"cleanup"},
	}
	// Of these, the parts build on one another: each may import those that stand before it.
	layered     = []string{"internal/controlplane"}
	conformance = []string{
		"internal/blob/blobtest", "internal/githost/githosttest", "internal/queue/queuetest", "internal/launcher/launchertest",
		"internal/secrets/secretstest", "internal/store/storetest", "internal/store/storefault",
		"internal/store/dynamodb/dynamodbtest", "internal/toolcache/toolcachetest",
		"internal/providercache/providercachetest",
	}
)

// Trees of programs: they may import anything that is not for tests.
var mains = []string{"cmd", "functions", "runnerimage", "scripts"}

// commands are the packages of the commands of the command line. None imports another: what they share is below them.
var commands = []string{
	"cmd/dayfly/internal/access", "cmd/dayfly/internal/ci", "cmd/dayfly/internal/runs", "cmd/dayfly/internal/serve", "cmd/dayfly/internal/setup",
}

// owners names the packages that may link a library directly, by prefix of its import path, so
// that a binary carries only what it needs. Tests are free.
var owners = []struct {
	library string
	allowed []string // packages or, ending in "/", trees
}{
	{"github.com/aws/aws-lambda-go", []string{"functions/"}},
	{"github.com/awslabs/aws-lambda-go-api-proxy", []string{"functions/"}},
	{"github.com/aws/", []string{
		"internal/artifact", "internal/awserr", "internal/awss3", "internal/blob/s3", "internal/queue/sqs", "internal/launcher/ecs", "internal/secrets/awssm",
		"internal/store/dynamodb", "internal/runner/cloud", "functions/", "cmd/", "runnerimage/",
	}},
	{"modernc.org/sqlite", []string{"internal/store/sqlite"}},
	{"github.com/google/go-github/", []string{"internal/githost/github"}},
	{"gitlab.com/gitlab-org/", []string{"internal/githost/gitlab"}},
	{"github.com/go-git/", []string{"internal/runner/source"}},
	{"github.com/go-jose/", []string{"internal/ticket", "internal/oidc"}},
	{"github.com/danielgtaylor/huma/", []string{"internal/httpapi"}},
	{"github.com/a-h/templ", []string{"internal/console"}},
	{"github.com/buildkite/terminal-to-html/", []string{"internal/console"}},
	// What a version or a constraint may be is said when it is written, in the words of who reads it later.
	{"github.com/hashicorp/go-version", []string{"internal/runner/engine", "internal/runner/source", "internal/controlplane/catalog", "internal/toolcache"}},
	{"github.com/open-policy-agent/", []string{"cmd/dayfly-policy/internal/policy"}},
	{"github.com/ProtonMail/", []string{"internal/toolcache"}},
	{"github.com/hashicorp/", []string{"internal/runner/engine"}},
	{"golang.org/x/time/", []string{"internal/admission", "internal/dispatcher"}},
	{"golang.org/x/mod/", []string{"internal/providercache"}},
	{"github.com/sony/gobreaker/", []string{"internal/client"}},
	{"github.com/google/go-containerregistry", []string{"runnerimage/build"}},
	{"golang.org/x/crypto/x509roots", []string{"runnerimage/build"}},
	{"github.com/adhocore/gronx", []string{"internal/controlplane/schedules"}},
	{"github.com/alecthomas/kong", []string{"cmd/", "internal/config"}},
}

// sealed is a tree that imports nothing of this module but itself, in its tests neither: it could be a module of
// its own.
const sealed = "test/awsim"

// testOnly are libraries that no product code imports.
var testOnly = []string{
	"testing", "net/http/httptest", "github.com/google/go-cmp", "go.uber.org/goleak",
	"github.com/testcontainers/",
}

// banned are packages that may not be imported, and what to use instead.
var banned = map[string]string{
	"io/ioutil":        "use io and os",
	"gopkg.in/yaml.v3": "use go.yaml.in/yaml/v3",
}

// Violation is one breach of the map, with what to do about it.
type Violation struct {
	Package string
	Text    string
}

func (v Violation) String() string { return v.Package + ": " + v.Text }

type kind int

const (
	unknown kind = iota
	plain
	adapter
	part
	suite // a conformance package
	program
	testTree
)

// classify says what a package of this module is, with its parent where it is a child.
func classify(rel string) (k kind, parent string) {
	if _, ok := rules[rel]; ok {
		return plain, ""
	}
	if slices.Contains(conformance, rel) {
		return suite, path.Dir(rel)
	}
	dir, base := path.Split(rel)
	dir = strings.TrimSuffix(dir, "/")
	if slices.Contains(adapters[dir], base) {
		return adapter, dir
	}
	if slices.Contains(parts[dir], base) {
		return part, dir
	}
	top, _, _ := strings.Cut(rel, "/")
	switch {
	case top == "test":
		return testTree, ""
	case slices.Contains(mains, top):
		return program, ""
	}
	return unknown, ""
}

// Level is the level of a package of the map as people write it, 4½ for 45; ok is false where it stands there as a child
// only, or not at all.
func Level(rel string) (level string, ok bool) {
	r, ok := rules[rel]
	level = fmt.Sprint(r.level / 10)
	if r.level%10 != 0 {
		level += "½"
	}
	return level, ok
}

// Children names, in the order of the map, the packages that stand in it below a parent.
func Children(parent string) []string {
	out := slices.Concat(parts[parent], adapters[parent])
	for _, p := range conformance {
		if path.Dir(p) == parent {
			out = append(out, path.Base(p))
		}
	}
	return out
}

// Names lists every package that the map names.
func Names() []string {
	out := slices.Clone(conformance)
	for p := range rules {
		out = append(out, p)
	}
	for _, under := range []map[string][]string{adapters, parts} {
		for parent, children := range under {
			for _, c := range children {
				out = append(out, parent+"/"+c)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Check judges the graph and returns every breach, in the order of the packages.
func Check(pkgs []Package) []Violation {
	var out []Violation
	for _, p := range pkgs {
		rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, Module), "/")
		say := func(format string, args ...any) {
			out = append(out, Violation{rel, fmt.Sprintf(format, args...)})
		}
		k, _ := classify(rel)
		if k == unknown {
			say("not in the package map; give it a place in test/arch/arch.go and in docs/packages.md")
			continue
		}
		if len(p.GoFiles) > 0 {
			checkDoc(p, k, say)
		}
		if matches(rel, sealed) {
			for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				if own, ok := strings.CutPrefix(imp, Module+"/"); ok && !matches(own, sealed) {
					say("imports %s: what lies below %s, tests included, imports nothing of ours", own, sealed)
				}
			}
		}
		for _, imp := range p.Imports {
			if own, ok := strings.CutPrefix(imp, Module+"/"); ok {
				if why := mayImport(rel, own); why != "" {
					say("imports %s: %s", own, why)
				}
				continue
			}
			if why := mayLink(rel, k, imp); why != "" {
				say("imports %s: %s", imp, why)
			}
		}
	}
	return out
}

func checkDoc(p Package, k kind, say func(string, ...any)) {
	want := "Package " + p.Name + " "
	if p.Name == "main" {
		want = "Command " + path.Base(p.ImportPath) + " "
	}
	if p.Doc == "" {
		say("has no package comment; begin one with %q and say in a sentence what it promises", want)
		return
	}
	if !strings.HasPrefix(p.Doc, want) && k != testTree {
		say("its package comment begins %q, not %q", firstWords(p.Doc), want)
	}
}

func firstWords(s string) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(len(words), 3)], " ")
}

// mayImport says why rel may not import the package own of this module, or "".
func mayImport(rel, own string) string {
	from, fromParent := classify(rel)
	to, toParent := classify(own)
	low := to == plain && rules[own].level <= 10
	switch {
	case to == unknown:
		return "which is not in the package map"
	case from == testTree:
		return ""
	case shared[own] != nil && !slices.Contains(shared[own], rel):
		return "which only " + strings.Join(shared[own], ", ") + " may import"
	case shared[own] != nil:
		return ""
	case to == suite || to == testTree:
		return "which is for tests only"
	case to == program && !sameProgram(rel, own):
		return "which belongs to a program"
	case slices.Contains(commands, own) && path.Dir(path.Dir(own)) != rel:
		return "which has commands: what others need of it goes below, as cmd/dayfly/internal/cli"
	case from == program || low && from != plain:
		return ""
	case from == part && fromParent == toParent && slices.Contains(layered, fromParent):
		return notBefore(fromParent, own, rel)
	case to == part && toParent != rel:
		return "a part is imported by its parent only"
	case to == part:
		return ""
	case from == part:
		return "a part imports levels 0 and 1 only"
	case (from == adapter || from == suite) && own != fromParent:
		return "a child imports its parent and levels 0 and 1 only"
	case from != plain:
		return ""
	}

	r := rules[rel]
	if slices.Contains(r.also, own) {
		return ""
	}
	if to == adapter {
		if r.any {
			return ""
		}
		return "an adapter is chosen by the agent, by embedded and by the programs"
	}
	switch target := rules[own]; {
	case target.level == r.level:
		return "which stands on its own level"
	case target.level > r.level:
		return "which stands above it"
	case r.any, target.level <= 10:
		return ""
	}
	return "of the packages below it, it may use levels 0 and 1" + orAlso(r.also)
}

// notBefore says why a part of a layered package may not import another of its parts, or "".
func notBefore(parent, own, rel string) string {
	of := func(p string) int { return slices.Index(parts[parent], path.Base(p)) }
	if of(own) < of(rel) {
		return ""
	}
	return "which builds on it: the parts of " + parent + " stand in order"
}

func orAlso(also []string) string {
	if len(also) == 0 {
		return " only"
	}
	return " and " + strings.Join(also, ", ") + " only"
}

// sameProgram reports whether both lie in the tree of one program. The functions share what lies under
// functions/internal.
func sameProgram(a, b string) bool {
	if strings.HasPrefix(a, "functions/") && strings.HasPrefix(b, "functions/internal/") {
		return true
	}
	root := func(p string) string {
		s := strings.Split(p, "/")
		return strings.Join(s[:min(len(s), 2)], "/")
	}
	return root(a) == root(b)
}

// mayLink says why rel may not import a package from outside this module, or "".
func mayLink(rel string, k kind, imp string) string {
	if instead := banned[imp]; instead != "" {
		return instead
	}
	if k == suite || k == testTree {
		return ""
	}
	for _, t := range testOnly {
		if matches(imp, t) {
			return "which is for tests only"
		}
	}
	if k == plain && rules[rel].std && !standard(imp) {
		return "it links the standard library only"
	}
	for _, o := range owners {
		if !matches(imp, o.library) {
			continue
		}
		for _, a := range o.allowed {
			if matches(rel, a) {
				return ""
			}
		}
		return "which only " + strings.Join(o.allowed, ", ") + " may link"
	}
	return ""
}

// matches reports whether p is prefix, or lies below it.
func matches(p, prefix string) bool {
	if strings.HasSuffix(prefix, "/") {
		return strings.HasPrefix(p, prefix)
	}
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}

// standard reports whether an import path is of the standard library: its first element has no dot.
func standard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}
