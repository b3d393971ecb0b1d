package deploy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const (
	ofAccount = ":us-east-1:123456789012:"
	ec2       = "arn:aws:ec2" + ofAccount
	apis      = "arn:aws:apigateway:us-east-1::"
	logs      = "arn:aws:logs" + ofAccount + "log-group:"
	aFunction = "arn:aws:lambda" + ofAccount + "function:NAME"
	aRole     = iam + "/dayfly-stack/dayfly/main/NAME"
	aCluster  = "arn:aws:ecs" + ofAccount + "cluster/NAME"
	aSecret   = "arn:aws:secretsmanager" + ofAccount + "secret:"
)

func on(resources ...string) []string { return resources }

var bounded = map[string]string{"iam:permissionsboundary": "arn:aws:iam::123456789012:policy/deployer-Boundary"}

func passed(service string) map[string]string {
	return map[string]string{"iam:passedtoservice": service + ".amazonaws.com"}
}

// Condition keys of the tag with the deployment's name: that of the resource, and that in the call.
const (
	isOf  = "aws:resourcetag/dayfly:deployment"
	getOf = "aws:requesttag/dayfly:deployment"
)

// places say on which resources, and with which condition keys, a type's handlers ask for an action (Service
// Authorization Reference); the first row that fits counts. NAME is the physical name that CloudFormation makes,
// LOGICAL the name in the template.
var places = []struct {
	kind, actions string
	resources     []string
	context       map[string]string
}{
	{"*", "ec2:DescribeVpcAttribute", on(ec2 + "vpc/vpc-1"), nil},
	{"*", "ec2:Describe* autoscaling:DescribeTags logs:*LogDeliver* logs:*ResourcePolic* kms:ListAliases secretsmanager:GetRandomPassword", on("*"), nil},
	{"AWS::ECS::Cluster", "kms:DescribeKey", on(deployerKey), nil}, // kms:ViaService does not know ECS
	{"*", "kms:*Grant", on(deployerKey), map[string]string{"kms:viaservice": "SERVICE.us-east-1.amazonaws.com", "kms:grantisforawsresource": "true"}},
	{"*", "kms:*", on(deployerKey), map[string]string{"kms:viaservice": "SERVICE.us-east-1.amazonaws.com"}},
	{"AWS::ApiGateway::Account", "iam:PassRole", on(iam + "/dayfly-stack/dayfly/NAME"), passed("apigateway")},
	{"AWS::EC2::FlowLog", "iam:PassRole", on(aRole), passed("vpc-flow-logs")},
	{"AWS::ECS::TaskDefinition", "iam:PassRole", on(aRole), passed("ecs-tasks")},
	{"*", "iam:PassRole", on(aRole), passed("SERVICE")},
	{"AWS::EC2::NatGateway", "iam:CreateServiceLinkedRole", on(iam + "/aws-service-role/ec2-nat-gateway.amazonaws.com/AWSServiceRoleForNATGateway"), nil},
	{"AWS::ECS::Cluster", "iam:CreateServiceLinkedRole", on(iam + "/aws-service-role/ecs.amazonaws.com/AWSServiceRoleForECS"), nil},
	{"*", "iam:CreateRole iam:PutRolePolicy iam:DeleteRolePolicy iam:PutRolePermissionsBoundary", on(iam+"/dayfly-stack/dayfly/NAME", aRole), bounded},
	{"*", "iam:AttachRolePolicy iam:DetachRolePolicy", on(iam + "/dayfly-stack/dayfly/dayfly-artifacts-ApiGatewayLogsRole-1A2B"), map[string]string{
		"iam:permissionsboundary": bounded["iam:permissionsboundary"], "iam:policyarn": "arn:aws:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs",
	}},
	{"*", "iam:*", on(iam+"/dayfly-stack/dayfly/NAME", aRole), nil},
	{"AWS::S3::*", "*", on("arn:aws:s3:::LOWER"), nil},
	{"*", "s3:GetObject", on("arn:aws:s3:::dayfly-artifacts-bucket-1a2b/dayfly/0a/LOGICAL.zip"), nil},
	{"AWS::ApiGateway::Account", "*", on(apis + "/account"), nil},
	{"AWS::ApiGateway::RestApi", "apigateway:POST", on(apis + "/restapis"), nil},
	{"AWS::ApiGateway::RestApi", "*", on(apis+"/restapis/a1", apis+"/tags/x"), nil},
	{"AWS::ApiGateway::Deployment", "*", on(apis + "/restapis/a1/deployments/d1"), nil},
	{"AWS::ApiGateway::Stage", "*", on(apis + "/restapis/a1/stages/status"), nil},
	{"AWS::ApiGatewayV2::Api", "*", on(apis+"/apis", apis+"/apis/a1"), nil},
	{"AWS::ApiGatewayV2::Stage", "*", on(apis+"/apis/a1/stages/default", apis+"/tags/x"), nil},
	{"AWS::CloudFormation::Stack", "*", on("arn:aws:cloudformation" + ofAccount + "stack/NAME/0a"), map[string]string{isOf: "dayfly"}},
	{"AWS::CloudWatch::Alarm", "*", on("arn:aws:cloudwatch" + ofAccount + "alarm:NAME"), nil},
	{"AWS::DynamoDB::Table", "*", on("arn:aws:dynamodb" + ofAccount + "table/NAME"), nil},
	{"AWS::EC2::VPC", "*", on(ec2 + "vpc/vpc-1"), nil},
	{"AWS::EC2::Subnet", "ec2:CreateSubnet", on(ec2+"subnet/s-1", ec2+"vpc/vpc-1"), nil},
	{"AWS::EC2::Subnet", "*", on(ec2 + "subnet/s-1"), nil},
	{"AWS::EC2::InternetGateway", "*", on(ec2 + "internet-gateway/igw-1"), nil},
	{"AWS::EC2::NatGateway", "ec2:CreateNatGateway", on(ec2+"natgateway/nat-1", ec2+"vpc/vpc-1"), nil},
	{"AWS::EC2::NatGateway", "ec2:*", on(ec2 + "natgateway/nat-1"), nil},
	{"AWS::EC2::VPCGatewayAttachment", "*", on(ec2+"internet-gateway/igw-1", ec2+"vpc/vpc-1"), nil},
	{"AWS::EC2::RouteTable", "ec2:CreateRouteTable", on(ec2+"route-table/rtb-1", ec2+"vpc/vpc-1"), nil},
	{"AWS::EC2::SubnetRouteTableAssociation", "*", on(ec2+"route-table/rtb-1", ec2+"subnet/s-1"), nil},
	{"AWS::EC2::Route*", "*", on(ec2 + "route-table/rtb-1"), nil},
	{"AWS::EC2::SecurityGroup", "ec2:CreateSecurityGroup", on(ec2+"security-group/sg-1", ec2+"vpc/vpc-1"), nil},
	{"AWS::EC2::SecurityGroupEgress", "ec2:RevokeSecurityGroupEgress", on(ec2+"security-group/sg-1", ec2+"security-group-rule/sgr-1"), nil},
	{"AWS::EC2::SecurityGroup*", "*", on(ec2 + "security-group/sg-1"), nil},
	{"AWS::EC2::VPCEndpoint", "ec2:CreateVpcEndpoint ec2:ModifyVpcEndpoint", on(ec2+"vpc-endpoint/vpce-1", ec2+"vpc/vpc-1", ec2+"subnet/s-1", ec2+"security-group/sg-1", ec2+"route-table/rtb-1"), nil},
	{"AWS::EC2::VPCEndpoint", "*", on(ec2 + "vpc-endpoint/vpce-1"), nil},
	{"AWS::EC2::FlowLog", "ec2:CreateFlowLogs", on(ec2+"vpc-flow-log/fl-1", ec2+"vpc/vpc-1"), nil},
	{"AWS::EC2::FlowLog", "*", on(ec2 + "vpc-flow-log/fl-1"), nil},
	{"AWS::ECR::Repository", "*", on("arn:aws:ecr" + ofAccount + "repository/dayfly-runner"), nil},
	{"AWS::ECS::*", "ecs:CreateCluster ecs:*TaskDefinition", on("*"), nil},
	{"AWS::ECS::Cluster", "*", on(aCluster), nil},
	{"AWS::ECS::TaskDefinition", "*", on("arn:aws:ecs" + ofAccount + "task-definition/STACK-runner:1"), nil},
	{"AWS::Events::Rule", "*", on("arn:aws:events" + ofAccount + "rule/NAME"), nil},
	{"AWS::Lambda::EventSourceMapping", "lambda:CreateEventSourceMapping", on("*"), map[string]string{"lambda:functionarn": aFunction}},
	{"AWS::Lambda::EventSourceMapping", "*", on("arn:aws:lambda" + ofAccount + "event-source-mapping:0a"), nil},
	{"AWS::Lambda::*", "*", on(aFunction, aFunction+":$LATEST", "arn:aws:lambda"+ofAccount+"function:dayfly-wake-STACK"), nil},
	{"AWS::Logs::LogGroup", "logs:DescribeLogGroups", on(logs + ":log-stream:"), nil},
	{"AWS::Logs::*", "*", on(logs+"NAME", logs+"/aws/vendedlogs/STACK-api-0a1b2c3d"), nil},
	{"AWS::SQS::*", "*", on("arn:aws:sqs" + ofAccount + "NAME"), nil},
	{"AWS::Scheduler::Schedule", "*", on("arn:aws:scheduler" + ofAccount + "schedule/default/NAME"), nil},
	{"AWS::SecretsManager::Secret", "secretsmanager:CreateSecret", on(aSecret + "STACK-LOGICAL-0a1b2c3d-abcdef"), map[string]string{getOf: "dayfly"}},
	{"AWS::SecretsManager::Secret", "secretsmanager:TagResource", on(aSecret + "STACK-LOGICAL-0a1b2c3d-abcdef"), map[string]string{isOf: "dayfly", getOf: "dayfly"}},
	{"AWS::SecretsManager::Secret", "*", on(aSecret+"LOGICAL-1A2B3C4D5E6F-abcdef", aSecret+"STACK-LOGICAL-0a1b2c3d-abcdef"), map[string]string{isOf: "dayfly"}},
}

