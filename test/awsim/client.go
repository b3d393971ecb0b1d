package awsim

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
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
