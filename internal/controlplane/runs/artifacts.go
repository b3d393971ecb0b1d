package runs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Announce records artifacts of a run before their bytes are placed, and which of them have arrived. Nothing else of
// a record ever changes: the same announcement again has the same answer, and another one of the name is refused.
func (p *Calls) Announce(ctx context.Context, token string, run api.Run, in api.NewArtifacts) (out api.ArtifactsTaken, err error) {
	place, err := placeOf(in)
	if err != nil {
		return out, err
	}
	var w *record.Workflow
	var all attemptArtifacts
	w, out.Control, err = p.asHolder(ctx, token, run, nil, func(ctx context.Context, c *ledger.Change) (err error) {
		all, err = announce(ctx, c, run, in, place)
		return err
	})
	if err != nil || len(in.Artifacts) == 0 {
		return out, err
	}
	show, err := p.artifactView(ctx, w.Org, w.PoolID)
	for _, a := range in.Artifacts {
		if err == nil {
			out.Artifacts = append(out.Artifacts, show(w, run.Attempt, a.Name, all[a.Name].Artifact))
		}
	}
	return out, err
}

// placeOf is the place of announced artifacts.
func placeOf(in api.NewArtifacts) (api.Place, error) {
	switch {
	case in.Place == nil && len(in.Artifacts) > 0:
		return api.Place{}, workflow.Refuse(workflow.ErrInvalid, "place", "place is missing: a relay adds it")
	case in.Place == nil:
		return api.Place{}, nil
	case in.Place.Kind != api.PlaceDirectory && in.Place.Kind != api.PlaceS3:
		return api.Place{}, workflow.Refuse(workflow.ErrInvalid, "place.kind", "artifacts lie in a directory or in s3")
	}
	return *in.Place, nil
}

// announce adds announced artifacts to a change, and returns all artifacts of the attempt.
func announce(ctx context.Context, c *ledger.Change, run api.Run, in api.NewArtifacts, place api.Place) (all attemptArtifacts, err error) {
	now, _, err := ledger.Get[record.Workflow](c.Read, record.WorkflowKey(run.Workflow))
	if err != nil {
		return nil, err
	}
	page, err := c.Range(ctx, record.Under(record.WorkflowKey(run.Workflow).Part, record.AttemptArtifacts(run.Attempt), 2*api.MaxArtifacts))
	if err != nil {
		return nil, err
	}
	if all, err = artifactsOf(page.Records); err != nil {
		return nil, err
	}
	for _, a := range in.Artifacts {
		if err := all.add(&now, a, place, c.Now); err != nil {
			return nil, err
		}
	}
	if err := all.place(in.Placed, c.Now); err != nil {
		return nil, err
	}
	// Announced is enough: a state that cannot be stored as an artifact either is missing all the same.
	if slices.ContainsFunc(in.Artifacts, func(a api.NewArtifact) bool { return api.IsErrored(a.Name) }) && !now.Unsaved {
		now.Unsaved = true
		c.Keep(&now)
		c.Note(&now, rules.Note{Kind: "unsaved", Task: run.Task, Text: fmt.Sprintf(
			"its state could not be written: no other run changes the state until it is pushed, or an admin gives it up (dayfly repair unlock %s)", now.Workspace)})
	}
	for name, one := range all {
		k := record.ArtifactKey(run.Workflow, run.Attempt, name)
		switch {
		case one.version == store.Absent:
			c.Create(k, one.Artifact)
		case one.changed:
			c.Add(store.Put(record.Encode(k, one.Artifact), one.version))
		}
	}
	return all, nil
}

// attemptArtifacts are the artifacts of an attempt, by their names.
type attemptArtifacts map[string]*oneArtifact

type oneArtifact struct {
	record.Artifact
	version int64 // Absent for a new one
	changed bool
}

func artifactsOf(records []store.Record) (attemptArtifacts, error) {
	all := attemptArtifacts{}
	for _, r := range records {
		a, err := record.Decode[record.Artifact](r)
		if err != nil {
			return nil, err
		}
		_, name := record.ArtifactOf(r.Key)
		all[name] = &oneArtifact{Artifact: a, version: r.Version}
	}
	return all, nil
}

// add adds an announced artifact, within the bounds of its attempt. It is a pure function.
func (all attemptArtifacts) add(w *record.Workflow, a api.NewArtifact, place api.Place, now time.Time) error {
	if err := checkArtifact(w, a); err != nil {
		return err
	}
	if have, ok := all[a.Name]; ok {
		if have.Kind != a.Kind || have.Size != a.Size || have.SHA256 != a.SHA256 {
			return workflow.Refuse(workflow.ErrExists, "artifacts", "another artifact of this attempt is called %s", a.Name)
		}
		return nil
	}
	sum := a.Size
	for _, one := range all {
		sum += one.Size
	}
	if len(all) >= api.MaxArtifacts || sum > api.MaxArtifactBytes {
		return workflow.Refuse(workflow.ErrTooLarge, "artifacts", "an attempt has at most %d artifacts with %d MiB", api.MaxArtifacts, api.MaxArtifactBytes>>20)
	}
	place.Pool, place.Instance = w.PoolID, ""
	if place.Kind == api.PlaceDirectory {
		place.Instance = w.Instance
	}
	place.Key = api.ArtifactKey(w.Org, w.WorkspaceID, w.ID, w.Attempt, a.Name)
	all[a.Name] = &oneArtifact{Artifact: record.Artifact{Kind: a.Kind, Size: a.Size, SHA256: a.SHA256, Place: place, Recorded: now}}
	return nil
}

