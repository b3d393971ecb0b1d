package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// What some world must have met.
const (
	metFed     = "a run is given an output of another workspace"
	metFetched = "a run fetches a sensitive output of another workspace"
	metLacks   = "a run ends because an output is missing"
)

// The outputs that every run leaves which changes a state. What they are called says which run that was.
const (
	plainOutput     = "of"
	sensitiveOutput = "token"
)

// maxConflicts is how often a runner is refused an input before it gives up.
const maxConflicts = 5

// feeds lets the first workspace feed the others, in every other world.
func (w *world) feeds(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	from, sensitive := w.people.workspaces[0], r.IntN(2) == 0
	for _, name := range w.people.workspaces[1:] {
		ws := w.people.settings[name]
		ws.Inputs = []api.WorkspaceInput{{Workspace: from, Output: plainOutput}}
		if sensitive {
			ws.Inputs = append(ws.Inputs, api.WorkspaceInput{Workspace: from, Output: sensitiveOutput, Sensitive: true})
		}
		_, _, err := w.cp.server().rules.PutWorkspace(w.ctx, w.people.admin, ws)
		must(0, err)
		w.people.settings[name] = ws
	}
	_ = must(w.cp.server().rules.Submit(w.ctx, w.people.admin, "", api.Submit{Workspace: from, Type: workflow.Deployment, Operation: workflow.Update, Message: "feed"}))
}

// given is what a run was given, as the store has it.
type given struct {
	Variables map[string]any `json:"variables"`
	Sensitive []struct {
		Workflow string `json:"wf"`
	} `json:"sensitive"`
}

func (w *world) givenTo(r *record) given {
	out, _ := stored[given](w, store.Key{Part: "wf/" + r.ID, Sort: fmt.Sprintf("given/%04d", r.Attempt)})
	return out
}

// inputsOf are the inputs of a run.
func (w *world) inputsOf(r *record) []api.WorkspaceInput {
	spec, _ := stored[struct {
		Inputs []api.WorkspaceInput `json:"inputs"`
	}](w, store.Key{Part: "wf/" + r.ID, Sort: "spec"})
	return spec.Inputs
}

// left is the run that has left the outputs of a workspace by now; empty if none has.
func (w *world) left(workspace string) string {
	ws, _ := stored[struct{ ID string }](w, store.Key{Part: "org/default", Sort: "workspace/" + workspace})
	id := w.truth.left[ws.ID]
	if op := w.truth.of(id).Op; op != workflow.Update && op != workflow.Refresh {
		return ""
	}
	return id
}

// isFed: a run that starts is given what the last success of each workspace has left of which it takes an output.
func (w *world) isFed(r *record) {
	has, n := w.givenTo(r), 0
	for _, in := range w.inputsOf(r) {
		last := w.left(in.Workspace)
		switch {
		case last == "":
			w.fail("a run without its inputs is ended", "%s starts, and %s has left nothing", r.ID, in.Workspace)
		case !in.Sensitive && has.Variables[in.Output] != valueOf(last):
			w.fail("a run is given what was left last", "%s starts with %v, and %s was the last of %s", r.ID, has.Variables, last, in.Workspace)
		case in.Sensitive && (n >= len(has.Sensitive) || has.Sensitive[n].Workflow != last):
			w.fail("a run is given what was left last", "%s starts with %v, and %s was the last of %s", r.ID, has.Sensitive, last, in.Workspace)
		}
		if in.Sensitive {
			n++
		}
		w.met[metFed]++
	}
}

// lacks: a run is ended for a missing input only if it is missing. Of a sensitive one its place counts too.
func (w *world) lacks(r *record) {
	w.met[metLacks]++
	for _, in := range w.inputsOf(r) {
		if in.Sensitive || w.left(in.Workspace) == "" {
			return
		}
	}
	w.fail("an input is missing only if it is", "%s was ended, and %v are there", r.ID, w.inputsOf(r))
}

func valueOf(run string) string { return "of " + run }

// tokenSum stands for the artifact with the sensitive outputs of a run.
func tokenSum(run string) string {
	sum := sha256.Sum256([]byte("token of " + run))
	return hex.EncodeToString(sum[:])
}

// produce adds to a result what its run leaves for other workspaces.
func (b *boot) produce() {
	if op := b.job.Operation; b.result.Outcome != workflow.Succeeded || op != workflow.Update && op != workflow.Refresh {
		return
	}
	b.result.Outputs = []api.Output{{Name: plainOutput, Value: valueOf(b.job.Workflow)}, {Name: sensitiveOutput, Sensitive: true}}
	if !b.job.ShareOutputs {
		return
	}
	a := api.NewArtifact{Name: api.OutputsName, Kind: api.ArtifactOutputs, Size: 10, SHA256: tokenSum(b.job.Workflow)}
	taken, err := b.relay.Artifacts(b.w.ctx, api.NewArtifacts{Artifacts: []api.NewArtifact{a}})
	if err != nil || b.gone {
		return // a run succeeds without leaving them
	}
	err = tells(b.w.ctx, b.w, b.w.other(runners), places, "put", func(context.Context) error {
		b.t.l.s.place.has[taken.Uploads[0].URL] = &bundle{made: api.PlanMade{Artifact: a.Name, Size: a.Size, SHA256: a.SHA256}}
		return nil
	})
	if err != nil || b.gone {
		return
	}
	if _, err = b.relay.Artifacts(b.w.ctx, api.NewArtifacts{Placed: []string{a.Name}}); err == nil {
		b.result.SensitiveOutputs = &api.SensitiveOutputs{Artifact: a.Name, Size: a.Size, SHA256: a.SHA256}
	}
}

// takeInput fetches the sensitive output that the run is given, and goes on.
func (b *boot) takeInput(wait time.Duration) {
	in, err := b.relay.InputOf(b.w.ctx, 0)
	switch {
	case b.gone:
		return
	case errors.Is(err, workflow.ErrConflict) && b.conflicts == maxConflicts:
		b.conclude(workflow.Failed, workflow.ReasonArtifactFailed)
		return
	case err != nil:
		if errors.Is(err, workflow.ErrConflict) {
			b.conflicts++
		}
		b.failed(wait, err, b.takeInput)
		return
	case b.stopping != "":
		b.finish()
		return
	}
	from := b.w.givenTo(b.w.truth.of(b.job.Workflow)).Sensitive[0].Workflow
	if got := b.t.l.s.place.has[in.Download.URL]; got.made.SHA256 != tokenSum(from) || in.Artifact.SHA256 != got.made.SHA256 {
		b.w.fail("a run fetches what it was given", "%s was given what %s left, and fetches %s", b.job.Workflow, from, got.made.SHA256)
	}
	b.w.met[metFetched]++
	b.fed = true
	b.begin(b.job)
}
