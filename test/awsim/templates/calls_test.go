package templates_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

func TestAsks(t *testing.T) {
	for _, c := range []struct{ service, operation, input, want string }{
		{"sqs", "SendMessageBatch", `{"QueueUrl":"http://x/123456789012/jobs"}`, "sqs:SendMessage on arn:aws:sqs:us-east-1:123456789012:jobs"},
		{"sts", "GetCallerIdentity", ``, ""},
		{"sts", "AssumeRole", `{"RoleArn":"arn:r","Tags":[{}]}`, "sts:AssumeRole on arn:r; sts:TagSession on arn:r"},
		{"lambda", "Invoke", `{"FunctionName":"dayfly-wake-x"}`, "lambda:InvokeFunction on arn:aws:lambda:us-east-1:123456789012:function:dayfly-wake-x"},
		{"lambda", "Invoke", `{"FunctionName":"arn:aws:lambda:us-east-1:123456789012:function:x"}`, "lambda:InvokeFunction on arn:aws:lambda:us-east-1:123456789012:function:x"},
		{"ecs", "RunTask", `{"cluster":"c","taskDefinition":"arn:td","tags":[]}`, "ecs:RunTask on arn:td; ecs:TagResource on arn:aws:ecs:us-east-1:123456789012:task/c/new"},
		{"ecs", "DescribeTasks", `{"cluster":"arn:aws:ecs:us-east-1:123456789012:cluster/c","tasks":["a"]}`, "ecs:DescribeTasks on arn:aws:ecs:us-east-1:123456789012:task/c/a"},
		{"dynamodb", "TransactWriteItems", `{"TransactItems":[{"Put":{"TableName":"t"}},{"ConditionCheck":{"TableName":"t"}},{"Put":{"TableName":"t"}}]}`,
			"dynamodb:PutItem on arn:aws:dynamodb:us-east-1:123456789012:table/t; dynamodb:ConditionCheckItem on arn:aws:dynamodb:us-east-1:123456789012:table/t"},
		{"s3", "HeadObject", `{"Bucket":"states","Key":"a/b"}`, "s3:GetObject on arn:aws:s3:::states/a/b"},
		{"s3", "ListObjectsV2", `{"Bucket":"states","Key":""}`, "s3:ListBucket on arn:aws:s3:::states"},
		{"dynamodb", "Query", `{"TableName":"t","IndexName":"i"}`, "dynamodb:Query on arn:aws:dynamodb:us-east-1:123456789012:table/t/index/i"},
	} {
		got, err := templates.Asks(home, c.service, c.operation, []byte(c.input))
		if err != nil {
			t.Errorf("%s %s: %v", c.service, c.operation, err)
		}
		var all []string
		for _, r := range got {
			all = append(all, fmt.Sprint(r))
		}
		if diff := cmp.Diff(c.want, strings.Join(all, "; ")); diff != "" {
			t.Errorf("%s %s: %s", c.service, c.operation, diff)
		}
	}
	for _, unknown := range [][2]string{{"iam", "CreateUser"}, {"ecs", "ExecuteCommand"}, {"dynamodb", "Scan"}, {"sts", "DecodeAuthorizationMessage"}} {
		if _, err := templates.Asks(home, unknown[0], unknown[1], nil); err == nil {
			t.Errorf("%s is judged", unknown)
		}
	}
}
