package sqs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/internal/queue/queuetest"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
)

// A second opinion on the wire format, of moto or of the server at AWS_UNDER_TEST.
func TestConformance_OverMoto(t *testing.T) {
	slow(t)
	client := awssqs.NewFromConfig(moto.Start(t), func(o *awssqs.Options) { o.Retryer = aws.NopRetryer{} })
	h := harness(func(*testing.T) *awssqs.Client { return client })
	if !strings.Contains(os.Getenv(moto.UnderTest), ".amazonaws.com") {
		h.Skip = map[string]string{"StaleReceiptLeavesTheMessageAlone": "a stale receipt deletes the message in moto and LocalStack"}
	}
	queuetest.Run(t, h)
}
