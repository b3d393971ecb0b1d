package fakeaws

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/dayfly-dev/dayfly/internal/awssend"
	"github.com/dayfly-dev/dayfly/test/fakeaws/sigv4"
	"github.com/dayfly-dev/dayfly/test/fakeaws/wire"
)

// ClientConfig configures an SDK client for a server at url with credentials from its table.
func ClientConfig(url string, c sigv4.Credentials) aws.Config {
	return aws.Config{
		Region:       wire.Region,
		BaseEndpoint: aws.String(url),
		HTTPClient:   awssend.Whole(awshttp.NewBuildableClient()),
		Credentials:  credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken),
	}
}
