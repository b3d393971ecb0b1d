package process

import (
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	contract "github.com/dayfly-dev/dayfly/internal/task"
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
	given := contract.Environment{
		Gate: contract.GateExtra, Workflow: r.Workflow, Attempt: r.Attempt, Task: rec.Ref, Ticket: r.Ticket, Relay: r.Relay, WorkDir: work,
		SourceRoots: l.config.SourceRoots, EnginePath: l.config.EnginePath, SecretsStore: l.config.SecretsStore, Forward: l.config.EnvAllow,
		EngineUID: rec.EngineUID, Grace: contract.EngineGrace(l.config.Grace), StateStore: l.config.StateStore, StateOlds: taskdir.Olds(r, l.config.StateRoot),
	}
	if r.States.Own != "" {
		given.StateDir = filepath.Join(l.config.StateRoot, r.States.Own)
	}
	maps.Copy(env, given.Variables())
	return contract.List(env)
}

// limits are set on the runner and inherited by all that it starts. That of processes counts those
// of the engine's user; root, as which the runner runs then, is not held by it.
func limits(engine uint32, size contract.Size) child.Limits {
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
