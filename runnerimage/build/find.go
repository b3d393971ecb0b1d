package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/runnerimage/build/layers"
)

// Where things lie in the image.
const (
	runnerPath  = "usr/local/bin/runner"
	policyPath  = "usr/local/bin/" + api.PolicyProgram // the runner looks beside itself
	licensePath = "usr/share/doc/dayfly/"
	pluginsPath = "usr/local/share/terraform/plugins" // where both engines look before they ask a registry
)

// run runs a program and returns its output; its standard error becomes the error.
func (c config) run(ctx context.Context, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // each caller names its program
	var said, complaint bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(c.environment(), env...), &said, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err, cmp.Or(strings.TrimSpace(complaint.String()), strings.TrimSpace(said.String())))
	}
	return strings.TrimSpace(said.String()), nil
}

// own builds one of our programs, from its directory in this repository, which lies at path in the image. It belongs to
// root, so that no engine writes to it.
func (c config) own(ctx context.Context, temp, dir, at string) (layers.Entry, error) {
	file := filepath.Join(temp, path.Base(at))
	_, err := c.run(ctx, []string{"GOOS=linux", "GOARCH=" + c.arch, "CGO_ENABLED=0"},
		"go", "build", "-C", dir, "-buildvcs=false", "-trimpath", "-ldflags", "-s -w -X main.version="+c.version, "-o", file, ".")
	return layers.Entry{Path: at, Mode: layers.Executable, From: file}, err
}

// license is a file of this repository with the licenses of what own built.
func license(name string) layers.Entry {
	return layers.Entry{Path: licensePath + name, Mode: layers.Plain, From: name}
}

// foreign builds a program from its pinned module, once, and returns its path.
func (c config) foreign(ctx context.Context, program, arch string) (string, error) {
	cmd := exec.CommandContext(ctx, "scripts/foreign", program)
	cmd.Env, cmd.Stderr = append(c.environment(), "GOARCH="+arch), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s from its Go module: %w", program, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// fits returns the path of a program of this machine that runs in an image without libraries, or "".
func fits(program, arch string) string {
	file, err := exec.LookPath(program)
	if err != nil {
		return ""
	}
	return withoutLibraries(file, arch)
}

// withoutLibraries returns a file that is a statically linked program for arch, or "".
func withoutLibraries(file, arch string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if loader, err := layers.Loader(f, arch); err != nil || loader != "" {
		return ""
	}
	return file
}

// findEngine returns the engine to put into the image, and names its origin. It returns none if EXTRA or the base has
// one.
func (c config) findEngine(ctx context.Context, has have) (entries []layers.Entry, said string, err error) {
	names := []string{"terraform", "tofu"}
	if c.engine != "" {
		names = []string{c.engine}
	}
	for _, engine := range names {
		if owner, _ := has.program(engine); owner != "" {
			return nil, engine + " of " + owner, nil
		}
	}
	for _, engine := range names {
		if file := fits(engine, c.arch); file != "" {
			return []layers.Entry{{Path: "usr/local/bin/" + engine, Mode: layers.Executable, From: file}}, file, nil
		}
	}
	if c.engine == "terraform" {
		return nil, "", fmt.Errorf("ENGINE: PATH has no statically linked terraform for linux/%s: put it there or into EXTRA/usr/local/bin, or use ENGINE=tofu, which is built here", c.arch)
	}
	file, err := c.foreign(ctx, "tofu", c.arch)
	if err != nil {
		return nil, "", fmt.Errorf("the image has no engine: %w; put a statically linked terraform or tofu for linux/%s into PATH", err, c.arch)
	}
	return []layers.Entry{{Path: "usr/local/bin/tofu", Mode: layers.Executable, From: file}}, "OpenTofu of tools/tofu", nil
}

// findShell returns the shell to put into the image: busybox, where neither EXTRA nor the base has one.
func (c config) findShell(ctx context.Context, has have, temp string) (entries []layers.Entry, said string, err error) {
	if owner := has.owner("/bin/sh"); owner != "" {
		return nil, "that of " + owner, nil
	}
	file := fits("busybox", c.arch)
	if file == "" {
		if file, err = c.debian(ctx, temp, c.arch); err != nil {
			return nil, "", fmt.Errorf("the image has no shell: PATH has no statically linked busybox for linux/%s, and Debian's cannot be had (%w): "+
				"install busybox-static, put a shell into EXTRA/bin/sh, or name a BASE with one", c.arch, err)
		}
	}
	// One that runs here lists its programs.
	lister, err := exec.LookPath("busybox")
	if err != nil {
		lister = file
	}
	if err != nil && (c.arch != runtime.GOARCH || runtime.GOOS != "linux") {
		if lister, err = c.debian(ctx, temp, runtime.GOARCH); err != nil {
			return nil, "", fmt.Errorf("the programs of busybox cannot be listed: %w: install busybox", err)
		}
	}
	applets, err := c.run(ctx, nil, lister, "--list")
	if err != nil {
		return nil, "", err
	}
	entries = append(entries, layers.Entry{Path: "bin/busybox", Mode: layers.Executable, From: file})
	for _, applet := range strings.Fields(applets) {
		if applet != "busybox" {
			entries = append(entries, layers.Entry{Path: "bin/" + applet, Link: "busybox"})
		}
	}
	return entries, "busybox", nil
}

// debian unpacks the busybox of Debian, without installing it.
func (c config) debian(ctx context.Context, temp, arch string) (string, error) {
	dir := filepath.Join(temp, "debian-"+arch)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	if _, err := c.run(ctx, nil, "sh", "-c", `cd "$1" && apt-get download -qq "busybox-static:$2" && dpkg-deb -x busybox-static_*.deb .`, "sh", dir, arch); err != nil {
		return "", err
	}
	for _, file := range []string{"bin/busybox", "usr/bin/busybox"} {
		if found := withoutLibraries(filepath.Join(dir, file), arch); found != "" {
			return found, nil
		}
	}
	return "", errors.New("its package has no static busybox")
}

// tree lists the files below a directory of this machine, to be put below another one of the image. Owners and modes
// are not copied, except that programs stay executable.
func tree(dir, below string) ([]layers.Entry, error) {
	var out []layers.Entry
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		e := layers.Entry{Path: filepath.ToSlash(filepath.Join(below, rel))}
		switch {
		case d.IsDir():
			e.Dir = true
		case d.Type()&fs.ModeSymlink != 0:
			if e.Link, err = os.Readlink(file); err != nil {
				return err
			}
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return err
			}
			e.Mode, e.From = layers.Plain, file
			if info.Mode().Perm()&0o111 != 0 {
				e.Mode = layers.Executable
			}
		default:
			return fmt.Errorf("%s is not a file, a directory or a link", file)
		}
		out = append(out, e)
		return nil
	})
	return out, err
}
