package discover

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const atlantisName = "atlantis.yaml"

// project is one of atlantis.yaml, or of digger.yml, which is read into the same form. Other has the fields that are
// not carried over.
type project struct {
	Name         string               `yaml:"name"`
	Dir          string               `yaml:"dir"`
	Workspace    string               `yaml:"workspace"`
	Version      string               `yaml:"terraform_version"`
	Distribution string               `yaml:"terraform_distribution"`
	Workflow     string               `yaml:"workflow"`
	Requirements []string             `yaml:"apply_requirements"`
	Autoplan     autoplan             `yaml:"autoplan"`
	DependsOn    []string             `yaml:"depends_on"`
	Group        int                  `yaml:"execution_order_group"`
	Other        map[string]yaml.Node `yaml:",inline"`

	file       string   // that names it
	paths      []string // that concern it, from the top of the tree
	terragrunt bool     // it says that it is a tree of units
	pulumi     bool
	stack      string // of Pulumi
}

type autoplan struct {
	Enabled *bool                `yaml:"enabled"`
	When    []string             `yaml:"when_modified"`
	Other   map[string]yaml.Node `yaml:",inline"`
}

// atlantis is the content of atlantis.yaml. Workflows are not read: a note says so for each project that names one.
type atlantis struct {
	Version   yaml.Node            `yaml:"version"`
	Projects  []project            `yaml:"projects"`
	Workflows yaml.Node            `yaml:"workflows"`
	Other     map[string]yaml.Node `yaml:",inline"`
}

// readAtlantis reads the file, if there is one. Fields that are not carried over become notes; none is ignored.
func readAtlantis(fsys fs.FS) (projects []project, notes []string, err error) {
	var a atlantis
	if err := decode(fsys, atlantisName, &a); err != nil {
		return nil, nil, err
	}
	for i := range a.Projects {
		p := &a.Projects[i]
		p.file = atlantisName
		for _, glob := range p.Autoplan.When {
			out, not := strings.CutPrefix(glob, "!")
			p.paths = append(p.paths, map[bool]string{true: "!"}[not]+path.Join(p.Dir, out))
		}
	}
	return a.Projects, notCarried(atlantisName, a.Other), checkDirs(atlantisName, a.Projects)
}

// decode reads a file of YAML into a value. A file that does not exist leaves it empty.
func decode(fsys fs.FS, name string, into any) error {
	data, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var wrong workflow.Mistakes
	if err := yaml.Unmarshal(data, into); err != nil {
		wrong.Add(name, "cannot be read: %s", text.Cut(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "), 300))
	}
	return wrong.Err()
}

// checkDirs refuses projects outside of the tree, and makes their directories clean paths.
func checkDirs(file string, projects []project) error {
	const maxProjects = 20_000
	var wrong workflow.Mistakes
	if len(projects) > maxProjects {
		wrong.Add(file, "has more than %d projects", maxProjects)
	}
	for i := range projects {
		dir := path.Clean(projects[i].Dir)
		if projects[i].Dir == "" || !fs.ValidPath(dir) {
			wrong.Add(fmt.Sprintf("%s: projects[%d]", file, i), "dir %s is not a directory of the tree", text.Quote(projects[i].Dir, 200))
		}
		projects[i].Dir = dir
	}
	return wrong.Err()
}

// notCarried says which fields of a part of a file are not carried over.
func notCarried(file string, fields map[string]yaml.Node) (notes []string) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		notes = append(notes, fmt.Sprintf("%s: %s is not carried over", file, text.Quote(key, 60)))
	}
	return notes
}

