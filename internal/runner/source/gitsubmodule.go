package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The bounds of submodules. Each is a conversation of its own with a server.
const (
	maxSubmodules     = 50 // of a source, with those of its submodules
	maxSubmoduleDepth = 5
	maxModulesFile    = 256 << 10
)

func refuseSubmodule(kind error, name, format string, args ...any) error {
	return workflow.Refuse(kind, "source.git.submodules", "submodule %s: %s", quote(name), fmt.Sprintf(format, args...))
}

// submodulesOf notes the submodules of a repository as its tree is written. It does not believe .gitmodules where a
// submodule is: the tree says that, and only its address is looked up there.
func (c *checkout) submodulesOf(top *object.Tree, repo repository) func(name string, commit plumbing.Hash) error {
	var urls map[string]string
	return func(name string, commit plumbing.Hash) error {
		if !c.git.Submodules {
			c.Log("the submodule %s stays empty: source.git.submodules is not set", quote(name))
			return nil
		}
		if urls == nil {
			var err error
			if urls, err = submoduleURLs(top); err != nil {
				return refuseSubmodule(workflow.ErrInvalid, name, "%v", err)
			}
		}
		inside := name
		if repo.dir != "." {
			inside = strings.TrimPrefix(name, repo.dir+"/")
		}
		url, err := submoduleURL(repo.url, c.home, urls[inside])
		if err != nil {
			return refuseSubmodule(workflow.ErrInvalid, name, "%v", err)
		}
		if c.found++; c.found > maxSubmodules || repo.depth == maxSubmoduleDepth {
			return refuseSubmodule(workflow.ErrTooLarge, name, "a source has at most %d submodules, at most %d deep in each other", maxSubmodules, maxSubmoduleDepth)
		}
		c.waiting = append(c.waiting, repository{
			url: url, dir: name, depth: repo.depth + 1,
			choose: func(adv *packp.AdvRefs) (want, error) { return chooseCommit(adv, commit), nil },
		})
		return nil
	}
}

// takeSubmodules checks out the submodules that were found, one after the other, and those found in them.
func (c *checkout) takeSubmodules(ctx context.Context) error {
	for len(c.waiting) > 0 {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		if _, err := c.take(ctx, next); err != nil {
			return c.explainSubmodule(ctx, next, err)
		}
	}
	return nil
}

// explainSubmodule says which submodule an error is about.
func (c *checkout) explainSubmodule(ctx context.Context, of repository, err error) error {
	refusal, refused := errors.AsType[*workflow.Error](err)
	if !refused || context.Cause(ctx) != nil {
		return fmt.Errorf("submodule %s: %w", quote(of.dir), err)
	}
	if closed := errors.Is(err, workflow.ErrForbidden) || refusal.Field == "source.git.url"; closed && !of.url.sameHost(c.home) {
		return refuseSubmodule(refusal.Kind, of.dir, "%s asks for credentials or is not there, and those of the source are for %s://%s only", of.url, c.home.scheme, c.home.host)
	}
	return refuseSubmodule(refusal.Kind, of.dir, "%s: %s", of.url, refusal.Message)
}

// submoduleURLs reads the addresses of submodules by their path.
func submoduleURLs(top *object.Tree) (map[string]string, error) {
	e, err := top.FindEntry(".gitmodules")
	if err != nil || e.Mode == filemode.Symlink || !e.Mode.IsFile() {
		return nil, errors.New("the repository has no file .gitmodules")
	}
	file, err := top.TreeEntryFile(e)
	if err != nil {
		return nil, fmt.Errorf("read .gitmodules: %w", err)
	}
	content, err := file.Reader()
	if err != nil {
		return nil, fmt.Errorf("read .gitmodules: %w", err)
	}
	defer func() { _ = content.Close() }()
	data, err := io.ReadAll(io.LimitReader(content, maxModulesFile+1))
	if err != nil {
		return nil, fmt.Errorf("read .gitmodules: %w", err)
	}
	return parseModules(data)
}

// Submodules are the directories of the submodules that a clone names in .gitmodules, below its top, which is absolute.
func Submodules(top string) ([]string, error) {
	file, err := os.OpenInRoot(top, ".gitmodules")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read .gitmodules: %w", err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxModulesFile+1))
	if err != nil {
		return nil, fmt.Errorf("read .gitmodules: %w", err)
	}
	urls, err := parseModules(data)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, dir := range slices.Sorted(maps.Keys(urls)) {
		if filepath.IsLocal(dir) {
			dirs = append(dirs, filepath.Join(top, dir))
		}
	}
	return dirs, nil
}

// parseModules reads a file .gitmodules.
func parseModules(data []byte) (map[string]string, error) {
	if len(data) > maxModulesFile {
		return nil, fmt.Errorf(".gitmodules has more than %d bytes", maxModulesFile)
	}
	modules := config.NewModules()
	if err := modules.Unmarshal(data); err != nil {
		return nil, fmt.Errorf(".gitmodules cannot be read: %s", text.Cut(err.Error(), 200))
	}
	out := map[string]string{}
	for _, m := range modules.Submodules {
		if m.Path != "" {
			out[path.Clean(m.Path)] = m.URL
		}
	}
	return out, nil
}

// submoduleURL is the address of a submodule, as its repository names it. One that begins with ./ or ../ is relative to
// that of the repository. Only the source's own host can be one without TLS.
func submoduleURL(of, home address, raw string) (address, error) {
	if raw == "" {
		return address{}, errors.New(".gitmodules has no address for it")
	}
	a := of
	if strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../") {
		joined := path.Join(strings.TrimLeft(of.path, "/"), raw)
		if a.path = joined; strings.HasPrefix(of.path, "/") {
			a.path = "/" + joined
		}
		if _, err := parseURL(a.String()); err != nil || joined == "." || !filepath.IsLocal(joined) || strings.HasPrefix(joined, "-") {
			return address{}, fmt.Errorf("its address %s does not lead to a repository of %s", quote(raw), of.host)
		}
		return a, nil
	}
	a, err := parseURL(raw)
	switch refusal, refused := errors.AsType[*workflow.Error](err); {
	case refused:
		return a, errors.New(refusal.Message)
	case err != nil:
		return a, err
	case a.scheme != "https" && !a.sameHost(home):
		return a, fmt.Errorf("the credentials of the source are for %s://%s only, and %s needs others: write its address in .gitmodules as https:// or relative to the repository, such as ../NAME.git", home.scheme, home.host, a)
	}
	return a, nil
}
