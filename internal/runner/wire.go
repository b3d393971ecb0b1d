package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
	"github.com/dayfly-dev/dayfly/internal/secrets/vault"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
)

// Run is the runner as a process: it runs the job that its environment names. ctx ends when the process is
// told to stop. Its error means the same as that of RunJob.
func Run(ctx context.Context, getenv func(string) string) error {
	// This comes before anything is read. It closes this process to the engine, even if they share a user.
	// The kernel keeps the first environment of a process unchanged.
	if err := harden(); err != nil {
		return err
	}
	bundle, err := task.PassGate(getenv)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	own, err := onECS(ctx, getenv)
	if err != nil {
		return err
	}
	given, err := task.Read(getenv, own.ref())
	cfg, mistakes := configOf(given, getenv, bundle)
	if err = errors.Join(err, mistakes, own.check(given.Forward)); err != nil {
		return err
	}
	if err := task.ForgetTicket(); err != nil {
		return err
	}
	way, err := own.way(given)
	if err != nil {
		return err
	}
	ticket := redact.New(given.Ticket)
	cfg.Relay, err = client.NewRunner(client.RunnerConfig{URL: given.Relay, Credential: ticket, Run: cfg.Run, HTTPClient: way, UserAgent: "dayfly-runner"})
	if err != nil {
		return fmt.Errorf("%s: %w", task.Name("Relay"), err)
	}
	if cfg.Engine == nil {
		swallowSignals()
	}
	// Orphans of the engine become children of this process, which ends them.
	if err := child.AdoptOrphans(); err != nil {
		return err
	}
	if cfg.Processes > 0 {
		keepThreads(spareThreads + runtime.GOMAXPROCS(0))
	}
	if err := own.apply(&cfg, given); err != nil {
		return err
	}
	cfg.Orphans = true
	cfg.Alone = given.Bundled || own != nil // a container
	cfg.Hide = append(cfg.Hide, ticket.Reveal())
	cfg.Log = log
	return RunJob(ctx, cfg)
}

// ExitCode is the exit code of a runner's process after an error of Run.
func ExitCode(err error) int {
	if errors.Is(err, errUnreported) {
		return task.ExitUnreported
	}
	return 1
}

// swallowSignals ignores signals that would end this process but are not requests to stop, until it ends: an engine
// with the same user can send any signal. (SIGTERM stays a request, from any sender; SIGKILL does not reach the first
// process of a container from inside.)
func swallowSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGIO,
		syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL) // its own faults end it as before
}

// noCore forbids core files to this process and to the engine, which inherits that: they would hold
// secrets.
func noCore() error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	return nil
}

// configOf makes a configuration from the launcher's environment. If there is a bundle, it has the forwarded
// variables.
func configOf(given task.Environment, getenv func(string) string, bundle *task.Bundle) (Config, error) {
	boot := make([]byte, 16)
	_, _ = rand.Read(boot) // it never fails
	cfg := Config{
		Run:     api.Run{Workflow: given.Workflow, Attempt: given.Attempt, Task: given.Task, Boot: hex.EncodeToString(boot)},
		WorkDir: given.WorkDir, Spool: task.SpoolName, Unsaved: given.Unsaved,
		StateDir: given.StateDir, StateOlds: given.StateOlds, StateStore: given.StateStore,
		Bucket:    api.State{Bucket: given.StateBucket, Region: getenv("AWS_REGION"), KMSKeyARN: given.StateKMSKeyARN},
		SourceDir: given.SourceDir, SourceRoots: given.SourceRoots, EnginePath: given.EnginePath, Grace: given.Grace,
		Notice: given.Notice, Processes: given.Processes, Hooks: given.Hooks, DiskBytes: int64(given.DiskGiB) << 30,
	}
	if uid := given.EngineUID; uid != 0 {
		cfg.Engine = &child.User{UID: uid, GID: uid}
	}
	cfg.Providers = given.ProvidersDir
	cfg.Tools = &toolcache.Cache{Dir: given.ToolsDir, Allowed: given.Downloads}
	forwarded := getenv
	if bundle != nil {
		cfg.Tools.Why = bundle.NoDownload
		forwarded = func(name string) string { return bundle.Env[name] }
	}
	var mistakes []error
	if cfg.ProviderMirror = given.ProviderMirror; cfg.ProviderMirror != "" && (!strings.HasPrefix(cfg.ProviderMirror, "https://") || !strings.HasSuffix(cfg.ProviderMirror, "/")) {
		mistakes = append(mistakes, fmt.Errorf("%s: %q is not an https address that ends with a slash", task.Name("ProviderMirror"), cfg.ProviderMirror))
	}
	var allowed []string
	for _, name := range given.Forward {
		if checkVariable(name) != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %q is not the name of a variable that may be forwarded", task.Name("Forward"), name))
			continue
		}
		allowed = append(allowed, name)
		if v := forwarded(name); v != "" {
			cfg.Forward = append(cfg.Forward, name+"="+v)
		}
	}
	mux := secrets.Mux{"env": local.Env(forwarded, allowed)}
	if bundle != nil {
		mux["file"] = secrets.Bundle{Bundle: *bundle}
		mux[vault.Scheme] = mux["file"]
	}
	if given.SecretsStore != "" {
		mux["file"] = local.New(given.SecretsStore)
	}
	if given.VaultTokenFile != "" {
		store, err := vault.New(vault.Config{Address: given.VaultAddress, Namespace: given.VaultNamespace, Login: vault.TokenFile(given.VaultTokenFile)})
		if err != nil {
			mistakes = append(mistakes, err)
		}
		mux[vault.Scheme] = store
	}
	cfg.Secrets = mux
	return cfg, errors.Join(mistakes...)
}
