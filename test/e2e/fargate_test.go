package e2e_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	awssecrets "github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/awsim/ports"
	"github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/sts"
	"github.com/dayfly-dev/dayfly/test/procrun"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

const appRole = "arn:aws:iam::123456789012:role/dayfly/default/app"

// fargate is a control plane, an account of AWS whose tasks are processes, and the agent's command line
// between the two.
type fargate struct {
	*uptest.World
	ecs     *ecs.Service
	sts     *sts.Service
	secrets *awssecrets.Client
	env     []string
	args    []string
	said    capture // what processes write
}

// newFargate takes further variables of the task definition.
func newFargate(t *testing.T, env map[string]string) *fargate {
	t.Helper()
	program := binary(t)
	f := &fargate{World: uptest.New(t)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent and tasks said:\n%s", f.said.bytes())
		}
	})

	server, err := embedded.OpenServer(t.Context(), embedded.ServerConfig{Data: f.Data, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	uptest.Running(t, "the control plane", server.Run, server.Close)
	f.Serves(server)
	token, err := server.Plane().EnsurePoolToken(t.Context(), "default", "default", "test")
	if err != nil {
		t.Fatal(err)
	}

	keys := sigv4.NewTable(nil)
	mux := http.NewServeMux()
	account := httptest.NewServer(mux)
	f.sts = &sts.Service{Credentials: keys}
	runs := &procrun.Runner{Commands: map[string][]string{"runner:1": {program, "runner"}}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: t.TempDir(), Output: &f.said}
	services := map[string]awsim.Service{"secretsmanager": &secretsmanager.Service{}, "sts": f.sts}
	var aws *awsim.Server
	f.ecs, err = ecs.New(ecs.Config{Runner: runs, Clusters: []string{"runners"}, Credentials: late(func() *awsim.TaskCredentials { return aws.Tasks() }), Endpoint: account.URL + "/task"})
	if err != nil {
		t.Fatal(err)
	}
	services["ecs"] = f.ecs
	aws = awsim.New(awsim.Config{Credentials: keys, Services: services})
	mux.Handle("/task/", http.StripPrefix("/task", f.ecs.TaskHandler(aws.Tasks())))
	mux.Handle("/", aws)
	t.Cleanup(account.Close)
	t.Cleanup(f.ecs.Close)

	all := map[string]string{"AWS_ENDPOINT_URL": account.URL, "AWS_REGION": "us-east-1", "HOME": t.TempDir()}
	for name, v := range env {
		all[name] = v
	}
	f.ecs.Define(ecs.Definition{Family: "runner", TaskRole: "arn:aws:iam::123456789012:role/dayfly-task", Containers: []ecs.Container{
		{Name: "runner", Image: "runner:1", Env: all, StopTimeout: 2 * time.Minute},
	}})
	me := keys.User("agent")
	f.secrets = awssecrets.NewFromConfig(awsim.ClientConfig(account.URL, me))
	relay, err := ports.Free(t.Context()) // of one agent after the other
	if err != nil {
		t.Fatal(err)
	}
	f.env = []string{
		"HOME=" + t.TempDir(), "DAYFLY_TOKEN=" + token, "AWS_ENDPOINT_URL=" + account.URL, "AWS_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ACCESS_KEY_ID=" + me.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + me.SecretAccessKey,
	}
	f.args = []string{
		program, "agent", "--data", uptest.Directory(t), "--service-url", server.URL(), "--deploy-target", "ecs", "--relay-url", "http://" + relay, "--relay-listen", relay,
		"--cluster", "runners", "--task-definition", "runner", "--subnet", "subnet-0123456789abcdef0", "--subnet", "subnet-0123456789abcdef1",
		"--spot", "reads", "--polling-interval", "1s", "--job-status-loop-interval", "1s",
	}
	return f
}

// late are credentials that are known only after the service that needs them.
type late func() *awsim.TaskCredentials

func (l late) Grant(role, task string, life time.Duration) string {
	return l().Grant(role, task, life)
}

func (l late) End(path string) { l().End(path) }

// agent starts the agent; stop ends it, as a service manager does.
func (f *fargate) agent(more ...string) (stop func()) {
	f.T.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(f.T.Context()), f.args[0], append(f.args[1:], more...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = f.env, &f.said, &f.said
	if err := cmd.Start(); err != nil {
		f.T.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			f.T.Errorf("agent: %v", err)
		}
	})
	f.T.Cleanup(stop)
	return stop
}

