package discover

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// program names the places beside a program of Pulumi from which its dependencies are installed, as paths. The files are
// those of npm, pnpm and yarn, of uv, poetry and pip, and of Go.
func (u *used) program(dir string) []string {
	paths, member := packageJSON(contentOf(dir, "package.json"))
	if home := u.above(dir, func(at string) bool { return hasPackages(at, relative(at, dir), member) }); home != "" {
		paths = append(paths, home)
	}
	project := contentOf(dir, "pyproject.toml")
	for _, quoted := range tomlPath.FindAllStringSubmatch(project, -1) {
		paths = append(paths, quoted[1])
	}
	if tomlMember.MatchString(project) {
		paths = append(paths, u.above(dir, func(at string) bool { return tomlWorkspace.MatchString(contentOf(at, "pyproject.toml")) }))
	}
	for line := range strings.Lines(contentOf(dir, "requirements.txt")) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "-e "))
		paths = append(paths, strings.TrimPrefix(line, "file:"))
	}
	for _, replaced := range goReplace.FindAllStringSubmatch(contentOf(dir, "go.mod"), -1) {
		paths = append(paths, replaced[1])
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		info, err := os.Stat(filepath.Join(dir, path))
		if err == nil && local(path) && !info.IsDir() { // an archive
			u.place(dir, path)
		}
		return err != nil || !local(path) || !info.IsDir()
	})
}

var (
	tomlPath      = regexp.MustCompile(`(?m)^[^#\n]*\bpath\s*=\s*["'](\.\.?/[^"'\n]*|\.\.)["']`)
	tomlMember    = regexp.MustCompile(`(?m)^[^#\n]*\bworkspace\s*=\s*true\b`)
	tomlWorkspace = regexp.MustCompile(`(?m)^\s*\[tool\.uv\.workspace\]`)
	goReplace     = regexp.MustCompile(`(?m)^(?:[^/\n]|/[^/\n])*=>\s*(\.\.?/\S*|\.\.)`)
)

// packageJSON reads the paths of dependencies. member says that one of them is another package of the same workspace.
func packageJSON(content string) (paths []string, member bool) {
	var p struct{ Dependencies, DevDependencies, OptionalDependencies map[string]string }
	_ = json.Unmarshal([]byte(content), &p) // it has none then
	for _, list := range []map[string]string{p.Dependencies, p.DevDependencies, p.OptionalDependencies} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			kind, at, _ := strings.Cut(list[name], ":")
			switch kind {
			case "file", "link", "portal":
				paths = append(paths, at)
			case "workspace":
				member = true
			}
		}
	}
	return paths, member
}

// hasPackages reports whether a directory is the top of a workspace of npm, pnpm or yarn with the package whose path from
// there is name. A member depends on another package of its workspace, so the first workspace above it is that.
func hasPackages(at, name string, member bool) bool {
	var patterns []string
	var p struct{ Workspaces json.RawMessage }
	_ = json.Unmarshal([]byte(contentOf(at, "package.json")), &p)
	var named struct{ Packages []string }
	if json.Unmarshal(p.Workspaces, &patterns) != nil && json.Unmarshal(p.Workspaces, &named) == nil {
		patterns = named.Packages
	}
	_, err := os.Stat(filepath.Join(at, "pnpm-workspace.yaml"))
	return member && (err == nil || len(patterns) > 0) || slices.ContainsFunc(patterns, func(pattern string) bool {
		below, deep := strings.CutSuffix(pattern, "/**")
		ok, err := path.Match(path.Clean(pattern), name)
		return err == nil && ok || deep && inside(name, below)
	})
}

func contentOf(dir, name string) string {
	content, _ := readFile(os.DirFS(dir), name)
	return string(content)
}

// above is the nearest directory above another one, within the repository, that is such a one, as a path; empty: none is.
func (u *used) above(dir string, is func(at string) bool) string {
	for at := dir; at != u.repository && at != filepath.Dir(at); {
		if at = filepath.Dir(at); is(at) {
			return relative(dir, at)
		}
	}
	return ""
}

// calls are the places that the code in a directory names by a path: modules, or those of a program.
func (u *used) calls(dir, engineName string) []string {
	if engineName == api.EnginePulumi {
		return u.program(dir)
	}
	return engine.ReadCode(os.DirFS(dir), ".", engineName).Modules
}
