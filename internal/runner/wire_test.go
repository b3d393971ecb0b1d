package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// asRunner is this test's binary as the runner of a task.
func asRunner() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runner.Run(ctx, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// task is a runner in a process of its own, behind its gate.
type task struct {
	cmd  *exec.Cmd
	gate *os.File
	said bytes.Buffer
}

func startTask(t *testing.T, r *relay, cfg runner.Config, env ...string) *task {
	t.Helper()
	return startTaskAs(t, nil, r, cfg, env...)
}

func startTaskAs(t *testing.T, user *syscall.Credential, r *relay, cfg runner.Config, env ...string) *task {
	t.Helper()
	self := os.Args[0]
	if user != nil { // who cannot enter the directory where this binary lies
		b, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		self = filepath.Join(t.TempDir(), "runner")
		publish(t, self)
		if err := os.WriteFile(self, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	held, gate, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k := &task{gate: gate, cmd: exec.CommandContext(t.Context(), self)}
	run := r.run()
	k.cmd.Env = append([]string{
		"RUNNER_TEST_CHILD=1", "PATH=" + runner.DefaultPath, "DAYFLY_GATE_FD=3", "DAYFLY_TICKET=" + ticket, "DAYFLY_RELAY=" + r.url,
		"DAYFLY_JOB=" + run.Workflow, "DAYFLY_ATTEMPT=" + strconv.Itoa(run.Attempt), "DAYFLY_TASK=" + run.Task,
		"DAYFLY_WORK_DIR=" + cfg.WorkDir, "DAYFLY_SOURCE_ROOTS=" + strings.Join(cfg.SourceRoots, ":"),
	}, env...)
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	k.cmd.ExtraFiles = []*os.File{held}
	k.cmd.Stderr = &k.said
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = held.Close()
	t.Cleanup(func() {
		_ = gate.Close()
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
	})
	return k
}

func (k *task) open(t *testing.T) {
	t.Helper()
	if _, err := k.gate.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

func (k *task) end(t *testing.T, wantCode int) {
	t.Helper()
	_ = k.cmd.Wait()
	if got := k.cmd.ProcessState.ExitCode(); got != wantCode {
		t.Fatalf("got exit code %d (%s), want %d: %s", got, k.cmd.ProcessState, wantCode, &k.said)
	}
}

func TestRun_NothingIsDoneBeforeTheGateOpens(t *testing.T) {
	spec, cfg := job(t, "true")
	r := newRelay(t, spec)
	k := startTask(t, r, cfg)
	_ = k.gate.Close() // the launcher died
	k.end(t, 1)
	if len(r.calls) > 0 {
		t.Errorf("got calls %v", r.calls)
	}
}

func TestRun_MistakesAreReportedTogether(t *testing.T) {
	spec, cfg := job(t, "true")
	r := newRelay(t, spec)
	k := startTask(t, r, cfg, "DAYFLY_ATTEMPT=x", "DAYFLY_TICKET=", "DAYFLY_STATE_DIR=relative", "DAYFLY_ENGINE_UID=0", "DAYFLY_ENV_FORWARD_ALLOWLIST=A,LD_PRELOAD", "DAYFLY_STOP_GRACE=soon")
	k.open(t)
	k.end(t, 1)
	for _, want := range []string{"DAYFLY_ATTEMPT", "DAYFLY_TICKET", "DAYFLY_STATE_DIR", "DAYFLY_ENGINE_UID", "LD_PRELOAD", "DAYFLY_STOP_GRACE"} {
		if !strings.Contains(k.said.String(), want) {
			t.Errorf("nothing is said of %s: %s", want, &k.said)
		}
	}
}

// R15: a workspace that names no place, with code that declares none, has its state in the bucket of its pool's stack;
// without one it is refused before anything of the engine runs.
func TestRun_StateDefaultsToBucketOfPool(t *testing.T) {
	engines := t.TempDir()
	const script = "#!/bin/sh\ncase \"$1\" in\nversion) echo '{\"terraform_version\":\"1.11.4\"}' ;;\n" +
		"init) cat dayfly_backend_override.tf.json; exit 1 ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(engines, "terraform"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		env    []string
		reason workflow.Reason
		says   []string
	}{
		"with a bucket": {
			[]string{"DAYFLY_STATE_BUCKET=states", "AWS_REGION=eu-west-1", "DAYFLY_STATE_KMS_KEY_ARN=arn:aws:kms:eu-west-1:1:key/k"},
			workflow.ReasonStepFailed,
			[]string{"the state is kept in s3://states/default/ws-1/terraform.tfstate", `"bucket": "states"`, `"region": "eu-west-1"`, `"kms_key_id": "arn:aws:kms:eu-west-1:1:key/k"`, `"key": "default/ws-1/terraform.tfstate"`},
		},
		"without": {nil, workflow.ReasonStateNotKept, []string{"the pool has no bucket for states"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec, cfg := job(t, "")
			spec.Engine, spec.Commands = api.EngineTerraform, nil
			spec.State = api.State{Kind: api.StateSource, Default: api.StateS3, Key: "ws-1"}
			r := newRelay(t, spec)
			k := startTask(t, r, cfg, append(tc.env, "DAYFLY_ENGINE_PATH="+engines)...)
			k.open(t)
			k.end(t, 0)
			got := r.result()
			if got.Reason != tc.reason {
				t.Errorf("got %s %q, want %s\n%s", got.Reason, got.Detail, tc.reason, r.text())
			}
			for _, want := range tc.says {
				if !strings.Contains(r.text()+got.Detail, want) {
					t.Errorf("nothing says %s: %s\n%s", want, got.Detail, r.text())
				}
			}
		})
	}
}

func TestRun_ForwardedVariablesAndStoredSecrets(t *testing.T) {
	store := filepath.Join(t.TempDir(), "secrets")
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(store, "token"), []byte("value-of-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, cfg := job(t, `echo "$TOKEN/$OTHER/$REGION/$API_KEY/$TICKET$DAYFLY_TICKET"`)
	spec.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:token"}, {Env: "OTHER", Ref: "env:PLAIN"}}
	r := newRelay(t, spec)
	k := startTask(t, r, cfg, "DAYFLY_SECRETS_STORE="+store, "DAYFLY_ENV_FORWARD_ALLOWLIST=REGION, API_KEY,PLAIN,UNSET", "REGION=eu-west-1", "API_KEY=abcd1234", "PLAIN=plain-value", "NOT_FORWARDED=1")
	k.open(t)
	k.end(t, 0)
	if got, want := r.text(), "***/***/eu-west-1/***/\n"; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRun_SIGTERMIsReportedAsInterrupted(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, pipe.listens())
	r := newRelay(t, spec)
	k := startTask(t, r, cfg, "DAYFLY_STOP_GRACE=1h")
	k.open(t)
	pipe.ready(t)
	if err := k.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	k.end(t, 0)
	if got := r.result(); got.Reason != workflow.ReasonInterrupted {
		t.Errorf("got %+v", got)
	}
}

// What a launcher has to say about a run stands in its log.
func TestRun_LogBeginsWithTheNoticeOfItsLauncher(t *testing.T) {
	spec, cfg := job(t, "true")
	r := newRelay(t, spec)
	k := startTask(t, r, cfg, "DAYFLY_NOTICE=this machine does not enforce the size")
	k.open(t)
	k.end(t, 0)
	if got, want := r.text(), "[dayfly] this machine does not enforce the size\n"; !strings.HasPrefix(got, want) || strings.Count(got, want) != 1 {
		t.Errorf("got %q, want that it begins with %q", got, want)
	}
}

// publish lets everybody enter the directories above path.
func publish(t *testing.T, path string) {
	t.Helper()
	for d := filepath.Dir(path); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// R6: a launcher whose tasks see nothing of its machine hands over what the run names, and no more.
func TestRun_WhatComesThroughTheGate(t *testing.T) {
	spec, cfg := job(t, `echo "$TOKEN/$OTHER/$REGION"; ls`)
	spec.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:token"}, {Env: "OTHER", Ref: "env:PLAIN"}}
	inside := spec.Source.Directory
	if err := os.WriteFile(filepath.Join(inside, "is-there"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	spec.Source.Directory = "/the/name/outside"
	r := newRelay(t, spec)
	k := startTask(t, r, cfg, "DAYFLY_GATE_BUNDLE=true", "DAYFLY_SOURCE_ROOTS=", "DAYFLY_SOURCE_DIR="+inside, "DAYFLY_ENV_FORWARD_ALLOWLIST=REGION,PLAIN", "REGION=not-this-one")
	bundle := secrets.NewBundle(t.Context(), secrets.Mux{"file": given("value-of-token")}, []string{"file:token"}, map[string]string{"REGION": "eu-west-1", "PLAIN": "plain-value"})
	if err := contract.OpenGate(k.gate, &bundle); err != nil {
		t.Fatal(err)
	}
	k.end(t, 0)
	if got, want := r.text(), "***/***/eu-west-1\n"; !strings.Contains(got, want) || !strings.Contains(got, "is-there") {
		t.Errorf("got %s, want %s (%+v)", got, want, r.result())
	}
}

type given string

// Resolve implements secrets.Resolver.
func (g given) Resolve(context.Context, string) (redact.String, error) {
	return redact.New(string(g)), nil
}

func TestRun_NothingIsDoneWithHalfABundle(t *testing.T) {
	spec, cfg := job(t, "true")
	r := newRelay(t, spec)
	k := startTask(t, r, cfg, "DAYFLY_GATE_BUNDLE=true")
	k.open(t)
	if _, err := k.gate.WriteString(`{"values":{"file:token"`); err != nil {
		t.Fatal(err)
	}
	_ = k.gate.Close() // the launcher died
	k.end(t, 1)
	if len(r.calls) > 0 {
		t.Errorf("got calls %v", r.calls)
	}
}