// checkArtifact refuses an artifact that the run may not announce. A plan comes from a preview whose plan is to be
// applied, and a state from the run that pulls it or could not write it; no code can fake either, because it writes
// files only.
func checkArtifact(w *record.Workflow, a api.NewArtifact) error {
	bad := func(field, format string, args ...any) error {
		return workflow.Refuse(workflow.ErrInvalid, "artifacts."+field, format, args...)
	}
	if err := api.CheckArtifactName(a.Name); err != nil {
		return err
	}
	dir := api.PlanDir
	if a.Kind == api.ArtifactFile {
		dir = api.FilesDir
	}
	switch {
	case !strings.HasPrefix(a.Name, dir):
		return bad("kind", "an artifact of kind %.20q does not lie there: %s", a.Kind, a.Name)
	case a.Kind == api.ArtifactPlan && (w.Op != workflow.Preview || w.For == ""):
		return bad("kind", "only a preview whose plan is to be applied may announce a plan")
	case a.Kind == api.ArtifactState && w.Op != workflow.StatePull && w.Op != workflow.StatePush && (!w.ChangesState() || !api.IsErrored(a.Name)):
		return bad("kind", "only a run that pulls or pushes the state may announce it, or one that could not write it, as %s", api.ErroredName)
	case a.Kind == api.ArtifactOutputs && (!w.ChangesState() || a.Name != api.OutputsName):
		return bad("kind", "only a run that changes the state may announce its sensitive outputs, as %s", api.OutputsName)
	case a.Kind != api.ArtifactPlan && a.Kind != api.ArtifactState && a.Kind != api.ArtifactFile && a.Kind != api.ArtifactOutputs:
		return bad("kind", "an artifact is a plan, a state, a file or outputs, not %.20q", a.Kind)
	case !rules.IsSHA256(a.SHA256):
		return bad("sha256", "it has 64 hexadecimal digits, in lower case")
	case a.Size < 0:
		return bad("size", "it is not negative")
	case a.Size > api.MaxArtifactSize:
		return workflow.Refuse(workflow.ErrTooLarge, "artifacts.size", "an artifact has at most %d MiB; %s has %d bytes", api.MaxArtifactSize>>20, a.Name, a.Size)
	}
	return nil
}

// place notes which artifacts have arrived. It is a pure function.
func (all attemptArtifacts) place(names []string, now time.Time) error {
	for _, name := range names {
		one := all[name]
		if one == nil {
			return workflow.Refuse(workflow.ErrInvalid, "placed", "%.250q was not announced", name)
		}
		if one.Placed.IsZero() {
			one.Placed, one.changed = now, true
		}
	}
	return nil
}

// artifactView returns a function that makes the API's view of a record, for artifacts of these pools.
func (p *Calls) artifactView(ctx context.Context, org string, pools ...string) (func(*record.Workflow, int, string, record.Artifact) api.Artifact, error) {
	days, err := p.ledger.Retention(ctx, org)
	if err != nil {
		return nil, err
	}
	names, err := catalog.Names(ctx, p.ledger, org, pools...)
	return func(w *record.Workflow, attempt int, name string, a record.Artifact) api.Artifact {
		out := api.Artifact{
			Name: name, Kind: a.Kind, Attempt: attempt, Size: a.Size, SHA256: a.SHA256, RecordedAt: a.Recorded,
			ExpiresAt: days.ArtifactUntil(w, name), Place: a.Place,
		}
		out.Place.Pool = names[a.Place.Pool]
		if !a.Placed.IsZero() {
			out.PlacedAt = &a.Placed
		}
		return out
	}, err
}

// Input names the artifact that a run is to use, as its spec does.
func (p *Calls) Input(ctx context.Context, token string, run api.Run) (out api.Input, err error) {
	var w *record.Workflow
	if w, out.Control, err = p.asHolder(ctx, token, run, nil); err != nil {
		return out, err
	}
	spec, err := p.spec(ctx, w, nil)
	switch {
	case err != nil:
		return out, err
	case spec.Plan != nil:
		out.Artifact, err = p.planned(ctx, w, *spec.Plan)
	case spec.Push != nil:
		out.Artifact = api.Artifact{
			Name: "push/" + spec.Push.SHA256, Kind: api.ArtifactState, Attempt: w.Attempt, Size: spec.Push.Size, SHA256: spec.Push.SHA256,
			Place: api.Place{Key: api.PushedKey(w.Org, w.WorkspaceID, spec.Push.SHA256)},
		}
	default:
		err = workflow.Refuse(workflow.ErrInvalid, "", "this run uses no artifact")
	}
	return out, err
}

