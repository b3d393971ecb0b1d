package discover

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// pulumi is a directory with a Pulumi.yaml.
type pulumi struct {
	dir, file string
	code      engine.PulumiCode
	projects  []project
}

// newStack is the stack of a project that has none yet: the name that Pulumi itself offers.
const newStack = "dev"

var stackName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,90}$`)

// stacks describes a project: one workspace for each of its stacks, or for each project of digger.yml or
// atlantis.yaml.
func (w *walk) stacks(p *pulumi, s source) []Workspace {
	raw, err := readFile(w.fsys, path.Join(p.dir, p.file))
	if err == nil {
		p.code, err = engine.ReadPulumi(raw, p.file)
	}
	if err != nil {
		w.leave(p.dir, err.Error())
		return nil
	}
	names := p.names(w.fsys)
	var list []Workspace
	for _, from := range p.projects {
		stack := cmp.Or(from.stack, strings.TrimPrefix(from.Workspace, "default"))
		if stack == "" && len(names) == 1 {
			stack = names[0]
		}
		one := p.workspace(w.fsys, s, stack, from.file+" names it")
		if from.carry(s, &one); from.Version != "" {
			one.Notes = append(one.Notes, from.file+": \"terraform_version\" is not carried over")
		}
		list = append(list, one)
	}
	switch {
	case len(list) > 0:
	case len(names) == 0 && len(s.Workspaces) == 0:
		list = append(list, p.workspace(w.fsys, s, "", "it has a "+p.file))
	case len(names) == 0:
		for _, name := range s.Workspaces {
			list = append(list, p.workspace(w.fsys, s, name, "it has a "+p.file))
		}
	default:
		for _, name := range names {
			list = append(list, p.workspace(w.fsys, s, name, "it has the stack "+name))
		}
	}
	return list
}

// names are the stacks that have a file with settings, or a state beside the code.
func (p *pulumi) names(fsys fs.FS) []string {
	found := map[string]bool{}
	look := func(dir, prefix, ext string) {
		entries, _ := fs.ReadDir(fsys, dir)
		for _, e := range entries {
			name := strings.TrimSuffix(strings.TrimPrefix(e.Name(), prefix), ext)
			if e.Name() == prefix+name+ext && !e.IsDir() && stackName.MatchString(name) {
				found[name] = true
			}
		}
	}
	look(path.Join(p.dir, p.code.ConfigDir), "Pulumi.", path.Ext(p.file))
	look(path.Join(p.dir, ".pulumi/stacks", p.code.Name), "", ".json")
	return slices.Sorted(maps.Keys(found))
}

// workspace describes a stack; an empty one is that of a project without any.
func (p *pulumi) workspace(fsys fs.FS, s source, stack, why string) Workspace {
	w := Workspace{Dir: p.dir, Why: why, Backend: p.code.Backend}
	note := func(format string, args ...any) { w.Notes = append(w.Notes, fmt.Sprintf(format, args...)) }
	w.Name = s.nameOf(p.dir)
	if err := p.code.CheckStack(stack); stack != "" && err != nil {
		note("%s", err)
		stack = ""
	}
	if stack == "" {
		stack = newStack
		note("no file Pulumi.STACK%s says which stacks it has: it gets the stack %s; write the right one into state.workspace before its first run, or choose it with --workspace", path.Ext(p.file), newStack)
	} else {
		w.Name += "-" + path.Base(stack)
	}
	w.Project, w.Engine, w.Source, w.State = s.Project, api.EnginePulumi, s.of(p.dir), &api.State{Workspace: stack}
	s.widen(p.dir, &w)
	switch {
	case strings.HasPrefix(p.code.Backend, "file:"):
		note("its backend %s is a directory of one machine: Dayfly keeps the state itself. The first run takes one beside the code over with --take-over; bring any other with pulumi stack export and import", p.code.Backend)
	case p.code.Backend == "":
		note("%s names no backend: for Pulumi Cloud, name PULUMI_ACCESS_TOKEN under secrets; without it, Dayfly keeps the state itself", p.file)
	}
	var settings struct {
		Salt string `yaml:"encryptionsalt"`
	}
	raw, err := readFile(fsys, path.Join(p.dir, p.code.ConfigDir, "Pulumi."+path.Base(stack)+path.Ext(p.file)))
	if err == nil && yaml.Unmarshal(raw, &settings) == nil && settings.Salt != "" {
		note("a passphrase encrypts the secrets of its stack: name PULUMI_CONFIG_PASSPHRASE under secrets")
	}
	return w
}
