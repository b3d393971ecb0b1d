package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
)

// Run is the runner as a process of its own: it runs the job that its environment names. ctx ends
// when the process is told to stop. See RunJob for what its error means.
func Run(ctx context.Context, getenv func(string) string) error {
	// Before anything is read: what this process holds is closed to the engine, also where they
	// share a user. The kernel keeps the first environment of a process as it was.
	if err := harden(); err != nil {
		return err
	}
	defer swallowSignals()()
	bundle, err := passGate(getenv("DAYFLY_GATE_FD"), getenv("DAYFLY_GATE_BUNDLE") == "true")
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ticket := redact.New(getenv("DAYFLY_TICKET"))
	own, err := onECS(ctx, getenv)
	if err != nil {
		return err
	}
	cfg, relay, err := fromEnv(own.getenv(getenv), bundle)
	err = errors.Join(err, own.check(getenv))
	if ticket.Empty() {
		err = errors.Join(err, errors.New("DAYFLY_TICKET is missing"))
	}
	if err != nil {
		return err
	}
	if err := os.Unsetenv("DAYFLY_TICKET"); err != nil {
		return fmt.Errorf("forget the ticket: %w", err)
	}
	way, err := own.way(getenv("DAYFLY_RELAY_AUTH"), relay)
	if err != nil {
		return err
	}
	cfg.Relay, err = client.NewRunner(client.RunnerConfig{URL: relay, Credential: ticket, Run: cfg.Run, HTTPClient: way, UserAgent: "dayfly-runner"})
	if err != nil {
		return fmt.Errorf("DAYFLY_RELAY: %w", err)
	}
	// What the engine leaves behind comes to this process, which ends it.
	if err := child.AdoptOrphans(); err != nil {
		return err
	}
	own.apply(&cfg)
	cfg.Orphans = true
	cfg.Hide = append(cfg.Hide, ticket.Reveal())
	cfg.Log = log
	return RunJob(ctx, cfg)
}

// swallowSignals keeps this process from being ended by a signal that is no request to stop: where the
// engine has the same user, it can send any. (SIGTERM stays a request, whoever sends it; SIGKILL does
// not reach the first process of a container from inside.)
func swallowSignals() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGIO,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL) // its own faults end it as before
	return func() { signal.Stop(c) }
}

// noCore forbids core files to this process and to the engine, which inherits that: they would hold
// secrets.
func noCore() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	return nil
}

// passGate waits until the launcher opens the gate: one byte, when it has written down what it
// started. A launcher that died before opens it never, and nothing may be done. A launcher whose tasks
// do not see its machine sends after that byte what the run needs of it; nil means that it does not.
func passGate(number string, bundled bool) (*secrets.Bundle, error) {
	if number == "" {
		return nil, nil //nolint:nilnil // no gate, no bundle
	}
	fd, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("DAYFLY_GATE_FD: %q is no descriptor", number)
	}
	gate := os.Stdin
	if fd != 0 { // what is opened next must not become the standard input
		if gate = os.NewFile(uintptr(fd), "gate"); gate == nil {
			return nil, fmt.Errorf("DAYFLY_GATE_FD: %s is not open", number)
		}
		defer func() { _ = gate.Close() }()
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("the launcher went away before the task could begin: %w", err)
	}
	if !bundled {
		return nil, nil //nolint:nilnil // no bundle
	}
	bundle, err := secrets.ReadBundle(gate)
	if err != nil {
		return nil, fmt.Errorf("the launcher went away before the task could begin: %w", err)
	}
	return &bundle, nil
}

