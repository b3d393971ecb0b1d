package discover

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// standing is what a directory with code is taken for.
type standing int

const (
	leftOut standing = iota
	doubtful
	taken
	needy // doubtful only because some of its variables have no value yet
)

// Directories below which code is written to be copied, tried or called.
var (
	exampleHomes = []string{"example", "examples", "fixture", "fixtures", "template", "templates", "testdata", "tests", "sample", "samples", "scaffold", "skeleton"}
	moduleHomes  = []string{"module", "modules", "tf-modules", "terraform-modules", "tfmodules"}
)

// below is the directory of a path, or the one itself, that has one of some names; empty: none has.
func below(dir string, homes []string) string {
	for part := range strings.SplitSeq(dir, "/") {
		if slices.Contains(homes, strings.Trim(strings.ToLower(part), "_")) || strings.Contains(part, "{{") && slices.Contains(homes, "template") {
			return part
		}
	}
	return ""
}

// evidence is what shows that a directory is run as a root module; empty: nothing does.
func (m *module) evidence() string {
	switch {
	case m.code.Cloud:
		return "it has a cloud block"
	case m.code.Backend != "":
		return "it has a backend " + m.code.Backend
	case len(m.signs) > 0:
		return "an engine has run here: it has " + strings.Join(m.signs, ", ")
	}
	return ""
}

// judge says whether a directory is a root module, and why or why not.
func (m *module) judge() (why string, is standing) {
	evidence, home := m.evidence(), below(m.dir, exampleHomes)
	switch {
	case len(m.projects) > 0:
		return m.projects[0].file + " names it", taken
	case evidence != "" && home != "":
		return evidence + ", but it lies below " + home, doubtful
	case evidence != "":
		return evidence, taken
	case m.called != "":
		return "it is only called as a module, by " + m.called, leftOut
	case home != "":
		return "it lies below " + home + ", as code to copy or to try", leftOut
	case m.linked != "":
		return "its files are linked from other code, in " + m.linked, leftOut
	case m.code.Blocks == 0 && m.code.Unsure:
		return "some of its files could not be read", doubtful
	case m.code.Blocks == 0 && len(m.code.Providers) > 0:
		return "it has a provider block, but no resources and no modules", doubtful
	case m.code.Blocks == 0:
		return "it has declarations only: no resources and no modules", leftOut
	case below(m.dir, moduleHomes) != "" && (len(m.code.Providers) == 0 || len(m.lacking(m.vars)) > 0):
		return "it lies below " + below(m.dir, moduleHomes) + ", as a module for others", leftOut
	case below(m.dir, moduleHomes) != "":
		return "it has a provider block, but it lies below " + below(m.dir, moduleHomes), doubtful
	case m.examples && !m.loads:
		return "it has examples, as a module for others", doubtful
	}
	return m.judgeValues()
}

// judgeValues judges code that nobody calls and that lies where root modules lie: it is one if its variables have
// values, as far as they can be there.
func (m *module) judgeValues() (why string, is standing) {
	lacking := m.lacking(m.vars)
	switch provides := len(m.code.Providers) > 0; {
	case len(lacking) > 0 && provides && (m.lock != nil || m.sample):
		return "it has a provider block, and " + map[bool]string{true: "a lock file", false: "an example of its variables"}[m.lock != nil], taken
	case len(lacking) > 0:
		return "it may be a module: nothing calls it, but nothing gives a value to " + text.Some(lacking, maxNamed), needy
	case len(m.undeclared()) > 0:
		return "it is no complete root module: it reads var." + text.Some(m.undeclared(), maxNamed) + ", and declares no such variable", doubtful
	case provides:
		return "it has a provider block", taken
	case m.loads || len(m.vars) > 0:
		return "it has files of variables", taken
	}
	return "nothing calls it, and it needs no more values", taken
}

// undeclared are the variables that it reads and does not declare, as far as all of it could be read.
func (m *module) undeclared() (names []string) {
	for name := range m.code.Reads {
		if _, ok := m.code.Variables[name]; !ok && !m.code.Unsure {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// candidates are the modules that are root modules, or would be with values for their variables.
func (w *walk) candidates(include []string) (roots []*module) {
	for _, dir := range slices.Sorted(maps.Keys(w.modules)) {
		m := w.modules[dir]
		if m.elsewhere = w.isElsewhere(m); m.elsewhere {
			continue
		}
		if _, is := m.judge(); is >= taken || included(dir, include) {
			roots = append(roots, m)
		}
	}
	return roots
}

// included reports whether one of the patterns, or of the paths, is that of a directory.
func included(dir string, include []string) bool {
	return slices.ContainsFunc(include, func(pattern string) bool {
		ok, err := path.Match(path.Clean(pattern), dir)
		return ok && err == nil || path.Clean(pattern) == dir
	})
}

// checkInclude refuses patterns that take nothing.
func (w *walk) checkInclude(include []string) error {
	for _, pattern := range include {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(w.modules)), func(dir string) bool { return included(dir, []string{pattern}) }) {
			return fmt.Errorf("--include: %s is no directory with code that was read, nor a pattern for one: want a path from the top of the tree, such as modules/net or 'examples/*'", text.Quote(pattern, 200))
		}
	}
	return nil
}

// sortOut judges the modules, now that their files are known, and describes those that are root modules.
func (w *walk) sortOut(s source) {
	for _, dir := range slices.Sorted(maps.Keys(w.modules)) {
		m := w.modules[dir]
		if m.elsewhere {
			continue
		}
		why, is := m.judge()
		switch {
		case is == taken:
			w.out.Workspaces = append(w.out.Workspaces, m.workspaces(s, why)...)
		case included(dir, s.Include):
			w.out.Workspaces = append(w.out.Workspaces, m.workspaces(s, "--include takes it, though "+why)...)
		case is == leftOut:
			w.leave(dir, why)
		default:
			w.out.Doubtful = append(w.out.Doubtful, Left{Dir: dir, Why: why})
		}
	}
}
