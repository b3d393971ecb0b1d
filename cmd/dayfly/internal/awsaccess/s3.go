package awsaccess

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/awss3"
	"github.com/dayfly-dev/dayfly/internal/awss3/s3error"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// s3Time bounds one transfer: the largest artifact at 1 MiB a second, and more.
const s3Time = 10 * time.Minute

// FetchS3 copies an artifact out of a bucket, with the AWS access of the user, and checks it.
func FetchS3(ctx context.Context, one api.Artifact, to io.Writer) error {
	return s3Transfer(ctx, one.Place, nil, func(body io.Reader) error {
		return artifact.CopyChecked(to, body, one.Size, one.SHA256)
	})
}

// PlaceS3 sends a file to a bucket in the same way. An existing object is not replaced, and is no error: the key of a
// pushed state holds its digest.
func PlaceS3(ctx context.Context, place api.Place, file io.Reader, size int64, digest string) error {
	sum, err := hex.DecodeString(digest)
	if err != nil {
		return fmt.Errorf("SHA-256 of the file: %w", err)
	}
	return s3Transfer(ctx, place, &awss3.Body{Reader: file, Size: size, SHA256: sum}, func(io.Reader) error { return nil })
}

func s3Transfer(ctx context.Context, place api.Place, send *awss3.Body, take func(io.Reader) error) error {
	cfg, err := Settings(ctx, "bucket", awsconfig.WithRegion(place.Region))
	if err != nil {
		return err
	}
	if own := os.Getenv("AWS_ENDPOINT_URL_S3"); own != "" { // which the SDK reads for its own client only
		cfg.BaseEndpoint = &own
	}

	ctx, cancel := context.WithTimeout(ctx, s3Time)
	defer cancel()
	creds, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("find your AWS access for the bucket %s: %w", place.Bucket, err)
	}
	object := awss3.Object{Endpoint: cfg.BaseEndpoint, Region: place.Region, Bucket: place.Bucket, Key: place.Key}
	req, err := object.Request(ctx, creds, time.Now(), send)
	if err != nil {
		return err
	}

	// A signature is for one address.
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req) //nolint:gosec // where the person's own settings say S3 is
	if err != nil {
		return fmt.Errorf("call S3: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	name := text.Quote("s3://"+place.Bucket+"/"+place.Key, 300)
	switch {
	case res.StatusCode == http.StatusOK:
		return take(res.Body)
	case res.StatusCode == http.StatusPreconditionFailed && req.Method == http.MethodPut: // it is there
		return nil
	}
	return s3Refused(res, req.Method, name)
}

// s3Refused explains a refusal of S3 to the user.
func s3Refused(res *http.Response, method, name string) error {
	code, message := s3error.Read(res)
	said := text.Cut(cmp.Or(code, res.Status)+": "+message, 300)
	switch res.StatusCode {
	case http.StatusForbidden:
		need := "s3:GetObject"
		if method == http.MethodPut {
			need = "s3:PutObject"
		}
		return workflow.Refuse(workflow.ErrForbidden, "", "your AWS access does not reach %s: it needs %s, the rights of the key where the stack has one of yours, and to be one of ArtifactReaders of the pool's stack; AWS says: %s", name, need, said)
	case http.StatusNotFound:
		return workflow.Refuse(workflow.ErrNotFound, "", "there is no %s; AWS says: %s", name, said)
	}
	return fmt.Errorf("%s %s: S3 answers %s", method, name, said)
}
