package runs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/awsaccess"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// keepPushed is how long the agent keeps a pushed state. The run, or the preview of it, has read it long before.
const keepPushed = 2 * api.MaxApprovalExpires

type statePull struct {
	Workspace string `arg:"" help:"The workspace."`
	To        string `type:"path" placeholder:"FILE" help:"The file to make; default WORKSPACE.tfstate, or of a Pulumi stack WORKSPACE.json, in this directory."`
	secretStore
}

// Run submits the job, follows it and copies its artifact. By default, the file is not named as an engine names its
// state: beside the code, the engine would take it for that.
func (c *statePull) Run(a *cli.App, cl *client.Client) error {
	ws, err := cl.Workspace(a.Ctx, c.Workspace)
	if err != nil {
		return err
	}
	w, err := cl.Submit(a.Ctx, api.Submit{Type: workflow.Deployment, Workspace: c.Workspace, Operation: workflow.StatePull})
	if err != nil {
		return err
	}
	last, live, err := watch(a, cl, w.ID, logView{})
	if err != nil {
		return err
	}
	if !a.JSON() || last.State != workflow.Succeeded { // of JSON one document: the artifact
		if err := ended(a, live, last); err != nil {
			return err
		}
	}
	name := api.PulledName(ws.Engine)
	get := artifactGet{Workflow: w.ID, Name: name, To: cmp.Or(c.To, c.Workspace+path.Ext(name)), secretStore: c.secretStore}
	return get.Run(a, cl)
}

type statePush struct {
	Workspace string `arg:"" help:"The workspace."`
	File      string `arg:"" type:"path" help:"The state document, as dayfly state pull gets it."`
	Force     bool   `help:"Push it even if it has another lineage than the state that is there, or a serial that is not higher; of a Pulumi stack, if it is older."`
	Bucket    string `xor:"place" placeholder:"NAME" help:"The bucket of artifacts of the workspace's pool on AWS; without it, the state is placed on this machine. Your own AWS access is used."`
	Region    string `and:"bucket" placeholder:"REGION" help:"The bucket's region."`
	Data      string `xor:"place" type:"path" help:"The data directory of the agent; default that of the last dayfly up."`
	cli.Confirmed
}

// Run places the state where the pool finds it, then submits the job and follows it.
func (c *statePush) Run(a *cli.App, cl *client.Client) error {
	if (c.Bucket == "") != (c.Region == "") {
		return cli.Usage(errors.New("--bucket and --region go together: name both"))
	}
	state, description, err := readState(c.File)
	if err != nil {
		return cli.Usage(err)
	}
	who, err := cl.Whoami(a.Ctx)
	if err != nil {
		return err
	}
	ws, err := cl.Workspace(a.Ctx, c.Workspace)
	if err != nil {
		return err
	}
	over := ""
	if c.Force {
		over = ", even over a newer state or one of another lineage"
	}
	if err := c.Confirm(a, "this makes %s (%s) the state of workspace %s%s", c.File, description, ws.Name, over); err != nil {
		return err
	}
	push := describePush(state)
	push.Force = c.Force
	if err := c.place(a, api.PushedKey(who.Organization, ws.ID, push.SHA256), push, state); err != nil {
		return err
	}
	return onState(a, cl, api.Submit{Workspace: c.Workspace, Operation: workflow.StatePush, Push: &push})
}

func describePush(state []byte) api.PushedState {
	sum := sha256.Sum256(state)
	return api.PushedState{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(state))}
}

// place puts the state in the pool's bucket, or where the agent of this machine finds it. The same state again is no
// error.
func (c *statePush) place(a *cli.App, key string, push api.PushedState, state []byte) error {
	if c.Bucket != "" {
		at := api.Place{Kind: api.PlaceS3, Bucket: c.Bucket, Region: c.Region, Key: key}
		return awsaccess.PlaceS3(a.Ctx, at, bytes.NewReader(state), push.Size, push.SHA256)
	}
	data, err := secretStore{Data: c.Data}.data(a)
	if err != nil {
		return err
	}
	kept := api.Artifact{Size: push.Size, SHA256: push.SHA256, ExpiresAt: time.Now().Add(keepPushed)}
	store := artifact.NewDirectory(filepath.Join(data, embedded.ArtifactsDir))
	if err := store.Keep(key, kept, bytes.NewReader(state)); err != nil {
		return fmt.Errorf("the state cannot be placed below %s, where the agent of this machine looks for it: %w", data, err)
	}
	return nil
}

// readState reads a state document and describes it. An incomplete one never leaves this machine.
func readState(file string) (state []byte, description string, err error) {
	f, err := os.Open(file) //nolint:gosec // G304: the person names it
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = f.Close() }()
	if state, err = io.ReadAll(io.LimitReader(f, api.MaxArtifactSize+1)); err != nil {
		return nil, "", err
	}
	if len(state) > api.MaxArtifactSize {
		return nil, "", fmt.Errorf("%s has more than %d MiB, which no state has that can be pushed", file, api.MaxArtifactSize>>20)
	}
	description, err = describeState(state)
	if err != nil {
		return nil, "", fmt.Errorf("%s is not a state document: %w", file, err)
	}
	return state, description, nil
}

// describeState describes a state document, or an export of a Pulumi stack, without any value of it.
func describeState(state []byte) (string, error) {
	var doc struct {
		Version    int               `json:"version"`
		Serial     *uint64           `json:"serial"`
		Lineage    string            `json:"lineage"`
		Resources  []json.RawMessage `json:"resources"`
		Deployment *struct {
			Manifest struct {
				Time time.Time `json:"time"`
			} `json:"manifest"`
			Resources []json.RawMessage `json:"resources"`
		} `json:"deployment"`
	}
	if err := json.Unmarshal(state, &doc); err != nil {
		return "", fmt.Errorf("it is not the JSON of one: %w", err)
	}
	if d := doc.Deployment; d != nil && doc.Version > 0 && !d.Manifest.Time.IsZero() {
		return fmt.Sprintf("version %d, of %s, %s", doc.Version, d.Manifest.Time.UTC().Format(time.RFC3339), text.Count(len(d.Resources), "resource")), nil
	}
	if doc.Version < 1 || doc.Serial == nil || doc.Lineage == "" {
		return "", fmt.Errorf("it needs a version, a serial and a lineage, or the deployment of a Pulumi stack")
	}
	return fmt.Sprintf("version %d, serial %d, lineage %s, %s", doc.Version, *doc.Serial, text.Quote(doc.Lineage, 60), text.Count(len(doc.Resources), "resource")), nil
}
