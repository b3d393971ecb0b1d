package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// engine is what runs the Terraform code, and where it gets its provider from.
type engine struct {
	name      string // terraform or tofu; empty: none, only commands run
	dir       string // where its binary lies
	cliConfig string // file that leads it to the provider; empty: the registry serves it
}

// Modules that are built where the machine has no engine and no registry. They are pinned in
// module files of their own.
const (
	tofuPackage     = "github.com/opentofu/opentofu/cmd/tofu"
	tofuModule      = "tools/tofu"
	providerPackage = "github.com/terraform-providers/terraform-provider-local"
	providerModule  = "tools/providers/local"
	providerVersion = "1.4.0"

	// tofuRelease makes it say the version that it is, and not one on the way to it.
	tofuRelease = "-X github.com/opentofu/opentofu/version.dev=no"
)

// findEngine takes the engine of the machine, or builds one. ENGINE says terraform, tofu or none.
func findEngine(ctx context.Context, getenv func(string) string, repository, cache, temp string) (engine, error) {
	want := getenv("ENGINE")
	heading("Engine")
	var e engine
	switch want {
	case "none":
		note("ENGINE=none: the workflows of basic, failing-plan and drift are left out")
		return e, nil
	case "", "terraform", "tofu":
	default:
		return e, fmt.Errorf("ENGINE is %q; it can be terraform, tofu or none", want)
	}
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil && (want == "" || want == name) {
			e = engine{name: name, dir: filepath.Dir(path)}
			note("%s of this machine: %s", name, path)
			break
		}
	}
	if e.name == "" && want == "terraform" {
		return e, errors.New("ENGINE=terraform, and there is no terraform on PATH; ENGINE=tofu builds OpenTofu")
	}
	if e.name == "" {
		path := filepath.Join(cache, "engine", "tofu")
		if err := build(ctx, repository, tofuModule, tofuPackage, tofuRelease, path, "OpenTofu", "some minutes (once: it is kept in .cache)"); err != nil {
			return e, err
		}
		e = engine{name: "tofu", dir: filepath.Dir(path)}
	}
	if err := e.makeReachable(temp); err != nil {
		return e, err
	}
	return e, e.findProvider(ctx, repository, cache, temp)
}

// makeReachable copies the engine where users of their own can run it: as root, engines are such
// users, and they cannot pass through a private directory.
func (e *engine) makeReachable(temp string) error {
	binary := filepath.Join(e.dir, e.name)
	if os.Geteuid() != 0 || open(binary) {
		return nil
	}
	to := filepath.Join(temp, "engine")
	note("%s cannot be reached by other users: using a copy", binary)
	e.dir = to
	return copyFile(binary, filepath.Join(to, e.name))
}

// open reports whether every user can get to a file.
func open(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for p := path; ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if p == filepath.Dir(p) {
			return true
		}
	}
}

// findProvider asks the registry for the local provider, as an engine in a task would, and builds
// it where no registry can be reached.
func (e *engine) findProvider(ctx context.Context, repository, cache, temp string) error {
	probe := filepath.Join(temp, "probe")
	if err := os.MkdirAll(probe, 0o700); err != nil {
		return err
	}
	const code = "terraform {\n  required_providers {\n    local = {\n      source = \"hashicorp/local\"\n    }\n  }\n}\n"
	if err := os.WriteFile(filepath.Join(probe, "main.tf"), []byte(code), 0o600); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ask := exec.CommandContext(limited, filepath.Join(e.dir, e.name), "init", "-input=false", "-no-color")
	ask.Dir, ask.Env = probe, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + probe, "CHECKPOINT_DISABLE=1"}
	ask.WaitDelay = time.Second
	if ask.Run() == nil {
		note("provider local: from the registry")
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	note("provider local: no registry can be reached; using one built from its Go module")
	binary := filepath.Join(cache, "providers", "terraform-provider-local_v"+providerVersion+"_x4")
	if err := build(ctx, repository, providerModule, providerPackage, "", binary, "the provider local "+providerVersion, "half a minute (once)"); err != nil {
		return err
	}
	mirror := filepath.Join(temp, "mirror")
	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		to := filepath.Join(mirror, host, "hashicorp", "local", providerVersion, runtime.GOOS+"_"+runtime.GOARCH, filepath.Base(binary))
		if err := copyFile(binary, to); err != nil {
			return err
		}
	}
	e.cliConfig = filepath.Join(temp, "engine.tfrc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	return writeOpen(e.cliConfig, text)
}

// build builds a program from a module file of its own into the cache, once.
func build(ctx context.Context, repository, module, pkg, stamp, to, name, duration string) error {
	if _, err := os.Stat(to); err == nil {
		note("%s: built before", name)
		return nil
	}
	note("building %s from its Go module, which takes %s", name, duration)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // a program, for every user
		return err
	}
	// Under another name until it is whole: an interrupted build must not be taken for one.
	part := fmt.Sprintf("%s.part-%d", to, os.Getpid())
	defer func() { _ = os.Remove(part) }()
	c := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-ldflags", "-s -w "+stamp, "-o", part, pkg)
	c.Dir = filepath.Join(repository, module)
	c.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	lines, writer := io.Pipe()
	c.Stdout, c.Stderr = writer, writer
	began := time.Now()
	if err := c.Start(); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	ended := make(chan error, 1)
	go func() {
		err := c.Wait()
		_ = writer.Close()
		ended <- err
	}()
	count, last, said := 0, "", time.Now()
	var tail []string
	for scan := bufio.NewScanner(lines); scan.Scan(); {
		count, last = count+1, scan.Text()
		if tail = append(tail, last); len(tail) > 20 {
			tail = tail[1:]
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			note("  %s: %d steps, now %s", time.Since(began).Round(time.Second), count, last)
		}
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, strings.Join(tail, "\n"))
	}
	note("  built in %s", time.Since(began).Round(time.Second))
	return os.Rename(part, to)
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // for every user
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()                                                      //nolint:errcheck // it was only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // a program, for every user
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func writeOpen(path, text string) error {
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // for every user
}

// tempDir makes a directory for everything of this demo that other users can pass through.
func tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "dayfly-demo-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // engines pass through it
		return "", err
	}
	if os.Geteuid() == 0 && !open(dir) {
		return "", errors.Join(fmt.Errorf("engines run as users of their own and cannot get to %s: set TMPDIR to a directory that others can reach", dir), os.Remove(dir))
	}
	return filepath.EvalSymlinks(dir)
}

// removed removes the directory and reports if anything is left.
func removed(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is still there", dir)
	}
	return nil
}
