package discover

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// workspaces describes a root module: one workspace for each project of atlantis.yaml, else for each of the engine's
// own workspaces, else one.
func (m *module) workspaces(s source, why string) []Workspace {
	var list []Workspace
	for _, p := range m.projects {
		w := m.workspace(s, why, variant{engine: p.Workspace, files: p.files(m)})
		p.apply(m, s, &w)
		m.notes(&w)
		list = append(list, w)
	}
	if len(list) > 0 {
		for _, name := range m.engines {
			if !slices.ContainsFunc(m.projects, func(p project) bool { return cmp.Or(p.Workspace, "default") == name }) {
				list[0].Notes = append(list[0].Notes, fmt.Sprintf("the engine's workspace %s has a state here, and atlantis.yaml has no project for it", name))
			}
		}
		return list
	}
	for _, v := range m.variants(s.Options) {
		w := m.workspace(s, why, v)
		w.Notes = append(w.Notes, v.notes...)
		m.notes(&w)
		list = append(list, w)
	}
	return list
}

// variant is one of the workspaces of a root module.
type variant struct {
	env    string  // empty: its code has no environments
	engine string  // the engine's workspace
	files  []*file // of variables
	notes  []string
}

// variants are one for each environment that the files of a root module name, and for each of the engine's workspaces;
// an environment whose name is that of such a workspace is one with it.
func (m *module) variants(o Options) (list []variant) {
	m.arrange()
	names, ask := m.chosen(o)
	environments := m.environments()
	if len(m.engines) == 0 && ask == "" && m.undecided() != "" { // --workspace has chosen
		environments = slices.DeleteFunc(environments, func(env string) bool { return !slices.Contains(names, env) })
	}
	for _, env := range environments {
		v := variant{env: env, engine: m.code.CloudSettings["workspaces.name"], files: forEnvironment(m.vars, env)}
		if slices.Contains(names, env) {
			v.engine = env
		} else if v.engine == "" && (ask != "" || m.shares(env)) {
			v.engine = env
			v.notes = []string{"its environments have one backend, which keeps their states apart by the engine's workspace: check that state.workspace is its name, as in the list of terraform workspace list"}
		}
		list = append(list, v)
	}
	if len(environments) > 0 && len(m.engines)+len(o.Workspaces) == 0 {
		return list
	}
	for _, name := range names {
		if len(environments) > 0 && (slices.Contains(environments, name) || name == m.code.CloudSettings["workspaces.name"]) {
			continue
		}
		v := variant{engine: name, files: forEnvironment(m.vars, "")}
		if ask != "" {
			v.notes = []string{ask}
		}
		list = append(list, v)
	}
	return list
}

// shares reports whether the state of an environment would be that of others too.
func (m *module) shares(env string) bool {
	own := slices.ContainsFunc(m.configs, func(f *file) bool { return f.env == env })
	given := map[string]any{}
	for _, f := range forEnvironment(m.configs, env) {
		maps.Copy(given, f.settings)
	}
	return len(m.environments()) > 1 && m.code.Backend != "" && m.code.Backend != "http" && !own && len(m.lacks(given)) == 0
}

func (m *module) workspace(s source, why string, v variant) Workspace {
	w := Workspace{Dir: m.dir, Why: why, Backend: m.code.Backend}
	if m.code.Cloud {
		w.Backend = "cloud"
	}
	w.Name = s.nameOf(m.dir)
	if v.env != "" && !slices.Contains(strings.Split(m.dir, "/"), v.env) {
		w.Name += "-" + v.env
	}
	if v.engine != "" && v.engine != v.env && v.engine != "default" && v.engine != m.code.CloudSettings["workspaces.name"] {
		w.Name += "-" + v.engine
	}
	w.Project, w.Engine, w.Source = s.Project, m.engine(s.Engine), s.of(m.dir)
	if v.engine != "" {
		w.State = &api.State{Workspace: v.engine}
	}
	const maxFiles = 20 // of a workspace
	w.VarFiles = m.rels(v.files[:min(len(v.files), maxFiles)])
	m.complete(&w, forEnvironment(m.configs, v.env))
	if lacking := m.lacking(v.files); len(lacking) > 0 {
		w.Notes = append(w.Notes, "nothing gives a value to "+text.Some(lacking, maxFiles)+": write it into variables, or name a file in var_files")
	}
	if others := m.others(v); len(others) > 0 {
		w.Notes = append(w.Notes, "choose files of variables, or none, with var_files: "+text.Some(m.rels(others), maxFiles))
	}
	s.widen(m.dir, &w)
	return w
}

