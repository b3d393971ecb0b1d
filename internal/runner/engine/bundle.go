package engine

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// bundleFormat is the form of a bundle and of the summary in it. A runner applies those of its own form only.
const bundleFormat = 1

// The entries of a bundle, in their order, with the maximal size of each in bytes. It has a plan, or a state to be
// pushed.
const (
	entryManifest = "manifest.json"
	entryPlan     = "plan"
	entryState    = "state"
	entryLock     = "lock"     // dependency lock file
	entrySettings = "settings" // of a stack that is to be created: how its secrets are encrypted

	maxManifest = 64 << 10
	maxPlanFile = 64 << 20 // also of a state that is to be approved
	maxLockFile = 1 << 20
	maxSettings = 1 << 20
	maxBundle   = maxPlanFile + maxLockFile + maxSettings + maxManifest + 64<<10
)

var bundleEntries = []struct {
	name  string
	limit int64
}{{entryManifest, maxManifest}, {entryPlan, maxPlanFile}, {entryState, maxPlanFile}, {entryLock, maxLockFile}, {entrySettings, maxSettings}}

// manifest lists the inputs of a plan. All of them must be the same when the plan is applied.
type manifest struct {
	Format        int                `json:"format"`
	Organization  string             `json:"organization"`
	WorkspaceID   string             `json:"workspace_id"`
	Workspace     string             `json:"workspace"`
	For           workflow.Operation `json:"for"`
	Force         bool               `json:"force,omitempty"` // of a state that is to be pushed
	Engine        string             `json:"engine"`
	EngineVersion string             `json:"engine_version"`
	Source        string             `json:"source"`
	Settings      string             `json:"settings,omitempty"` // SHA-256 of those of a stack, with the workspace's variables
	State         api.StateFound     `json:"state"`              // its place; without a lineage there was none in it
	Summary       string             `json:"summary"`
	Entries       map[string]string  `json:"entries"` // SHA-256 of each
}

// stale names the inputs that have changed since a plan was made; empty means none. It is a pure function.
func stale(was, now manifest) string {
	var changed []string
	add := func(name, was, now string) {
		if was != now {
			changed = append(changed, fmt.Sprintf("%s was %s when the plan was made, and is %s now", name, orNone(was), orNone(now)))
		}
	}
	add("the form of plans", strconv.Itoa(was.Format), strconv.Itoa(now.Format))
	add("the organization", was.Organization, now.Organization)
	add("the workspace", was.Workspace, now.Workspace)
	add("the workspace's id", was.WorkspaceID, now.WorkspaceID)
	add("the operation", string(was.For), string(now.For))
	add("force", strconv.FormatBool(was.Force), strconv.FormatBool(now.Force))
	add("the engine", was.Engine, now.Engine)
	add("the engine's version", was.EngineVersion, now.EngineVersion)
	add("the source", was.Source, now.Source)
	add("the SHA-256 of the stack's settings", was.Settings, now.Settings)
	if was.Source == "" {
		changed = append(changed, "the plan does not name its source")
	}
	if !samePlace(was.State, now.State) {
		changed = append(changed, "the state is kept elsewhere than when the plan was made: "+differsIn(now.State, was.State))
	}
	add("the state's lineage", was.State.Lineage, now.State.Lineage)
	add("the state's serial", strconv.FormatInt(was.State.Serial, 10), strconv.FormatInt(now.State.Serial, 10))
	add("the SHA-256 of the planned changes' summary", was.Summary, now.Summary)
	add("the SHA-256 of the state to be pushed", was.Entries[entryState], now.Entries[entryState])
	return strings.Join(changed, "; ")
}

// pack writes a bundle: always the same bytes for the same entries.
func pack(to io.Writer, entries map[string][]byte) error {
	var names []string
	for _, e := range bundleEntries {
		if _, ok := entries[e.name]; ok {
			names = append(names, e.name)
		}
	}
	return archive(to, names, entries)
}

