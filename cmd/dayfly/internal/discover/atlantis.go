package discover

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const atlantisName = "atlantis.yaml"

// project is one of atlantis.yaml.
type project struct {
	name, dir, workspace string
	engine, version      string
	stages               map[string][]yaml.Node // steps of its workflow; nil: the usual ones
	notes                []string
}

// atlantis is what atlantis.yaml says.
type atlantis struct {
	projects []project
	notes    []string
}

type fields = map[string]yaml.Node

// readAtlantis reads the file, if there is one.
func readAtlantis(fsys fs.FS) (atlantis, error) {
	data, err := readFile(fsys, atlantisName)
	if errors.Is(err, fs.ErrNotExist) {
		return atlantis{}, nil
	}
	if err != nil {
		return atlantis{}, err
	}
	return parseAtlantis(data)
}

// parseAtlantis reads the file. What it does not understand becomes a note or a mistake; nothing is ignored.
func parseAtlantis(data []byte) (a atlantis, err error) {
	const mostProjects = 20_000
	var top fields
	var projects []fields
	var workflows map[string]fields
	var wrong workflow.Mistakes
	into := func(n yaml.Node, to any, what string) {
		if n.Kind == 0 {
			return
		}
		if err := n.Decode(to); err != nil {
			wrong.Add(atlantisName, "%s cannot be read: %s", what, text.Cut(strings.ReplaceAll(err.Error(), "\n", " "), 300))
		}
	}
	if err := yaml.Unmarshal(data, &top); err != nil {
		wrong.Add(atlantisName, "is not YAML: %s", text.Cut(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: "), 300))
		return a, wrong.Err()
	}
	into(top["projects"], &projects, "projects")
	into(top["workflows"], &workflows, "workflows")
	if len(projects) > mostProjects {
		wrong.Add(atlantisName, "has more than %d projects", mostProjects)
	}
	if err := wrong.Err(); err != nil {
		return a, err
	}
	for _, key := range slices.Sorted(maps.Keys(top)) {
		if !slices.Contains([]string{"version", "projects", "workflows"}, key) {
			a.notes = append(a.notes, fmt.Sprintf("atlantis.yaml: %s is not carried over", text.Quote(key, 60)))
		}
	}
	for i, f := range projects {
		p, err := readProject(f, workflows)
		if err != nil {
			wrong.Add(fmt.Sprintf("%s: projects[%d]", atlantisName, i), "%s", err)
		}
		a.projects = append(a.projects, p)
	}
	return a, wrong.Err()
}

func readProject(f fields, workflows map[string]fields) (p project, err error) {
	for _, key := range slices.Sorted(maps.Keys(f)) {
		n := f[key]
		value, plain := scalar(n)
		known := true
		switch key {
		case "name":
			p.name = value
		case "dir":
			p.dir = path.Clean(value)
		case "workspace":
			p.workspace = value
		case "terraform_version":
			p.version = strings.TrimPrefix(value, "v")
		case "terraform_distribution":
			p.engine = map[string]string{"terraform": api.EngineTerraform, "opentofu": api.EngineTofu}[value]
			known = p.engine != ""
		case "workflow":
			known = p.follow(value, workflows)
		default:
			known, plain = false, true
		}
		if !plain {
			return p, fmt.Errorf("%s is not a plain value", text.Quote(key, 60))
		}
		if !known {
			p.notes = append(p.notes, fmt.Sprintf("atlantis.yaml: %s is not carried over", text.Quote(key, 60)))
		}
	}
	if p.dir == "" || !fs.ValidPath(p.dir) {
		return p, fmt.Errorf("dir %s is not a directory of the tree", text.Quote(p.dir, 200))
	}
	return p, nil
}

// follow reads the steps of a workflow; it is not known if the file does not have it.
func (p *project) follow(name string, workflows map[string]fields) (known bool) {
	stages, ok := workflows[name]
	if !ok {
		return false
	}
	p.stages = map[string][]yaml.Node{}
	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		var steps struct {
			Steps []yaml.Node `yaml:"steps"`
		}
		n := stages[stage]
		if n.Decode(&steps) != nil || !slices.Contains([]string{"plan", "apply"}, stage) {
			p.notes = append(p.notes, fmt.Sprintf("atlantis.yaml: stage %s of its workflow is not carried over", text.Quote(stage, 60)))
			continue
		}
		p.stages[stage] = steps.Steps
	}
	return true
}

// scalar is the text of a plain value.
func scalar(n yaml.Node) (string, bool) {
	if n.Kind == yaml.AliasNode {
		n = *n.Alias
	}
	return n.Value, n.Kind == yaml.ScalarNode
}

// assign gives each project to the module in its directory.
func (a atlantis) assign(modules map[string]*module) (notes []string) {
	notes = a.notes
	for _, p := range a.projects {
		if m := modules[p.dir]; m != nil {
			m.projects = append(m.projects, p)
			continue
		}
		notes = append(notes, fmt.Sprintf("atlantis.yaml: project %s has no code in directory %s: it is left out", text.Quote(p.name, 60), text.Quote(p.dir, 200)))
	}
	return notes
}

// carry writes into a workspace what the steps of a project say.
func (p project) carry(fsys fs.FS, m *module, w *Workspace) {
	w.Notes = append(w.Notes, p.notes...)
	c := carrier{p: p, fsys: fsys, m: m, w: w}
	stages := p.stages
	if stages["plan"] == nil {
		stages = maps.Clone(stages)
		if stages == nil {
			stages = map[string][]yaml.Node{}
		}
		stages["plan"] = []yaml.Node{{Kind: yaml.ScalarNode, Value: "plan"}}
	}
	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		for i, n := range stages[stage] {
			c.where = fmt.Sprintf("step %d of %s", i+1, stage)
			c.step(stage, n)
		}
	}
	if len(c.plan) > 0 {
		c.set("TF_CLI_ARGS_plan", strings.Join(c.plan, " "))
	}
	if len(c.plan) == 0 && len(m.vars) > 0 {
		w.Notes = append(w.Notes, "its project uses no file of variables, and there are some: "+some(m.vars))
	}
}

