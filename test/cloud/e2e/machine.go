package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/cloud/scenario"
	"github.com/dayfly-dev/dayfly/test/dockerrun"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// machine is what this machine has for the tasks.
type machine struct {
	root, temp string
	authority  *gitserver.Authority
	tap        *scenario.Tap
	getenv     func(string) string
	clean      *[]func() error

	address string   // at which tasks find this machine
	lacks   []string // what it does not have, for the end of the report
}

// image is that of the tasks.
const image = "dayfly-runner:e2e"

func (m *machine) later(f func() error) { *m.clean = append(*m.clean, f) }

// tasks decides how tasks run: as containers where a Docker engine answers, else as processes.
func (m *machine) tasks(ctx context.Context, o *scenario.Options) error {
	engine := dockerrun.NewEngine("")
	err := engine.Ping(ctx)
	if err != nil || m.getenv("TASKS") == "process" {
		why := "TASKS=process"
		if err != nil {
			why = "no Docker engine answers here"
		}
		heading("Tasks are processes: %s", why)
		m.lacks = append(m.lacks, "tasks as containers: "+why)
		return m.processes(ctx, o)
	}
	heading("Image of the tasks")
	if err := m.build(ctx, o); err != nil {
		return err
	}
	name := fmt.Sprintf("dayfly-e2e-%d", os.Getpid())
	address, remove, err := engine.MakeNetwork(ctx, name, dockerrun.TaskSubnet, dockerrun.TaskGateway)
	if err != nil {
		return fmt.Errorf("%w: the tasks need the network of AWS's own address, %s; another run may have it", err, dockerrun.TaskSubnet)
	}
	m.later(func() error {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Minute)
		defer cancel()
		defer engine.Close()
		return remove(limited)
	})
	m.address = address
	o.Cloud.TaskHost, o.Cloud.CredentialsEndpoint, o.Cloud.Image = address, "http://"+address, image
	o.Cloud.Runner = &dockerrun.Runner{
		Engine: engine, Network: name, Labels: map[string]string{"dev.dayfly.e2e": name},
		Ended: func(_ ecs.Spec, out []byte) { m.tap.Add("the output of a task", string(out)) },
	}
	note("tasks are containers of %s on a network of their own, with this machine at %s", image, address)
	return nil
}

// build builds the image, which trusts the certificate of the git server too.
func (m *machine) build(ctx context.Context, o *scenario.Options) error {
	authority := filepath.Join(m.temp, "authority.pem")
	if err := os.WriteFile(authority, m.authority.PEM, 0o600); err != nil {
		return err
	}
	var said bytes.Buffer
	c := exec.CommandContext(ctx, filepath.Join(m.root, "scripts", "image"))
	c.Env = append(os.Environ(), "IMAGE="+image, "VERSION=e2e", "EXTRA_CA="+authority)
	c.Stdout, c.Stderr, c.WaitDelay = io.MultiWriter(os.Stdout, &said), os.Stderr, time.Minute
	if err := c.Run(); err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	o.Engine = "terraform"
	if strings.Contains(said.String(), "engine OpenTofu") || strings.Contains(said.String(), "/tofu,") {
		o.Engine = "tofu"
	}
	return nil
}

// processes runs tasks as processes of this machine.
func (m *machine) processes(ctx context.Context, o *scenario.Options) error {
	// The runner looks for the program that evaluates policies beside itself.
	programs := filepath.Join(m.root, ".cache", "e2e")
	runner, err := built.Program(ctx, programs, "runnerimage")
	if err != nil {
		return err
	}
	if _, err := built.Program(ctx, programs, "cmd/dayfly-policy"); err != nil {
		return err
	}
	bundle := filepath.Join(m.temp, "ca.pem")
	if err := os.WriteFile(bundle, m.authority.PEM, 0o600); err != nil {
		return err
	}
	for _, name := range []string{"terraform", "tofu"} {
		if _, err := exec.LookPath(name); err == nil {
			o.Engine = name
			break
		}
	}
	if o.Engine == "" {
		o.NoEngine = "no terraform and no tofu on PATH"
		m.lacks = append(m.lacks, "engines: "+o.NoEngine)
	}
	// As root, engines are users of their own, and pass through.
	if err := os.Chmod(m.temp, 0o711); err != nil { //nolint:gosec // see above
		return err
	}
	m.address, o.Cloud.Image = "127.0.0.1", "runner"
	o.Cloud.TaskEnv = map[string]string{"SSL_CERT_FILE": bundle, "DAYFLY_ENGINE_PATH": m.getenv("PATH")}
	o.Cloud.Runner = &procrun.Runner{
		Commands: map[string][]string{"runner": {runner}}, Env: []string{"PATH=" + m.getenv("PATH")},
		Dir: filepath.Join(m.temp, "tasks"), DirEnv: "DAYFLY_WORK_DIR", Output: m.tap.Writer("the output of a task"),
	}
	return nil
}