// D7, R2, R6, R8: an agent with deploy_target ecs runs a workspace of a private repository, whose token is a
// secret of the account, in a task of its own and as the workspace's role.
func TestFargate_PrivateRepositoryAndARole(t *testing.T) {
	dir, programs := repositories(t)
	const token = "ghp_0123456789abcdef"
	address, ca := gitOverHTTPS(t, dir, programs, token)
	trust := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trust, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFargate(t, map[string]string{"SSL_CERT_FILE": trust})
	name, value := "git", `{"token":"`+token+`"}`
	made, err := f.secrets.CreateSecret(t.Context(), &awssecrets.CreateSecretInput{Name: &name, SecretString: &value})
	if err != nil {
		t.Fatal(err)
	}
	f.sts.Trusts(appRole, sts.Trust{Principals: []string{"arn:aws:iam::123456789012:role/dayfly-task"}, AllowTags: true, Tags: map[string]string{"organization": "default", "workspace": "app"}})
	f.Register(api.Workspace{
		Name: "app", RunSettings: api.RunSettings{
			Engine:   api.EngineCommand,
			Source:   api.Source{Git: &api.GitSource{URL: address + "/team/app.git", Ref: "v1.0.0", Path: "envs/prod", TokenRef: *made.ARN + "#token"}},
			Commands: map[string]string{"update": "cat which.txt; env | cut -d= -f1 | grep AWS_CONTAINER"},
		},
		State: &api.State{Kind: api.StateSource}, Role: appRole,
	})
	f.agent()
	id := f.Update("app")
	w := f.Until(id, "succeeded", func(w api.Workflow) bool { return w.State == workflow.Succeeded && !w.SlotHeld })
	tasks := f.ecs.Tasks()
	if len(tasks) != 1 || w.Task != tasks[0].ARN {
		t.Errorf("the workflow names %s, and there are tasks %+v", w.Task, tasks)
	}
	text := f.Log(id, 0)
	if !strings.Contains(text, "tagged\nAWS_CONTAINER") || strings.Contains(text, token) {
		t.Errorf("log: %s", text)
	}
	if got := f.sts.Sessions(); len(got) != 1 || !strings.HasPrefix(got[0].ExternalID, "ws_") || got[0].Name != id+"-1" {
		t.Errorf("sessions: %+v", got)
	}
}

// R2, R15: what lies on a machine is refused before it costs a task, in a sentence.
func TestFargate_WhatLiesOnAMachineIsRefused(t *testing.T) {
	f := newFargate(t, nil)
	command := map[string]string{"preview": "true"}
	elsewhere := api.Source{Git: &api.GitSource{URL: "https://git.example.com/app.git"}}
	f.Register(api.Workspace{Name: "source", RunSettings: api.RunSettings{Engine: api.EngineCommand, Commands: command, Source: api.Source{Directory: t.TempDir()}}, State: &api.State{Kind: api.StateSource}})
	f.Register(api.Workspace{Name: "state", RunSettings: api.RunSettings{Engine: api.EngineCommand, Commands: command, Source: elsewhere}, State: &api.State{Kind: api.StateDirectory}})
	f.Register(api.Workspace{
		Name: "secret", RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Commands: command, Source: elsewhere,
			Secrets: []api.Secret{{Env: "TOKEN", Ref: "file:token"}},
		},
		State: &api.State{Kind: api.StateSource},
	})
	f.agent()
	for workspace, says := range map[string]string{"source": "directory source", "state": "state kind s3", "secret": "Secrets Manager"} {
		id := f.Submit(api.Submit{Workspace: workspace, Operation: workflow.Preview})
		w := f.Until(id, "failed", func(w api.Workflow) bool { return w.State == workflow.Failed })
		if w.Reason != workflow.ReasonLaunchFailed || !strings.Contains(w.Detail, says) {
			t.Errorf("%s: got %s: %s", workspace, w.Reason, w.Detail)
		}
	}
	if tasks := f.ecs.Tasks(); len(tasks) != 0 {
		t.Errorf("tasks were started: %+v", tasks)
	}
}

// L9: tasks go on while the agent is away, and report to the next one.
func TestFargate_TasksOutliveTheAgent(t *testing.T) {
	dir, programs := repositories(t)
	address, ca := gitOverHTTPS(t, dir, programs, "none")
	trust := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trust, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFargate(t, map[string]string{"SSL_CERT_FILE": trust})
	name, value := "git", "none"
	made, err := f.secrets.CreateSecret(t.Context(), &awssecrets.CreateSecretInput{Name: &name, SecretString: &value})
	if err != nil {
		t.Fatal(err)
	}
	f.Register(api.Workspace{
		Name: "app", RunSettings: api.RunSettings{
			Engine:   api.EngineCommand,
			Source:   api.Source{Git: &api.GitSource{URL: address + "/team/app.git", TokenRef: *made.ARN}},
			Commands: map[string]string{"update": "echo waiting; read x <'" + gate + "'; echo went on"},
		},
		State: &api.State{Kind: api.StateSource},
	})
	stop := f.agent()
	id := f.Update("app")
	f.Until(id, "in its command", func(w api.Workflow) bool {
		return w.State == workflow.Running && strings.Contains(f.Log(id, 0), "waiting")
	})
	stop()
	if tasks := f.ecs.Tasks(); len(tasks) != 1 || tasks[0].LastStatus != "RUNNING" {
		t.Fatalf("after the agent's end: %+v", tasks)
	}
	out, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	f.agent()
	f.Until(id, "succeeded", func(w api.Workflow) bool { return w.State == workflow.Succeeded && !w.SlotHeld })
	if text := f.Log(id, 0); !strings.Contains(text, "went on") {
		t.Errorf("log: %s", text)
	}
	if tasks := f.ecs.Tasks(); len(tasks) != 1 {
		t.Errorf("%d tasks", len(tasks))
	}
}
