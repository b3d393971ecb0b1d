package serve

import (
	"context"

	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/awsaccess"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
)

// ecsClient makes an ECS client.
func ecsClient(ctx context.Context) (ecs.Client, error) {
	cfg, err := awsaccess.Settings(ctx, "cluster")
	if err != nil {
		return nil, err
	}
	return awsecs.NewFromConfig(cfg), nil
}
