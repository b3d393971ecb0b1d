package discover

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// maxModules bounds how many modules are read to find out where they all are.
const maxModules = 1000

// Widen makes the source of a workspace the nearest directory that holds its root module and all modules that this
// calls by a path. uses is the first of these that lies outside of the root module; empty: there is none, and the
// source stays as it is. A source with a path, and one that is not a directory of this machine, stays as well.
func Widen(w *api.Workspace) (uses string) {
	dir := w.Source.Directory
	if dir == "" || w.Source.Path != "" || w.Engine == api.EngineCommand {
		return ""
	}
	top, seen := dir, map[string]bool{dir: true}
	for todo := []string{dir}; len(todo) > 0; todo = todo[1:] {
		for _, source := range engine.ReadCode(os.DirFS(todo[0]), ".", w.Engine).Modules {
			module := filepath.Join(todo[0], filepath.FromSlash(source))
			if !local(source) || seen[module] || len(seen) == maxModules {
				continue
			}
			if info, err := os.Stat(module); err != nil || !info.IsDir() {
				continue
			}
			seen[module] = true
			todo = append(todo, module)
			for !inside(module, top) {
				top = filepath.Dir(top)
			}
			if uses == "" && top != dir {
				uses, _ = filepath.Rel(dir, module) // both are absolute
			}
		}
	}
	if uses != "" {
		rel, _ := filepath.Rel(top, dir)
		w.Source.Directory, w.Source.Path = top, filepath.ToSlash(rel)
	}
	return uses
}

// local reports whether the source of a module is a path.
func local(source string) bool {
	return source == "." || source == ".." || strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../")
}

func inside(name, dir string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}
