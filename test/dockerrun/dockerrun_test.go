package dockerrun_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fake "github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/dockerrun"
)

const (
	playerImage = "dayfly-test-ecs-player"
	role        = "arn:aws:iam::123456789012:role/pool"
)

var player = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "player")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	player, err := built.Program(context.Background(), dir, "test/dockerrun/testdata/player")
	if err != nil {
		return err
	}
	return docker.Build(context.Background(), "", docker.Image{
		Tag: playerImage, Files: []docker.File{{From: player, To: "/player"}}, Entrypoint: []string{"/player"},
	})
})

// engine is the machine's, with the image of the tests' tasks; without one the test is skipped.
func engine(t *testing.T) *dockerrun.Engine {
	t.Helper()
	if testing.Short() {
		t.Skip("a Docker engine is not used in short tests")
	}
	e := dockerrun.NewEngine("")
	t.Cleanup(e.Close)
	if err := e.Ping(t.Context()); err != nil {
		t.Skipf("no Docker engine answers here: %v", err)
	}
	if err := player(); err != nil {
		t.Fatal(err)
	}
	return e
}

// start serves an ECS whose tasks find the machine at listener.
func start(t *testing.T, listener net.Listener, address string, r fake.Runner, grace time.Duration) (*fake.Service, *awsecs.Client) {
	t.Helper()
	table := sigv4.NewTable(nil)
	var tasks http.Handler
	endpoint := &httptest.Server{Listener: listener, Config: &http.Server{ //nolint:gosec // a test's own
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tasks.ServeHTTP(w, r) }),
	}}
	credentials := awsim.New(awsim.Config{Credentials: table}).Tasks()
	service, err := fake.New(fake.Config{
		Runner: r, Clusters: []string{"dayfly"}, Endpoint: address, Credentials: credentials, Limits: fake.Limits{NoRates: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	tasks = service.TaskHandler(credentials)
	endpoint.Start()
	t.Cleanup(endpoint.Close)
	t.Cleanup(service.Close)
	service.Define(fake.Definition{Family: "runner", TaskRole: role, Containers: []fake.Container{{
		Name: "runner", Image: playerImage, StopTimeout: grace, User: "65532:65532", ReadOnly: true, DropAll: true,
		Env: map[string]string{"WANT_ROLE": role},
	}}})
	front := httptest.NewServer(awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"ecs": service}}))
	t.Cleanup(front.Close)
	return service, awsecs.NewFromConfig(awsim.ClientConfig(front.URL, table.User("dispatcher")))
}

// renamed launches with placements of this launcher's where the suite says "here" and "elsewhere".
type renamed struct{ *ecs.Launcher }

func (l renamed) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	r.Placement = map[bool]string{false: "on-demand/subnet-a", true: "on-demand/subnet-b"}[r.Placement == "elsewhere"]
	return l.Launcher.Launch(ctx, r)
}

