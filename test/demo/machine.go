package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/dockerrun"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// demo is what the story is told with.
type demo struct {
	ctx  context.Context //nolint:containedctx // it is one call
	temp string          // all that it makes is below
	home string          // of the user who calls dayfly

	target  string // process or docker: where jobs run
	engine  string // terraform or tofu; empty: none
	config  string // settings of the engine, for a provider that is built here
	image   string
	address string // at which jobs find this machine

	up     *built.Up
	issuer *provider.Provider
	forge  *forge
	later  []func() error // what ends with the demo, the first one last

	env     []string // of each program
	out     string   // what was shown last
	results []string
	bad     int
	story   string // a run whose story is told at the end
	seen    string // its page in the console
}

func heading(format string, args ...any) { fmt.Fprintf(os.Stdout, "\n=== "+format+"\n", args...) }
func note(format string, args ...any)    { fmt.Fprintf(os.Stdout, "    "+format+"\n", args...) }

// prepare starts everything.
func (d *demo) prepare() {
	must(os.Chmod(d.temp, 0o711)) //nolint:gosec // as root, engines are users of their own, who pass through
	if !othersRead(d.temp) {
		die("engines run as users of their own and cannot get to %s: set TMPDIR to a directory that others can reach", d.temp)
	}
	d.home = d.dir("home", 0o700)
	d.dir("code", 0o755)
	d.dir("drift", 0o777) // the engine's user writes there
	heading("Engine")
	d.chooseEngine()
	d.chooseTarget()
	path := filepath.Join(d.temp, "engine") + ":" + os.Getenv("PATH")
	d.env = []string{
		"PATH=" + path, "TMPDIR=" + d.temp, "TERM=dumb", "NO_COLOR=1", "CHECKPOINT_DISABLE=1",
		"DAYFLY_DEPLOY_TARGET=" + d.target, "DAYFLY_RUNNER_IMAGE=" + d.image,
	}
	authority, err := gitserver.OpenAuthority(filepath.Join(".cache", "e2e", "authority"))
	must(err)
	if d.target == "docker" {
		bundle := filepath.Join(d.temp, "authority.pem")
		must(os.WriteFile(bundle, authority.PEM, 0o600))
		d.makeImage(bundle)
		d.env = append(d.env, "SSL_CERT_FILE="+bundle, "GIT_SSL_CAINFO="+bundle)
	}
	d.forge = d.openForge(authority)

	heading("Control plane and agent: dayfly up on a free port, data in %s", d.temp)
	cmd := d.command("up", "--listen", "127.0.0.1:0", "--data", filepath.Join(d.temp, "up"), "--source-root", examples(),
		"--source-root", filepath.Join(d.temp, "code"), "--private-issuers", "127.0.0.1,"+d.address)
	d.up, err = built.StartUp(d.ctx, cmd, filepath.Join(d.temp, "up"))
	must(err)
	d.end("dayfly up", d.up.Process)
	indent("    ", d.up.Said())
}

func examples() string {
	dir, err := filepath.Abs("examples")
	must(err)
	return dir
}

// dir makes a directory below the demo's own.
func (d *demo) dir(name string, mode fs.FileMode) string {
	dir := filepath.Join(d.temp, name)
	must(errors.Join(os.MkdirAll(dir, mode), os.Chmod(dir, mode)))
	return dir
}

// write makes a file that engines can read.
func (d *demo) write(name, text string) {
	d.dir(filepath.Dir(name), 0o755)
	must(os.WriteFile(filepath.Join(d.temp, name), []byte(text), 0o644)) //nolint:gosec // as it says
}

// end ends a process with the demo.
func (d *demo) end(name string, p *built.Process) {
	d.later = append(d.later, func() error {
		if err := p.Stop(); err != nil {
			return fmt.Errorf("%s did not end well: %w\n%s", name, err, p.Said())
		}
		return nil
	})
}

