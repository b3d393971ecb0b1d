package discover

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// others are the files of programs whose settings are not read, by their names or, with a dot, how names end.
var others = []struct{ program, file string }{
	{"env0", "env0.yml"}, {"env0", "env0.yaml"}, {"Terramate", ".tm.hcl"}, {"Terramate", ".tm"}, {"atmos", "atmos.yaml"},
	{"Spacelift", ".spacelift/config.yml"}, {"Spacelift", ".spacelift/config.yaml"},
}

// noteOther notes a file of a program other than an engine, to say later that it was not read.
func (w *walk) noteOther(name string) {
	base, top := path.Base(name), path.Dir(name) == "."
	for _, o := range others {
		if base == o.file || o.file[0] == '.' && !strings.Contains(o.file, "/") && strings.HasSuffix(base, o.file) {
			w.unread[o.program] = append(w.unread[o.program], name)
			return
		}
	}
	if base == atlantisName && !top {
		w.unread["Atlantis"] = append(w.unread["Atlantis"], name)
	}
	if slices.Contains(diggerNames, base) && !top {
		w.unread["Digger"] = append(w.unread["Digger"], name)
	}
}

// unreadNotes says once of each program that its settings were not read.
func (w *walk) unreadNotes() (notes []string) {
	for _, o := range others { // the walk does not enter directories that begin with a dot
		if _, err := fs.Stat(w.fsys, o.file); strings.Contains(o.file, "/") && err == nil {
			w.unread[o.program] = append(w.unread[o.program], o.file)
		}
	}
	for _, program := range []string{"env0", "Terramate", "atmos", "Spacelift"} {
		if files := w.unread[program]; len(files) > 0 {
			notes = append(notes, fmt.Sprintf("the settings of %s are not read (%s): write what they say into the workspaces", program, text.Some(files, maxNamed)))
		}
	}
	for _, program := range []string{"Atlantis", "Digger"} {
		if files := w.unread[program]; len(files) > 0 {
			notes = append(notes, fmt.Sprintf("a file of %s is read only at the top of the tree, not %s: discover those directories by themselves", program, text.Some(files, maxNamed)))
		}
	}
	return notes
}

// readProjects reads the projects of atlantis.yaml, or else of digger.yml, and finds their code.
func (w *walk) readProjects() error {
	projects, notes, err := readAtlantis(w.fsys)
	if err != nil {
		return err
	}
	diggers, more, err := readDigger(w.fsys)
	switch {
	case err != nil:
		return err
	case len(projects) == 0:
		projects, notes = diggers, append(notes, more...)
	case len(diggers) > 0:
		notes = append(notes, diggers[0].file+" is not read, because "+atlantisName+" names projects")
	}
	w.out.Notes = append(append(w.out.Notes, notes...), w.unreadNotes()...)
	w.assign(projects)
	return nil
}

// isElsewhere reports whether a directory with code of terraform is a unit, or the module of one. Such a module may
// have a backend block, which units complete.
func (w *walk) isElsewhere(m *module) bool {
	caller, called := w.called[m.dir]
	switch {
	case slices.ContainsFunc(w.units, func(u *unit) bool { return u.dir == m.dir }):
		return true
	case called && len(m.projects) == 0:
		w.leave(m.dir, "it is only called as a module, by the unit "+caller)
		return true
	}
	return false
}
