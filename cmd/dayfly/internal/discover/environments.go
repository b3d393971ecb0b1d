package discover

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// sort is what the name of a file says of environments.
type sort int

const (
	named  sort = iota // it has a name of its own, which may be that of an environment
	common             // it is for all
	forOne             // it is for one environment
)

var environmentWord = regexp.MustCompile(`^(?i:dev|devel|develop|development|test|testing|tst|qa|uat|sit|int|integration|stage|staging|stg|` +
	`preprod|preproduction|preview|prod|production|prd|sandbox|sbx|demo|perf|nonprod|nprd|acc|acceptance|dr|canary)[0-9]*$`)

// Words that say nothing of an environment, or that a file is for all of them, and directories of which each entry is
// one.
var (
	emptyWords       = []string{"terraform", "tofu", "tf", "tfvars", "json", "vars", "var", "variables", "values", "inputs", "env", "environment", "backend", "backends", "config", "configuration", "conf", "cfg", "hcl", "settings", "remote", "state", "tfbackend", "s3", "gcs", "azurerm", "auto", "txt"}
	commonWords      = []string{"common", "global", "globals", "shared", "default", "defaults", "base", "all", "main", "secret", "secrets"}
	environmentHomes = []string{"env", "envs", "environment", "environments", "workspaces", "stages", "tenants", "customers", "accounts", "tfbackend", "backend", "backends", "backend-config", "backend-configs", "backend_config", "backend_configs"}
)

// words are those of a name.
func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("-_. ", r) })
}

// core is a name without the words that say nothing.
func core(name string) string {
	return strings.Join(slices.DeleteFunc(words(name), func(word string) bool { return slices.Contains(emptyWords, word) }), "-")
}

func isEnvironment(name string) bool {
	return slices.ContainsFunc(words(name), environmentWord.MatchString)
}

// environment reads from the path of a file which environment it is for: from its own name, else from the nearest
// directory.
func environment(name string) (env string, is sort) {
	own := core(path.Base(name))
	if isEnvironment(own) {
		return own, forOne
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		base := path.Base(dir)
		if isEnvironment(base) || slices.Contains(environmentHomes, path.Base(path.Dir(dir))) {
			return base, forOne
		}
	}
	switch {
	case own == "" || slices.ContainsFunc(words(own), func(word string) bool { return slices.Contains(commonWords, word) }):
		return "", common
	case slices.Contains(environmentHomes, path.Base(path.Dir(name))):
		return own, forOne
	}
	return "", named
}

// alternatives makes those files environments of their own that set the same as others beside them: a root module can
// have but one of them. So does tools.tfvars beside prod.tfvars, though its name is that of no usual environment.
func alternatives(files []*file) {
	same := func(a, b *file) bool {
		return a != b && (a.env == b.env || a.env == "") && path.Dir(a.name) == path.Dir(b.name) && len(a.names) > 0 && slices.Equal(sorted(a.names), sorted(b.names))
	}
	var split []*file
	for _, f := range files {
		if own := core(path.Base(f.name)); f.sort != common && own != "" && own != f.env && slices.ContainsFunc(files, func(other *file) bool { return same(f, other) }) {
			split = append(split, f)
		}
	}
	for _, f := range split {
		f.env, f.sort = strings.TrimPrefix(f.env+"-"+core(path.Base(f.name)), "-"), forOne
	}
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// environments are those that a root module has files for.
func (m *module) environments() (names []string) {
	for _, f := range slices.Concat(m.vars, m.configs) {
		if f.env != "" {
			names = append(names, f.env)
		}
	}
	return distinct(names)
}

// arrange sorts the files of a root module into those for one environment, those for all, and others: these are for
// all if they alone have what a variable needs, else one must choose.
func (m *module) arrange() {
	alternatives(m.vars)
	alternatives(m.configs)
	var chosen []*file
	for _, f := range m.vars {
		if f.sort != named {
			chosen = append(chosen, f)
		}
	}
	for _, f := range m.vars {
		if f.sort == named && slices.ContainsFunc(m.lacking(chosen), func(name string) bool { return slices.Contains(f.names, name) }) {
			f.sort = common
			chosen = append(chosen, f)
		}
	}
	for _, f := range m.configs {
		f.sort = max(f.sort, common) // the backend lacks them: nothing is left to choose
	}
	depth := func(f *file) int { return strings.Count(f.name, "/") }
	byEnvironment := func(a, b *file) int {
		if (a.env == "") != (b.env == "") {
			return strings.Compare(a.env, b.env) // those for all come first, and others win
		}
		return depth(a) - depth(b)
	}
	slices.SortStableFunc(m.vars, byEnvironment)
	slices.SortStableFunc(m.configs, byEnvironment)
}

// forEnvironment are the files of a root module that one of its environments reads.
func forEnvironment(files []*file, env string) []*file {
	return slices.DeleteFunc(slices.Clone(files), func(f *file) bool { return f.sort == named || f.env != "" && f.env != env })
}