// clean ends and removes what the demo made.
func (d *demo) clean() (err error) {
	heading("Stopping")
	for i := len(d.later) - 1; i >= 0; i-- {
		err = errors.Join(err, d.later[i]())
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // none elsewhere than on Linux
	for _, file := range files {
		if vars, readErr := os.ReadFile(file); readErr == nil && bytes.Contains(vars, []byte(d.temp)) { //nolint:gosec // G304: see above
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			err = errors.Join(err, fmt.Errorf("process %s is left: %s", filepath.Base(filepath.Dir(file)), bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	if err = errors.Join(err, os.RemoveAll(d.temp)); err == nil {
		note("all servers ended cleanly; no process is left")
	}
	return err
}

// othersRead reports whether other users can get to a file, where engines run as such.
func othersRead(path string) bool {
	if os.Geteuid() != 0 {
		return true
	}
	for ; path != "/"; path = filepath.Dir(path) {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&1 == 0 {
			return false
		}
	}
	return true
}

// chooseEngine finds the engine of this machine, or builds OpenTofu, and sees to it that it finds its provider.
func (d *demo) chooseEngine() {
	wanted := []string{"terraform", "tofu"}
	switch asked := os.Getenv("ENGINE"); asked {
	case "none":
		note("ENGINE=none: what needs an engine is left out")
		return
	case "":
	case "terraform", "tofu":
		wanted = []string{asked}
	default:
		die("ENGINE is %s; it can be terraform, tofu or none", asked)
	}
	program := ""
	for _, name := range wanted {
		if found, err := exec.LookPath(name); err == nil && program == "" {
			d.engine, program = name, found
		}
	}
	if program == "" {
		if wanted[0] == "terraform" && len(wanted) == 1 {
			die("ENGINE=terraform, and there is no terraform on PATH; ENGINE=tofu builds OpenTofu")
		}
		d.engine, program = "tofu", d.foreign("tofu")
	}
	to := filepath.Join(d.dir("engine", 0o755), d.engine)
	if filepath.Base(program) == d.engine && othersRead(program) {
		must(os.Symlink(program, to))
	} else {
		d.copyProgram(program, to)
	}
	note("%s of %s", d.engine, program)

	// The registry is asked for the provider as an engine in a task would ask.
	d.write("probe/main.tf", "terraform {\n  required_providers {\n    local = {\n      source = \"hashicorp/local\"\n    }\n  }\n}\n")
	probe := exec.CommandContext(d.ctx, to, "-chdir="+filepath.Join(d.temp, "probe"), "init", "-input=false")
	probe.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(d.temp, "probe"), "CHECKPOINT_DISABLE=1",
		"TF_REGISTRY_DISCOVERY_RETRY=0", "TF_REGISTRY_CLIENT_TIMEOUT=15",
	}
	if probe.Run() == nil {
		note("provider local: from the registry")
		return
	}
	note("provider local: no registry can be reached; using one built from its Go module")
	local := d.foreign("terraform-provider-local")
	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		at := d.dir(filepath.Join("mirror", host, "hashicorp/local/1.4.0", runtime.GOOS+"_"+runtime.GOARCH), 0o755)
		d.copyProgram(local, filepath.Join(at, "terraform-provider-local_v1.4.0_x4"))
	}
	must(exec.CommandContext(d.ctx, "chmod", "-R", "a+rX", filepath.Join(d.temp, "mirror")).Run())
	d.config = filepath.Join(d.temp, "engine.tfrc")
	d.writeConfig("engine.tfrc", filepath.Join(d.temp, "mirror"))
}

func (d *demo) writeConfig(name, mirror string) {
	d.write(name, fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror))
}

// foreign is a program of others, built from its module if it must be.
func (d *demo) foreign(name string) string {
	c := exec.CommandContext(d.ctx, "scripts/foreign", name)
	c.Stderr = os.Stderr
	path, err := c.Output()
	must(err)
	return strings.TrimSpace(string(path))
}

// install puts programs of this machine, or those built from their modules, where jobs find them.
func (d *demo) install(names ...string) {
	for _, name := range names {
		program, err := exec.LookPath(name)
		if err != nil {
			program = d.foreign(name)
		}
		d.copyProgram(program, filepath.Join(d.temp, "engine", name))
	}
}

func (d *demo) copyProgram(from, to string) {
	b, err := os.ReadFile(from) //nolint:gosec // G304: a program of this machine
	must(err)
	must(os.WriteFile(to, b, 0o755)) //nolint:gosec // a program
}

// chooseTarget decides where jobs run: in containers where a Docker engine answers, else as processes. With containers,
// what jobs call listens on a network that is made for it: they do not reach this machine's loopback.
func (d *demo) chooseTarget() {
	d.target, d.address = os.Getenv("DEPLOY_TARGET"), "127.0.0.1"
	docker := dockerrun.NewEngine("")
	d.later = append(d.later, func() error { docker.Close(); return nil })
	answers := docker.Ping(d.ctx) == nil
	switch {
	case d.target == "process":
	case d.target != "" && d.target != "docker":
		die("DEPLOY_TARGET is %s; it can be process or docker", d.target)
	case answers:
		d.target, d.image = "docker", "dayfly-runner:demo"
		address, remove, err := docker.MakeNetwork(d.ctx, fmt.Sprintf("dayfly-demo-%d", os.Getpid()), "", "")
		must(err)
		d.address = address
		d.later = append(d.later, func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), time.Minute)
			defer cancel()
			return remove(ctx)
		})
	case d.target == "docker":
		die("DEPLOY_TARGET is docker, and no Docker engine answers")
	default:
		d.target = "process"
		note("no Docker engine answers: jobs run as processes")
	}
}

