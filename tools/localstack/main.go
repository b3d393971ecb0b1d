// Command localstack runs LocalStack, or what speaks as it does, in a container until its input ends. It prints the
// address when that answers, and nothing else.
//
//	LOCALSTACK_IMAGE       default localstack/localstack:4.14.0, the last that needs no token
//	LOCALSTACK_AUTH_TOKEN  is passed on when it is set
//
// It ends with 75, and says why on standard error, where it cannot run: without an engine, or without the image.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/localstack"
)

const (
	defaultImage = "localstack/localstack:4.14.0"
	services     = "sqs,secretsmanager,dynamodb,s3,sts"
	pullTime     = 2 * time.Minute
	startTime    = 3 * time.Minute
	cannotRun    = 75
)

// errCannot is of a machine on which this cannot run.
var errCannot = errors.New("SKIPPED")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv, os.Stdin, os.Stdout)
	stop()
	switch {
	case errors.Is(err, errCannot):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(cannotRun)
	case err != nil:
		fmt.Fprintln(os.Stderr, "localstack:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string, in io.Reader, out io.Writer) (err error) {
	image := cmp.Or(getenv("LOCALSTACK_IMAGE"), defaultImage)
	if err := checkTag(image); err != nil {
		return err
	}
	if err := have(ctx, image); err != nil {
		return err
	}
	// The container that cleans up after testcontainers is an image of its own, which may not be there.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return err
	}
	env := map[string]string{"SERVICES": services}
	if token := getenv("LOCALSTACK_AUTH_TOKEN"); token != "" {
		env["LOCALSTACK_AUTH_TOKEN"] = token
	}
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	c, err := localstack.Run(starting, image, testcontainers.WithEnv(env))
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if c != nil {
			err = errors.Join(err, c.Terminate(ending))
		}
	}()
	if err != nil {
		return fmt.Errorf("start %s: %w", image, err)
	}
	address, err := c.PortEndpoint(ctx, "4566/tcp", "http")
	if err != nil {
		return fmt.Errorf("address of %s: %w", image, err)
	}
	if _, err := fmt.Fprintln(out, address); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, in)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// checkTag refuses what the module takes for a LocalStack of long ago: no tag, a digest alone, and months with a zero
// (2026.03.0; 2026.3.0 is read well).
func checkTag(image string) error {
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if tag == "" || strings.Contains(image, "@") {
		return fmt.Errorf("LOCALSTACK_IMAGE=%s: name a tag, such as %s", image, defaultImage)
	}
	for part := range strings.SplitSeq(tag, ".") {
		if len(part) > 1 && part[0] == '0' {
			return fmt.Errorf("LOCALSTACK_IMAGE=%s: a part of the tag begins with 0, which is not read as a version; tag the image anew, as with docker tag %s %s", image, image, strings.ReplaceAll(image, ".0", "."))
		}
	}
	return nil
}

// have reports where the engine or the image is missing and cannot be had. Without this look, the module panics
// without an engine, and leaves a network behind without an image.
func have(ctx context.Context, image string) error {
	if out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: no Docker engine answers: %s", errCannot, firstLine(out, err))
	}
	if exec.CommandContext(ctx, "docker", "image", "inspect", image).Run() == nil {
		return nil
	}
	pulling, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	if out, err := exec.CommandContext(pulling, "docker", "pull", "-q", image).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: the image %s is not there and cannot be pulled: %s", errCannot, image, firstLine(out, err))
	}
	return nil
}

func firstLine(out []byte, err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return cmp.Or(line, err.Error())
}
