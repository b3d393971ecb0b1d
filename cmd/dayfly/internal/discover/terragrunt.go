package discover

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Workspaces of Terragrunt: one for each tree of units, or for each unit.
const (
	TerragruntTrees = "trees"
	TerragruntUnits = "units"
)

const (
	unitFile  = "terragrunt.hcl"
	stackFile = "terragrunt.stack.hcl"
)

// unit is a directory with a terragrunt.hcl or a terragrunt.stack.hcl.
type unit struct {
	dir      string
	stack    bool
	sourced  bool     // it, or a file that it includes, names a source
	includes []string // files
	reads    []string // files, also those that it includes
	holds    []string // directories that its source must have
	needs    []string // directories of the units that it depends on
	calls    []string // directories that it calls: a module, or of a stack units and stacks
	backends []string
	missing  []string // files that are not in the tree
	unsure   bool
}

// hasUnits reports whether a directory is one of a unit, or with below, has units further down.
func (w *walk) hasUnits(dir string, below bool) bool {
	return slices.ContainsFunc(w.units, func(u *unit) bool { return u.dir == dir || below && inside(u.dir, dir) })
}

// readUnits reads the files of Terragrunt, and tells units from files that others include, and from those that a
// stack calls.
func (w *walk) readUnits(files []string) {
	all := map[string]*unit{}
	included := map[string]bool{}
	for _, name := range files {
		dir := path.Dir(name)
		if all[dir] == nil {
			all[dir] = &unit{dir: dir}
		}
		u := all[dir]
		u.stack = u.stack || path.Base(name) == stackFile
		w.follow(u, name, map[string]bool{})
		for _, file := range u.includes {
			included[file] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		w.readCalls(all[dir], all)
	}
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		switch u := all[dir]; {
		case w.called[dir] != "":
			w.leave(dir, "it is only called by the stack "+w.called[dir])
		case included[path.Join(dir, unitFile)] && !u.stack:
		case !u.stack && !u.sourced && len(u.includes)+len(u.missing) == 0 && w.modules[dir] == nil:
			w.leave(dir, "its terragrunt.hcl names no source, and it has no code")
		default:
			w.units = append(w.units, u)
		}
	}
}

// readCalls notes the modules that a unit calls, or the units and stacks that a stack calls. The files of these are
// read as if they were below the stack, where Terragrunt copies them.
func (w *walk) readCalls(u *unit, all map[string]*unit) {
	seen := map[string]bool{u.dir: true}
	for todo := u.calls; len(todo) > 0; todo = todo[1:] {
		callee := todo[0]
		if of := all[callee]; seen[callee] || of != nil && !u.stack {
			continue
		} else if of != nil {
			copied := &unit{dir: path.Join(u.dir, ".terragrunt-stack", path.Base(callee))}
			w.follow(copied, path.Join(callee, map[bool]string{false: unitFile, true: stackFile}[of.stack]), map[string]bool{})
			u.holds, u.missing = append(u.holds, copied.holds...), append(u.missing, copied.missing...)
			u.includes, u.backends = append(u.includes, copied.includes...), append(u.backends, copied.backends...)
			u.reads = append(u.reads, copied.reads...)
			todo = append(append(todo, of.calls...), copied.calls...)
		}
		seen[callee] = true
		w.called[callee] = cmp.Or(w.called[callee], u.dir)
	}
	u.calls = slices.Sorted(maps.Keys(seen)) // also by way of others
}

// follow reads a file of a unit, and the files that this reads.
func (w *walk) follow(u *unit, name string, seen map[string]bool) {
	const maxFiles = 100 // of a unit
	if seen[name] || len(seen) == maxFiles {
		return
	}
	seen[name] = true
	f, known := w.hclRead[name]
	if !known {
		src, err := readFile(w.fsys, name)
		f = engine.ReadUnit(src, path.Base(name))
		f.Unsure = f.Unsure || err != nil
		w.hclRead[name] = f
	}
	u.unsure, u.sourced = u.unsure || f.Unsure, u.sourced || f.Sourced
	if f.Backend != "" && !slices.Contains(u.backends, f.Backend) {
		u.backends = append(u.backends, f.Backend)
	}
	for _, p := range f.Includes {
		if file, ok := w.place(u, name, p); ok {
			u.includes = append(u.includes, file)
		}
	}
	for _, p := range f.Reads {
		if file, ok := w.place(u, name, p); ok {
			u.reads, u.holds = append(u.reads, file), append(u.holds, path.Dir(file))
			w.follow(u, file, seen)
		} else if !p.Optional && !slices.Contains(u.missing, cmp.Or(p.Above, p.Path)) {
			u.missing = append(u.missing, cmp.Or(p.Above, p.Path))
		}
	}
	for _, p := range f.Needs {
		if dir, ok := w.place(u, path.Join(u.dir, unitFile), p); ok {
			u.needs, u.holds = append(u.needs, dir), append(u.holds, dir)
		}
	}
	if f.Source != nil {
		w.addCall(u, *f.Source)
	}
	for _, p := range f.Calls {
		w.addCall(u, p)
	}
}

