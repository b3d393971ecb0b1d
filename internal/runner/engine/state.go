package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	// overrideName ends in _override.tf.json, so that the engine takes its backend in place of the
	// one that the code declares.
	overrideName   = "dayfly_backend_override.tf.json"
	stateName      = "terraform.tfstate"
	workspacesName = "terraform.tfstate.d"
	lockInfoName   = ".terraform.tfstate.lock.info"

	// The directory of the local backend's state, below the root module. It is the same in every job, because a plan
	// file includes its backend: an absolute path would be that of an earlier task.
	localDir = ".dayfly/state"
)

// declared is where the code itself says that its state is kept.
type declared struct {
	backend string // type of the backend block; empty means none
	cloud   bool   // a cloud block says it instead
	unsure  bool   // something could not be read

	// Of the backend local: its settings, as far as the code has them as literals, and whether it computes one.
	path, workspaceDir string
	computed           bool

	host           string // of a remote backend or a cloud block, where it is a literal
	cloudWorkspace string // the one that a cloud block names
	readsWorkspace bool   // an expression has the name of the engine's workspace

	asks  bool              // not only plan has to be given the variables
	types map[string]string // first words of the types of its variables
}

// elsewhere says whether the code keeps its state outside the task, where it survives.
func (d declared) elsewhere() bool { return d.cloud || d.backend != "" && d.backend != "local" }

// name is the type of the backend; empty if there is none, or only a file on the task's own disk.
func (d declared) name() string {
	switch {
	case d.cloud:
		return "cloud"
	case d.backend == "local":
		return ""
	}
	return d.backend
}

// words describes it for a sentence.
func (d declared) words() string {
	switch {
	case d.cloud:
		return "the code has a cloud block"
	case d.backend == "":
		return "the code declares no backend"
	case d.backend == "local":
		return "the code declares the backend local, whose file lies on the task's own disk"
	}
	return "the code declares the backend " + d.backend
}

func notKept(backend string) error {
	return &Failure{
		Reason: workflow.ReasonStateNotKept,
		Detail: declared{backend: backend}.words() + ", so the state would be lost when the task ends; set the workspace's state to kind directory or s3, or declare a remote backend in the code",
	}
}

// overrideDocument is a file for the engine that declares the backend.
func overrideDocument(backend string, settings map[string]any) ([]byte, error) {
	return json.MarshalIndent(map[string]any{
		"terraform": map[string]any{"backend": map[string]any{backend: settings}},
	}, "", "  ")
}

// settings are the type and the settings of the backend for a place other than the code's.
func (p place) settings() (backend string, settings map[string]any) {
	if p.kind == api.StateS3 {
		return "s3", s3Settings(p.bucket, p.key)
	}
	return "local", map[string]any{"path": localDir + "/" + stateName, "workspace_dir": localDir + "/" + workspacesName}
}

func s3Settings(s api.State, key string) map[string]any {
	settings := map[string]any{
		"bucket":       s.Bucket,
		"key":          key,
		"encrypt":      true,
		"use_lockfile": true,
	}
	region := s.Region
	if s.Endpoint != "" {
		if region == "" {
			region = "us-east-1" // signs requests; a service that is not AWS's takes any
		}
		settings["endpoints"] = map[string]any{"s3": s.Endpoint}
		settings["use_path_style"] = true
		// Calls that only AWS's own services answer.
		settings["skip_credentials_validation"] = true
		settings["skip_requesting_account_id"] = true
		settings["skip_metadata_api_check"] = true
		settings["skip_region_validation"] = true
	}
	if region != "" {
		settings["region"] = region
	}
	if s.KMSKeyARN != "" {
		settings["kms_key_id"] = s.KMSKeyARN
	}
	return settings
}

// s3Lockfile is the version from which both engines lock with a file in the bucket.
const s3Lockfile = "1.10.0"

func checkS3(engine string, v *version.Version) error {
	if !minAt(v, s3Lockfile) {
		return &Failure{
			Reason: workflow.ReasonEngineNotFound,
			Detail: fmt.Sprintf("state kind s3 needs %s %s or newer, which locks with a file in the bucket; this runner has %s", engine, s3Lockfile, v),
		}
	}
	return nil
}

// copyWait bounds how long a copy waits for a state that is being written.
const (
	copyWait  = 10 * time.Second
	copyEvery = 100 * time.Millisecond
)

// copyState copies one state of a directory for a run that only reads it. It copies nothing if there is none yet.
// The engine of another run may be writing it at this moment, in place: then the file is not a whole document, or is
// empty beside a lock, and the copy is made again.
func copyState(ctx context.Context, stateDir, name string, to *folder) error {
	ctx, cancel := context.WithTimeoutCause(ctx, copyWait, fmt.Errorf("the state is still not a whole document after %s", copyWait))
	defer cancel()
	from, err := openFolder(stateDir, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer from.close()
	tick := time.NewTicker(copyEvery)
	defer tick.Stop()
	for {
		whole, err := tryCopy(from, name, to)
		if err != nil || whole {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func tryCopy(from *folder, name string, to *folder) (whole bool, err error) {
	in, err := from.open(name) // a link may lead to a file that the engine must not read
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	defer func() { _ = in.Close() }()
	before, err := in.Stat()
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	if err := to.mkdirs(path.Dir(name)); err != nil {
		return false, fmt.Errorf("copy state: %w", err)
	}
	out, err := to.create(name)
	if err != nil {
		return false, fmt.Errorf("copy state: %w", err)
	}
	defer func() { _ = out.Close() }()
	if before.Size() == 0 {
		_, err := from.root.Lstat(path.Join(path.Dir(name), lockInfoName))
		return errors.Is(err, fs.ErrNotExist), nil
	}
	whole = wholeJSON(io.TeeReader(in, out))
	after, err := in.Stat()
	if err != nil {
		return false, fmt.Errorf("read state: %w", err)
	}
	whole = whole && after.Size() == before.Size() && after.ModTime().Equal(before.ModTime())
	if err := out.Close(); err != nil {
		return false, fmt.Errorf("copy state: %w", err)
	}
	return whole, nil
}

// wholeJSON reads to the end and reports whether it was exactly one document.
func wholeJSON(r io.Reader) bool {
	dec := json.NewDecoder(r)
	if _, err := skipValue(dec); err != nil {
		return false
	}
	_, err := dec.Token()
	return errors.Is(err, io.EOF)
}
