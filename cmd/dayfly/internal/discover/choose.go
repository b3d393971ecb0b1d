package discover

import (
	"path"
	"slices"
)

// undecided says why the engine's workspace of a root module must be chosen; empty: it need not be.
func (m *module) undecided() string {
	switch {
	case m.code.Cloud && m.code.CloudSettings["workspaces.name"] == "":
		return "its cloud block names no workspace"
	case m.code.Backend == "remote" && m.code.Settings["workspaces.name"] == "":
		return "its backend remote names no workspace"
	case m.readsWorkspace && !slices.Contains([]string{"", "local", "http"}, m.code.Backend): // http has default only
		return "its code reads terraform.workspace, which is default without one"
	}
	return ""
}

// chosen are the engine's workspaces of a root module: those that were seen, those that must be chosen and were, the
// one that its cloud block names, else none by name. ask says why one must still be chosen.
func (m *module) chosen(o Options) (names []string, ask string) {
	why := m.undecided()
	switch {
	case len(m.engines) > 0:
		return m.engines, ""
	case why != "" && len(o.Workspaces) > 0:
		return o.Workspaces, ""
	case why != "":
		ask = why + ": choose one with state.workspace, or several with --workspace"
	}
	return []string{m.code.CloudSettings["workspaces.name"]}, ask
}

// readName notes which modules read the name of the engine's workspace, themselves or in a module that they call.
func (w *walk) readName() {
	for dir, m := range w.modules {
		m.readsWorkspace = m.code.ReadsWorkspace || slices.ContainsFunc(w.callsFrom(dir), func(called string) bool {
			return w.modules[called].code.ReadsWorkspace
		})
	}
}

// callsFrom are the directories of all modules of the tree that the code of a directory calls, also by way of others.
func (w *walk) callsFrom(dir string) (dirs []string) {
	seen := map[string]bool{dir: true}
	for todo := []string{dir}; len(todo) > 0; todo = todo[1:] {
		m := w.modules[todo[0]]
		if m == nil {
			continue
		}
		for _, source := range m.code.Modules {
			if module := path.Join(todo[0], source); local(source) && w.modules[module] != nil && !seen[module] {
				seen[module] = true
				todo, dirs = append(todo, module), append(dirs, module)
			}
		}
	}
	return dirs
}