// byHand are actions that testdata/cfn-handlers.json does not have.
var byHand = []struct{ kind, actions, why string }{
	{"AWS::ApiGateway::RestApi", "apigateway:GET apigateway:POST apigateway:PUT apigateway:PATCH apigateway:DELETE apigateway:UpdateRestApiPolicy", sam},
	{"AWS::ApiGateway::Deployment", "apigateway:GET apigateway:POST apigateway:PATCH apigateway:DELETE", sam},
	{"AWS::ApiGateway::Stage", "apigateway:GET apigateway:POST apigateway:PUT apigateway:PATCH apigateway:DELETE", sam},
	{"AWS::Lambda::EventInvokeConfig", "lambda:PutFunctionEventInvokeConfig lambda:UpdateFunctionEventInvokeConfig lambda:GetFunctionEventInvokeConfig lambda:DeleteFunctionEventInvokeConfig", sam},
	{"AWS::IAM::Policy", "iam:PutRolePolicy iam:DeleteRolePolicy iam:GetRolePolicy", older},
	{"AWS::SQS::QueuePolicy", "sqs:GetQueueAttributes sqs:SetQueueAttributes", older},
	{"AWS::ApiGatewayV2::Stage", "logs:CreateLogDelivery logs:GetLogDelivery logs:UpdateLogDelivery logs:DeleteLogDelivery logs:ListLogDeliveries logs:PutResourcePolicy logs:DescribeResourcePolicies logs:DescribeLogGroups",
		"what API Gateway asks of its caller for an access log (API Gateway developer guide, \"Configure logging for HTTP APIs\")"},
	{"AWS::CloudFormation::Stack", "cloudformation:TagResource s3:GetObject", "a nested stack has tags, and its template lies in a bucket"},
	{"AWS::DynamoDB::Table", "kms:ReEncryptFrom kms:ReEncryptTo kms:GenerateDataKey kms:GenerateDataKeyWithoutPlaintext",
		"what a table asks of its key (DynamoDB developer guide, \"Authorizing use of a customer managed key\")"},
	{"AWS::EC2::NatGateway", "iam:CreateServiceLinkedRole", "the role with which a regional gateway allocates addresses (VPC user guide, \"Using service-linked roles for VPC\")"},
	{"AWS::SecretsManager::Secret", "kms:GenerateDataKey kms:Decrypt kms:Encrypt", "what a secret asks of its key (Secrets Manager API reference, CreateSecret and UpdateSecret)"},
}

