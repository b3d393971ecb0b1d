package process

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher"
)

var variableName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`) })

// environ builds the runner's environment from nothing. None of it is secret but what the operator
// chose to forward: the ticket is sealed.
func (l *Launcher) environ(rec record, r launcher.Request) []string {
	work := l.workDir(rec.Ref)
	env := map[string]string{
		"PATH": l.config.Path,
		// What the runner's libraries put there goes with the task.
		"HOME":   work,
		"TMPDIR": work,
	}
	for _, name := range l.config.EnvAllow {
		if v, ok := l.config.LookupEnv(name); ok && !strings.ContainsRune(v, 0) {
			env[name] = v
		}
	}
	env["DAYFLY_GATE_FD"] = "3"
	env["DAYFLY_TICKET"] = r.Ticket
	env["DAYFLY_JOB"] = r.Workflow
	env["DAYFLY_ATTEMPT"] = strconv.Itoa(r.Attempt)
	env["DAYFLY_TASK"] = rec.Ref
	env["DAYFLY_RELAY"] = r.Relay
	env["DAYFLY_WORK_DIR"] = work
	// The runner must be able to end its engine and report before all of it is killed.
	env["DAYFLY_STOP_GRACE"] = (l.config.Grace * 3 / 4).String()
	env["DAYFLY_SOURCE_ROOTS"] = strings.Join(l.config.SourceRoots, string(os.PathListSeparator))
	env["DAYFLY_SECRETS_STORE"] = l.config.SecretsStore
	env["DAYFLY_ENV_FORWARD_ALLOWLIST"] = strings.Join(l.config.EnvAllow, ",")
	env["DAYFLY_ENGINE_PATH"] = strings.Join(l.config.EnginePath, string(os.PathListSeparator))
	if r.StateDir != "" {
		env["DAYFLY_STATE_DIR"] = filepath.Join(l.config.StateRoot, r.StateDir)
	}
	env["DAYFLY_STATE_STORE"] = l.config.StateStore
	env["DAYFLY_STATE_OLDS"] = strings.Join(r.OldDirs(l.config.StateRoot), string(os.PathListSeparator))
	if rec.EngineUID != 0 {
		env["DAYFLY_ENGINE_UID"] = strconv.FormatUint(uint64(rec.EngineUID), 10)
	}
	maps.DeleteFunc(env, func(name, v string) bool { return v == "" && strings.HasPrefix(name, "DAYFLY_") })
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// limits are set on the runner and inherited by all that it starts. That of processes counts those
// of the engine's user; root, as which the runner runs then, is not held by it.
func limits(engine uint32, size launcher.Size) child.Limits {
	c := child.Limits{NoCore: true}
	var have syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have) == nil {
		c.OpenFiles = min(openFiles, have.Max)
	}
	if engine != 0 {
		c.Processes = uint64(size.MaxPIDs) //nolint:gosec // a small positive number
	}
	return c
}
