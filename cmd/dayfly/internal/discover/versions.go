package discover

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
)

// pin is a version that a file wants of an engine.
type pin struct{ engine, version, file string }

// pinFiles are the files that have versions, the one that counts first, and how each is read.
var pinFiles = []struct {
	name string
	read func(content string) []pin
}{
	{".opentofu-version", func(content string) []pin { return []pin{{engine: api.EngineTofu, version: firstWord(content)}} }},
	{".terraform-version", func(content string) []pin { return []pin{{engine: api.EngineTerraform, version: firstWord(content)}} }},
	{".tool-versions", readToolVersions},
	{"mise.toml", readMise}, {".mise.toml", readMise}, {"mise/config.toml", readMise}, {".mise/config.toml", readMise}, {".config/mise.toml", readMise},
}

var pinnedEngines = map[string]string{"terraform": api.EngineTerraform, "opentofu": api.EngineTofu, "tofu": api.EngineTofu}

func firstWord(content string) string {
	for line := range strings.Lines(content) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 {
			return fields[0]
		}
	}
	return ""
}

// readToolVersions reads the form of asdf: a tool and its versions in each line.
func readToolVersions(content string) (pins []pin) {
	for line := range strings.Lines(content) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 1 && pinnedEngines[fields[0]] != "" {
			pins = append(pins, pin{engine: pinnedEngines[fields[0]], version: fields[1]})
		}
	}
	return pins
}

var miseTool = regexp.MustCompile(`^["']?(?:[^"'=]*[:/])?([a-z]+)["']?\s*=[^"']*["']([^"']+)["']`)

// readMise reads the table of tools in the configuration of mise, as far as it has a line for each tool.
func readMise(content string) (pins []pin) {
	inTools := false
	for line := range strings.Lines(content) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[") {
			inTools = strings.HasPrefix(line, "[tools]")
		}
		if found := miseTool.FindStringSubmatch(line); inTools && found != nil && pinnedEngines[found[1]] != "" {
			pins = append(pins, pin{engine: pinnedEngines[found[1]], version: found[2]})
		}
	}
	return pins
}

// pins are the versions that the nearest files want that have any, going up from a directory.
func pins(fsys fs.FS, dir string) (all []pin) {
	for ; ; dir = path.Dir(dir) {
		for _, f := range pinFiles {
			content, err := readFile(fsys, path.Join(dir, f.name))
			if err != nil {
				continue
			}
			for _, p := range f.read(string(content)) {
				p.file = path.Join(dir, f.name)
				all = append(all, p)
			}
		}
		if len(all) > 0 || dir == "." {
			return all
		}
	}
}

// readPins reads the versions for all modules. Links to files above the tree are followed within the repository.
func (w *walk) readPins(s source) error {
	top, err := os.OpenRoot(s.repository())
	if err != nil {
		return fmt.Errorf("read the repository: %w", err)
	}
	defer top.Close() //nolint:errcheck // it was only read
	from := relative(s.repository(), s.dir)
	for dir, m := range w.modules {
		m.pins = pins(top.FS(), path.Join(from, dir))
	}
	return nil
}

var (
	partOfVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	latestOf      = regexp.MustCompile(`^latest:\^?([0-9]+(?:\\?\.[0-9]+)?)(?:\\?\.)?$`)
)

// constraint is what a file wants, as a constraint; empty: it has no such form. A version without its last part stands
// for the latest that begins so.
func constraint(wants string) string {
	if found := latestOf.FindStringSubmatch(wants); found != nil {
		wants = strings.ReplaceAll(found[1], `\`, "")
	}
	wants = strings.TrimPrefix(wants, "v")
	if partOfVersion.MatchString(wants) {
		wants = "~> " + wants + ".0"
	}
	if read, err := toolcache.Read(wants); err != nil || read == nil || len(wants) > 100 {
		return ""
	}
	return wants
}

// setVersion writes the engine's version into a workspace: that of the nearest file, else what the code requires.
func (m *module) setVersion(w *Workspace) {
	for _, p := range m.pins {
		if p.engine != w.Engine {
			continue
		}
		if w.EngineVersion = constraint(p.version); w.EngineVersion != "" {
			return
		}
		w.Notes = append(w.Notes, fmt.Sprintf("%s in %s is not a version: set engine_version", text.Quote(p.version, 60), p.file))
	}
	if len(m.code.Required) == 0 {
		return
	}
	requires := strings.Join(slices.Compact(slices.Clone(m.code.Required)), ", ")
	if w.EngineVersion = requires; constraint(requires) == "" {
		w.EngineVersion = ""
		w.Notes = append(w.Notes, fmt.Sprintf("required_version %s is not a constraint: set engine_version", text.Quote(requires, 100)))
	}
}

// pinned is the engine that all of the nearest files with versions are for; empty: none, or both.
func (m *module) pinned() (engine string) {
	for _, p := range m.pins {
		if engine = cmp.Or(engine, p.engine); engine != p.engine {
			return ""
		}
	}
	return engine
}