const (
	sam   = "SAM makes it: the file has the types that templates name"
	older = "CloudFormation has no schema of it"
)

// excused are actions of handlers that the policies leave out: those of a property that no template sets, and others
// for the reason beside them. Calls that read a setting of a resource, or remove it before the resource is deleted,
// are not excused: CloudFormation may make them whatever a template sets.
var excused = []struct{ kind, actions, property, why string }{
	{"AWS::ApiGatewayV2::Api", "s3:getObject", "BodyS3Location", ""},
	{"AWS::ApiGatewayV2::Stage", "apigateway:TagResource apigateway:UntagResource", "", "IAM knows no such action: it asks for a method on /tags"},
	{"AWS::CloudFormation::Stack", "iam:PassRole", "RoleARN", ""},
	{"AWS::CloudFormation::Stack", "cloudformation:SetStackPolicy", "StackPolicyBody", ""},
	{"AWS::CloudFormation::Stack", "cloudformation:UpdateTerminationProtection", "EnableTerminationProtection", ""},
	{"AWS::DynamoDB::Table", "dynamodb:ImportTable dynamodb:DescribeImport logs:CreateLogGroup logs:CreateLogStream logs:DescribeLogGroups logs:DescribeLogStreams logs:PutLogEvents logs:PutRetentionPolicy s3:GetObject s3:GetObjectMetadata s3:ListBucket", "ImportSourceSpecification", ""},
	{"AWS::DynamoDB::Table", "dynamodb:EnableKinesisStreamingDestination dynamodb:DisableKinesisStreamingDestination dynamodb:UpdateKinesisStreamingDestination kinesis:DescribeStream kinesis:PutRecords", "KinesisStreamSpecification", ""},
	{"AWS::DynamoDB::Table", "dynamodb:UpdateContributorInsights", "ContributorInsightsSpecification", ""},
	{"AWS::DynamoDB::Table", "dynamodb:PutResourcePolicy dynamodb:DeleteResourcePolicy", "ResourcePolicy", ""},
	{"AWS::DynamoDB::Table", "dynamodb:CreateTableReplica dynamodb:AssociateTableReplica dynamodb:BatchWriteItem dynamodb:DeleteItem dynamodb:GetItem dynamodb:PutItem dynamodb:Query dynamodb:Scan dynamodb:UpdateItem iam:CreateServiceLinkedRole", "", "for replicas, which are of AWS::DynamoDB::GlobalTable"},
	{"AWS::EC2::FlowLog", "iam:CreateServiceLinkedRole s3:GetBucketPolicy s3:PutBucketPolicy", "LogDestination", ""},
	{"AWS::EC2::NatGateway", "ec2:AssociateNatGatewayAddress ec2:DisassociateNatGatewayAddress ec2:AssignPrivateNatGatewayAddress ec2:UnassignPrivateNatGatewayAddress", "", "a regional gateway allocates its addresses itself"},
	{"AWS::EC2::Subnet", "ec2:AssociateSubnetCidrBlock ec2:DisassociateSubnetCidrBlock", "Ipv6CidrBlock", ""},
	{"AWS::EC2::VPC", "ec2:ModifyVpcTenancy", "InstanceTenancy", ""},
	{"AWS::EC2::VPC", "ec2:CreateVpcEncryptionControl", "", "the templates ask for no encryption between instances"},
	{"AWS::EC2::VPCEndpoint", "vpc-lattice:CreateServiceNetworkVpcEndpointAssociation vpc-lattice:DescribeServiceNetworkVpcEndpointAssociation", "ServiceNetworkArn", ""},
	{"AWS::EC2::VPCEndpoint", "vpce:AllowMultiRegion", "ServiceRegion", ""},
	{"AWS::EC2::VPCGatewayAttachment", "ec2:AttachVpnGateway ec2:DetachVpnGateway", "VpnGatewayId", ""},
	{"AWS::ECR::Repository", "ecr:SetRepositoryPolicy ecr:DeleteRepositoryPolicy", "RepositoryPolicyText", ""},
	{"AWS::ECS::Cluster", "ecs:PutAccountSetting ecs:PutAccountSettingDefault", "", "settings of the account, for everybody in it"},
	{"AWS::Events::Rule", "iam:PassRole", "RoleArn", ""},
	{"AWS::IAM::Role", "iam:DeleteRolePermissionsBoundary", "", "the boundary stays: TestDeployer_MustNot"},
	{"AWS::Lambda::EventSourceMapping", "kms:Decrypt kms:DescribeKey kms:GenerateDataKey", "KmsKeyArn", ""},
	{"AWS::Lambda::Function", "elasticfilesystem:DescribeMountTargets s3files:ListMountTargets", "FileSystemConfigs", ""},
	{"AWS::Lambda::Function", "lambda:GetCodeSigningConfig lambda:PutFunctionCodeSigningConfig lambda:DeleteFunctionCodeSigningConfig", "CodeSigningConfigArn", ""},
	{"AWS::Lambda::Function", "lambda:GetLayerVersion", "Layers", ""},
	{"AWS::Lambda::Function", "lambda:PassCapacityProvider", "CapacityProviderConfig", ""},
	{"AWS::Lambda::Function", "lambda:PublishVersion", "PublishToLatestPublished", ""},
	{"AWS::Lambda::Function", "lambda:PutFunctionRecursionConfig", "RecursiveLoop", ""},
	{"AWS::Lambda::Function", "lambda:PutFunctionScalingConfig", "FunctionScalingConfig", ""},
	{"AWS::Lambda::Function", "lambda:PutRuntimeManagementConfig", "RuntimeManagementConfig", ""},
	{"AWS::Lambda::Function", "s3:GetObjectVersion", "Code.S3ObjectVersion", ""},
	{"AWS::Logs::LogGroup", "logs:PutDataProtectionPolicy firehose:TagDeliveryStream s3:REST.PUT.OBJECT", "DataProtectionPolicy", ""},
	{"AWS::S3::Bucket", "s3:PutAccelerateConfiguration", "AccelerateConfiguration", ""},
	{"AWS::S3::Bucket", "s3:GetBucketAcl s3:PutBucketAcl s3:PutObjectAcl", "AccessControl", ""},
	{"AWS::S3::Bucket", "s3:PutAnalyticsConfiguration s3:DeleteBucketAnalyticsConfiguration", "AnalyticsConfigurations", ""},
	{"AWS::S3::Bucket", "s3:PutBucketCORS s3:DeleteBucketCors", "CorsConfiguration", ""},
	{"AWS::S3::Bucket", "s3:PutIntelligentTieringConfiguration", "IntelligentTieringConfigurations", ""},
	{"AWS::S3::Bucket", "s3:PutInventoryConfiguration", "InventoryConfigurations", ""},
	{"AWS::S3::Bucket", "s3:PutBucketLogging", "LoggingConfiguration", ""},
	{"AWS::S3::Bucket", "s3:PutMetricsConfiguration s3:DeleteBucketMetricsConfiguration", "MetricsConfigurations", ""},
	{"AWS::S3::Bucket", "s3:CreateBucketMetadataTableConfiguration s3:DeleteBucketMetadataTableConfiguration s3tables:CreateNamespace s3tables:CreateTable s3tables:GetTable s3tables:GetTableMetadataLocation s3tables:PutTablePolicy s3tables:UpdateTableMetadataLocation", "MetadataTableConfiguration", ""},
	{"AWS::S3::Bucket", "s3:PutBucketNotification", "NotificationConfiguration", ""},
	{"AWS::S3::Bucket", "iam:PassRole s3:PutReplicationConfiguration s3:PutBucketReplication s3:DeleteBucketReplication", "ReplicationConfiguration", ""},
	{"AWS::S3::Bucket", "s3:PutBucketWebsite s3:DeleteBucketWebsite", "WebsiteConfiguration", ""},
	{"AWS::S3::Bucket", "s3:DeleteObject", "", "a bucket that is created has no objects"},
	{"AWS::S3::Bucket", "s3:DeleteBucketEncryption s3:DeleteBucketLifecycle s3:PutObjectLockConfiguration", "", "IAM knows no such action: it asks for that which puts the same setting"},
	{"AWS::SecretsManager::Secret", "secretsmanager:ReplicateSecretToRegions", "ReplicaRegions", ""},
}

