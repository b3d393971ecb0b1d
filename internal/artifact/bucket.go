package artifact

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/awss3"
)

// signedFor is for how long an address that a Bucket signs is valid. An upload or a download only has to begin in it.
const signedFor = 5 * time.Minute

// Bucket gives access to a bucket of Amazon S3: it signs addresses, and makes no calls. S3 serves them with the
// rights of the signer, which needs s3:PutObject and s3:GetObject on the bucket's objects.
type Bucket struct {
	cfg  aws.Config
	name string
	now  func() time.Time
}

// NewBucket returns the places in a bucket of the configuration's region, or at its BaseEndpoint. A nil clock is
// time.Now.
func NewBucket(cfg aws.Config, name string, now func() time.Time) *Bucket {
	if now == nil {
		now = time.Now
	}
	return &Bucket{cfg, name, now}
}

// Place says where artifacts are.
func (b *Bucket) Place() api.Place {
	return api.Place{Kind: api.PlaceS3, Bucket: b.name, Region: b.cfg.Region}
}

// Upload signs the one request that S3 takes for an artifact: it must send exactly these bytes, and replaces nothing.
func (b *Bucket) Upload(ctx context.Context, key string, a api.NewArtifact) (api.Transfer, error) {
	sum, err := hex.DecodeString(a.SHA256)
	if err != nil {
		return api.Transfer{}, fmt.Errorf("SHA-256 of the artifact %s: %w", a.Name, err)
	}
	return b.sign(ctx, http.MethodPut, key, &awss3.Body{Size: a.Size, SHA256: sum})
}

// Download signs a request for the bytes of an artifact. The reader checks them.
func (b *Bucket) Download(ctx context.Context, key string, _ api.Artifact) (api.Transfer, error) {
	return b.sign(ctx, http.MethodGet, key, nil)
}

func (b *Bucket) sign(ctx context.Context, method, key string, body *awss3.Body) (api.Transfer, error) {
	if err := checkKey(key); err != nil {
		return api.Transfer{}, err
	}
	creds, err := b.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return api.Transfer{}, fmt.Errorf("credentials for S3: %w", err)
	}
	object := awss3.Object{Endpoint: b.cfg.BaseEndpoint, Region: b.cfg.Region, Bucket: b.name, Key: key}
	url, send, err := object.Presign(ctx, creds, b.now(), signedFor, body)
	if err != nil {
		return api.Transfer{}, err
	}
	return api.Transfer{Method: method, URL: url, Header: send}, nil
}
