package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// Where a task finds its directories. They need not exist in the image.
const (
	workTarget   = "/dayfly/work"
	stateTarget  = "/dayfly/state"
	sourceTarget = workTarget + "/" + givenName
	relayTarget  = "/run/dayfly"
	toolsTarget  = "/dayfly/tools"

	providersTarget = "/dayfly/providers"

	// givenName is the copy of a directory source in the work directory. The runner removes it.
	givenName = "given"
)

// oldTarget is where a task finds the directory of another state. Its last element is the state's name.
func oldTarget(dir string) string { return "/dayfly/olds/" + path.Base(dir) }

// engineTarget is where a task finds one of the machine's directories of engines.
func engineTarget(n int) string { return "/dayfly/engines/" + strconv.Itoa(n) }

// The labels of a container. They are enough to recognise a task without its record.
const (
	labelPrefix    = "dev.dayfly."
	labelLauncher  = labelPrefix + "launcher"
	labelTask      = labelPrefix + "task"
	labelJob       = labelPrefix + "job"
	labelAttempt   = labelPrefix + "attempt"
	labelPlacement = labelPrefix + "placement"
	labelPool      = labelPrefix + "pool"
	labelInstance  = labelPrefix + "instance"
	labelWorkspace = labelPrefix + "workspace"
)

const (
	whyUnkept = "the Docker engine says that its system has no such limits"
	tempSize  = "268435456" // bytes of /tmp, which is memory of the task
	unixForm  = "unix://"
)

// plan is everything that a container is made of.
type plan struct {
	ref      string
	launcher string // its id
	request  launcher.Request
	image    string
	size     task.Size
	work     string // directories of the machine; state may be empty
	state    string
	olds     []string     // directories of other states, which are only looked at
	cpus     int          // of the engine
	unkept   []task.Limit // which the engine cannot keep
}

// containerName is the same for the same request, so that a second create is a conflict.
func containerName(launcherID string, r launcher.Request) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", launcherID, r.Workflow, r.Attempt, r.Placement))
	return "dayfly-" + hex.EncodeToString(sum[:16])
}

// spec is the container of a plan: no capabilities, no new privileges, one user that is not root, a
// read-only root, only the directories that the job was given, and no restart.
func (c *Config) spec(p plan) createRequest {
	memory := int64(p.size.MemoryMB) << 20
	milli := p.size.MilliCPU
	if p.cpus > 0 {
		milli = min(milli, p.cpus*1000) // an engine refuses more than it has
	}
	if slices.Contains(p.unkept, task.LimitCPU) {
		milli = 0 // such an engine refuses one; the other limits it only leaves out
	}
	user := strconv.Itoa(c.UID)
	bind := func(from, to string, readOnly bool) mount {
		return mount{Type: "bind", Source: c.hostPath(from), Target: to, ReadOnly: readOnly, BindOptions: &bindOptions{NonRecursive: true}}
	}
	mounts := []mount{bind(p.work, workTarget, false)}
	if p.state != "" {
		mounts = append(mounts, bind(p.state, stateTarget, p.request.ReadsState))
	}
	for _, old := range p.olds {
		mounts = append(mounts, bind(old, oldTarget(old), true))
	}
	for n, dir := range c.EnginePath {
		mounts = append(mounts, bind(dir, engineTarget(n), true))
	}
	if c.downloads() {
		mounts = append(mounts, bind(c.ToolsDir, toolsTarget, true))
	}
	if c.ProvidersDir != "" {
		mounts = append(mounts, bind(c.ProvidersDir, providersTarget, true))
	}
	if dir := relayDir(p.request.Relay); dir != "" {
		mounts = append(mounts, bind(dir, relayTarget, true))
	}
	host := hostConfig{
		NetworkMode:    c.Network,
		IpcMode:        "private", // /dev/shm and queues end with the container, also if the engine's default is another
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		Memory:         memory,
		MemorySwap:     memory, // no swap
		NanoCPUs:       int64(milli) * 1_000_000,
		PidsLimit:      int64(p.size.MaxPIDs),
		RestartPolicy:  restartPolicy{Name: "no"}, // the run of a restarted runner would have begun already
		Mounts:         mounts,
		Tmpfs:          map[string]string{"/tmp": "rw,nosuid,nodev,mode=1777,size=" + tempSize},
		Ulimits:        []ulimit{{Name: "core"}},
		LogConfig:      logConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
	}
	if c.Network != networkNone && c.hostGateway {
		host.ExtraHosts = []string{GatewayName + ":host-gateway"}
	}
	return createRequest{
		Image:      p.image,
		Entrypoint: c.Command,
		User:       user + ":" + user,
		WorkingDir: workTarget,
		Env:        c.environ(p),
		Labels:     c.labels(p),
		OpenStdin:  true, // the gate
		StdinOnce:  true,
		StopSignal: "SIGTERM",
		HostConfig: host,
	}
}

func (c *Config) labels(p plan) map[string]string {
	r := p.request
	return map[string]string{
		labelLauncher: p.launcher, labelTask: p.ref, labelJob: r.Workflow, labelAttempt: strconv.Itoa(r.Attempt),
		labelPlacement: r.Placement, labelPool: r.Pool, labelWorkspace: r.Organization + "/" + r.Workspace,
		labelInstance: c.Instance,
	}
}

// environ is the environment of the container. Everybody with access to the engine can read it: the ticket is
// sealed, and the rest is not secret. PATH is the image's.
func (c *Config) environ(p plan) []string {
	given := c.Environment(p.request, p.ref)
	given.Gate, given.Bundled, given.WorkDir, given.Relay = task.GateStdin, true, workTarget, relayInside(p.request.Relay)
	given.Unsaved = launcher.OnThis(c.hostPath(c.UnsavedDir(p.ref)))
	given.Notice = p.size.Unkept(p.unkept, whyUnkept)
	if !slices.Contains(p.unkept, task.LimitProcesses) {
		given.Processes = p.size.MaxPIDs
	}
	if p.state != "" {
		given.StateDir = stateTarget
	}
	for _, old := range p.olds {
		given.StateOlds = append(given.StateOlds, oldTarget(old))
	}
	for n := range c.EnginePath {
		given.EnginePath = append(given.EnginePath, engineTarget(n))
	}
	if c.downloads() {
		given.ToolsDir = toolsTarget
	}
	if c.ProvidersDir != "" {
		given.ProvidersDir = providersTarget
	}
	if p.request.SourceDirectory != "" {
		given.SourceDir = sourceTarget
	}
	env := given.Variables()
	env["HOME"] = workTarget
	return task.List(env)
}

// relayDir is the directory of a relay's socket, or empty. The directory is mounted and not the socket: a
// relay that starts again makes another socket there.
func relayDir(relay string) string {
	if path, ok := strings.CutPrefix(relay, unixForm); ok {
		return filepath.Dir(path)
	}
	return ""
}

// relayInside is the relay's address as the task sees it.
func relayInside(relay string) string {
	if path, ok := strings.CutPrefix(relay, unixForm); ok {
		return unixForm + relayTarget + "/" + filepath.Base(path)
	}
	return relay
}
