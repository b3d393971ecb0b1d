package ecs_test

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fake "github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

func TestMain(m *testing.M) {
	if code, ok := launchertest.Play(); ok {
		os.Exit(code) //nolint:forbidigo // it plays a task
	}
	os.Exit(m.Run()) //nolint:forbidigo // as every TestMain
}

// world is an ECS with one cluster and the client of a launcher.
type world struct {
	service *fake.Service
	server  *awsim.Server
	client  *awsecs.Client
}

func newWorld(t *testing.T, c fake.Config, grace time.Duration) *world {
	t.Helper()
	c.Clusters = []string{"dayfly", "other"}
	endpoint := httptest.NewUnstartedServer(nil)
	c.Endpoint = "http://" + endpoint.Listener.Addr().String()
	service, err := fake.New(c)
	if err != nil {
		t.Fatal(err)
	}
	endpoint.Config.Handler = service.TaskHandler(nil)
	endpoint.Start()
	t.Cleanup(endpoint.Close)
	t.Cleanup(service.Close)
	service.Define(fake.Definition{Family: "dayfly-runner", Containers: []fake.Container{{Name: "runner", Image: "runner", StopTimeout: grace}}})
	table := sigv4.NewTable(nil)
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"ecs": service}})
	front := httptest.NewServer(server)
	t.Cleanup(front.Close)
	cfg := awsim.ClientConfig(front.URL, table.Session("arn:aws:iam::123456789012:role/dispatcher", "test", time.Hour))
	client := awsecs.NewFromConfig(cfg, func(o *awsecs.Options) {
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Millisecond })
	})
	return &world{service, server, client}
}

func (w *world) launcher(t *testing.T, c ecs.Config) *ecs.Launcher {
	t.Helper()
	c.TaskDefinition = "dayfly-runner"
	l, err := ecs.New(w.client, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// renamed launches with placements of this launcher's where the suite says "here" and "elsewhere".
type renamed struct{ *ecs.Launcher }

func (l renamed) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	subnet := "subnet-a"
	if r.Placement == "elsewhere" {
		subnet = "subnet-b"
	}
	r.Placement = "on-demand/" + subnet
	return l.Launcher.Launch(ctx, r)
}

func processes(t *testing.T) fake.Runner {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &procrun.Runner{Commands: map[string][]string{"runner": {self}}}
}

func TestConformance(t *testing.T) {
	launchertest.Run(t, launchertest.Harness{
		New: func(t *testing.T, grace time.Duration) launcher.Launcher {
			w := newWorld(t, fake.Config{Runner: processes(t), Limits: fake.Limits{NoRates: true}}, grace)
			return renamed{w.launcher(t, config())}
		},
		Crash: func(t *testing.T, r launcher.Request, alive func()) (launcher.Launcher, launcher.Task) {
			w := newWorld(t, fake.Config{Runner: processes(t), Limits: fake.Limits{NoRates: true}}, 100*time.Millisecond)
			task, err := renamed{w.launcher(t, config())}.Launch(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			alive()
			return renamed{w.launcher(t, config())}, task // it keeps nothing that could be lost
		},
	})
}
