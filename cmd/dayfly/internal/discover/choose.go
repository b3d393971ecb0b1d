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
		seen := map[string]bool{dir: true}
		for todo := []string{dir}; len(todo) > 0 && !m.readsWorkspace; todo = todo[1:] {
			called := w.modules[todo[0]]
			m.readsWorkspace = called.code.ReadsWorkspace
			for _, source := range called.code.Modules {
				if target := path.Join(todo[0], source); local(source) && w.modules[target] != nil && !seen[target] {
					seen[target] = true
					todo = append(todo, target)
				}
			}
		}
	}
}