// handlersOf are the actions of CloudFormation's handlers of each type. list is left out: CloudFormation lists
// resources for whoever scans an account, not for a stack.
func handlersOf(t *testing.T) map[string][]string {
	t.Helper()
	var file struct {
		Source, Made string
		Types        map[string]map[string][]string
	}
	if err := json.Unmarshal(readFile(t, "testdata/cfn-handlers.json"), &file); err != nil || file.Source == "" || file.Made == "" {
		t.Fatal(file.Source, file.Made, err)
	}
	out := map[string][]string{}
	for kind, handlers := range file.Types {
		delete(handlers, "list")
		for _, actions := range handlers {
			out[kind] = append(out[kind], actions...)
		}
		slices.Sort(out[kind])
		out[kind] = slices.Compact(out[kind])
	}
	return out
}

// asksOfHandlers are the requests of CloudFormation for the resources of stacks. It fails where a row of the tables
// excuses what the templates use, or serves nothing.
func asksOfHandlers(t *testing.T, resources []resourceOf) (out []templates.Request) {
	t.Helper()
	actions := handlersOf(t)
	of := func(kind string) []resourceOf {
		return slices.DeleteFunc(slices.Clone(resources), func(r resourceOf) bool { return r.kind != kind })
	}
	for _, h := range byHand {
		if have := actions[h.kind]; (have != nil && (h.why == sam || h.why == older)) || h.why == "" {
			t.Errorf("%s is written by hand, and the file has its handlers or the row no reason: %s", h.kind, h.why)
		}
		if len(of(h.kind)) == 0 {
			t.Errorf("no template has a %s", h.kind)
		}
		actions[h.kind] = append(actions[h.kind], strings.Fields(h.actions)...)
	}
	for _, e := range excused {
		if (e.property == "") == (e.why == "") {
			t.Errorf("%s of %s: give the property that no template sets, or a reason", e.actions, e.kind)
		}
		for _, r := range of(e.kind) {
			if e.property != "" && templates.At(r.properties, strings.Split(e.property, ".")...) != nil {
				t.Errorf("%s of %s sets %s, so CloudFormation calls %s", r.logical, r.stack, e.property, e.actions)
			}
		}
		for action := range strings.FieldsSeq(e.actions) {
			i := slices.Index(actions[e.kind], action)
			if i < 0 || len(of(e.kind)) == 0 {
				t.Errorf("%s is excused, and no handler of a %s that templates have asks for it", action, e.kind)
				continue
			}
			actions[e.kind] = slices.Delete(actions[e.kind], i, i+1)
		}
	}
	used := map[int]bool{}
	for _, r := range resources {
		if len(actions[r.kind]) == 0 {
			t.Errorf("%s of %s: nothing says what CloudFormation calls for a resource of type %s", r.logical, r.stack, r.kind)
		}
		name := r.stack + "-" + r.logical + "-1A2B3C4D5E6F"
		names := strings.NewReplacer("NAME", name, "LOWER", strings.ToLower(name), "LOGICAL", r.logical, "STACK", r.stack, "SERVICE", strings.ToLower(strings.Split(r.kind, "::")[1]))
		for _, action := range actions[r.kind] {
			row := -1
			for i, p := range places {
				if templates.Like(p.kind, r.kind) && slices.ContainsFunc(strings.Fields(p.actions), func(a string) bool { return templates.Like(a, action) }) {
					row = i
					break
				}
			}
			if row < 0 {
				t.Errorf("%s of %s: nothing says on what resource %s asks for that", action, r.logical, r.kind)
				continue
			}
			used[row] = true
			for _, resource := range places[row].resources {
				ask := templates.Request{Action: action, Resource: names.Replace(resource), Context: map[string]string{"aws:calledvia": "cloudformation.amazonaws.com"}}
				for k, v := range places[row].context {
					ask.Context[k] = names.Replace(v)
				}
				out = append(out, ask)
			}
		}
	}
	for i, p := range places {
		if !used[i] {
			t.Errorf("no handler asks for %s of %s", p.actions, p.kind)
		}
	}
	return out
}

