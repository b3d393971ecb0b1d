package process

import (
	"maps"
	"slices"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process/cleanup"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// environ builds the runner's environment from nothing. Only the variables that the operator chose to forward are
// secret: the ticket is sealed. cgroup is the directory in which the task's cgroup is made; empty: it gets none.
func (l *Launcher) environ(rec record, r launcher.Request, size task.Size, cgroup string) []string {
	work := l.WorkDir(rec.Ref)
	env := map[string]string{
		"PATH": l.config.Path,
		// Files that the runner's libraries write there are removed with the task.
		"HOME": work, "TMPDIR": work,
		// A runner waits for its engine and passes on its output. More threads cost a short job a sixth of its
		// processor time, in starting them and waking one another.
		"GOMAXPROCS": "1",
	}
	maps.Copy(env, l.Forwarded())
	given := l.Environment(r, rec.Ref)
	given.Gate, given.WorkDir, given.EngineUID = task.GateExtra, work, rec.EngineUID
	given.SourceRoots, given.EnginePath, given.SecretsStore = l.SourceRoots, l.EnginePath, l.config.SecretsStore
	given.ToolsDir, given.Downloads = l.ToolsDir, l.Downloads
	given.VaultAddress, given.VaultNamespace, given.VaultTokenFile = l.config.VaultAddress, l.config.VaultNamespace, l.config.VaultTokenFile
	l.Mu.Lock()
	given.Notice = size.Unkept(l.unkept(cgroup))
	l.Mu.Unlock()
	if cgroup != "" && slices.Contains(cleanup.Controllers(cgroup), "pids") {
		given.Processes = size.MaxPIDs
	}
	for _, old := range l.Olds(r) {
		given.StateOlds = append(given.StateOlds, l.State(old))
	}
	if r.States.Own != "" {
		given.StateDir = l.State(r.States.Own)
	}
	maps.Copy(env, given.Variables())
	return task.List(env)
}

// limits are set on the runner, and all its processes inherit them. The limit of processes counts those of
// the engine's user. It does not bind the runner, which is root then.
func limits(engine uint32, size task.Size) child.Limits {
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
