package cloud

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// objectAddress is where an object is: below a name of its bucket's own, unless a dot in that name would not fit the
// certificate, or the service has another address (S3 user guide, "Methods for accessing a bucket").
func objectAddress(endpoint *string, region, bucket, key string) (*url.URL, error) {
	if endpoint != nil {
		u, err := url.Parse(*endpoint)
		if err != nil {
			return nil, fmt.Errorf("address of S3: %w", err)
		}
		return u.JoinPath(bucket, key), nil
	}
	host := "s3." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	u := &url.URL{Scheme: "https", Host: host}
	if strings.Contains(bucket, ".") {
		return u.JoinPath(bucket, key), nil
	}
	u.Host = bucket + "." + host
	return u.JoinPath(key), nil
}

// Object begins to read an object of S3 as this identity. An empty region means that of the task. Its errors are
// sentences that an admin can act on. It does not repeat what fails on the way: the whole step may be run again.
func (i *Identity) Object(ctx context.Context, region, bucket, key string) (io.ReadCloser, error) {
	if region == "" {
		region = i.cloud.region
	}
	name := text.Quote("s3://"+bucket+"/"+key, 200)
	at, err := objectAddress(i.cloud.endpoint.of("S3"), region, bucket, key)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.archive.url", "%s is not an object of S3", name)
	}
	creds, err := i.keys.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	nothing := sha256.Sum256(nil)
	sum := hex.EncodeToString(nothing[:])
	req.Header.Set("X-Amz-Content-Sha256", sum)
	// S3 alone takes a path as it stands (IAM user guide, "Create a signed AWS API request").
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(ctx, creds, req, sum, "s3", region, i.cloud.now()); err != nil {
		return nil, fmt.Errorf("sign the request: %w", err)
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

// objectRefused is what an answer of S3 that is not the object means.
func objectRefused(res *http.Response, name, region string) error {
	var said struct {
		Code    string
		Message string
	}
	_ = xml.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&said) // an answer that cannot be read says nothing
	refuse := func(kind error, format string, args ...any) error {
		return workflow.Refuse(kind, "source.archive.url", "%s cannot be read: "+format, append([]any{name}, args...)...)
	}
	there := res.Header.Get("X-Amz-Bucket-Region")
	switch {
	case there != "" && there != region:
		return refuse(workflow.ErrInvalid, "its bucket is in %s and not in %s: set source.archive.region", text.Quote(there, 40), region)
	case res.StatusCode == http.StatusNotFound:
		return refuse(workflow.ErrNotFound, "there is no such object (%s)", text.Cut(said.Code, 60))
	case res.StatusCode == http.StatusForbidden:
		return refuse(workflow.ErrForbidden, "the role of the workspace needs s3:GetObject on it, s3:ListBucket to be told what is missing, and kms:Decrypt where the bucket has a key of its own; the bucket and the VPC's endpoint must let it in; AWS says: %s",
			text.Cut(said.Code+": "+said.Message, 300))
	default:
		return fmt.Errorf("read %s: S3 answers %s: %s", name, res.Status, text.Cut(said.Code+": "+said.Message, 300))
	}
}