// carrier carries steps over.
type carrier struct {
	p     project
	fsys  fs.FS
	m     *module
	w     *Workspace
	where string
	plan  []string // arguments of plan
}

func (c *carrier) note(format string, args ...any) {
	c.w.Notes = append(c.w.Notes, fmt.Sprintf("atlantis.yaml: %s: ", c.where)+fmt.Sprintf(format, args...))
}

func (c *carrier) set(name, value string) {
	if c.w.Environment == nil {
		c.w.Environment = map[string]string{}
	}
	c.w.Environment[name] = value
}

// step carries one step over: init, plan, apply with or without extra_args, run or env. What a script does is never
// repeated in a note: it may name a secret.
func (c *carrier) step(stage string, n yaml.Node) {
	name, plain := scalar(n)
	var extra []string
	if !plain {
		var one fields
		if n.Decode(&one) != nil || len(one) != 1 {
			c.note("is not carried over: it has not the form of a step")
			return
		}
		for key, inner := range one {
			name = key
			n = inner
		}
		var args struct {
			Extra []string `yaml:"extra_args"`
		}
		if name != "run" && name != "env" && n.Decode(&args) != nil {
			c.note("is not carried over: its extra_args are not a list of texts")
			return
		}
		extra = args.Extra
	}
	switch {
	case name == "env":
		c.variable(n)
	case name == "init" && stage == "plan":
		c.arguments(extra, c.backend)
	case name == "plan" && stage == "plan":
		if file := "env/" + cmp.Or(c.p.workspace, "default") + ".tfvars"; slices.Contains(c.m.vars, file) {
			c.plan = append(c.plan, "-var-file="+file) // atlantis does so without being told
		}
		c.arguments(extra, c.planned)
	case name == "init" && stage == "apply", name == "apply" && stage == "apply":
		c.arguments(extra, func(string, string) bool { return false })
	default:
		c.note("%s is not carried over: engine command can run scripts", text.Quote(name, 40))
	}
}

