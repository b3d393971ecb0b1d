package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// place is where the state of a run is kept: in the backend that the code declares, in a directory that the task
// was given, or in a bucket.
type place struct {
	kind   string    // api.StateSource, api.StateDirectory or api.StateS3
	bucket api.State // of StateS3
	key    string    // names the place, where it is not the code's
}

// String says it in words.
func (p place) String() string {
	switch p.kind {
	case api.StateDirectory:
		if p.key == "" {
			return "a copy for this run alone"
		}
		return "state/" + p.key + " in the runner's data directory"
	case api.StateS3:
		return "s3://" + p.bucket.Bucket + "/" + p.key
	}
	return "the backend that the code declares"
}

// placeOf decides where the state of a run is kept. own is where its pool's stack keeps states of workspaces that
// name no place. It is a pure function.
func placeOf(s api.Spec, code declared, own api.State) (place, error) {
	p := place{kind: api.StateSource}
	kind := s.State.Kind
	if kind == api.StateSource {
		// Code that could not be read is left to the engine; its answer is checked after init.
		if !code.elsewhere() && !code.unsure && s.State.Default != "" {
			kind = s.State.Default
		}
		if kind == api.StateS3 {
			if own.Bucket == "" {
				return p, &Failure{Reason: workflow.ReasonStateNotKept, Detail: code.words() + ", and the pool has no bucket for states; name one in the workspace's state, or declare a remote backend in the code"}
			}
			p.bucket = own
		}
	}
	switch kind {
	case api.StateSource:
		if !code.elsewhere() && !code.unsure {
			return p, notKept(code.backend)
		}
		return p, nil
	case api.StateDirectory:
		p.kind, p.key = kind, s.Organization+"/"+s.State.Key
	case api.StateS3:
		p.kind, p.key = kind, s.Organization+"/"+s.State.Key+"/"+stateName
		if s.State.Bucket != "" {
			p.bucket = s.State
		}
		if p.bucket.Bucket == "" {
			return p, &Failure{Reason: workflow.ReasonStateNotKept, Detail: "the workspace's state has kind s3 and names no bucket"}
		}
	default:
		return p, &Failure{Reason: workflow.ReasonStateNotKept, Err: workflow.ErrUnsupported, Detail: fmt.Sprintf("this version does not know the state kind %s", quote(kind))}
	}
	if len(s.State.BackendConfig) > 0 {
		return p, &Failure{Reason: workflow.ReasonStateNotKept, Err: workflow.ErrInvalid, Detail: "the workspace's backend_config completes a backend, and " + code.words() + "; declare one, or leave backend_config out"}
	}
	return p, nil
}

// placing are the settings of each backend that say where a state is; all others say how to reach it. A backend that
// is not listed is known by all of its settings except those that look like secrets.
var placing = map[string][]string{
	"s3":         {"bucket", "key", "workspace_key_prefix", "endpoint", "endpoints"},
	"gcs":        {"bucket", "prefix"},
	"azurerm":    {"storage_account_name", "container_name", "key"},
	"http":       {"address"},
	"consul":     {"address", "path"},
	"pg":         {"schema_name"},
	"kubernetes": {"namespace", "secret_suffix"},
	"cos":        {"bucket", "prefix", "key"},
	"oss":        {"bucket", "prefix", "key"},
	"oci":        {"bucket", "namespace", "key", "workspace_key_prefix"},
	"remote":     {"hostname", "organization", "workspaces"},
	"cloud":      {"hostname", "organization", "workspaces"},
	"local":      {"path", "workspace_dir"},
}

var secretLike = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)secret|passw|token|credential|access_key|private_key|conn_str|username`)
})

// placed keeps of a backend's settings those that say where the state is.
func placed(backend string, settings map[string]any) map[string]any {
	out := map[string]any{}
	names, listed := placing[backend]
	for name, v := range settings {
		if v != nil && v != "" && (listed && slices.Contains(names, name) || !listed && !secretLike().MatchString(name)) {
			out[name] = v
		}
	}
	return out
}

// digest is the SHA-256 of the settings that say where a state is: enough to know them again, and nothing to read.
func digest(backend string, settings map[string]any) string {
	raw, err := json.Marshal(placed(backend, settings)) // by name in order
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// differing names the settings in which two backends lead to different places, in their order.
func differing(backend string, a, b map[string]any) []string {
	var names []string
	x, y := placed(backend, a), placed(backend, b)
	for name := range x {
		if digest(backend, map[string]any{name: x[name]}) != digest(backend, map[string]any{name: y[name]}) {
			names = append(names, name)
		}
	}
	for name := range y {
		if x[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// backendRecord is an engine's own record of the backend that init has set up.
type backendRecord struct {
	Type   string         `json:"type"`
	Config map[string]any `json:"config"`
}

// recorded reads such a record. The engine writes none where it keeps the state on disk by default.
func recorded(f *folder, name string) (backendRecord, error) {
	raw, err := f.read(name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return backendRecord{}, nil
	}
	if err != nil {
		return backendRecord{}, fmt.Errorf("read the backend that init set up: %w", err)
	}
	var doc struct {
		Backend *backendRecord `json:"backend"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return backendRecord{}, errors.New("read the backend that init set up: it is not JSON")
	}
	if doc.Backend == nil {
		return backendRecord{}, nil
	}
	return *doc.Backend, nil
}

// defaultWorkspace is the engine's workspace where none is selected.
const defaultWorkspace = "default"

var workspaceForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,89}$`) })

// engineWorkspace decides the engine's workspace of a run: the one in the settings, else in the environment, else the
// one selected in the source.
func engineWorkspace(said, environment, selected string) (string, error) {
	for _, name := range []string{said, environment, strings.TrimSpace(selected)} {
		if name == "" {
			continue
		}
		if !workspaceForm().MatchString(name) {
			return "", &Failure{Reason: workflow.ReasonStateNotKept, Err: workflow.ErrInvalid, Detail: "the engine's workspace " + quote(name) + " cannot be used: it has 1 to 90 characters of A-Z, a-z, 0-9, ., _ and -, and does not begin with a dot"}
		}
		return name, nil
	}
	return defaultWorkspace, nil
}

// statePath is where the state of an engine's workspace lies below a directory of states.
func statePath(workspace string) string {
	if workspace == defaultWorkspace {
		return stateName
	}
	return workspacesName + "/" + workspace + "/" + stateName
}