// makeImage makes the image of container jobs. A provider that was built here goes into it, as does the authority that
// signed the certificates of this demo.
func (d *demo) makeImage(authority string) {
	heading("Image for container jobs")
	c := exec.CommandContext(d.ctx, "scripts/image")
	c.Env = append(os.Environ(), "IMAGE="+d.image, "VERSION=demo", "EXTRA_CA="+authority,
		"PATH="+filepath.Join(d.temp, "engine")+":"+os.Getenv("PATH"), "ENGINE="+d.engine)
	if d.config != "" {
		d.dir("extra/opt/demo", 0o755)
		must(exec.CommandContext(d.ctx, "cp", "-R", filepath.Join(d.temp, "mirror"), filepath.Join(d.temp, "extra/opt/demo/")).Run()) //nolint:gosec // our own
		d.config = "/opt/demo/engine.tfrc"
		d.writeConfig("extra/opt/demo/engine.tfrc", "/opt/demo/mirror")
		c.Env = append(c.Env, "EXTRA="+filepath.Join(d.temp, "extra"))
	}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	must(c.Run())
}

// command is a call of dayfly with nothing of the user's own environment: credentials and settings are not touched. It
// has a process group of its own, so that an interrupt at the terminal reaches it in its turn.
func (d *demo) command(args ...string) *exec.Cmd {
	c := exec.CommandContext(context.WithoutCancel(d.ctx), filepath.Join(".cache", "bin", "dayfly"), args...) //nolint:gosec // built before this
	c.Env = append([]string{"HOME=" + d.home}, d.env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

// agent starts the agent of a pool.
func (d *demo) agent(pool string, env ...string) {
	c := d.command("agent")
	c.Env = append(c.Env, "DAYFLY_SERVICE_URL="+d.up.URL, "DAYFLY_SOURCE_ROOTS="+examples(),
		"DAYFLY_WORKING_DIRECTORY="+filepath.Join(d.temp, pool), "DAYFLY_POLLING_INTERVAL=2s")
	c.Env = append(c.Env, env...)
	p, err := built.Start(d.ctx, c, regexp.MustCompile("works for"))
	must(err)
	d.end("the agent of pool "+pool, p)
}

// serve serves at an address of this machine until the demo ends, and returns the listener's own.
func (d *demo) serve(address string, handler http.Handler, wrap func(net.Listener) net.Listener) string {
	l, err := (&net.ListenConfig{}).Listen(d.ctx, "tcp", net.JoinHostPort(address, "0"))
	must(err)
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	d.later = append(d.later, s.Close)
	go func() { _ = s.Serve(wrap(l)) }()
	return l.Addr().String()
}