// widen makes the source of a workspace hold all that its code names by a path, or says which places of the repository
// that is.
func (s source) widen(dir string, w *Workspace) {
	if w.Source.Git != nil {
		s.fromGit(dir, w)
	} else if uses := Widen(&w.Workspace); uses != "" {
		w.Notes = append(w.Notes, "it uses "+uses+": all of the directory of its source is copied")
	}
}

// others are the files of a root module that none of its workspaces reads, because their names do not say for which
// environment they are.
func (m *module) others(v variant) []*file {
	return slices.DeleteFunc(slices.Clone(m.vars), func(f *file) bool {
		return slices.Contains(v.files, f) || f.env != "" && len(m.projects) == 0
	})
}

// notes adds the version, and notes about settings that the code does not have.
func (m *module) notes(w *Workspace) {
	note := func(format string, args ...any) { w.Notes = append(w.Notes, fmt.Sprintf(format, args...)) }
	if w.EngineVersion == "" {
		m.setVersion(w)
	}
	if m.code.Backend == "local" || m.code.Backend == "" && !m.code.Cloud && slices.Contains(m.signs, "terraform.tfstate") {
		note("its state is a file beside the code: the first run asks for --take-over")
	}
	if m.code.Unsure {
		note("some of its files could not be read in full")
	}
}

// maxNamed is how many files or modules a note names.
const maxNamed = 5

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// unique gives each workspace a name that is valid, and no other's, also where capitals do not count. Names that
// would be the same, or are too long, end in a digest of the directory and the engine's workspace, not in a number
// that would depend on the order.
func unique(list []Workspace) {
	const maxName = 64
	count, used := map[string]int{}, map[string]int{}
	for i := range list {
		w := &list[i]
		w.Name = workflow.NoID(strings.Trim(notInNames.ReplaceAllString(w.Name, "-"), "-_"))
		count[strings.ToLower(w.Name)]++
	}
	for i := range list {
		w := &list[i]
		if len(w.Name) <= maxName && w.Name != "" && count[strings.ToLower(w.Name)] == 1 {
			continue
		}
		origin := fmt.Sprintf("%q %q", w.Dir, w.Name)
		if w.State != nil {
			origin += fmt.Sprintf(" %q", w.State.Workspace)
		}
		if used[origin]++; used[origin] > 1 {
			origin += fmt.Sprint(used[origin])
		}
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(origin)))[:8]
		w.Name = strings.Trim(w.Name[:min(len(w.Name), maxName-9)]+"-"+sum, "-_")
	}
}

// endsLine replaces the characters that end a line for a reader of YAML.
var endsLine = strings.NewReplacer("\t", " ", "\n", " ", "\r", " ", "\u0085", " ", "\u2028", " ", "\u2029", " ")

// Document is the workspace file of a workspace that was found. Directories are relative to base, if there is one.
func (w Workspace) Document(base string) ([]byte, error) {
	settings := w.Workspace
	if d := settings.Source.Directory; d != "" && base != "" {
		rel, err := filepath.Rel(base, d)
		if err != nil {
			return nil, err
		}
		settings.Source.Directory = rel
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node // JSON is YAML, and keeps the order of the fields
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	plain(&doc)
	var b bytes.Buffer
	for _, line := range append([]string{"From " + w.Dir + ": " + w.Why + "."}, w.Notes...) {
		b.WriteString("# " + endsLine.Replace(term.Clean(line)) + "\n")
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, err
	}
	if _, err := workspacefile.Parse(w.Name+".yaml", path.Clean("/"+base), b.Bytes()); err != nil {
		return nil, fmt.Errorf("the workspace of %s cannot be written: %w", w.Dir, err)
	}
	return b.Bytes(), nil
}

// plain makes a node be written as people write YAML.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}