// assign gives each project to the code in its directory.
func (w *walk) assign(projects []project) {
	for _, p := range projects {
		m, pulumi := w.modules[p.Dir], w.pulumi[p.Dir]
		switch {
		case pulumi != nil && (p.pulumi || m == nil):
			pulumi.projects = append(pulumi.projects, p)
		case w.hasUnits(p.Dir, p.terragrunt || m == nil):
			w.trees[p.Dir] = append(w.trees[p.Dir], p)
		case m != nil:
			m.projects = append(m.projects, p)
		default:
			w.note("%s: project %s has no code in directory %s: it is left out", p.file, text.Quote(p.Name, 60), text.Quote(p.Dir, 200))
		}
	}
}

// apply writes the settings of a project into the workspace of a root module.
func (p project) apply(m *module, s source, w *Workspace) {
	w.EngineVersion = strings.TrimPrefix(p.Version, "v")
	switch p.Distribution {
	case "terraform":
		w.Engine = api.EngineTerraform
	case "opentofu":
		w.Engine = api.EngineTofu
	case "":
	default:
		w.Notes = append(w.Notes, p.file+": \"terraform_distribution\" is not carried over")
	}
	p.carry(s, w)
}

// files are the files of variables that atlantis uses by default.
func (p project) files(m *module) []*file {
	name := path.Join(m.dir, "env", cmp.Or(p.Workspace, "default")+".tfvars")
	return slices.DeleteFunc(slices.Clone(m.vars), func(f *file) bool {
		return f.name != name || p.Workflow != "" || p.file != atlantisName
	})
}

// carry writes the settings of a project that every engine has into a workspace.
func (p project) carry(s source, w *Workspace) {
	note := func(format string, args ...any) { w.Notes = append(w.Notes, fmt.Sprintf(format, args...)) }
	if w.from = &p; p.Name != "" {
		w.Name = p.Name
	}
	w.Notes = append(w.Notes, notCarried(p.file, p.Other)...)
	if p.Workflow != "" { // its steps may hold secrets: they are not repeated
		note("%s: the steps of workflow %s are not carried over: write what they need under environment and state.backend_config; a workspace with engine command can run scripts", p.file, text.Quote(p.Workflow, 60))
	}
	for _, name := range p.Requirements {
		if name != "approved" {
			note("%s: %s of \"apply_requirements\" is not carried over", p.file, text.Quote(name, 60))
			continue
		}
		w.Approval = &api.Approval{Required: true, NotBySubmitter: true} // nobody approves a pull request of their own
	}
	p.carryPullRequests(s, w, note)
}

// carryPullRequests says which pull requests preview the workspace.
func (p project) carryPullRequests(s source, w *Workspace, note func(format string, args ...any)) {
	for _, said := range notCarried(p.file, p.Autoplan.Other) {
		note("%s, of \"autoplan\"", said)
	}
	off := p.Autoplan.Enabled != nil && !*p.Autoplan.Enabled
	switch {
	case !off && len(p.paths) == 0:
		return
	case w.Source.Git == nil && p.file == atlantisName:
		note("%s: \"autoplan\" is not carried over: pull requests need --git-url", p.file)
		return
	case w.Source.Git == nil:
		note("%s: its patterns of files are not carried over: pull requests need --git-url", p.file)
		return
	}
	before := w.PullRequests // of what the code uses
	w.PullRequests = &api.PullRequests{IsDisabled: off}
	if before != nil {
		w.PullRequests.Paths = before.Paths
	}
	for _, glob := range p.paths {
		out, not := strings.CutPrefix(glob, "!")
		try := *w.PullRequests
		try.Paths = append(slices.Clone(try.Paths), map[bool]string{true: "!"}[not]+path.Join(s.prefix, out))
		with := w.Workspace
		with.PullRequests = &try
		var refusal *workflow.Error
		if err := pullrequest.CheckSettings(with); errors.As(err, &refusal) {
			note("%s: the pattern %s is not carried over: %s", p.file, text.Quote(glob, 100), refusal.Message)
			continue
		}
		w.PullRequests = &try
	}
	if !off && len(w.PullRequests.Paths) == 0 {
		w.PullRequests = nil
	}
}
