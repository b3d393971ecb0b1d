package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// maxPaths is how many paths of pull requests a workspace can have.
const maxPaths = 50

// fromGit says of a workspace whose source is the repository which other places of that its code uses: a change there
// concerns it, and submodules are fetched if one of them has code.
func (s source) fromGit(dir string, w *Workspace) {
	root := filepath.Join(s.dir, filepath.FromSlash(dir))
	u := usedBy(root, w.Engine, w.VarFiles)
	if u.climbs != "" {
		w.Notes = append(w.Notes, fmt.Sprintf("the path %s climbs above the repository, where a run finds nothing: shorten it", text.Quote(u.climbs, 200)))
	}
	for _, place := range slices.Concat([]string{root}, u.outside, u.missing) {
		w.Source.Git.Submodules = w.Source.Git.Submodules || slices.ContainsFunc(s.submodules, func(sub string) bool { return inside(place, sub) })
	}
	if paths := s.paths(u.outside, w.Source); len(paths) > 0 {
		w.PullRequests = &api.PullRequests{Paths: paths}
	}
}

// paths are the filters for places of the repository. Where there are too many, they name the directories at its top,
// and so does the filter for a place whose name has characters with a meaning there.
func (s source) paths(places []string, of api.Source) []string {
	var paths, tops []string
	for _, place := range places {
		rel := relative(s.top, place)
		if !filepath.IsLocal(rel) || rel == "." {
			continue
		}
		first, _, deeper := strings.Cut(rel, "/")
		if info, err := os.Stat(place); err != nil || info.IsDir() {
			rel, deeper = rel+"/**", true
		}
		if deeper {
			first += "/**"
		}
		ok := func(path string) bool {
			w := api.Workspace{RunSettings: api.RunSettings{Source: of}, PullRequests: &api.PullRequests{Paths: []string{path}}}
			return !strings.HasPrefix(path, "!") && pullrequest.CheckSettings(w) == nil
		}
		if !ok(rel) {
			rel = first
		}
		if ok(rel) {
			paths, tops = append(paths, rel), append(tops, first)
		}
	}
	if paths = distinct(paths); len(paths) > maxPaths {
		paths = distinct(tops)
	}
	return paths[:min(len(paths), maxPaths)]
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

func relative(from, to string) string {
	rel, err := filepath.Rel(from, to)
	if err != nil {
		return to
	}
	return filepath.ToSlash(rel)
}
