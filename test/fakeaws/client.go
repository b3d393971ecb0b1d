package fakeaws

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/dayfly-dev/dayfly/test/fakeaws/sigv4"
	"github.com/dayfly-dev/dayfly/test/fakeaws/wire"
)

// ClientConfig configures an SDK client for a server at url with credentials from its table.
func ClientConfig(url string, c sigv4.Credentials) aws.Config {
	return aws.Config{
		Region:       wire.Region,
		BaseEndpoint: aws.String(url),
		Credentials:  credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken),
	}
}
