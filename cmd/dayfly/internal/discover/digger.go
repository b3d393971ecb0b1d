package discover

import (
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// diggerNames are the names of Digger's file.
var diggerNames = []string{"digger.yml", "digger.yaml"}

// digger is the content of digger.yml. As of atlantis.yaml, workflows are not read.
type digger struct {
	Projects  []diggerProject      `yaml:"projects"`
	Workflows map[string]yaml.Node `yaml:"workflows"`
	Other     map[string]yaml.Node `yaml:",inline"`
}

type diggerProject struct {
	Name         string               `yaml:"name"`
	Dir          string               `yaml:"dir"`
	Workspace    string               `yaml:"workspace"`
	Terragrunt   bool                 `yaml:"terragrunt"`
	OpenTofu     bool                 `yaml:"opentofu"`
	Pulumi       bool                 `yaml:"pulumi"`
	Stack        string               `yaml:"pulumi_stack"`
	Workflow     string               `yaml:"workflow"`
	Include      []string             `yaml:"include_patterns"`
	Exclude      []string             `yaml:"exclude_patterns"`
	DependsOn    []string             `yaml:"depends_on"`
	Requirements []string             `yaml:"apply_requirements"`
	Other        map[string]yaml.Node `yaml:",inline"`
}

// readDigger reads the file, if there is one, as readAtlantis does.
func readDigger(fsys fs.FS) (projects []project, notes []string, err error) {
	for _, name := range diggerNames {
		var d digger
		if err := decode(fsys, name, &d); err != nil {
			return nil, nil, err
		}
		notes = append(notes, notCarried(name, d.Other)...)
		for _, one := range d.Projects {
			projects = append(projects, one.project(name, d.Workflows))
		}
		if err := checkDirs(name, projects); err != nil {
			return nil, nil, err
		}
	}
	return projects, notes, nil
}

func (d diggerProject) project(file string, workflows map[string]yaml.Node) project {
	p := project{
		file: file, Name: d.Name, Dir: d.Dir, Workspace: d.Workspace, Workflow: d.Workflow, Requirements: d.Requirements,
		DependsOn: d.DependsOn, Other: d.Other, terragrunt: d.Terragrunt, pulumi: d.Pulumi, stack: d.Stack,
	}
	if p.Workflow == "" {
		p.Workflow = "default"
	}
	if _, own := workflows[p.Workflow]; p.Workflow == "default" && !own {
		p.Workflow = "" // what every run does
	}
	if d.OpenTofu {
		p.Distribution = "opentofu"
	}
	for _, glob := range d.Include {
		p.paths = append(p.paths, d.fromTop(glob))
	}
	for _, glob := range d.Exclude {
		p.paths = append(p.paths, "!"+d.fromTop(glob))
	}
	return p
}

// fromTop is a pattern from the top of the tree: one that begins with a dot is from the directory of the project.
func (d diggerProject) fromTop(glob string) string {
	if strings.HasPrefix(glob, ".") {
		return path.Join(d.Dir, glob)
	}
	return path.Clean(strings.TrimLeft(glob, "/"))
}