// InputOf names the artifact with the value of an input of a run, by its place in the spec. The start has chosen the
// artifact.
func (p *Calls) InputOf(ctx context.Context, token string, run api.Run, n int) (out api.Input, err error) {
	var w *record.Workflow
	if w, out.Control, err = p.asHolder(ctx, token, run, nil); err != nil {
		return out, err
	}
	k := record.GivenKey(w.ID, w.Attempt)
	r, err := p.ledger.Read(ctx, k)
	if err != nil {
		return out, err
	}
	given, _, err := ledger.Get[record.Given](r, k)
	switch {
	case err != nil:
		return out, err
	case n < 0 || n >= len(given.Sensitive):
		return out, workflow.Refuse(workflow.ErrInvalid, api.HeaderInput, "this run has %d inputs to ask for, counted from 0", len(given.Sensitive))
	}
	one := given.Sensitive[n]
	if !p.ledger.Now().Before(one.Expires) {
		return out, workflow.Refuse(workflow.ErrConflict, "", "the sensitive outputs of %s are past their retention: run an update of %s once", one.Workflow, one.Input.Workspace)
	}
	names, err := catalog.Names(ctx, p.ledger, w.Org, one.Artifact.Place.Pool)
	out.Artifact = api.Artifact{
		Name: one.Artifact.Name, Kind: api.ArtifactOutputs, Attempt: one.Attempt, Size: one.Artifact.Size, SHA256: one.Artifact.SHA256, ExpiresAt: one.Expires, Place: one.Artifact.Place,
	}
	out.Artifact.Place.Pool = names[one.Artifact.Place.Pool]
	return out, err
}

// planned finds the bundle of a plan. None of its refusals ends the run: the runner reports why it failed.
func (p *Calls) planned(ctx context.Context, w *record.Workflow, plan api.PlanRef) (api.Artifact, error) {
	from, k := record.WorkflowKey(plan.Workflow), record.ArtifactKey(plan.Workflow, plan.Attempt, plan.Artifact)
	r, err := p.ledger.Read(ctx, from, k)
	if err != nil {
		return api.Artifact{}, err
	}
	preview, known, err := ledger.Get[record.Workflow](r, from)
	if err != nil {
		return api.Artifact{}, err
	}
	a, left, err := ledger.Get[record.Artifact](r, k)
	if err != nil {
		return api.Artifact{}, err
	}
	show, err := p.artifactView(ctx, w.Org, a.Place.Pool)
	if err != nil {
		return api.Artifact{}, err
	}
	out := show(&preview, plan.Attempt, plan.Artifact, a)
	why := ""
	switch {
	case !known || !left || preview.WorkspaceID != w.WorkspaceID:
		why = "is not there"
	case a.Placed.IsZero():
		why = "never arrived"
	case a.Size != plan.Size || a.SHA256 != plan.SHA256:
		why = "is not the one that was approved"
	case !p.ledger.Now().Before(out.ExpiresAt):
		why = "is past its retention"
	}
	if why != "" {
		return api.Artifact{}, workflow.Refuse(workflow.ErrConflict, "", "the plan of preview %s %s: run the preview again", plan.Workflow, why)
	}
	return out, nil
}

// Artifacts lists the artifacts of a workflow, by attempt and name.
func (p *Calls) Artifacts(ctx context.Context, who identity.Principal, id, cursor string, limit int) (out api.Page[api.Artifact], err error) {
	out.Items = []api.Artifact{}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workflow.artifacts", id, p.inWorkflow(who.Organization, id)); err != nil {
		return out, err
	}
	w, _, err := p.ledger.Workflow(ctx, who.Organization, id)
	if err != nil {
		return out, err
	}
	days, err := p.ledger.Retention(ctx, w.Org)
	if err != nil {
		return out, err
	}
	if w.Over() && w.Submitted.Before(record.Before(p.ledger.Now(), days.Artifacts)) {
		return out, workflow.Refuse(workflow.ErrExpired, "", "the artifacts of workflow %s are past their retention and are not kept any longer; dayfly organization show says how long they are kept", id)
	}
	page, err := p.ledger.List(ctx, record.Under(record.WorkflowKey(id).Part, record.ArtifactsPrefix, ledger.PageSize(limit, api.MaxArtifacts)), cursor)
	if err != nil {
		return out, err
	}
	all := make([]record.Artifact, len(page.Records))
	var pools []string
	for i, r := range page.Records {
		if all[i], err = record.Decode[record.Artifact](r); err != nil {
			return out, fmt.Errorf("read artifact: %w", err)
		}
		pools = append(pools, all[i].Place.Pool)
	}
	show, err := p.artifactView(ctx, w.Org, pools...)
	if err != nil {
		return out, err
	}
	for i, r := range page.Records {
		attempt, name := record.ArtifactOf(r.Key)
		out.Items = append(out.Items, show(&w, attempt, name, all[i]))
	}
	out.Next = page.Next
	return out, nil
}
