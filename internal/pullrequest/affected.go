package pullrequest

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of the path filters of a workspace.
const (
	maxGlobs = 50
	maxGlob  = 255 // bytes
)

// Workspace is a workspace that a change concerns.
type Workspace struct {
	api.Workspace
	Why   string   // the first file that concerns it, and the path or filter that the file matches
	Files []string // all that concern it
}

// Of returns the workspaces whose code is on a branch of a repository, as Repository names it, and which pull
// requests preview. An empty base means that the branch is not known; a workspace without a ref follows the branch
// that the host has as its default, which this does not know either. One with a version follows tags, and no branch.
// All of them are concerned where nobody knows which files changed, as where a host lists only the first of many.
func Of(workspaces []api.Workspace, host, path, base string) []api.Workspace {
	var out []api.Workspace
	for _, w := range workspaces {
		if w.Source.Git == nil || w.Source.Git.Version != "" || w.PullRequests != nil && w.PullRequests.IsDisabled {
			continue
		}
		if ref := strings.TrimPrefix(w.Source.Git.Ref, "refs/heads/"); base != "" && ref != "" && ref != base {
			continue
		}
		if h, p, ok := Repository(w.Source.Git.URL); ok && h == host && p == path {
			out = append(out, w)
		}
	}
	return out
}

// Affected returns those of the workspaces Of a repository that a change of files concerns, in their order. A file
// concerns a workspace if it lies below the path of its source or matches one of its path filters, unless a filter
// excludes it. Files are named from the top of the repository, with slashes. A file that was renamed changed under
// both names.
func Affected(workspaces []api.Workspace, host, path, base string, changed []string) []Workspace {
	var out []Workspace
	for _, w := range Of(workspaces, host, path, base) {
		f, one := filterOf(w), Workspace{Workspace: w}
		for _, file := range changed {
			if why := f.match(file); why != "" {
				one.Why, one.Files = cmp.Or(one.Why, why), append(one.Files, file)
			}
		}
		if len(one.Files) > 0 {
			out = append(out, one)
		}
	}
	return out
}

// filter selects the files of a repository that concern a workspace.
type filter struct {
	below             string // ending in a slash; empty for all
	globs             []string
	include, excludes []*regexp.Regexp // include is of globs
}

func filterOf(w api.Workspace) filter {
	var f filter
	if below := strings.TrimPrefix(path.Clean("/"+w.Source.Git.Path), "/"); below != "" {
		f.below = below + "/"
	}
	if w.PullRequests == nil {
		return f
	}
	for _, g := range w.PullRequests.Paths {
		if out, ok := strings.CutPrefix(g, "!"); ok {
			f.excludes = append(f.excludes, compile(out))
			continue
		}
		f.globs, f.include = append(f.globs, g), append(f.include, compile(g))
	}
	return f
}

// match says why a file concerns the workspace; empty where it does not.
func (f filter) match(file string) string {
	for _, e := range f.excludes {
		if e.MatchString(file) {
			return ""
		}
	}
	if strings.HasPrefix(file, f.below) {
		if f.below == "" {
			return fmt.Sprintf("%s changed", file)
		}
		return fmt.Sprintf("%s is below %s", file, strings.TrimSuffix(f.below, "/"))
	}
	for i, g := range f.include {
		if g.MatchString(file) {
			return fmt.Sprintf("%s matches %s", file, f.globs[i])
		}
	}
	return ""
}

// compile makes a glob an expression. The time to match a file's name is proportional to its length, for every glob.
// ** stands for any directories, * for anything but a slash, ? for one character but a slash; all else for itself.
func compile(glob string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)^`)
	for rest := glob; rest != ""; {
		n, to := 1, ""
		switch {
		case strings.HasPrefix(rest, "**/"):
			n, to = 3, `(?:.*/)?`
		case rest == "**":
			n, to = 2, `.*`
		case rest[0] == '*':
			to = `[^/]*`
		case rest[0] == '?':
			to = `[^/]`
		default:
			if n = strings.IndexAny(rest, "*?"); n < 0 {
				n = len(rest)
			}
			to = regexp.QuoteMeta(strings.ToValidUTF8(rest[:n], "\uFFFD"))
		}
		b.WriteString(to)
		rest = rest[n:]
	}
	b.WriteString(`$`)
	return regexp.MustCompile(b.String())
}

// CheckSettings refuses settings of a workspace for pull requests that could not take effect as they are written.
func CheckSettings(w api.Workspace) error {
	p := w.PullRequests
	if p == nil {
		return nil
	}
	if w.Source.Git == nil {
		return workflow.Refuse(workflow.ErrInvalid, "pull_requests", "pull_requests goes with a git source; leave it out, or name the repository in source.git.url")
	}
	if w.Source.Git.Version != "" && !p.IsDisabled {
		return workflow.Refuse(workflow.ErrInvalid, "pull_requests", "source.git.version follows tags, and a pull request is for a branch: leave pull_requests out, or name a branch in source.git.ref instead of version")
	}
	if p.OnMerge != "" && p.OnMerge != workflow.Preview && p.OnMerge != workflow.Update {
		return workflow.Refuse(workflow.ErrInvalid, "pull_requests.on_merge", "a merge starts a preview or an update, not %s", text.Quote(string(p.OnMerge), 40))
	}
	if len(p.Paths) > maxGlobs {
		return workflow.Refuse(workflow.ErrInvalid, "pull_requests.paths", "a workspace has at most %d path filters, not %d; ** stands for any directories", maxGlobs, len(p.Paths))
	}
	for i, glob := range p.Paths {
		if why := badGlob(glob); why != "" {
			return workflow.Refuse(workflow.ErrInvalid, fmt.Sprintf("pull_requests.paths[%d]", i), "%s %s", text.Quote(glob, 80), why)
		}
	}
	return nil
}

// badGlob says what is wrong with a glob; empty where nothing is. Characters that other programs read as a choice are
// refused rather than taken literally.
func badGlob(glob string) string {
	bare := strings.TrimPrefix(glob, "!")
	switch {
	case len(glob) > maxGlob:
		return fmt.Sprintf("is longer than %d bytes", maxGlob)
	case bare == "":
		return "is empty; name a path such as modules/** instead"
	case !utf8.ValidString(bare) || strings.ContainsFunc(bare, unicode.IsControl):
		return "has characters that no path filter has"
	case strings.ContainsAny(bare, `[]{}\`):
		return `has one of []{}\, which path filters do not know; write one filter for each choice`
	case path.Clean("/"+bare) != "/"+bare:
		return "is not a path from the top of the repository; leave out ., .. and slashes at the ends"
	}
	for part := range strings.SplitSeq(bare, "/") {
		if part != "**" && strings.Contains(part, "**") {
			return "has ** beside other characters; between slashes it stands alone, as in modules/**/*.tf"
		}
	}
	return ""
}
