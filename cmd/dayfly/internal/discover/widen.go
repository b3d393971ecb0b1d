package discover

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Bounds of what is read to find out where the code of a root module lies.
const (
	maxModules = 1000
	maxLooked  = 100_000 // files that may be links
)

// Widen makes the source of a workspace the nearest directory that holds its root module and all else that its code
// names by a path: modules, targets of links, files of variables. uses is the first of these that lies outside of the
// root module; empty: there is none, and the source stays as it is. A source with a path, and one that is not a
// directory of this machine, stays as well.
func Widen(w *api.Workspace) (uses string) {
	dir := w.Source.Directory
	if dir == "" || w.Source.Path != "" || w.Engine == api.EngineCommand {
		return ""
	}
	u := usedBy(dir, w.Engine, w.VarFiles)
	if u.top == dir {
		return ""
	}
	for top := dir; top != u.top; { // all of it is copied, and its links must lead somewhere too
		top = u.top
		u.links(top)
	}
	w.Source.Directory, w.Source.Path = u.top, relative(u.top, dir)
	return relative(dir, u.first)
}

// used is what the code of a root module names by a path.
type used struct {
	top     string   // holds all places, and all that the paths to them pass
	first   string   // the place that widened the top first
	outside []string // the places outside of the root module
	missing []string // modules that are not there, as in a submodule that was not fetched
	climbs  string   // the first path that passes a place above the repository

	root       string
	repository string          // the directory above which no link is followed
	modules    map[string]bool // that were seen
	seen       map[string]bool // links
	walked     []string        // directories that were looked at for links
	looked     int             // files
}

// usedBy reads the modules and links that a root module uses, directly or by way of others. root is absolute.
func usedBy(root, engineName string, varFiles []string) *used {
	u := &used{root: root, top: root, repository: repositoryOf(root), modules: map[string]bool{root: true}, seen: map[string]bool{}}
	for _, file := range varFiles {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err == nil {
			u.place(root, file)
		}
	}
	for todo := []string{root}; len(todo) > 0; todo = todo[1:] {
		u.links(todo[0])
		for _, source := range u.calls(todo[0], engineName) {
			if module := u.module(todo[0], source); module != "" {
				todo = append(todo, module)
			}
		}
	}
	return u
}

// module notes a module that is called from a directory by its path. It returns its directory if that was not read yet.
func (u *used) module(dir, source string) string {
	module := filepath.Join(dir, filepath.FromSlash(source))
	if !local(source) || u.modules[module] || len(u.modules) == maxModules {
		return ""
	}
	u.modules[module] = true
	if info, err := os.Stat(module); err != nil || !info.IsDir() {
		u.missing = append(u.missing, module)
		return ""
	}
	u.place(dir, source)
	return module
}

// links notes the targets of the links in a directory and below.
func (u *used) links(dir string) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil || slices.ContainsFunc(u.walked, func(done string) bool { return inside(dir, done) }) {
		return
	}
	u.walked = append(u.walked, dir)
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch u.looked++; {
		case u.looked > maxLooked:
			return fs.SkipAll
		case err != nil:
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".terraform"): // a run leaves them out
			return fs.SkipDir
		case d.Type()&fs.ModeSymlink != 0:
			u.link(name)
		}
		return nil //nolint:nilerr // the run says what cannot be read
	})
}

// link notes where a link leads, with the links on the way. A link out of the repository, and one that leads nowhere,
// is left to the run.
func (u *used) link(name string) {
	target, err := os.Readlink(name)
	if err != nil || filepath.IsAbs(target) || u.seen[name] {
		return
	}
	u.seen[name] = true
	dir := filepath.Dir(name)
	info, err := os.Stat(name)
	if err != nil || !inside(highest(dir, target), u.repository) {
		return
	}
	leads := filepath.Join(dir, target)
	for way := leads; way != u.repository; way = filepath.Dir(way) {
		if i, err := os.Lstat(way); err == nil && i.Mode()&fs.ModeSymlink != 0 {
			u.link(way)
		}
	}
	u.place(dir, target)
	if info.IsDir() {
		u.links(leads)
	}
}

// place notes a place, and widens the top to the highest point of the path to it.
func (u *used) place(dir, path string) {
	at, high := filepath.Join(dir, filepath.FromSlash(path)), highest(dir, path)
	if !inside(at, u.root) && !slices.Contains(u.outside, at) {
		u.outside = append(u.outside, at)
	}
	if !inside(high, u.repository) {
		u.climbs = cmp.Or(u.climbs, path)
	}
	if !inside(high, u.top) {
		u.first = cmp.Or(u.first, at)
	}
	for !inside(high, u.top) {
		u.top = filepath.Dir(u.top)
	}
}

// highest is the highest directory that a path passes: ../../infra/net from a directory of infra/live climbs above
// infra before it comes down again.
func highest(dir, path string) string {
	high := dir
	for part := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		dir = filepath.Join(dir, part)
		for !inside(dir, high) {
			high = filepath.Dir(high)
		}
	}
	return high
}

// repositoryOf is the clone that a directory lies in; without one, the top of the file system.
func repositoryOf(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil || at == filepath.Dir(at) {
			return at
		}
	}
}

// local reports whether the source of a module is a path.
func local(source string) bool {
	return source == "." || source == ".." || strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../")
}

func inside(name, dir string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
