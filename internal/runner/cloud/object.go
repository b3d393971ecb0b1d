package cloud

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/dayfly-dev/dayfly/internal/awss3"
	"github.com/dayfly-dev/dayfly/internal/awss3/s3error"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Object begins to read an object of S3 as this identity. An empty region means that of the task. Its errors are
// sentences that an admin can act on. It does not retry a failed transfer: the whole step may be run again.
func (i *Identity) Object(ctx context.Context, region, bucket, key string) (io.ReadCloser, error) {
	if region == "" {
		region = i.cloud.region
	}
	name := text.Quote("s3://"+bucket+"/"+key, 200)
	creds, err := i.keys.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	object := awss3.Object{Endpoint: i.cloud.endpoint.of("S3"), Region: region, Bucket: bucket, Key: key}
	req, err := object.Request(ctx, creds, i.cloud.now(), nil)
	if err != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.archive.url", "%s is not an object of S3", name)
	}
	client := &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute, DisableKeepAlives: true,
		},
		// A signature is for one address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, objectRefused(res, name, region)
}

// objectRefused is the error for an answer of S3 other than the object.
func objectRefused(res *http.Response, name, region string) error {
	code, message := s3error.Read(res)
	refuse := func(kind error, format string, args ...any) error {
		return workflow.Refuse(kind, "source.archive.url", "%s cannot be read: "+format, append([]any{name}, args...)...)
	}
	there := res.Header.Get("X-Amz-Bucket-Region")
	switch {
	case there != "" && there != region:
		return refuse(workflow.ErrInvalid, "its bucket is in %s and not in %s: set source.archive.region", text.Quote(there, 40), region)
	case res.StatusCode == http.StatusNotFound:
		return refuse(workflow.ErrNotFound, "there is no such object (%s)", text.Cut(code, 60))
	case res.StatusCode == http.StatusForbidden:
		return refuse(workflow.ErrForbidden, "the role of the workspace needs s3:GetObject on it, s3:ListBucket to see whether it is missing, and kms:Decrypt if the bucket has a key of its own; the bucket and the VPC's endpoint must let it in; AWS says: %s",
			text.Cut(code+": "+message, 300))
	default:
		return fmt.Errorf("read %s: S3 answers %s: %s", name, res.Status, text.Cut(code+": "+message, 300))
	}
}
