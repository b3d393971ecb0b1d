package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// keepPushed is how long a pushed state lies at the agent. The run, or the preview of it, has taken it long before.
const keepPushed = 2 * api.MostApprovalExpires

type statePull struct {
	Workspace string `arg:"" help:"The workspace."`
	To        string `type:"path" placeholder:"FILE" help:"The file to make; default WORKSPACE.tfstate, in this directory."`
	secretStore
}

// Run submits the job, follows it and copies what it left. A file beside the code that is named as an engine names its
// state would be taken for it, so that is not the default.
func (c *statePull) Run(a *app, cl *client.Client) error {
	w, err := cl.Submit(a.ctx, api.Submit{Type: workflow.Deployment, Workspace: c.Workspace, Operation: workflow.StatePull})
	if err != nil {
		return err
	}
	if err := a.follow(cl, w.ID); err != nil {
		return err
	}
	get := artifactGet{Workflow: w.ID, Name: api.PlanDir + "terraform.tfstate", To: cmp.Or(c.To, c.Workspace+".tfstate"), secretStore: c.secretStore}
	return get.Run(a, cl)
}

type statePush struct {
	Workspace string `arg:"" help:"The workspace."`
	File      string `arg:"" type:"path" help:"The state document, as dayfly state pull gets it."`
	Force     bool   `help:"Push it even if it has another lineage than the state that is there, or a serial that is not higher."`
	confirmed
	secretStore
}

// Run places the state on this machine, where the agent finds it, then submits the job and follows it.
func (c *statePush) Run(a *app, cl *client.Client) error {
	state, what, err := readState(c.File)
	if err != nil {
		return usage(err)
	}
	who, err := cl.Whoami(a.ctx)
	if err != nil {
		return err
	}
	ws, err := cl.Workspace(a.ctx, c.Workspace)
	if err != nil {
		return err
	}
	data, err := c.data(a)
	if err != nil {
		return err
	}
	over := ""
	if c.Force {
		over = ", even over a newer state or one of another lineage"
	}
	if err := c.confirm(a, "this makes %s (%s) the state of workspace %s%s", c.File, what, ws.Name, over); err != nil {
		return err
	}
	push, err := placeState(data, who.Organization, ws.ID, state)
	if err != nil {
		return fmt.Errorf("the state cannot be placed below %s, where the agent of this machine looks for it: %w", data, err)
	}
	push.Force = c.Force
	return a.onState(cl, api.Submit{Workspace: c.Workspace, Operation: workflow.StatePush, Push: &push})
}

// placeState puts a state where an agent finds it. The same state again is no error.
func placeState(data, org, workspaceID string, state []byte) (api.PushedState, error) {
	sum := sha256.Sum256(state)
	push := api.PushedState{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(state))}
	kept := api.Artifact{Size: push.Size, SHA256: push.SHA256, ExpiresAt: time.Now().Add(keepPushed)}
	store := artifact.NewDirectory(filepath.Join(data, embedded.ArtifactsDir))
	return push, store.Keep(api.PushedKey(org, workspaceID, push.SHA256), kept, bytes.NewReader(state))
}

// readState reads a state document and says what it is. What is not a whole one never leaves this machine.
func readState(file string) (state []byte, what string, err error) {
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
	what, err = describeState(state)
	if err != nil {
		return nil, "", fmt.Errorf("%s is not a state document: %w", file, err)
	}
	return state, what, nil
}

// describeState says what a state document is, without any value of it.
func describeState(state []byte) (string, error) {
	var doc struct {
		Version   int               `json:"version"`
		Serial    *uint64           `json:"serial"`
		Lineage   string            `json:"lineage"`
		Resources []json.RawMessage `json:"resources"`
	}
	if err := json.Unmarshal(state, &doc); err != nil {
		return "", fmt.Errorf("it is not the JSON of one: %w", err)
	}
	if doc.Version < 1 || doc.Serial == nil || doc.Lineage == "" {
		return "", fmt.Errorf("it needs a version, a serial and a lineage")
	}
	return fmt.Sprintf("version %d, serial %d, lineage %s, %s", doc.Version, *doc.Serial, text.Quote(doc.Lineage, 60), text.Count(len(doc.Resources), "resource")), nil
}
