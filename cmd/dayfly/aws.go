package main

import (
	"context"
	"errors"
	"fmt"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/dayfly-dev/dayfly/internal/awssend"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
)

// ecsClient makes an ECS client from what every AWS tool reads: environment, files, the role of the machine.
// Credentials are found and renewed when they are needed.
func ecsClient(ctx context.Context) (ecs.Client, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the AWS settings: %w", err)
	}
	if cfg.Region == "" {
		return nil, errors.New("the region of the cluster is not known: set AWS_REGION")
	}
	if cfg.HTTPClient == nil { // no setting chose one
		cfg.HTTPClient = awshttp.NewBuildableClient()
	}
	cfg.HTTPClient = awssend.Whole(cfg.HTTPClient)
	return awsecs.NewFromConfig(cfg), nil
}
