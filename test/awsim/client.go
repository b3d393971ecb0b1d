package awsim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// ClientConfig configures an SDK client for a server at url with credentials from its table.
func ClientConfig(url string, c sigv4.Credentials) aws.Config {
	return aws.Config{
		Region:       wire.Region,
		BaseEndpoint: aws.String(url),
		HTTPClient:   whole{awshttp.NewBuildableClient()},
		Credentials:  credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken),
	}
}

// SignedClient is an HTTP client whose requests the SDK signs for a service, as the client of that service would, for
// services whose client this module does not link (S3).
func SignedClient(c aws.Config, service string) *http.Client {
	return &http.Client{Transport: signer{c, service}}
}

// MakeBucket makes a bucket in S3.
func MakeBucket(ctx context.Context, c aws.Config, bucket string) error {
	_, err := callS3(ctx, c, http.MethodPut, bucket)
	return err
}

// RemoveBucket removes a bucket with all that is in it.
func RemoveBucket(ctx context.Context, c aws.Config, bucket string) error {
	const pages = 100
	for range pages {
		body, err := callS3(ctx, c, http.MethodGet, bucket+"?list-type=2")
		if err != nil {
			return err
		}
		var page struct{ Contents []struct{ Key string } }
		if err := xml.Unmarshal(body, &page); err != nil {
			return err
		}
		if len(page.Contents) == 0 {
			_, err = callS3(ctx, c, http.MethodDelete, bucket)
			return err
		}
		for _, o := range page.Contents {
			if _, err := callS3(ctx, c, http.MethodDelete, bucket+"/"+o.Key); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the bucket %s is not empty after %d pages", bucket, pages)
}

func callS3(ctx context.Context, c aws.Config, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, *c.BaseEndpoint+"/"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := SignedClient(c, "s3").Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, body)
	}
	return body, err
}

type signer struct {
	config  aws.Config
	service string
}

func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		defer r.Body.Close() //nolint:errcheck // it was read to its end
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	c, err := s.config.Credentials.Retrieve(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if hash == "" {
		hash = fmt.Sprintf("%x", sha256.Sum256(body))
		r.Header.Set("X-Amz-Content-Sha256", hash)
	}
	escaping := func(o *v4.SignerOptions) { o.DisableURIPathEscaping = s.service == "s3" }
	if err := v4.NewSigner().SignHTTP(r.Context(), c, r, hash, s.service, s.config.Region, time.Now(), escaping); err != nil {
		return nil, err
	}
	return s.config.HTTPClient.Do(r)
}

// whole sends the SDK's requests with bodies that net/http knows to lie in memory. The SDK closes its own body as
// soon as an answer begins, and a server as near as this one answers before net/http has looked for the body's end:
// net/http then breaks the connection in the middle of the answer.
type whole struct{ next aws.HTTPClient }

func (w whole) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.ContentLength <= 0 {
		return w.next.Do(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the request's body: %w", err)
	}
	out := r.WithContext(r.Context())
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, _ = out.GetBody()
	return w.next.Do(out)
}
