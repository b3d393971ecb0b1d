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
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const atlantisName = "atlantis.yaml"

// project is one of atlantis.yaml. Other has the fields that are not carried over.
type project struct {
	Name         string               `yaml:"name"`
	Dir          string               `yaml:"dir"`
	Workspace    string               `yaml:"workspace"`
	Version      string               `yaml:"terraform_version"`
	Distribution string               `yaml:"terraform_distribution"`
	Workflow     string               `yaml:"workflow"`
	Other        map[string]yaml.Node `yaml:",inline"`
}

// atlantis is the content of atlantis.yaml. Workflows are not read: a note says so for each project that names one.
type atlantis struct {
	Version   yaml.Node            `yaml:"version"`
	Projects  []project            `yaml:"projects"`
	Workflows yaml.Node            `yaml:"workflows"`
	Other     map[string]yaml.Node `yaml:",inline"`
}

// readAtlantis reads the file, if there is one. Fields that are not carried over become notes; none is ignored.
func readAtlantis(fsys fs.FS) (a atlantis, err error) {
	const maxProjects = 20_000
	data, err := readFile(fsys, atlantisName)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	var wrong workflow.Mistakes
	if err := yaml.Unmarshal(data, &a); err != nil {
		wrong.Add(atlantisName, "cannot be read: %s", text.Cut(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "), 300))
		return a, wrong.Err()
	}
	if len(a.Projects) > maxProjects {
		wrong.Add(atlantisName, "has more than %d projects", maxProjects)
	}
	for i := range a.Projects {
		dir := path.Clean(a.Projects[i].Dir)
		if a.Projects[i].Dir == "" || !fs.ValidPath(dir) {
			wrong.Add(fmt.Sprintf("%s: projects[%d]", atlantisName, i), "dir %s is not a directory of the tree", text.Quote(a.Projects[i].Dir, 200))
		}
		a.Projects[i].Dir = dir
	}
	return a, wrong.Err()
}

// notCarried says which fields of a part of the file are not carried over.
func notCarried(fields map[string]yaml.Node) (notes []string) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		notes = append(notes, fmt.Sprintf("atlantis.yaml: %s is not carried over", text.Quote(key, 60)))
	}
	return notes
}

// assign gives each project to the module in its directory.
func (a atlantis) assign(modules map[string]*module) (notes []string) {
	notes = notCarried(a.Other)
	for _, p := range a.Projects {
		if m := modules[p.Dir]; m != nil {
			m.projects = append(m.projects, p)
			continue
		}
		notes = append(notes, fmt.Sprintf("atlantis.yaml: project %s has no code in directory %s: it is left out", text.Quote(p.Name, 60), text.Quote(p.Dir, 200)))
	}
	return notes
}

// apply writes the settings of a project into a workspace.
func (p project) apply(m *module, w *Workspace) {
	if p.Name != "" {
		w.Name = p.Name
	}
	w.EngineVersion = strings.TrimPrefix(p.Version, "v")
	w.Notes = append(w.Notes, notCarried(p.Other)...)
	switch p.Distribution {
	case "":
	case "terraform":
		w.Engine = api.EngineTerraform
	case "opentofu":
		w.Engine = api.EngineTofu
	default:
		w.Notes = append(w.Notes, "atlantis.yaml: \"terraform_distribution\" is not carried over")
	}
	file := "env/" + cmp.Or(p.Workspace, "default") + ".tfvars"
	switch {
	case p.Workflow != "": // its steps may hold secrets: they are not repeated
		w.Notes = append(w.Notes, fmt.Sprintf("atlantis.yaml: the steps of workflow %s are not carried over: write what they need under environment and state.backend_config; a workspace with engine command can run scripts", text.Quote(p.Workflow, 60)))
	case slices.Contains(m.vars, file): // atlantis uses it by default
		w.Environment = map[string]string{"TF_CLI_ARGS_plan": "-var-file=" + file}
		return
	}
	if len(m.vars) > 0 {
		w.Notes = append(w.Notes, chooseVars(m.vars))
	}
}