// addCall notes a directory that a unit or a stack calls. Terragrunt copies the part of a source before //.
func (w *walk) addCall(u *unit, p engine.UnitPath) {
	called, ok := w.place(u, path.Join(u.dir, unitFile), p)
	if !ok {
		u.missing = append(u.missing, p.Path)
		return
	}
	u.calls = append(u.calls, called)
	p.Path, _, _ = strings.Cut(p.Path, "//")
	if top, ok := w.place(u, path.Join(u.dir, unitFile), p); ok {
		u.holds = append(u.holds, top)
	}
}

// place is where a path of a file leads to. It must be in the tree, whose top stands for that of the repository.
func (w *walk) place(u *unit, file string, p engine.UnitPath) (name string, ok bool) {
	base := path.Dir(file)
	switch {
	case p.Repo:
		base = "."
	case p.Above != "":
		for base = u.dir; ; {
			if base == "." {
				return "", false
			}
			base = path.Dir(base)
			if _, err := fs.Stat(w.fsys, path.Join(base, p.Above)); err == nil {
				break
			}
		}
	case path.IsAbs(p.Path):
		return "", false
	}
	name = path.Join(base, p.Path)
	if !fs.ValidPath(name) {
		return "", false
	}
	_, err := fs.Stat(w.fsys, name)
	return name, err == nil
}

// groups are the units of each workspace, by its directory.
func (w *walk) groups(mode string) map[string][]*unit {
	out := map[string][]*unit{}
	var rest []*unit
	for _, u := range w.units {
		dir := u.dir
		for w.trees[dir] == nil && dir != "." {
			dir = path.Dir(dir)
		}
		if w.trees[dir] != nil {
			out[dir] = append(out[dir], u)
		} else {
			rest = append(rest, u)
		}
	}
	tops := treesOf(rest, mode)
	for named := range out { // another workspace would run its units too
		tops = slices.DeleteFunc(tops, func(top string) bool { return inside(named, top) })
	}
	for _, u := range rest {
		dir := u.dir
		if i := slices.IndexFunc(tops, func(top string) bool { return inside(u.dir, top) }); i >= 0 { // the highest
			dir = tops[i]
		}
		out[dir] = append(out[dir], u)
	}
	return out
}

// treesOf are the directories of trees of units. Units that include the same file belong together: below its
// directory each directory is a tree, such as that of an environment, unless all units lie directly in there. Of
// units that include nothing, those side by side are a tree.
func treesOf(units []*unit, mode string) []string {
	roots := map[string][]*unit{}
	for _, u := range units {
		root := u.root()
		if mode == TerragruntUnits {
			root = u.dir // alone
		}
		roots[root] = append(roots[root], u)
	}
	var tops []string
	for root, units := range roots {
		dir, includes := strings.CutPrefix(root, "include ")
		flat := !slices.ContainsFunc(units, func(u *unit) bool { return u.dir != dir && path.Dir(u.dir) != dir })
		for _, u := range units {
			switch first, _, _ := strings.Cut(strings.TrimPrefix(u.dir, strings.TrimPrefix(dir+"/", "./")), "/"); {
			case !includes && len(units) == 1:
				tops = append(tops, u.dir)
			case flat, u.dir == dir:
				tops = append(tops, dir)
			default:
				tops = append(tops, path.Join(dir, first))
			}
		}
	}
	slices.SortFunc(tops, func(a, b string) int { return strings.Compare(strings.TrimPrefix(a, "."), strings.TrimPrefix(b, ".")) })
	return slices.Compact(tops)
}

