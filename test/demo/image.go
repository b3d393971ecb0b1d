package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// demoImage is the image of the demo's container jobs.
const demoImage = "dayfly-runner:demo"

// image builds the image of container jobs. Containers see nothing of this machine: a provider that was
// built here goes into the image.
func (e *engine) image(ctx context.Context, repository, temp string) error {
	heading("Image for container jobs")
	env := append(os.Environ(), "IMAGE="+demoImage, "VERSION=demo", "PATH="+e.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	if e.name != "" {
		env = append(env, "ENGINE="+e.name)
	}
	if e.cliConfig != "" {
		const inside = "/opt/demo"
		extra := filepath.Join(temp, "extra")
		place := filepath.Join(extra, inside)
		if err := os.MkdirAll(place, 0o755); err != nil { //nolint:gosec // for the user of containers
			return err
		}
		if err := os.CopyFS(filepath.Join(place, "mirror"), os.DirFS(filepath.Join(temp, "mirror"))); err != nil {
			return fmt.Errorf("copy the providers: %w", err)
		}
		text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", inside+"/mirror")
		if err := writeOpen(filepath.Join(place, "engine.tfrc"), text); err != nil {
			return err
		}
		e.cliConfig = inside + "/engine.tfrc"
		env = append(env, "EXTRA="+extra)
	}
	c := exec.CommandContext(ctx, filepath.Join(repository, "scripts", "image"))
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = env, os.Stdout, os.Stderr, 5*time.Second
	if err := c.Run(); err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	return nil
}