func open(t *testing.T, client *awsecs.Client) *ecs.Launcher {
	t.Helper()
	l, err := ecs.New(client, ecs.Config{
		Cluster: "dayfly", TaskDefinition: "runner", Container: "runner", Pool: "prod", Subnets: []string{"subnet-a", "subnet-b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func listen(t *testing.T, address string) (net.Listener, error) {
	t.Helper()
	var config net.ListenConfig
	return config.Listen(t.Context(), "tcp", address)
}

// TestLauncher_KeepsTheContract runs the launcher of ECS over tasks that are containers, on the network of the
// machine, on which the stage listens.
func TestLauncher_KeepsTheContract(t *testing.T) {
	e := engine(t)
	launchertest.Run(t, launchertest.Harness{New: func(t *testing.T, grace time.Duration) launcher.Launcher {
		listener, err := listen(t, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, client := start(t, listener, "http://"+listener.Addr().String(), &dockerrun.Runner{Engine: e, Network: "host"}, grace)
		return renamed{open(t, client)}
	}})
}

// TestNetwork_GivesTasksTheAddressesOfAWS: a container on a network of its own finds its name and its role at
// 169.254.170.2, as a task of Fargate does.
func TestNetwork_GivesTasksTheAddressesOfAWS(t *testing.T) {
	e := engine(t)
	name := fmt.Sprintf("dayfly-test-ecs-%d", os.Getpid())
	address, remove, err := e.MakeNetwork(t.Context(), name, dockerrun.TaskSubnet, dockerrun.TaskGateway)
	if err != nil {
		t.Skipf("the network of AWS cannot be made here, another may have its addresses: %v", err)
	}
	t.Cleanup(func() {
		if err := remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	listener, err := listen(t, address+":80")
	if err != nil {
		t.Skipf("the address of AWS cannot be listened at here: %v", err)
	}
	said := make(chan string, 1)
	r := &dockerrun.Runner{Engine: e, Network: name, Ended: func(_ fake.Spec, out []byte) { said <- string(out) }}
	service, client := start(t, listener, "http://169.254.170.2", r, time.Second)
	arn := service.Define(fake.Definition{Family: "look", TaskRole: role, Containers: []fake.Container{{
		Name: "runner", Image: playerImage, User: "0", ReadOnly: true, DropAll: true, Volumes: []string{"/work"}, Env: map[string]string{"WANT_ROLE": role},
	}}})
	ended := run(t, service, client, arn)
	if ended.ExitCode == nil || *ended.ExitCode != 0 {
		t.Fatalf("got %+v, want exit code 0", ended)
	}
	if got := <-said; got != "I am "+ended.ARN+"\n" {
		t.Errorf("it said %q", got)
	}
}

// A run that was killed has left its network, and the next one wants the same addresses.
func TestMakeNetwork_RemovesWhatAKilledProcessLeft(t *testing.T) {
	e := engine(t)
	self, err := dockerrun.Self()
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(self, "/")
	live, dead := "dayfly-test-live-"+part[2], "dayfly-test-dead-"+part[2]
	part[2] = "2147483646" // no process has this number
	for name, owner := range map[string]string{live: self, dead: strings.Join(part, "/")} {
		remove, err := e.MakeNetworkOf(t.Context(), name, owner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remove(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	if err := e.RemoveLeft(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !e.HasNetwork(t.Context(), live) || e.HasNetwork(t.Context(), dead) {
		t.Errorf("the network of this process is there: %t, that of the dead one: %t; want only the first", e.HasNetwork(t.Context(), live), e.HasNetwork(t.Context(), dead))
	}
}

func TestRunner_SaysWhyItCannotStart(t *testing.T) {
	e := engine(t)
	listener, err := listen(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service, client := start(t, listener, "", &dockerrun.Runner{Engine: e, Network: "none"}, time.Second)
	for image, want := range map[string]string{"dayfly-test-no-such-image": "CannotPullContainerError: ", playerImage: "CannotStartContainerError: "} {
		arn := service.Define(fake.Definition{Family: "bad", Containers: []fake.Container{{Name: "runner", Image: image, EntryPoint: []string{"/nothing"}}}})
		ended := run(t, service, client, arn)
		if ended.StopCode != "TaskFailedToStart" || !strings.HasPrefix(ended.StoppedReason, want) {
			t.Errorf("%s: got %+v, want %s", image, ended, want)
		}
	}
}

// run launches a definition and waits for the end of its task.
func run(t *testing.T, service *fake.Service, client *awsecs.Client, definition string) fake.Task {
	t.Helper()
	l, err := ecs.New(client, ecs.Config{Cluster: "dayfly", TaskDefinition: definition, Container: "runner", Pool: "prod", Subnets: []string{"subnet-a"}})
	if err != nil {
		t.Fatal(err)
	}
	task, err := l.Launch(t.Context(), launcher.Request{
		Needs:    contract.Needs{Attempt: 1},
		Workflow: "wf-" + definition[strings.LastIndex(definition, "/")+1:], Placement: "on-demand/subnet-a", Ticket: "t", Relay: "http://relay",
	})
	if err != nil {
		t.Fatal(err)
	}
	launchertest.AwaitStopped(t, l, task.Ref)
	ended, _ := service.Task(task.Ref)
	return ended
}
