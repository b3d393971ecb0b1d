package discover

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
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

// needed are the settings without which a backend does not know where its state is.
var needed = map[string][]string{
	"s3": {"bucket", "key"}, "gcs": {"bucket"}, "azurerm": {"storage_account_name", "container_name", "key"},
	"http": {"address"}, "consul": {"path"}, "kubernetes": {"secret_suffix"}, "oss": {"bucket"}, "cos": {"bucket"},
}

// workspaces describes a root module: one workspace for each project of atlantis.yaml, else for each of the engine's
// own workspaces, else one.
func (m *module) workspaces(s source, why string) []Workspace {
	var list []Workspace
	for _, p := range m.projects {
		w := m.workspace(s, why, p.Workspace)
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
	names, ask := m.chosen(s.Options)
	for _, name := range names {
		w := m.workspace(s, why, name)
		if ask != "" {
			w.Notes = append(w.Notes, ask)
		}
		m.notes(&w)
		if len(m.vars) > 0 {
			w.Notes = append(w.Notes, chooseVars(m.vars))
		}
		list = append(list, w)
	}
	return list
}

func (m *module) workspace(s source, why, engineWorkspace string) Workspace {
	w := Workspace{Dir: m.dir, Why: why, Backend: m.code.Backend}
	if m.code.Cloud {
		w.Backend = "cloud"
	}
	w.Name = s.nameOf(m.dir)
	if engineWorkspace != "" && engineWorkspace != "default" && engineWorkspace != m.code.CloudSettings["workspaces.name"] {
		w.Name += "-" + engineWorkspace
	}
	w.Project, w.Engine, w.Source = s.Project, m.engine(s.Engine), s.of(m.dir)
	if w.Source.Git != nil {
		s.fromGit(m.dir, &w)
	} else if uses := Widen(&w.Workspace); uses != "" {
		w.Notes = append(w.Notes, "it uses "+uses+": all of the directory of its source is copied")
	}
	if engineWorkspace != "" {
		w.State = &api.State{Workspace: engineWorkspace}
	}
	return w
}

// notes adds notes about settings that the code does not have.
func (m *module) notes(w *Workspace) {
	note := func(format string, args ...any) { w.Notes = append(w.Notes, fmt.Sprintf(format, args...)) }
	lacks := slices.DeleteFunc(slices.Clone(needed[m.code.Backend]), func(name string) bool {
		return m.code.Settings[name] != ""
	})
	switch {
	case len(lacks) > 0 && len(m.configs) > 0:
		note("the backend lacks %s: write it into state.backend_config, as in one of %s", strings.Join(lacks, ", "), text.Some(m.configs, maxNamed))
	case len(lacks) > 0:
		note("the backend lacks %s: write it into state.backend_config", strings.Join(lacks, ", "))
	case m.code.Backend == "local", m.code.Backend == "" && !m.code.Cloud && slices.Contains(m.signs, "terraform.tfstate"):
		note("its state is a file beside the code: the first run asks for --take-over")
	}
	if m.code.Unsure {
		note("some of its files could not be read in full")
	}
}

// maxNamed is how many files or modules a note names.
const maxNamed = 5

func chooseVars(files []string) string {
	return "choose a file of variables, or none, with environment: {TF_CLI_ARGS_plan: -var-file=FILE}: " + text.Some(files, maxNamed)
}

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
