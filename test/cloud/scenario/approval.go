package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// signed is in every address that has a signature, and so in nothing that others can read.
const signed = "X-Amz-Signature"

// approvals is a workspace whose plans are approved, with the state in S3.
func approvals(ctx context.Context, s *scene) {
	s.approvals(ctx, "approved", "network", s.password)
}

// approvalsDeclared is one whose code says where the state is.
func approvalsDeclared(ctx context.Context, s *scene) {
	s.approvals(ctx, "approved-declared", "declared", func(w *api.Workspace) {
		w.State = &api.State{Kind: api.StateSource}
		w.Environment = map[string]string{"AWS_ENDPOINT_URL_S3": s.c.TaskAWSURL}
	})
}

// approvals takes plans of code that makes two resources from their preview to their end: applied as they were
// approved, stale, and rejected.
func (s *scene) approvals(ctx context.Context, name, path string, change func(*api.Workspace)) {
	s.workspace(ctx, name, path, change, func(w *api.Workspace) { w.Approval = &api.Approval{Required: true} })
	first := s.previewed(ctx, name, "update", "its plan waits; the bundle is in the bucket of the pool")
	s.counts(first, 2, 0, 0)
	second := s.previewed(ctx, name, "update", "another plan of the same state")
	s.check(first.Review.Summary == second.Review.Summary && first.Review.SHA256 != second.Review.SHA256, "their reviews are %+v and %+v", first.Review, second.Review)

	s.begin(name, "approve", "another bundle than that of the plan: refused")
	_, err := s.c.Client.Approve(ctx, first.ID, api.Decision{SHA256: second.Review.SHA256})
	s.check(err != nil && strings.Contains(err.Error(), "has the sha256 "+first.Review.SHA256), "it says %v", err)
	update := s.approved(ctx, first, "exactly this plan is applied, by another task")
	s.counts(update, 2, 0, 0)
	s.check(output(update, "greeting") == "hello", "its outputs are %+v", update.Result)
	s.check(update.Task != first.Task, "it ran in the task of the preview")
	for _, step := range update.Steps {
		s.check(step.Name != "plan", "it made a plan of its own")
	}
	s.begin(name, "approve", "the state has moved: the plan is stale, and refused")
	_, err = s.c.Client.Approve(ctx, second.ID, api.Decision{SHA256: second.Review.SHA256})
	s.check(err != nil && strings.Contains(err.Error(), "plan_stale: "), "it says %v", err)

	destroy := s.previewed(ctx, name, "destroy", "rejected")
	_, err = s.c.Client.Reject(ctx, destroy.ID, api.Decision{SHA256: destroy.Review.SHA256, Comment: "not today"})
	s.must(err)
	_, err = s.c.Client.Approve(ctx, destroy.ID, api.Decision{SHA256: destroy.Review.SHA256})
	s.check(err != nil && strings.Contains(err.Error(), "was rejected by"), "an approval of it says %v", err)
	destroy = s.previewed(ctx, name, "destroy", "waits as every plan does")
	destroy = s.approved(ctx, destroy, "what was approved is destroyed")
	s.counts(destroy, 0, 0, 2)
}

// previewed asks for an operation that becomes a preview. Its plan must wait, and the bundle be in the bucket.
func (s *scene) previewed(ctx context.Context, workspace, asked, what string) api.Workflow {
	w := s.submit(ctx, workspace, asked, what)
	w = s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	if w.Review == nil || w.Review.Status != api.ReviewWaiting || string(w.For) != asked {
		panic(giveUp("no plan of it waits for an approval"))
	}
	sum := sha256.Sum256([]byte(s.artifact(ctx, w, "plan/bundle.tar")))
	s.check(hex.EncodeToString(sum[:]) == w.Review.SHA256, "the bundle in the bucket is not that of the review")
	return w
}

// approved approves the plan of a preview and waits for the end of the run that applies it.
func (s *scene) approved(ctx context.Context, preview api.Workflow, what string) api.Workflow {
	s.begin(preview.Workspace, "approve", what)
	w, err := s.c.Client.Approve(ctx, preview.ID, api.Decision{SHA256: preview.Review.SHA256})
	s.must(err)
	return s.ends(ctx, w.Review.Applies, workflow.Succeeded, "", 1)
}

// artifact is what the bucket of the pool keeps of a run under a name, below the id of its workspace.
func (s *scene) artifact(ctx context.Context, w api.Workflow, name string) string {
	ws, err := s.c.Client.Workspace(ctx, w.Workspace)
	s.must(err)
	page, err := s.c.Client.Artifacts(ctx, w.ID, "", 100)
	s.must(err)
	bucket := templates.Text(templates.At(s.c.Pool.Resources["Status"].Properties, "Environment", "Variables", "DAYFLY_ARTIFACTS_BUCKET"))
	key := api.ArtifactKey("default", ws.ID, w.ID, w.Attempt, name)
	for _, a := range page.Items {
		if a.Name != name {
			continue
		}
		s.check(a.PlacedAt != nil && a.Place.Kind == api.PlaceS3 && a.Place.Bucket == bucket && a.Place.Key == key, "artifact %s is recorded as %+v", name, a)
		status, body, err := s.s3(ctx, http.MethodGet, "/"+bucket+"/"+key)
		s.must(err)
		s.check(status == http.StatusOK && int64(len(body)) == a.Size, "the bucket answers %d with %d bytes of %s", status, len(body), name)
		return body
	}
	panic(giveUp("it left no artifact " + name))
}

// artifacts are left by a command.
func artifacts(ctx context.Context, s *scene) {
	const name = "artifacts"
	s.workspace(ctx, name, "plain", commands("update", `mkdir "$DAYFLY_ARTIFACTS/reports"; ln -s /etc/passwd "$DAYFLY_ARTIFACTS/link"
		cp README.md "$DAYFLY_ARTIFACTS/reports/read me"; cp README.md "$DAYFLY_ARTIFACTS/reports/README.md"`))
	w := s.submit(ctx, name, "update", "its files go to the bucket, by signed addresses")
	w = s.ends(ctx, w.ID, workflow.Succeeded, "", 1)
	s.check(s.artifact(ctx, w, "files/reports/README.md") == code["plain/README.md"], "the bucket has other bytes than the file")
	s.prints(ctx, w.ID, `left out of the artifacts: "link"`)
	page, err := s.c.Client.Artifacts(ctx, w.ID, "", 100)
	s.must(err)
	s.check(len(page.Items) == 1, "it left %+v", page.Items)
}
