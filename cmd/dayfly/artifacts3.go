package main

import (
	"context"
	"io"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// fetchS3 copies an artifact out of a bucket, with the caller's own access to AWS.
func fetchS3(_ context.Context, one api.Artifact, _ io.Writer) error {
	return workflow.Refuse(workflow.ErrUnsupported, "", "it lies at %s: copy it with aws s3 cp, and compare its SHA-256 with %s", placeOfArtifact(one.Place), one.SHA256)
}
