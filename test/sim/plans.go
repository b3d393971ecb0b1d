package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// bundleName is that of the bundle of a plan among the artifacts of its preview.
const bundleName = api.PlanDir + "bundle.tar"

// bundle is a plan, and what it was made from.
type bundle struct {
	made    api.PlanMade
	changes api.Changes
	serial  int // of the state
}

// place is where the bundles of a pool lie, or those of an instance. It implements relay.Places.
type place struct {
	of  api.Place
	has map[string]*bundle
}

// placeOf is the place of a stack: its own directory, or the bucket of its pool.
func (w *world) placeOf(s *stack) *place {
	if w.roll("place", s.pool).IntN(2) == 0 {
		return &place{api.Place{Kind: api.PlaceDirectory}, map[string]*bundle{}}
	}
	for _, other := range w.stacks {
		if other.pool == s.pool {
			return other.place
		}
	}
	return &place{api.Place{Kind: api.PlaceS3, Bucket: "bucket-" + s.pool}, map[string]*bundle{}}
}

// Place implements relay.Places.
func (p *place) Place() api.Place { return p.of }

// Upload implements relay.Places.
func (p *place) Upload(_ context.Context, key string, _ api.NewArtifact) (api.Transfer, error) {
	return api.Transfer{Method: "PUT", URL: key}, nil
}

// Download implements relay.Places.
func (p *place) Download(_ context.Context, key string, _ api.Artifact) (api.Transfer, error) {
	if p.has[key] == nil {
		return api.Transfer{}, workflow.Refuse(workflow.ErrNotFound, "", "%s is not here", key)
	}
	return api.Transfer{Method: "GET", URL: key}, nil
}

// preview makes the plan of a preview. What it is called follows from the state and the settings.
func (b *boot) preview() {
	if b.job.For == "" {
		return
	}
	changes, empty := b.w.changesOf(b.job.Workflow)
	serial := b.w.truth.plans.serials[b.job.WorkspaceID]
	sum := sha256.Sum256(fmt.Append(nil, b.job.WorkspaceID, b.job.For, serial, b.job.Environment, changes))
	name := hex.EncodeToString(sum[:])
	b.plan = &bundle{api.PlanMade{Artifact: bundleName, Size: 10, SHA256: name, Summary: name, Empty: empty}, changes, serial}
}

// leave places the plan of a preview, and reports it then.
func (b *boot) leave(wait time.Duration) {
	switch err := b.put(); {
	case b.gone:
	case err == nil:
		b.conclude(workflow.Succeeded, workflow.ReasonNone)
	default:
		b.failed(wait, err, b.leave)
	}
}

// failed tries a call about an artifact again, or ends the run for it.
func (b *boot) failed(wait time.Duration, err error, try func(time.Duration)) {
	switch {
	case client.RunOver(err):
		b.over()
	case b.stopping != "":
		b.finish()
	case !transient(err):
		b.conclude(workflow.Failed, workflow.ReasonArtifactFailed)
	default:
		var now time.Duration
		now, wait = b.retry(wait, err)
		b.soon(now, "artifact", func() { try(wait) })
	}
}

func (b *boot) put() error {
	m := b.plan.made
	taken, err := b.relay.Artifacts(b.w.ctx, api.NewArtifacts{Artifacts: []api.NewArtifact{{Name: m.Artifact, Kind: api.ArtifactPlan, Size: m.Size, SHA256: m.SHA256}}})
	if err != nil || b.gone {
		return err
	}
	err = tells(b.w.ctx, b.w, b.w.other(runners), places, "put", func(context.Context) error {
		b.t.l.s.place.has[taken.Uploads[0].URL] = b.plan
		return nil
	})
	if err != nil || b.gone {
		return err
	}
	_, err = b.relay.Artifacts(b.w.ctx, api.NewArtifacts{Placed: []string{m.Artifact}})
	return err
}

// fetch gets the plan that a run applies, and applies it if the state is still that of which it was made.
func (b *boot) fetch(wait time.Duration) {
	in, err := b.relay.Input(b.w.ctx)
	switch {
	case b.gone:
		return
	case err != nil:
		b.failed(wait, err, b.fetch)
		return
	case b.stopping != "":
		b.finish()
		return
	}
	b.plan = b.t.l.s.place.has[in.Download.URL]
	if of := b.w.truth.review(b.w.truth.of(b.job.Workflow).PlanOf); b.plan.made.SHA256 != of.Plan.SHA256 || b.job.Plan.SHA256 != of.Plan.SHA256 {
		b.w.fail("what is applied is what was approved", "%s has the plan %s, and %s was approved", b.job.Workflow, b.plan.made.SHA256, of.Plan.SHA256)
	}
	if b.plan.serial != b.w.truth.plans.serials[b.job.WorkspaceID] {
		b.conclude(workflow.Failed, workflow.ReasonPlanStale)
		return
	}
	b.begin(b.job)
}