// fromEnv reads what the launcher set, and reports every mistake in it at once. Variables that are
// forwarded come with the bundle, where there is one.
func fromEnv(getenv func(string) string, bundle *secrets.Bundle) (cfg Config, relay string, err error) {
	var mistakes []error
	forwarded := getenv
	if bundle != nil {
		forwarded = func(name string) string { v, _ := bundle.Getenv(name); return v }
	}
	need := func(name string) string {
		v := getenv(name)
		if v == "" {
			mistakes = append(mistakes, fmt.Errorf("%s is missing", name))
		}
		return v
	}
	wrong := func(name, value, want string) {
		mistakes = append(mistakes, fmt.Errorf("%s: %q is not %s", name, value, want))
	}
	list := func(name string) (out []string) {
		for _, dir := range filepath.SplitList(getenv(name)) {
			if !filepath.IsAbs(dir) {
				wrong(name, dir, "an absolute path")
			}
			out = append(out, dir)
		}
		return out
	}

	relay = need("DAYFLY_RELAY")
	boot := make([]byte, 16)
	_, _ = rand.Read(boot) // it never fails
	cfg.Run = api.Run{Workflow: need("DAYFLY_JOB"), Task: need("DAYFLY_TASK"), Boot: hex.EncodeToString(boot)}
	if v := need("DAYFLY_ATTEMPT"); v != "" {
		if cfg.Run.Attempt, err = strconv.Atoi(v); err != nil || cfg.Run.Attempt < 1 {
			wrong("DAYFLY_ATTEMPT", v, "a number from 1 on")
		}
	}
	for name, to := range map[string]*string{"DAYFLY_WORK_DIR": &cfg.WorkDir, "DAYFLY_STATE_DIR": &cfg.StateDir, "DAYFLY_SOURCE_DIR": &cfg.SourceDir} {
		if *to = getenv(name); *to != "" && !filepath.IsAbs(*to) {
			wrong(name, *to, "an absolute path")
		}
	}
	cfg.SourceRoots, cfg.EnginePath, cfg.StateOlds = list("DAYFLY_SOURCE_ROOTS"), list("DAYFLY_ENGINE_PATH"), list("DAYFLY_STATE_OLDS")
	cfg.StateStore = getenv("DAYFLY_STATE_STORE")
	cfg.Bucket = api.State{Bucket: getenv("DAYFLY_STATE_BUCKET"), Region: getenv("AWS_REGION"), KMSKeyARN: getenv("DAYFLY_STATE_KMS_KEY_ARN")}
	if v := getenv("DAYFLY_ENGINE_UID"); v != "" {
		uid, err := strconv.ParseUint(v, 10, 32)
		if err != nil || uid == 0 {
			wrong("DAYFLY_ENGINE_UID", v, "the number of a user that is not root")
		}
		cfg.Engine = &child.User{UID: uint32(uid), GID: uint32(uid)} //nolint:gosec // of 32 bits
	}
	if v := getenv("DAYFLY_STOP_GRACE"); v != "" {
		if cfg.Grace, err = time.ParseDuration(v); err != nil || cfg.Grace <= 0 {
			wrong("DAYFLY_STOP_GRACE", v, "a duration such as 90s")
		}
	}

	cfg.Spool = launcher.SpoolName
	var allowed []string
	for name := range strings.SplitSeq(getenv("DAYFLY_ENV_FORWARD_ALLOWLIST"), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if checkVariable(name) != nil {
			wrong("DAYFLY_ENV_FORWARD_ALLOWLIST", name, "the name of a variable that may be forwarded")
			continue
		}
		allowed = append(allowed, name)
		if v := forwarded(name); v != "" {
			cfg.Forward = append(cfg.Forward, name+"="+v)
			if secretName().MatchString(name) {
				cfg.Hide = append(cfg.Hide, v)
			}
		}
	}
	mux := secrets.Mux{"env": local.Env(forwarded, allowed)}
	if bundle != nil {
		mux["file"] = bundle
	}
	if dir := getenv("DAYFLY_SECRETS_STORE"); dir != "" {
		mux["file"] = local.New(dir)
	}
	cfg.Secrets = mux
	return cfg, relay, errors.Join(mistakes...)
}