// branches turn each condition of a template over. A parameter that a template does not have is not given to it.
var branches = map[string]string{
	"Alarmed":               "AlarmTopicArn=arn:aws:sns:us-east-1:123456789012:alarms",
	"ArtifactsAreRead":      "ArtifactReaders=arn:aws:iam::123456789012:role/reader",
	"AuditLock":             "AuditLockDays=365",
	"Bounded":               "PermissionsBoundaryArn=arn:aws:iam::123456789012:policy/deployer-Boundary",
	"CreateNatVpc":          "NetworkMode=nat",
	"CreatePublicVpc":       "NetworkMode=public",
	"CreateWayOut":          "NetworkMode=nat",
	"CreateVpc":             "VpcId=vpc-01234567 SubnetIds=subnet-1,subnet-2 RouteTableIds=rtb-1",
	"DeliveriesNameSecrets": "DeliverySecrets=" + deliverySecrets,
	"Downloads":             "EngineDownloads=tofu",
	"EndpointsOnly":         "NetworkMode=public",
	"FunctionsInVpc":        "FunctionSubnetIds=subnet-01234567 FunctionSecurityGroupIds=sg-01234567",
	"GivenZones":            "AvailabilityZones=us-east-1b,us-east-1c",
	"HooksChosen":           "PreapprovedHooks=none",
	"Http":                  privateParams,
	"Inside":                "EgressCidr=10.0.0.0/16",
	"LaunchesDirectly":      "DirectLaunch=false",
	"LogsOfApis":            "ApiGatewayLogs=true",
	"NamedSecrets":          "SecretNames=stack",
	"Mirrored":              "ProviderMirrorBucket=mirror",
	"MoreGroups":            "TaskSecurityGroupIds=sg-01234567",
	"OtherAccounts":         "WorkspaceAccounts=210987654321",
	"OwnEndpoints":          "NetworkMode=public",
	"OwnKey":                "KmsKeyArn=" + deployerKey,
	"Private":               privateParams,
	"Proxied":               "HttpsProxy=http://proxy.example.com:3128 ProxyPort=3128 EgressCidr=10.0.0.0/16",
	"Public":                "NetworkMode=public",
	"Reserves":              "ReserveConcurrency=no",
	"S3EndpointKnown":       "NetworkMode=public",
	"SharedEndpoints":       "EndpointSecurityGroupId=sg-01234567",
	"Ssh":                   "AllowSshEgress=true EgressCidr=10.0.0.0/16",
	"StoredToken":           "PoolIdentity=aws",
	"WakesElsewhere":        "WakeElsewhere=arn:aws:lambda:*:210987654321:function:dayfly-wake-*",
	"Watched":               "GuardDuty=694911143906",
	"WatchedInside":         "GuardDuty=694911143906",
	"WayOut":                "NetworkMode=public",
	"Webhooks":              "Webhooks=yes",
	"WokenFromElsewhere":    "ControlPlaneRoleArn=arn:aws:iam::210987654321:role/dayfly-stack/control",
}

