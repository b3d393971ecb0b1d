package runner_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
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

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	awssecrets "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	awssts "github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/secrets/secretstest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/s3"
	"github.com/dayfly-dev/dayfly/test/awsim/secretsmanager"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/ssm"
	"github.com/dayfly-dev/dayfly/test/awsim/sts"
)

const (
	taskID   = "0123456789abcdef0123456789abcdef"
	taskARN  = "arn:aws:ecs:us-east-1:123456789012:task/pool/" + taskID
	taskRole = "arn:aws:iam::123456789012:role/dayfly-task"
	netRole  = "arn:aws:iam::123456789012:role/dayfly/default/net"
)

// account is an AWS account in which the test's binary runs as a task of ECS, with a relay behind a gateway
// that accepts only the task's role.
type account struct {
	*relay
	sts     *sts.Service
	aws     *awsim.Server
	vault   *secretstest.Vault
	admin   sigv4.Credentials
	env     []string // of the task
	gateway string

	mu      sync.Mutex
	callers []string
	status  int // that the gateway answers with; 0 means that it passes calls on
}

func newAccount(t *testing.T, spec api.Spec) *account {
	t.Helper()
	keys := sigv4.NewTable(nil)
	a := &account{relay: newRelay(t, spec), sts: &sts.Service{Credentials: keys}, admin: keys.User("admin")}
	aws := awsim.New(awsim.Config{Credentials: keys, Services: map[string]awsim.Service{"sts": a.sts, "secretsmanager": &secretsmanager.Service{}, "ssm": &ssm.Service{}, "s3": &s3.Service{}}})
	a.aws = aws
	a.vault = &secretstest.Vault{Whose: func(r *http.Request) (string, error) {
		r.Host = r.URL.Host
		who, err := aws.Authenticate(r, "sts")
		return who.ARN, err
	}}
	mux := http.NewServeMux()
	mux.Handle("/", aws)
	mux.Handle("/vault/", http.StripPrefix("/vault", a.vault))
	mux.HandleFunc("/v4/meta/task", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"TaskARN":%q}`, taskARN) })
	mux.HandleFunc("/gateway/", func(w http.ResponseWriter, r *http.Request) {
		who, err := aws.Authenticate(r, "execute-api")
		a.mu.Lock()
		status := a.status
		a.callers = append(a.callers, who.ARN)
		a.mu.Unlock()
		if err != nil || status != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(max(status, http.StatusForbidden))
			_, _ = io.WriteString(w, `{"message":"Forbidden"}`)
			return
		}
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/gateway")
		r.Header.Set("Authorization", "Bearer "+r.Header.Get(api.HeaderTicket))
		a.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	a.sts.Trusts(netRole, sts.Trust{
		Principals: []string{taskRole}, ExternalID: spec.WorkspaceID, AllowTags: true,
		Tags: map[string]string{"organization": spec.Organization, "workspace": spec.Workspace},
	})
	a.gateway = server.URL + "/gateway"
	a.env = []string{
		"DAYFLY_GATE_FD=", "DAYFLY_TASK=", "DAYFLY_RELAY=" + a.gateway, "DAYFLY_RELAY_AUTH=iam", "AWS_REGION=us-east-1",
		"ECS_CONTAINER_METADATA_URI_V4=" + server.URL + "/v4/meta", "AWS_ENDPOINT_URL=" + server.URL,
		"DAYFLY_VAULT_ADDRESS=" + server.URL + "/vault", "DAYFLY_VAULT_ROLE=runners", "DAYFLY_VAULT_SERVER_ID=vault.example.com",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + server.URL + aws.Tasks().Grant(taskRole, taskID, 0),
	}
	return a
}

func (a *account) set(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
}

// runs makes the run that of a spec.
func (a *account) runs(spec api.Spec) { a.relay.set(func() { a.spec = spec }) }

// asEngine is this test's binary as a program that an engine runs: it finds out who it is in the cloud, as
// any program with an AWS SDK does.
func asEngine(out io.Writer) int {
	ctx := context.Background()
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err == nil {
		got, failed := cfg.Credentials.Retrieve(ctx)
		if err = failed; err == nil {
			_, _ = fmt.Fprintln(out, "key", got.SecretAccessKey, "token", os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"), "left", time.Until(got.Expires) > 10*time.Minute)
			var who *awssts.GetCallerIdentityOutput
			if who, err = awssts.NewFromConfig(cfg).GetCallerIdentity(ctx, nil); err == nil {
				_, _ = fmt.Fprintln(out, "I am", *who.Arn, "in", cfg.Region)
			}
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(out, "nobody:", err)
		return 1
	}
	return 0
}

func onECS(t *testing.T, script string) (api.Spec, *account, func(env ...string) *task) {
	t.Helper()
	spec, cfg := job(t, script)
	spec.Role = &api.Role{ARN: netRole, ExternalID: spec.WorkspaceID, Tags: map[string]string{"organization": spec.Organization, "workspace": spec.Workspace}}
	a := newAccount(t, spec)
	spec.Environment = map[string]string{"RUNNER_TEST_CHILD": "engine", "AWS_ENDPOINT_URL_STS": strings.TrimSuffix(a.gateway, "/gateway")}
	a.runs(spec)
	return spec, a, func(env ...string) *task {
		return startTask(t, a.relay, cfg, append(a.env, env...)...)
	}
}

// R8: the engine is the workspace's role, which the control plane named; every call to the relay is the
// task's; and nothing of either is in the log.
func TestECS_EngineHasTheWorkspacesRole(t *testing.T) {
	spec, a, start := onECS(t, "env | cut -d= -f1 | sort | grep -E '^(AWS|ECS)'; "+os.Args[0])
	k := start()
	k.end(t, 0)
	if got := a.result(); got.Outcome != workflow.Succeeded {
		t.Fatalf("got %+v; log: %s", got, a.text())
	}
	text := a.text()
	for _, want := range []string{
		"key *** token *** left true\n",
		"I am arn:aws:sts::123456789012:assumed-role/net/wf-1-2 in us-east-1\n",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN\nAWS_CONTAINER_CREDENTIALS_FULL_URI\nAWS_DEFAULT_REGION\nAWS_ENDPOINT_URL_STS\nAWS_REGION\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	sessions := a.sts.Sessions()
	if len(sessions) != 1 {
		t.Fatalf("%d sessions", len(sessions))
	}
	got := sessions[0]
	if d := cmp.Diff(map[string]string{"organization": "default", "workspace": "network"}, got.Tags); d != "" || got.ExternalID != spec.WorkspaceID || got.Duration != time.Hour {
		t.Errorf("assumed %+v %s", got, d)
	}
	caller := "arn:aws:sts::123456789012:assumed-role/dayfly-task/" + taskID
	if got.Caller.ARN != caller {
		t.Errorf("assumed by %s", got.Caller.ARN)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, who := range a.callers {
		if who != caller {
			t.Errorf("a call by %s", who)
		}
	}
}

// Without a role, the engine is nobody: the role of the task is never lent.
func TestECS_WithoutARoleTheEngineIsNobody(t *testing.T) {
	spec, a, start := onECS(t, "env | grep -cE '^(AWS_CONTAINER|ECS)' || true; "+os.Args[0])
	spec.Role = nil
	spec.Environment["AWS_EC2_METADATA_DISABLED"] = "true"
	spec.Environment["AWS_REGION"] = "us-east-1"
	a.runs(spec)
	k := start()
	k.end(t, 0)
	if got := a.result(); got.Outcome != workflow.Failed || !strings.Contains(a.text(), "0\nnobody:") {
		t.Errorf("got %+v; log: %s", got, a.text())
	}
	if got := a.sts.Sessions(); len(got) != 0 {
		t.Errorf("roles were assumed: %+v", got)
	}
}

func TestECS_ARoleThatIsRefusedEndsTheRunWithASentence(t *testing.T) {
	_, a, start := onECS(t, "true")
	a.sts.Trusts(netRole, sts.Trust{Principals: []string{taskRole}, ExternalID: "ws-of-somebody-else", AllowTags: true})
	k := start()
	k.end(t, 0)
	got := a.result()
	if got.Outcome != workflow.Failed || got.Reason != workflow.ReasonRoleUnavailable || !strings.Contains(got.Detail, "trust policy") {
		t.Errorf("got %+v", got)
	}
}

// On a machine, a role is refused before anything is run as somebody else.
func TestRunJob_ARoleNeedsTheCloud(t *testing.T) {
	spec, cfg := job(t, "touch ran")
	spec.Role = &api.Role{ARN: netRole}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	got := r.result()
	if got.Reason != workflow.ReasonRoleUnavailable || !strings.Contains(got.Detail, "deploy_target ecs") || strings.Contains(r.text(), "touch") {
		t.Errorf("got %+v", got)
	}
}

// What a gateway answers is not the control plane's word: the run goes on, and its result is handed over
// when the gateway lets it through.
func TestECS_TroubleOfTheGatewayIsWaitedFor(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			pipe := newAlive(t)
			_, a, start := onECS(t, "exec 3>"+pipe.path+"; echo ready >&3; exec 3>&-")
			k := start()
			end := pipe.ready(t)
			a.set(status)
			end()
			a.mu.Lock()
			seen := len(a.callers)
			a.mu.Unlock()
			for deadline := time.Now().Add(time.Minute); ; { // calls that were refused
				a.mu.Lock()
				more := len(a.callers) > seen+3
				a.mu.Unlock()
				if more || time.Now().After(deadline) {
					break
				}
				<-time.After(10 * time.Millisecond)
			}
			a.set(0)
			k.end(t, 0)
			if got := a.result(); got.Outcome != workflow.Succeeded {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestECS_TaskCredentialVariablesAreNotForwarded(t *testing.T) {
	_, a, start := onECS(t, "true")
	k := start("DAYFLY_ENV_FORWARD_ALLOWLIST=LANG,AWS_CONTAINER_CREDENTIALS_FULL_URI,ECS_CONTAINER_METADATA_URI_V4")
	k.end(t, 1)
	for _, want := range []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI leads to the task's own", "ECS_CONTAINER_METADATA_URI_V4 leads to"} {
		if !strings.Contains(k.said.String(), want) {
			t.Errorf("nothing is said of %q: %s", want, &k.said)
		}
	}
	if len(a.callers) > 0 {
		t.Error("it called the relay")
	}
}

func TestECS_MistakesOfTheStack(t *testing.T) {
	_, a, start := onECS(t, "true")
	k := start("DAYFLY_RELAY_AUTH=sometimes")
	k.end(t, 1)
	if !strings.Contains(k.said.String(), "neither iam nor none") {
		t.Errorf("got %s", &k.said)
	}
	k = start("ECS_CONTAINER_METADATA_URI_V4=", "DAYFLY_TASK=task-1")
	k.end(t, 1)
	if !strings.Contains(k.said.String(), "requires signed calls") || len(a.callers) > 0 {
		t.Errorf("got %s", &k.said)
	}
}

// A work directory that belongs to somebody else, as the root of a volume may, is used and left as it was.
func TestRun_WorkDirectoryOfAVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a directory that is somebody else's")
	}
	for _, mode := range []fs.FileMode{0o777, 0o777 | fs.ModeSticky} {
		t.Run(mode.String(), func(t *testing.T) { workInVolume(t, mode) })
	}
}

func workInVolume(t *testing.T, mode fs.FileMode) {
	t.Helper()
	spec, cfg := job(t, "pwd")
	publish(t, cfg.WorkDir)
	if err := os.Mkdir(cfg.WorkDir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(cfg.WorkDir, mode); err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, spec)
	k := startTaskAs(t, &syscall.Credential{Uid: 200_099, Gid: 200_099}, r, cfg)
	k.open(t)
	k.end(t, 0)
	if got := r.result(); got.Outcome != workflow.Succeeded || !strings.Contains(r.text(), cfg.WorkDir+"/") {
		t.Errorf("got %+v: %s", got, r.text())
	}
	if info, err := os.Stat(cfg.WorkDir); err != nil || info.Mode() != mode|fs.ModeDir {
		t.Errorf("it became %v, %v", info.Mode(), err)
	}
	if left, err := filepath.Glob(cfg.WorkDir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// keep keeps a secret in the account and returns its ARN.
func (a *account) keep(t *testing.T, name, value string) string {
	t.Helper()
	made, err := awssecrets.NewFromConfig(awsim.ClientConfig(strings.TrimSuffix(a.gateway, "/gateway"), a.admin)).
		CreateSecret(t.Context(), &awssecrets.CreateSecretInput{Name: &name, SecretString: &value})
	if err != nil {
		t.Fatal(err)
	}
	return *made.ARN
}

// keepParameter is keep for a parameter.
func (a *account) keepParameter(t *testing.T, name, value string) string {
	t.Helper()
	url := strings.TrimSuffix(a.gateway, "/gateway")
	if err := ssm.Put(t.Context(), awsim.SignedClient(awsim.ClientConfig(url, a.admin), "ssm"), url, name, value); err != nil {
		t.Fatal(err)
	}
	return ssm.Prefix + "/" + name
}

// R6: a run's secrets are read by its own role; those of a run without one, by that of the task.
func TestECS_SecretsAreReadByTheRole(t *testing.T) {
	for name, by := range map[string]string{"role": "assumed-role/net/", "task": "assumed-role/dayfly-task/"} {
		t.Run(name, func(t *testing.T) {
			spec, a, start := onECS(t, `echo "$PASSWORD/$USERNAME"; cat "$DAYFLY_SECRETS_DIR/key"; printf '%s-%s\n' battery staple; echo "lengths ${#PIN}/${#API}"`)
			doc := a.keep(t, "db", `{"user":"alexandra","password":"correct-horse","deep":{"not picked":"battery-staple"}}`)
			key := a.keep(t, "key", "multi\nline-secret\n")
			spec.Secrets = []api.Secret{{Env: "PASSWORD", Ref: doc + "#password"}, {Env: "USERNAME", Ref: doc + "#user"}, {File: "key", Ref: key}}
			a.vault.Put("secret/api", "token", "value-of-vault")
			spec.Secrets = append(spec.Secrets, api.Secret{Env: "PIN", Ref: a.keepParameter(t, "pin", "value-of-parameter")}, api.Secret{Env: "API", Ref: "vault:secret/api#token"})
			if name == "task" {
				spec.Role = nil
			}
			a.runs(spec)
			k := start()
			k.end(t, 0)
			if got := a.result(); got.Outcome != workflow.Succeeded || !strings.Contains(a.text(), "***/***\n") || !strings.Contains(a.text(), "lengths 18/14") || strings.Contains(a.text(), "line-secret") || strings.Contains(a.text(), "battery-staple") {
				t.Errorf("got %+v: %s", got, a.text())
			}
			n := 0
			for _, c := range a.aws.Calls() {
				if c.Operation == "GetSecretValue" || c.Operation == "GetParameter" {
					n++
					if !strings.Contains(c.Caller.ARN, by) {
						t.Errorf("read by %s, want %s", c.Caller.ARN, by)
					}
				}
			}
			if n != 4 {
				t.Errorf("%d reads", n)
			}
			if logins := a.vault.Logins(); len(logins) != 1 || !strings.HasPrefix(logins[0], "runners ") || !strings.Contains(logins[0], by) {
				t.Errorf("logins at Vault: %q", logins)
			}
		})
	}
}

func TestECS_ASecretThatIsNotThereEndsTheRun(t *testing.T) {
	spec, a, start := onECS(t, "true")
	spec.Secrets = []api.Secret{{Env: "PASSWORD", Ref: "arn:aws:secretsmanager:us-east-1:123456789012:secret:gone-AbCdEf"}}
	a.runs(spec)
	k := start()
	k.end(t, 0)
	if got := a.result(); got.Reason != workflow.ReasonSecretUnavailable || !strings.Contains(got.Detail, "there is no secret") {
		t.Errorf("got %+v", got)
	}
}

// Each step of an engine has a token of its own, and one that is over is worth nothing, while a token of
// now is taken.
func TestECS_EachStepHasItsOwnToken(t *testing.T) {
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		t.Skip("terraform is not on this machine")
	}
	spec, a, start := onECS(t, "")
	spec.Engine, spec.Commands = api.EngineTerraform, nil
	state, bin := t.TempDir(), t.TempDir()
	spec.State = api.State{Kind: api.StateDirectory}
	if err := os.WriteFile(filepath.Join(spec.Source.Directory, "main.tf"), []byte(`resource "terraform_data" "a" { input = "x" }`), 0o644); err != nil {
		t.Fatal(err)
	}
	// What it is called with and has is written down; each but the first tries the token before its own.
	seen := filepath.Join(bin, "seen")
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in version*) exec %[1]s "$@";; esac
last=$(tail -n 1 %[2]s 2>/dev/null | cut -d' ' -f2)
AWS_CONTAINER_AUTHORIZATION_TOKEN=${last:-none} %[3]s >%[2]s.old 2>&1 && old=taken || old=refused
%[3]s >%[2]s.now 2>&1 && now=taken || now=refused
echo "$1 $AWS_CONTAINER_AUTHORIZATION_TOKEN $old $now" >>%[2]s
unset RUNNER_TEST_CHILD
exec %[1]s "$@"
`, terraform, seen, os.Args[0])
	if err := os.WriteFile(filepath.Join(bin, "terraform"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	a.runs(spec)
	k := start("DAYFLY_ENGINE_PATH="+bin, "DAYFLY_STATE_DIR="+state)
	k.end(t, 0)
	if got := a.result(); got.Outcome != workflow.Succeeded {
		t.Fatalf("got %+v: %s", got, a.text())
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	tokens, steps := map[string]string{}, map[string]bool{}
	last := ""
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // command, token, the one before it, its own
		if len(f) != 4 || f[3] != "taken" {
			t.Fatalf("%q", line)
		}
		if was, ok := tokens[f[1]]; ok && last != f[1] {
			t.Errorf("%s has the token of %s again", f[0], was)
		}
		if changed := f[1] != last; changed != (f[2] == "refused") {
			t.Errorf("%q: the token before it was %s", f[0], f[2])
		}
		tokens[f[1]], steps[f[0]], last = f[0], true, f[1]
	}
	if len(tokens) < 3 || !steps["init"] || !steps["plan"] || !steps["apply"] {
		t.Errorf("got %d tokens in steps %v", len(tokens), steps)
	}
	if strings.Contains(a.text(), last) {
		t.Error("the log holds a token")
	}
}
