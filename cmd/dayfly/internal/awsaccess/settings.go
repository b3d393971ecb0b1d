// Package awsaccess is the AWS access of the user of a command: the settings that every AWS tool reads, and the
// artifacts in buckets that this access reaches.
package awsaccess

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/dayfly-dev/dayfly/internal/awssend"
)

// Settings reads the settings of every AWS tool: environment, files, the role of the machine. Credentials are found
// and renewed when they are needed. An error about the region names the use.
func Settings(ctx context.Context, use string, with ...func(*awsconfig.LoadOptions) error) (aws.Config, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return cfg, fmt.Errorf("read the AWS settings: %w", err)
	}
	if cfg.Region == "" {
		return cfg, fmt.Errorf("the region of the %s is not known: set AWS_REGION", use)
	}
	if cfg.HTTPClient == nil { // no setting chose one
		cfg.HTTPClient = awshttp.NewBuildableClient()
	}
	cfg.HTTPClient = awssend.Whole(cfg.HTTPClient)
	return cfg, nil
}