// archive writes files in an order: always the same bytes for the same files.
func archive(to io.Writer, names []string, files map[string][]byte) error {
	out := tar.NewWriter(to)
	for _, name := range names {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o600, ModTime: time.Unix(0, 0)}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := out.Write(files[name]); err != nil {
			return err
		}
	}
	return out.Close()
}

// newBundle makes a bundle of a manifest and the other entries.
func newBundle(m manifest, entries map[string][]byte) ([]byte, error) {
	m.Entries = map[string]string{}
	for name, data := range entries {
		m.Entries[name] = sha256Hex(data)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	entries[entryManifest] = raw
	var out bytes.Buffer
	err = pack(&out, entries)
	return out.Bytes(), err
}

// readBundle is strict: it accepts only bundles of newBundle.
func readBundle(raw []byte) (m manifest, entries map[string][]byte, err error) {
	entries = map[string][]byte{}
	in := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || h.Size > int64(len(raw)) { // of a file with holes, which could be large
			return m, nil, errors.New("it is not a whole archive")
		}
		if err := readEntry(in, h, entries); err != nil {
			return m, nil, err
		}
	}
	// Writing these entries again gives the same bytes, or the bundle had more than was read.
	again := sha256.New()
	if err := pack(again, entries); err != nil || hex.EncodeToString(again.Sum(nil)) != sha256Hex(raw) {
		return m, nil, errors.New("it has something that no bundle has")
	}
	dec := json.NewDecoder(bytes.NewReader(entries[entryManifest]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil || dec.InputOffset() != int64(len(entries[entryManifest])) {
		return m, nil, errors.New("its manifest cannot be read")
	}
	_, plan := entries[entryPlan]
	_, state := entries[entryState]
	if plan == state || len(m.Entries) != len(entries)-1 {
		return m, nil, errors.New("its entries are not those of a plan, nor of a state to be pushed")
	}
	for name, sum := range m.Entries {
		if data, ok := entries[name]; !ok || sha256Hex(data) != sum {
			return m, nil, fmt.Errorf("its entry %s is not the one that its manifest names", quote(name))
		}
	}
	return m, entries, nil
}

// readEntry reads one entry of a bundle.
func readEntry(in io.Reader, h *tar.Header, entries map[string][]byte) error {
	for _, e := range bundleEntries {
		if h.Name != e.name {
			continue
		}
		if _, twice := entries[e.name]; twice || h.Typeflag != tar.TypeReg || h.Size > e.limit {
			return fmt.Errorf("its entry %s is too large, no plain file, or there twice", e.name)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return errors.New("it is not a whole archive")
		}
		entries[e.name] = data
		return nil
	}
	return fmt.Errorf("it has the entry %s, which no bundle has", quote(h.Name))
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// manifestOf lists the inputs of a run whose state lies in a place, and is doc; nil: there is none.
func manifestOf(j Job, op workflow.Operation, bin binary, is api.StateFound, doc *document) manifest {
	m := manifest{
		Format: bundleFormat, Organization: j.Spec.Organization, WorkspaceID: j.Spec.WorkspaceID, Workspace: j.Spec.Workspace,
		For: op, Engine: j.Spec.Engine, EngineVersion: bin.version.String(), Source: j.Fetched, State: is,
	}
	if doc != nil {
		m.State.Lineage, m.State.Serial = doc.lineage, doc.serial
	}
	if push := j.Spec.Push; op == workflow.StatePush {
		m.Force, m.Entries = push.Force, map[string]string{entryState: push.SHA256}
	}
	return m
}

// now lists the inputs of this run, as far as they are known yet, in the form of a manifest.
func (t *terraform) now() manifest {
	return manifestOf(t.j, t.op, t.bin, t.is, t.doc)
}

// planStale refuses to apply a plan.
func planStale(name string) error {
	return &Failure{
		Reason: workflow.ReasonPlanStale,
		Detail: text.Middle("the approved plan is not applied, because it does not fit any more: "+name+". Make a new preview", maxDetail),
	}
}
