package thirdparty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const own = "github.com/dayfly-dev/dayfly"

// ships are the builds of what ships. The runner is built twice: as a process beside dayfly, and for the image.
var ships = []struct {
	tags     string
	systems  []string
	patterns []string
}{
	{"", []string{"linux", "darwin"}, []string{"./cmd/...", "./runnerimage"}},
	{"machine", []string{"linux", "darwin"}, []string{"./runnerimage"}},
	{"lambda.norpc", []string{"linux"}, []string{"./functions/..."}},
}

type module struct {
	Path, Version, Dir string
	Replace            *module
}

type pkg struct {
	ImportPath, Name, Dir string
	DepOnly               bool
	Deps                  []string
	Module                *module
}

// Collect returns the texts of all modules that are linked into what ships, and of Go itself. It downloads the modules
// that are not in the module cache.
func Collect(ctx context.Context, root string) ([]Text, error) {
	var linked []pkg
	for _, s := range ships {
		for _, system := range s.systems {
			for _, arch := range []string{"amd64", "arm64"} {
				env := []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch}
				more, err := build(ctx, root, env, s.tags, s.patterns)
				if err != nil {
					return nil, err
				}
				linked = append(linked, more...)
			}
		}
	}
	dirs := map[module][]string{}
	for _, p := range linked {
		m := *cmp.Or(p.Module.Replace, p.Module)
		dirs[m] = append(dirs[m], filepath.ToSlash(filepath.Clean("."+strings.TrimPrefix(p.Dir, m.Dir))))
	}
	out, err := golang(ctx, root)
	for m, linked := range dirs {
		texts, missing := Find(m.Path+" "+m.Version, os.DirFS(m.Dir), linked...)
		out, err = append(out, texts...), errors.Join(err, missing)
	}
	return out, err
}

// build returns the foreign packages that one build of the programs of some patterns links.
func build(ctx context.Context, root string, env []string, tags string, patterns []string) (linked []pkg, err error) {
	modules, err := output(ctx, root, nil, "scripts/modules", patterns...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(modules) {
		there := strings.Fields(line)
		args := []string{"list", "-deps", "-tags=" + tags, "-json=ImportPath,Name,Dir,DepOnly,Deps,Module"}
		text, err := output(ctx, filepath.Join(root, there[0]), env, "go", append(args, there[1:]...)...)
		if err != nil {
			return nil, err
		}
		all, err := foreign(strings.NewReader(text))
		if err != nil {
			return nil, err
		}
		linked = append(linked, all...)
	}
	return linked, nil
}

// foreign returns the packages of other modules in a list that a program depends on.
func foreign(listed io.Reader) ([]pkg, error) {
	var all []pkg
	linked := map[string]bool{}
	for d := json.NewDecoder(listed); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
		if p.Name == "main" && !p.DepOnly {
			for _, dep := range p.Deps {
				linked[dep] = true
			}
		}
	}
	return slices.DeleteFunc(all, func(p pkg) bool {
		return !linked[p.ImportPath] || p.Module == nil || strings.HasPrefix(p.Module.Path+"/", own+"/")
	}), nil
}

// golang returns the license of the standard library and the runtime. The version is the one that go.mod asks for: it is
// the same on every machine.
func golang(ctx context.Context, root string) ([]Text, error) {
	text, err := output(ctx, root, nil, "go", "list", "-m", "-f", "go{{.GoVersion}}")
	if err != nil {
		return nil, err
	}
	at, err := output(ctx, root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	return Find("Go "+strings.TrimPrefix(version.Lang(text), "go")+" (standard library and runtime)", os.DirFS(at), ".")
}

func output(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // ours, and the go command
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