func (c *carrier) variable(n yaml.Node) {
	var v struct{ Name, Value, Command string }
	switch {
	case n.Decode(&v) != nil || v.Command != "" || !env.Valid(v.Name) || env.Reserved(v.Name):
		c.note("the variable %s is not carried over: give it a fixed value under environment", text.Quote(v.Name, 60))
	case secret.MatchString(v.Name):
		c.note("the variable %s is not carried over, because its name is that of a secret: store it with dayfly secret set, and name it under secrets", text.Quote(v.Name, 60))
	default:
		c.set(v.Name, v.Value)
	}
}

var (
	// secret are names whose values do not belong into a file.
	secret = regexp.MustCompile(`(?i)secret|passw|token|credential|access_key|private_key|conn_str`)
	// word is an argument that a shell, and an engine that splits TF_CLI_ARGS, leave as it is.
	word = regexp.MustCompile(`^[A-Za-z0-9_./:=,@+-]+$`)
	// ours are the variables of atlantis that are known beforehand.
	ours = regexp.MustCompile(`\$\{?(WORKSPACE|PROJECT_NAME)\b\}?`)
)

// arguments carries extra_args over, each by its flag and value. What take does not know is noted by its flag alone.
func (c *carrier) arguments(extra []string, take func(flag, value string) bool) {
	known := func(name string) string {
		if strings.Contains(name, "PROJECT_NAME") {
			return c.p.name
		}
		return cmp.Or(c.p.workspace, "default")
	}
	for i := 0; i < len(extra); i++ {
		flag, value, has := strings.Cut(extra[i], "=")
		if strings.HasPrefix(flag, "--") {
			flag = flag[1:]
		}
		if !has && i+1 < len(extra) && slices.Contains([]string{"-var-file", "-var", "-backend-config"}, flag) {
			i++
			value = extra[i]
		}
		if !take(flag, ours.ReplaceAllStringFunc(value, known)) {
			c.note("the argument %s is not carried over", text.Quote(flag, 60))
		}
	}
}

func (c *carrier) planned(flag, value string) bool {
	name, _, _ := strings.Cut(value, "=")
	ok := flag == "-var-file" || flag == "-var" && !secret.MatchString(name) || flag == "-parallelism"
	if !ok || !word.MatchString(value) {
		return false
	}
	if flag == "-var-file" && !within(path.Join(c.m.dir, value), c.m.dir) && c.w.Source.Git == nil {
		c.note("%s lies outside of the directory, which a directory source leaves out: use --git-url", text.Quote(value, 200))
	}
	if arg := flag + "=" + value; !slices.Contains(c.plan, arg) {
		c.plan = append(c.plan, arg)
	}
	return true
}

// backend carries -backend-config over, as settings: the file's, if it names one.
func (c *carrier) backend(flag, value string) bool {
	switch {
	case slices.Contains([]string{"-reconfigure", "-upgrade", "-input", "-no-color"}, flag):
		return true // each run begins with an init of its own
	case flag != "-backend-config" || value == "":
		return false
	}
	settings := map[string]string{}
	if name, setting, pair := strings.Cut(value, "="); pair {
		settings[name] = setting
	} else {
		data, err := readFile(c.fsys, path.Join(c.m.dir, value))
		if err != nil {
			return false
		}
		var unsure bool
		if settings, unsure = engine.ReadSettings(data); unsure {
			c.note("%s could not be read in full", text.Quote(value, 200))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if secret.MatchString(name) {
			c.note("the setting %s of the backend is not carried over, because it is that of a secret: name the variable that the backend reads under secrets", text.Quote(name, 60))
			continue
		}
		if c.w.State == nil {
			c.w.State = &api.State{}
		}
		if c.w.State.BackendConfig == nil {
			c.w.State.BackendConfig = map[string]any{}
		}
		c.w.State.BackendConfig[name] = settings[name]
	}
	return true
}
