package deploy_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// need is what CloudFormation calls to create, read, update and delete a resource, on which ARNs. NAME is the physical
// name that CloudFormation makes, LOGICAL the name in the template.
type need struct {
	actions   string
	resources []string
	context   map[string]string
}

func on(resources ...string) []string { return resources }

const (
	ofAccount = ":us-east-1:123456789012:"
	ec2       = "arn:aws:ec2" + ofAccount
	apis      = "arn:aws:apigateway:us-east-1::"
	logs      = "arn:aws:logs" + ofAccount + "log-group:"
	aFunction = "arn:aws:lambda" + ofAccount + "function:NAME"
)

// needs are the handlers' permissions of CloudFormation's resource schemas (the member "handlers"), without those of
// properties that the templates do not use, with resources of the Service Authorization Reference. Types of before the
// schemas (policies, permissions, attachments) have the calls of their service's API.
var needs = map[string][]need{
	"AWS::ApiGateway::Account": {{"apigateway:GET apigateway:PATCH", on(apis + "/account"), nil}, {"iam:PassRole", on(iam + "/dayfly-stack/NAME"), passed("apigateway")}},
	"AWS::ApiGateway::RestApi": {
		{"apigateway:GET apigateway:POST", on(apis + "/restapis"), nil}, {"apigateway:PUT", on(apis+"/restapis/a1", apis+"/tags/x"), nil},
		{"apigateway:GET apigateway:PUT apigateway:PATCH apigateway:DELETE apigateway:UpdateRestApiPolicy", on(apis + "/restapis/a1"), nil},
	},
	"AWS::ApiGateway::Deployment": {{"apigateway:GET apigateway:POST apigateway:PATCH apigateway:DELETE", on(apis + "/restapis/a1/deployments/d1"), nil}},
	"AWS::ApiGateway::Stage":      {{"apigateway:GET apigateway:POST apigateway:PUT apigateway:PATCH apigateway:DELETE", on(apis + "/restapis/a1/stages/status"), nil}},
	"AWS::ApiGatewayV2::Api":      {{"apigateway:GET apigateway:POST", on(apis + "/apis"), nil}, {"apigateway:GET apigateway:PUT apigateway:PATCH apigateway:DELETE", on(apis + "/apis/a1"), nil}},
	"AWS::ApiGatewayV2::Stage": {
		{"apigateway:GET apigateway:POST apigateway:PATCH apigateway:DELETE", on(apis + "/apis/a1/stages/default"), nil},
		{"logs:CreateLogDelivery logs:GetLogDelivery logs:UpdateLogDelivery logs:DeleteLogDelivery logs:ListLogDeliveries logs:PutResourcePolicy logs:DescribeResourcePolicies logs:DescribeLogGroups", on("*"), nil},
	},
	"AWS::CloudFormation::Stack": {
		{"cloudformation:CreateStack cloudformation:UpdateStack cloudformation:DeleteStack cloudformation:TagResource cloudformation:DescribeStacks", on("arn:aws:cloudformation" + ofAccount + "stack/NAME/0a"), nil},
		{"s3:GetObject", on("arn:aws:s3:::dayfly-artifacts-bucket-1a2b/dayfly/0a/Network.yaml"), nil},
	},
	"AWS::CloudWatch::Alarm": {{"cloudwatch:PutMetricAlarm cloudwatch:DescribeAlarms cloudwatch:DeleteAlarms cloudwatch:ListTagsForResource cloudwatch:TagResource cloudwatch:UntagResource", on("arn:aws:cloudwatch" + ofAccount + "alarm:NAME"), nil}},
	"AWS::DynamoDB::Table": {{"dynamodb:CreateTable dynamodb:DescribeTable dynamodb:UpdateTable dynamodb:DeleteTable dynamodb:DescribeTimeToLive dynamodb:UpdateTimeToLive dynamodb:DescribeContinuousBackups dynamodb:UpdateContinuousBackups " +
		"dynamodb:DescribeContributorInsights dynamodb:DescribeKinesisStreamingDestination dynamodb:GetResourcePolicy dynamodb:ListTagsOfResource dynamodb:TagResource dynamodb:UntagResource", on("arn:aws:dynamodb" + ofAccount + "table/NAME"), nil}},
	"AWS::EC2::VPC": {
		{"ec2:CreateVpc ec2:DeleteVpc ec2:ModifyVpcAttribute ec2:DescribeVpcAttribute ec2:CreateTags ec2:DeleteTags", on(ec2 + "vpc/vpc-1"), nil},
		{"ec2:DescribeVpcs ec2:DescribeNetworkAcls ec2:DescribeSecurityGroups", on("*"), nil},
	},
	"AWS::EC2::Subnet": {
		{"ec2:CreateSubnet", on(ec2+"subnet/s-1", ec2+"vpc/vpc-1"), nil},
		{"ec2:DeleteSubnet ec2:ModifySubnetAttribute ec2:CreateTags", on(ec2 + "subnet/s-1"), nil}, {"ec2:DescribeSubnets ec2:DescribeNetworkInterfaces", on("*"), nil},
	},
	"AWS::EC2::InternetGateway": {{"ec2:CreateInternetGateway ec2:DeleteInternetGateway ec2:CreateTags ec2:DeleteTags", on(ec2 + "internet-gateway/igw-1"), nil}, {"ec2:DescribeInternetGateways", on("*"), nil}},
	"AWS::EC2::VPCGatewayAttachment": {
		{"ec2:AttachInternetGateway ec2:DetachInternetGateway", on(ec2+"internet-gateway/igw-1", ec2+"vpc/vpc-1"), nil},
	},
	"AWS::EC2::RouteTable":                  {{"ec2:CreateRouteTable", on(ec2+"route-table/rtb-1", ec2+"vpc/vpc-1"), nil}, {"ec2:DeleteRouteTable ec2:CreateTags", on(ec2 + "route-table/rtb-1"), nil}, {"ec2:DescribeRouteTables", on("*"), nil}},
	"AWS::EC2::Route":                       {{"ec2:CreateRoute ec2:ReplaceRoute ec2:DeleteRoute", on(ec2 + "route-table/rtb-1"), nil}},
	"AWS::EC2::SubnetRouteTableAssociation": {{"ec2:AssociateRouteTable ec2:DisassociateRouteTable", on(ec2+"route-table/rtb-1", ec2+"subnet/s-1"), nil}},
	"AWS::EC2::SecurityGroup": {
		{"ec2:CreateSecurityGroup", on(ec2+"security-group/sg-1", ec2+"vpc/vpc-1"), nil},
		{"ec2:DeleteSecurityGroup ec2:AuthorizeSecurityGroupEgress ec2:RevokeSecurityGroupEgress ec2:CreateTags", on(ec2 + "security-group/sg-1"), nil},
		{"ec2:DescribeSecurityGroups ec2:DescribeSecurityGroupRules", on("*"), nil},
	},
	"AWS::EC2::SecurityGroupIngress": {{"ec2:AuthorizeSecurityGroupIngress ec2:RevokeSecurityGroupIngress ec2:UpdateSecurityGroupRuleDescriptionsIngress", on(ec2 + "security-group/sg-1"), nil}},
	"AWS::EC2::SecurityGroupEgress": {
		{"ec2:AuthorizeSecurityGroupEgress ec2:RevokeSecurityGroupEgress ec2:UpdateSecurityGroupRuleDescriptionsEgress", on(ec2 + "security-group/sg-1"), nil},
		{"ec2:RevokeSecurityGroupEgress", on(ec2 + "security-group-rule/sgr-1"), nil},
	},
	"AWS::EC2::VPCEndpoint": {
		{"ec2:CreateVpcEndpoint ec2:ModifyVpcEndpoint", on(ec2+"vpc-endpoint/vpce-1", ec2+"vpc/vpc-1", ec2+"subnet/s-1", ec2+"security-group/sg-1", ec2+"route-table/rtb-1"), nil},
		{"ec2:DeleteVpcEndpoints ec2:CreateTags", on(ec2 + "vpc-endpoint/vpce-1"), nil}, {"ec2:DescribeVpcEndpoints", on("*"), nil},
	},
	"AWS::EC2::FlowLog": {
		{"ec2:CreateFlowLogs", on(ec2+"vpc-flow-log/fl-1", ec2+"vpc/vpc-1"), nil}, {"ec2:DeleteFlowLogs ec2:CreateTags", on(ec2 + "vpc-flow-log/fl-1"), nil},
		{"ec2:DescribeFlowLogs logs:CreateLogDelivery logs:DeleteLogDelivery", on("*"), nil}, {"iam:PassRole", on(iam + "/NAME"), passed("vpc-flow-logs")},
	},
	"AWS::ECR::Repository": {{"ecr:CreateRepository ecr:DescribeRepositories ecr:DeleteRepository ecr:GetLifecyclePolicy ecr:PutLifecyclePolicy ecr:GetRepositoryPolicy ecr:PutImageScanningConfiguration " +
		"ecr:PutImageTagMutability ecr:ListTagsForResource ecr:TagResource ecr:UntagResource", on("arn:aws:ecr" + ofAccount + "repository/dayfly-runner"), nil}},
	"AWS::ECS::Cluster": {
		{"ecs:CreateCluster", on("*"), nil},
		{"ecs:DescribeClusters ecs:UpdateCluster ecs:UpdateClusterSettings ecs:PutClusterCapacityProviders ecs:DeleteCluster ecs:ListTagsForResource ecs:TagResource ecs:UntagResource", on("arn:aws:ecs" + ofAccount + "cluster/NAME"), nil},
	},
	"AWS::ECS::TaskDefinition": {
		{"ecs:RegisterTaskDefinition ecs:DescribeTaskDefinition ecs:DeregisterTaskDefinition", on("*"), nil},
		{"ecs:TagResource ecs:UntagResource ecs:ListTagsForResource", on("arn:aws:ecs" + ofAccount + "task-definition/STACK-runner:1"), nil},
		{"iam:GetRole", on(iam + "/dayfly-stack/main/NAME"), nil}, {"iam:PassRole", on(iam + "/dayfly-stack/main/NAME"), passed("ecs-tasks")},
	},
	"AWS::Events::Rule": {{"events:PutRule events:DescribeRule events:DeleteRule events:PutTargets events:RemoveTargets events:ListTargetsByRule events:ListTagsForResource events:TagResource events:UntagResource", on("arn:aws:events" + ofAccount + "rule/NAME"), nil}},
	"AWS::IAM::Role": {
		{"iam:CreateRole iam:PutRolePolicy iam:DeleteRolePolicy iam:PutRolePermissionsBoundary", on(iam+"/dayfly-stack/NAME", iam+"/dayfly-stack/main/NAME", iam+"/NAME"), bounded},
		{"iam:AttachRolePolicy iam:DetachRolePolicy", on(iam + "/dayfly-stack/dayfly-artifacts-ApiGatewayLogsRole-1A2B"), map[string]string{
			"iam:permissionsboundary": bounded["iam:permissionsboundary"], "iam:policyarn": "arn:aws:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs",
		}},
		{"iam:GetRole iam:GetRolePolicy iam:ListRolePolicies iam:ListAttachedRolePolicies iam:UpdateRole iam:UpdateRoleDescription iam:UpdateAssumeRolePolicy iam:TagRole iam:UntagRole iam:DeleteRole", on(iam+"/dayfly-stack/main/NAME", iam+"/NAME"), nil},
	},
	"AWS::IAM::Policy": {{"iam:PutRolePolicy iam:DeleteRolePolicy", on(iam + "/dayfly-stack/main/NAME"), bounded}, {"iam:GetRolePolicy", on(iam + "/dayfly-stack/main/NAME"), nil}},
	"AWS::Lambda::Function": {
		{"lambda:CreateFunction lambda:GetFunction lambda:GetFunctionConfiguration lambda:GetFunctionCodeSigningConfig lambda:GetFunctionRecursionConfig lambda:GetRuntimeManagementConfig lambda:UpdateFunctionCode lambda:UpdateFunctionConfiguration " +
			"lambda:PutFunctionConcurrency lambda:DeleteFunctionConcurrency lambda:DeleteFunction lambda:ListTags lambda:TagResource lambda:UntagResource", on(aFunction, "arn:aws:lambda"+ofAccount+"function:dayfly-wake-STACK"), nil},
		{"iam:PassRole", on(iam + "/dayfly-stack/main/NAME"), passed("lambda")},
		{"ec2:DescribeSecurityGroups ec2:DescribeSubnets ec2:DescribeVpcs ec2:DescribeNetworkInterfaces", on("*"), nil}, // of one in a VPC
		{"s3:GetObject", on("arn:aws:s3:::dayfly-artifacts-bucket-1a2b/dayfly/0a/Poller.zip"), nil},
	},
	"AWS::Lambda::EventInvokeConfig":  {{"lambda:PutFunctionEventInvokeConfig lambda:UpdateFunctionEventInvokeConfig lambda:GetFunctionEventInvokeConfig lambda:DeleteFunctionEventInvokeConfig", on(aFunction, aFunction+":$LATEST"), nil}},
	"AWS::Lambda::EventSourceMapping": {{"lambda:CreateEventSourceMapping", on("*"), map[string]string{"lambda:functionarn": aFunction}}, {"lambda:GetEventSourceMapping lambda:UpdateEventSourceMapping lambda:DeleteEventSourceMapping lambda:ListTags lambda:TagResource lambda:UntagResource", on("arn:aws:lambda" + ofAccount + "event-source-mapping:0a"), nil}},
	"AWS::Lambda::Permission":         {{"lambda:AddPermission lambda:RemovePermission lambda:GetPolicy", on(aFunction), nil}},
	"AWS::Logs::LogGroup": {
		{"logs:CreateLogGroup logs:DeleteLogGroup logs:PutRetentionPolicy logs:DeleteRetentionPolicy logs:AssociateKmsKey logs:DisassociateKmsKey logs:GetDataProtectionPolicy logs:ListTagsForResource logs:TagResource logs:UntagResource",
			on(logs+"NAME", logs+"/aws/vendedlogs/STACK-api"), nil},
		{"logs:DescribeLogGroups", on(logs + ":log-stream:"), nil},
	},
	"AWS::Logs::MetricFilter": {{"logs:PutMetricFilter logs:DescribeMetricFilters logs:DeleteMetricFilter", on(logs + "NAME"), nil}},
	"AWS::S3::Bucket": {{"s3:CreateBucket s3:DeleteBucket s3:ListBucket s3:GetBucketVersioning s3:PutBucketVersioning s3:GetEncryptionConfiguration s3:PutEncryptionConfiguration s3:GetBucketPublicAccessBlock s3:PutBucketPublicAccessBlock " +
		"s3:GetBucketOwnershipControls s3:PutBucketOwnershipControls s3:GetLifecycleConfiguration s3:PutLifecycleConfiguration s3:GetBucketObjectLockConfiguration s3:PutBucketObjectLockConfiguration s3:GetBucketTagging s3:PutBucketTagging", on("arn:aws:s3:::LOWER"), nil}},
	"AWS::S3::BucketPolicy":    {{"s3:GetBucketPolicy s3:PutBucketPolicy s3:DeleteBucketPolicy", on("arn:aws:s3:::LOWER"), nil}},
	"AWS::SQS::Queue":          {{"sqs:CreateQueue sqs:GetQueueUrl sqs:GetQueueAttributes sqs:SetQueueAttributes sqs:DeleteQueue sqs:ListQueueTags sqs:TagQueue sqs:UntagQueue", on("arn:aws:sqs" + ofAccount + "NAME"), nil}},
	"AWS::SQS::QueuePolicy":    {{"sqs:GetQueueAttributes sqs:SetQueueAttributes", on("arn:aws:sqs" + ofAccount + "NAME"), nil}},
	"AWS::Scheduler::Schedule": {{"scheduler:CreateSchedule scheduler:GetSchedule scheduler:UpdateSchedule scheduler:DeleteSchedule", on("arn:aws:scheduler" + ofAccount + "schedule/default/NAME"), nil}, {"iam:PassRole", on(iam + "/dayfly-stack/main/NAME"), passed("scheduler")}},
	"AWS::SecretsManager::Secret": {
		{"secretsmanager:CreateSecret secretsmanager:DescribeSecret secretsmanager:UpdateSecret secretsmanager:DeleteSecret secretsmanager:TagResource secretsmanager:UntagResource",
			on("arn:aws:secretsmanager"+ofAccount+"secret:LOGICAL-1A2B3C4D5E6F-abcdef", "arn:aws:secretsmanager"+ofAccount+"secret:NAME-abcdef"), nil},
		{"secretsmanager:GetRandomPassword", on("*"), nil},
	},
}

var bounded = map[string]string{"iam:permissionsboundary": "arn:aws:iam::123456789012:policy/deployer-Boundary"}

func passed(service string) map[string]string {
	return map[string]string{"iam:passedtoservice": service + ".amazonaws.com"}
}

// calledFor are the requests of CloudFormation for one resource of a stack.
func calledFor(t *testing.T, stack, logical, kind string) (out []templates.Request) {
	t.Helper()
	if needs[kind] == nil {
		t.Errorf("%s of %s: nothing says what CloudFormation calls for a resource of type %s", logical, stack, kind)
	}
	name := stack + "-" + logical + "-1A2B3C4D5E6F"
	names := strings.NewReplacer("NAME", name, "LOWER", strings.ToLower(name), "LOGICAL", logical, "STACK", stack)
	for _, n := range needs[kind] {
		for action := range strings.FieldsSeq(n.actions) {
			for _, resource := range n.resources {
				r := templates.Request{Action: action, Resource: names.Replace(resource), Context: map[string]string{"aws:calledvia": "cloudformation.amazonaws.com"}}
				for k, v := range n.context {
					r.Context[k] = names.Replace(v)
				}
				out = append(out, r)
			}
		}
	}
	return out
}
