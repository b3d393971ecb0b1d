// Command e2e takes real workflows through Dayfly as it is deployed to AWS: the functions as built for Lambda, the
// templates that an installation is made of, the runner's image, tasks that are containers with the addresses and
// the credentials of Fargate, the engines' states in S3, the code in a private git. Around them is an AWS of
// fakes; see test/cloud and test/cloud/scenario. It removes all that it made.
//
//	ONLY            tells the stories whose names contain it
//	TASKS=process   runs tasks as processes, also where there is a Docker engine
//	E2E_EXTERNAL    services that another server answers (sqs, secretsmanager, s3, sts, dynamodb), each with its address
//	                or at LOCALSTACK_URL: sqs,s3=http://127.0.0.1:4567. An address moto starts a moto_server
//	LOCALSTACK_URL  the address of the services of E2E_EXTERNAL that have none of their own
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/cloud/scenario"
	"github.com/dayfly-dev/dayfly/test/gitserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ne2e: "+err.Error())
		os.Exit(1) //nolint:forbidigo // main decides the exit code
	}
}

// longest is how long all of it may take; building an engine is not counted.
const longest = 40 * time.Minute

// run is all of it. The repository is the current directory.
func run(ctx context.Context, getenv func(string) string) (err error) {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "dayfly-e2e-")
	if err != nil {
		return err
	}
	cleanup := []func() error{func() error { return os.RemoveAll(temp) }}
	defer func() {
		for i := len(cleanup) - 1; i >= 0; i-- {
			err = errors.Join(err, cleanup[i]())
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done after %s", longest))
	defer cancel()

	heading("Functions and runner, as they ship")
	began := time.Now()
	functions := filepath.Join(root, ".cache", "e2e", "functions")
	packages, err := bootstrap.Functions(root)
	if err != nil {
		return err
	}
	if _, err := bootstrap.Build(ctx, bootstrap.Config{Root: root, Out: functions, NoZip: true}, packages...); err != nil {
		return err
	}
	note("%d functions built in %s", len(packages), time.Since(began).Round(100*time.Millisecond))

	authority, err := gitserver.OpenAuthority(filepath.Join(root, ".cache", "e2e", "authority"))
	if err != nil {
		return err
	}
	m := &machine{root: root, temp: temp, authority: authority, tap: scenario.NewTap(), getenv: getenv, clean: &cleanup}
	o := scenario.Options{Tap: m.tap, Say: note, Only: getenv("ONLY"), Cloud: cloud.Config{Root: root, Functions: functions}}
	if err := m.tasks(ctx, &o); err != nil {
		return err
	}
	if o.Cloud.External, err = cloud.ParseExternal(getenv("E2E_EXTERNAL"), getenv("LOCALSTACK_URL")); err != nil {
		return fmt.Errorf("E2E_EXTERNAL: %w", err)
	}
	if slices.Contains(slices.Collect(maps.Values(o.Cloud.External)), "moto") {
		cfg, stop, err := moto.Run(ctx)
		if err != nil {
			return err
		}
		cleanup = append(cleanup, func() error { stop(); return nil })
		for service, address := range o.Cloud.External {
			if address == "moto" {
				o.Cloud.External[service] = *cfg.BaseEndpoint
			}
		}
	}
	if o.Git, err = scenario.ServeGit(ctx, authority, m.address); err != nil {
		return err
	}
	cleanup = append(cleanup, func() error { o.Git.Close(); return nil })

	heading("Workflows, each through poller, queue, dispatcher, task, status API and control plane")
	began = time.Now()
	rows, err := scenario.Run(ctx, o)
	logs := filepath.Join(root, ".cache", "e2e", "logs")
	if failed := errors.Join(os.RemoveAll(logs), m.tap.Save(logs)); failed != nil {
		err = errors.Join(err, failed)
	}
	note("what functions and tasks wrote, and what was sent to queues and to ECS, is in %s", logs)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return report(rows, m, time.Since(began))
}

// heading begins a part.
func heading(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "\n=== "+format+"\n", args...)
}

// note is a remark.
func note(format string, args ...any) { fmt.Fprintf(os.Stdout, "    "+format+"\n", args...) }