// everyBranch deploys each template with its defaults, and with each of its conditions turned over.
func everyBranch(t *testing.T, each func(branch string, s *templates.Stack)) {
	t.Helper()
	left := maps.Clone(branches)
	for name, stack := range stackOf {
		tmpl, err := templates.Load("../../infra/transformed/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		deployed := func(branch, parameters string) map[string]bool {
			values := maps.Clone(given)
			values["RolePath"] = "/dayfly-stack/dayfly/"
			for p := range strings.FieldsSeq(parameters) {
				k, v, _ := strings.Cut(p, "=")
				values[k] = v
			}
			values = fitting(t, name, "", values)
			s, err := tmpl.Deploy(stack, home, values, nil)
			if err != nil {
				t.Fatalf("%s, %s: %v", name, branch, err)
			}
			each(name+", "+branch, s)
			held, err := tmpl.Decide(home, values)
			if err != nil {
				t.Fatal(err)
			}
			return held
		}
		defaults := deployed("defaults", "")
		for condition, before := range defaults {
			if branches[condition] == "" {
				t.Errorf("%s: nothing says which parameters turn the condition %s over", name, condition)
			} else if deployed(condition, branches[condition])[condition] == before {
				t.Errorf("%s: %s does not turn the condition %s over", name, branches[condition], condition)
			}
			delete(left, condition)
		}
	}
	for condition := range left {
		t.Errorf("no template has the condition %s", condition)
	}
}
