package main

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/reaper"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fakeecs "github.com/dayfly-dev/dayfly/test/awsim/ecs"
	fakesecrets "github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

// TestBuild_OverAWS holds what build wires together to the services' own protocols: a task that ECS runs
// and sees stop, its event as ECS writes it, and a sweep that finds an end of which no event came.
func TestBuild_OverAWS(t *testing.T) {
	for _, told := range []string{"by an event", "by nobody"} {
		t.Run(told, func(t *testing.T) { overAWS(t, told == "by an event") })
	}
}

func overAWS(t *testing.T, byEvent bool) {
	w := newWorld(t, reaper.Config{}) // its control plane, and a job of another task
	upstream := httptest.NewServer(httpapi.New(w.plane, httpapi.Config{}))
	defer upstream.Close()

	end := make(chan struct{})
	changes := make(chan []byte, 64)
	service, err := fakeecs.New(fakeecs.Config{
		Clusters: []string{"dayfly"}, Limits: fakeecs.Limits{NoRates: true},
		Runner: fakeecs.Func(func(context.Context, fakeecs.Spec, <-chan struct{}) int { <-end; return 3 }),
		Events: func(event []byte) { changes <- slices.Clone(event) },
	})
	w.must(err)
	t.Cleanup(service.Close)
	definition := service.Define(fakeecs.Definition{Family: "dayfly-default-runner", Containers: []fakeecs.Container{{Name: "runner", Image: "runner"}}})
	table := sigv4.NewTable(nil)
	server := awsim.New(awsim.Config{Credentials: table, Services: map[string]awsim.Service{"ecs": service, "secretsmanager": &fakesecrets.Service{}}})
	listener := httptest.NewServer(server)
	defer listener.Close()

	deployer := awsim.ClientConfig(listener.URL, table.User("deployer"))
	token, err := w.plane.RotatePoolToken(t.Context(), w.admin, "default", api.RotateToken{OverlapSeconds: 60})
	w.must(err)
	secret, err := secretsmanager.NewFromConfig(deployer).CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{
		Name: aws.String("dayfly/pool"), SecretString: aws.String(token.Token), ClientRequestToken: aws.String(strings.Repeat("a", 32)),
	})
	w.must(err)
	session := table.Session("dayfly-reaper", "function", time.Hour)
	env := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": session.AccessKeyID, "AWS_SECRET_ACCESS_KEY": session.SecretAccessKey,
		"AWS_SESSION_TOKEN": session.SessionToken, "AWS_ENDPOINT_URL": listener.URL,
		"DAYFLY_SERVICE_URL": upstream.URL, "DAYFLY_POOL_TOKEN_SECRET": *secret.ARN, "DAYFLY_INSTANCE": "stack", "DAYFLY_POOL": "default",
		"DAYFLY_CLUSTER": "dayfly", "DAYFLY_TASK_DEFINITION": definition, "DAYFLY_CONTAINER": "runner", "DAYFLY_SUBNETS": "subnet-0123456789abcdef0",
	}
	var log strings.Builder
	f, err := build(func(name string) string { return env[name] }, &log)
	w.must(err)

	tasks, err := ecs.New(awsecs.NewFromConfig(deployer), ecs.Config{
		Cluster: "dayfly", TaskDefinition: definition, Container: "runner", Pool: "default", Subnets: []string{"subnet-0123456789abcdef0"},
	})
	w.must(err)
	wf, err := w.plane.Submit(t.Context(), w.admin, "", api.Submit{Workspace: "web", Operation: workflow.Update})
	w.must(err)
	claimed, err := w.plane.Claim(t.Context(), w.pool, api.Claim{Instance: "stack", Max: 1})
	w.must(err)
	job := claimed.Jobs[0]
	launched, err := tasks.Launch(t.Context(), launcher.Request{
		Needs: job.Needs, Workflow: job.ID, Placement: "on-demand/subnet-0123456789abcdef0", Ticket: "ticket", Relay: "https://relay.example.com",
	})
	w.must(err)
	w.must(w.plane.Launch(t.Context(), w.pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchAccepted, Task: launched.Ref}))
	_, err = w.plane.Start(t.Context(), job.Token, api.Run{Workflow: job.ID, Attempt: 1, Task: launched.Ref, Boot: strings.Repeat("b", 32)}, api.Start{Knows: api.RunnerKnows()})
	w.must(err)
	close(end)
	for stopped := false; !stopped; {
		change := <-changes
		e, err := decode(change)
		w.must(err)
		stopped = e.task.Ref == launched.Ref && e.task.Phase == launcher.Stopped
		for range 2 { // at least once
			if byEvent {
				w.must(f.Handle(t.Context(), change))
			}
		}
	}
	if !byEvent {
		// The other job's task is one that this ECS never had. It is not started, so nothing is said of it.
		w.must(f.Handle(t.Context(), sample(t, "sweep")))
	}
	wf, err = w.plane.Workflow(t.Context(), w.admin, wf.ID)
	w.must(err)
	if wf.State != workflow.Failed || wf.Reason != workflow.ReasonTaskStopped || !strings.Contains(wf.Detail, "3") {
		t.Errorf("workflow is %s (%s): %s\n%s", wf.State, wf.Reason, wf.Detail, log.String())
	}
	if other := w.state(); other.State != workflow.Claimed {
		t.Errorf("the other workflow is %s", other.State)
	}
	if strings.Contains(log.String(), token.Token) || strings.Contains(log.String(), session.SecretAccessKey) {
		t.Error("a secret is in the log")
	}
}