// root is the directory of the highest file that a unit includes, else the one above it.
func (u *unit) root() string {
	top := ""
	for _, file := range u.includes {
		if dir := path.Dir(file); inside(u.dir, dir) && (top == "" || len(dir) < len(top) || dir == ".") {
			top = dir
		}
	}
	switch {
	case top != "":
		return "include " + top
	case len(u.missing) > 0: // it lies above the tree
		return "include ."
	case u.stack:
		return u.dir
	}
	return path.Dir(u.dir)
}

// terragrunt describes the trees of units.
func (w *walk) terragrunt(s source) (list []Workspace) {
	groups := w.groups(s.Terragrunt)
	for dir, units := range groups {
		for _, u := range units {
			w.groupOf[u.dir] = dir
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(groups)) {
		units, of := groups[dir], w.trees[dir]
		if len(of) == 0 {
			list = append(list, w.tree(s, dir, units))
		}
		for _, p := range of {
			one := w.tree(s, dir, units)
			one.Why = p.file + " names it"
			if p.carry(s, &one); p.Workspace != "" && p.Workspace != "default" {
				one.Environment = map[string]string{"TF_WORKSPACE": p.Workspace}
			}
			if p.Distribution == "terraform" {
				one.Notes = append(one.Notes, p.file+": \"terraform_distribution\" is not carried over: terragrunt runs tofu where there is one, and TG_TF_PATH under environment names another")
			}
			if p.Version != "" {
				one.Notes = append(one.Notes, p.file+": \"terraform_version\" is not carried over: engine_version is that of terragrunt")
			}
			list = append(list, one)
		}
	}
	return list
}

// outside are the places outside of a directory with the code of its units: files that they read, and what they call.
func (w *walk) outside(s source, dir string, units []*unit) (places []string) {
	for _, u := range units {
		calls := append(slices.Clone(u.calls), w.callsFrom(u.dir)...)
		for _, called := range u.calls {
			calls = append(calls, w.callsFrom(called)...)
		}
		for _, place := range append(calls, u.reads...) {
			if !inside(place, dir) {
				places = append(places, filepath.Join(s.dir, filepath.FromSlash(place)))
			}
		}
	}
	return places
}

// tree describes a workspace of some units.
func (w *walk) tree(s source, dir string, units []*unit) Workspace {
	one := Workspace{Dir: dir, Why: "it is a tree of " + text.Count(len(units), "unit") + " of Terragrunt"}
	if len(units) == 1 && units[0].dir == dir {
		one.Why = map[bool]string{false: "it is a unit of Terragrunt", true: "it is a stack of Terragrunt"}[units[0].stack]
	}
	one.Name = s.nameOf(dir)
	one.Project, one.Engine, one.Source = s.Project, api.EngineTerragrunt, s.of(dir)
	top, uses := dir, ""
	var backends, missing []string
	unsure := false
	for _, u := range units {
		backends, missing, unsure = append(backends, u.backends...), append(missing, u.missing...), unsure || u.unsure
		for _, held := range append(u.holds, w.callsFrom(u.dir)...) {
			for !inside(held, top) {
				top, uses = path.Dir(top), cmp.Or(uses, held)
			}
		}
		for _, need := range u.needs {
			if !inside(need, dir) {
				one.needs = append(one.needs, w.groupOf[need])
			}
		}
	}
	if one.Source.Git != nil {
		if paths := s.paths(w.outside(s, dir, units), one.Source); len(paths) > 0 {
			one.PullRequests = &api.PullRequests{Paths: paths}
		}
	}
	note := func(format string, args ...any) { one.Notes = append(one.Notes, fmt.Sprintf(format, args...)) }
	if one.Source.Directory != "" && top != dir {
		one.Source = s.of(top)
		one.Source.Path = relative(top, dir) // both are from the top of the tree
		note("it uses %s: all of the directory of its source is copied", relative(dir, uses))
	}
	slices.Sort(backends)
	one.Backend = strings.Join(slices.Compact(backends), ", ")
	if slices.Contains(backends, "local") {
		note("the state of its units is a local file, which a run refuses: declare a remote_state with a remote backend")
	}
	if slices.Sort(missing); len(missing) > 0 {
		note("it reads files that are not in this tree: %s; without --git-url, discover the directory that has them", text.Some(slices.Compact(missing), maxNamed))
	}
	if unsure {
		note("some of its files could not be read in full")
	}
	return one
}
