package deploy_test

import (
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// is reports whether a property has a value.
func is(p any, want string, path ...string) bool {
	return templates.Text(templates.At(p, path...)) == want
}

// where a resource names the key that encrypts it.
var keyAt = map[string][]string{
	"AWS::Logs::LogGroup": {"KmsKeyId"}, "AWS::SQS::Queue": {"KmsMasterKeyId"}, "AWS::SecretsManager::Secret": {"KmsKeyId"},
	"AWS::Lambda::Function": {"KmsKeyArn"}, "AWS::DynamoDB::Table": {"SSESpecification", "KMSMasterKeyId"},
	"AWS::S3::Bucket":      {"BucketEncryption", "ServerSideEncryptionConfiguration", "0", "ServerSideEncryptionByDefault", "KMSMasterKeyID"},
	"AWS::ECR::Repository": {"EncryptionConfiguration", "KmsKey"},
	"AWS::ECS::Cluster":    {"Configuration", "ManagedStorageConfiguration", "FargateEphemeralStorageKmsKeyId"},
}

// ownKey reports whether a key of the account's own encrypts a resource.
func ownKey(_ *templates.Stack, p map[string]any) bool {
	for _, path := range keyAt {
		if templates.Text(templates.At(p, path...)) != "" {
			return true
		}
	}
	return false
}

// grants are the statements within a resource that allow something.
func grants(v any) (out []map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		if v["Effect"] == "Allow" {
			return []map[string]any{v}
		}
		for _, of := range v {
			out = append(out, grants(of)...)
		}
	case []any:
		for _, of := range v {
			out = append(out, grants(of)...)
		}
	}
	return out
}

// grantsNo reports whether no statement that allows something is of a kind.
func grantsNo(kind func(st map[string]any) bool) func(*templates.Stack, map[string]any) bool {
	return func(_ *templates.Stack, p map[string]any) bool { return !slices.ContainsFunc(grants(p), kind) }
}

func everywhere(st map[string]any) bool { return slices.Contains(templates.Texts(st["Resource"]), "*") }

// unbounded is a statement on every resource, without a condition.
func unbounded(st map[string]any) bool { return everywhere(st) && st["Condition"] == nil }

// allow adds a statement to a policy, wherever the resource has it.
func allow(st map[string]any) func(p map[string]any) {
	st["Effect"] = "Allow"
	return func(p map[string]any) { p["More"] = []any{st} }
}

// never is what no resource of a type can keep.
func never(*templates.Stack, map[string]any) bool { return false }

func sets(key string, v any) func(p map[string]any) { return func(p map[string]any) { p[key] = v } }

const (
	policies = "AWS::IAM::Role AWS::IAM::Policy AWS::IAM::ManagedPolicy"
	groups   = "AWS::EC2::SecurityGroup AWS::EC2::SecurityGroupIngress AWS::EC2::SecurityGroupEgress"
)

// The ids are those of the tools: docs.aws.amazon.com/securityhub, checkov's policy index for CloudFormation, and
// lib/cfn-nag/custom_rules. Controls that only ask for tags are a standard of their own. What rules demand of all
// resources is not here again. The reasons are here and in docs/aws-permissions.md, and not in Metadata of the templates: they hold
// for a type, so each would stand there up to twenty times, and SAM does not hand Metadata of an API on to its stage.
var scans = []scan{
	// ---- Kept everywhere.
	{IDs: "CKV_AWS_66, W86", Types: "AWS::Logs::LogGroup",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return number(p["RetentionInDays"]) > 0 }, Spoil: sets("RetentionInDays", nil)},
	{IDs: "CloudWatch.17", Types: "AWS::CloudWatch::Alarm",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return !is(p, "false", "ActionsEnabled") }, Spoil: sets("ActionsEnabled", false)},
	{IDs: "W24", Types: "AWS::Lambda::Permission",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return is(p, "lambda:InvokeFunction", "Action") }, Spoil: sets("Action", "lambda:*")},
	{IDs: "Lambda.5", Types: "AWS::Lambda::Function",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			subnets, _ := templates.At(p, "VpcConfig", "SubnetIds").([]any)
			return p["VpcConfig"] == nil || len(subnets) > 1
		}, Spoil: sets("VpcConfig", map[string]any{"SubnetIds": []any{"subnet-1"}})},
	{IDs: "APIGateway.5, W87", Types: "AWS::ApiGateway::Stage",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return !is(p, "true", "CacheClusterEnabled") }, Spoil: sets("CacheClusterEnabled", true)},
	{IDs: "S3.2, S3.3, S3.6, SQS.3, F15, F16, F20, F21", Types: "AWS::S3::BucketPolicy AWS::SQS::QueuePolicy",
		Holds: grantsNo(func(st map[string]any) bool {
			return is(st, "*", "Principal") || is(st, "*", "Principal", "AWS") || strings.HasSuffix(templates.Text(st["Action"]), "*")
		}), Spoil: allow(map[string]any{"Principal": "*", "Action": "s3:GetObject"})},
	{IDs: "S3.10, S3.12, S3.13, CKV_AWS_20, CKV_AWS_57, F14", Types: "AWS::S3::Bucket",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			return p["AccessControl"] == nil && is(p, "BucketOwnerEnforced", "OwnershipControls", "Rules", "0", "ObjectOwnership") && p["LifecycleConfiguration"] != nil
		}, Spoil: sets("AccessControl", "PublicRead")},
	{IDs: "DynamoDB.1, W73", Types: "AWS::DynamoDB::Table",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return is(p, "PAY_PER_REQUEST", "BillingMode") }, Spoil: sets("BillingMode", "PROVISIONED")},
	{IDs: "ECR.3, CKV_AWS_32", Types: "AWS::ECR::Repository",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			return p["LifecyclePolicy"] != nil && p["RepositoryPolicyText"] == nil
		},
		Spoil: sets("LifecyclePolicy", nil)},
	{IDs: "ECS.12, CKV_AWS_65", Types: "AWS::ECS::Cluster", Why: "Nothing reads its metrics, and AWS charges for each; `ContainerInsights` turns it on.",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			return is(p, "enabled", "ClusterSettings", "0", "Value")
		}},
	{IDs: "ECS.8, ECS.18, CKV_AWS_97", Types: "AWS::ECS::TaskDefinition",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			volumes, _ := p["Volumes"].([]any)
			containers, _ := p["ContainerDefinitions"].([]any)
			return !slices.ContainsFunc(volumes, func(v any) bool { return templates.At(v, "EFSVolumeConfiguration") != nil }) &&
				!slices.ContainsFunc(containers, func(c any) bool {
					env, _ := templates.At(c, "Environment").([]any)
					return slices.ContainsFunc(env, func(v any) bool {
						return slices.Contains([]string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "ECS_ENGINE_AUTH_DATA"}, templates.Text(templates.At(v, "Name")))
					})
				})
		}, Spoil: sets("Volumes", []any{map[string]any{"EFSVolumeConfiguration": map[string]any{}}})},
	{IDs: "EC2.15, W33", Types: "AWS::EC2::Subnet",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return is(p, "false", "MapPublicIpOnLaunch") }, Spoil: sets("MapPublicIpOnLaunch", true)},
	{IDs: "W36", Types: groups,
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			out, _ := p["SecurityGroupEgress"].([]any)
			in, _ := p["SecurityGroupIngress"].([]any)
			return (templates.Text(p["GroupDescription"]) != "" || templates.Text(p["Description"]) != "") &&
				!slices.ContainsFunc(append(slices.Clone(out), in...), func(r any) bool { return is(r, "", "Description") })
		}, Spoil: func(p map[string]any) { delete(p, "Description"); delete(p, "GroupDescription") }},
	{IDs: "IAM.1, IAM.21, KMS.1, KMS.2, CKV_AWS_60, CKV_AWS_62, CKV_AWS_63, F2, F3, F4, F5, F38, F40", Types: policies,
		Holds: grantsNo(func(st map[string]any) bool {
			actions := templates.Texts(st["Action"])
			return is(st, "*", "Principal") || is(st, "*", "Principal", "AWS") || everywhere(st) && (slices.Contains(actions, "iam:PassRole") || slices.Contains(actions, "kms:Decrypt")) ||
				slices.ContainsFunc(actions, func(a string) bool { return a == "*" || strings.HasSuffix(a, ":*") })
		}), Spoil: allow(map[string]any{"Action": "s3:*", "Resource": "arn:aws:s3:::a"})},
	{IDs: "W14, W15, W16, W17, W21, W22, W23", Types: policies,
		Holds: grantsNo(func(st map[string]any) bool {
			return st["NotAction"] != nil || st["NotResource"] != nil || st["NotPrincipal"] != nil
		}),
		Spoil: allow(map[string]any{"NotAction": "s3:*", "Resource": "*"})},
	{IDs: "CKV_AWS_108, CKV_AWS_109, CKV_AWS_110, CKV_AWS_111", Types: policies,
		Holds: grantsNo(func(st map[string]any) bool {
			return unbounded(st) && slices.ContainsFunc(templates.Texts(st["Action"]), func(a string) bool {
				_, verb, _ := strings.Cut(a, ":")
				// checkov counts no action that knows no resource.
				return !strings.HasPrefix(verb, "Get") && !strings.HasPrefix(verb, "List") && !strings.HasPrefix(verb, "Describe") && verb != "SendSecurityTelemetry"
			})
		}), Spoil: allow(map[string]any{"Action": "s3:PutObject", "Resource": "*"})},

	// ---- Kept with a parameter.
	{IDs: "ECR.5, S3.17, CKV_AWS_119, CKV_AWS_136, CKV_AWS_149, CKV_AWS_158, CKV_AWS_173, W48, W74, W77, W84",
		Types: "AWS::ECR::Repository AWS::S3::Bucket AWS::DynamoDB::Table AWS::SecretsManager::Secret AWS::SQS::Queue AWS::Logs::LogGroup AWS::Lambda::Function",
		Why:   "Without `KmsKeyArn`, data is encrypted with keys that AWS owns or manages.",
		Holds: ownKey},
	{IDs: "CloudWatch.15", Types: "AWS::CloudWatch::Alarm",
		Why:   "Without `AlarmTopicArn`, alarms are only shown.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return p["AlarmActions"] != nil }},
	{IDs: "CloudWatch.16", Types: "AWS::Logs::LogGroup",
		Why:   "Logs are kept for 30 days unless `LogRetentionDays` says 365 or more.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return number(p["RetentionInDays"]) >= 365 }},

	// ---- Not kept by choice.
	{IDs: "Lambda.3, CKV_AWS_117, W89", Types: "AWS::Lambda::Function",
		Why:   "Functions call AWS, the control plane, and receivers of deliveries; in a VPC they would need endpoints or a NAT gateway.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return p["VpcConfig"] != nil }},
	{IDs: "Lambda.7", Types: "AWS::Lambda::Function",
		Why:   "There is no tracing; the lines of all logs are joined by the id of their job.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return is(p, "Active", "TracingConfig", "Mode") }},
	{IDs: "CKV_AWS_115, W92", Types: "AWS::Lambda::Function", On: "Status",
		Why:   "The stage's throttle bounds the status function; a reservation that is too small would keep runners from reporting.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return p["ReservedConcurrentExecutions"] != nil }},
	{IDs: "CKV_AWS_116", Types: "AWS::Lambda::Function",
		Why:   "Messages have dead letters at their queue, the reaper's events go to a queue too, and a lost tick comes again.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return p["DeadLetterConfig"] != nil }},
	{IDs: "W58", Types: "AWS::Lambda::Function",
		Why: "The stack makes the log group, so the role of a function may write to it and create none.",
		Holds: func(s *templates.Stack, p map[string]any) bool {
			role := templates.Text(p["Role"])
			return slices.ContainsFunc(grants(s.Resources[role[strings.LastIndexByte(role, '-')+1:]].Properties), func(st map[string]any) bool {
				return slices.Contains(templates.Texts(st["Action"]), "logs:CreateLogGroup")
			})
		}},
	{IDs: "SecretsManager.1, SecretsManager.4", Types: "AWS::SecretsManager::Secret",
		Why: "The control plane issues tokens and you rotate the ticket keys ([Rotate](#rotate)); a schedule can do neither.",
		Holds: func(s *templates.Stack, _ map[string]any) bool {
			return len(s.Of("AWS::SecretsManager::RotationSchedule")) > 0
		}},
	{IDs: "S3.9, CKV_AWS_18, W35", Types: "AWS::S3::Bucket",
		Why:   "A log of accesses needs a bucket of yours; CloudTrail's data events show the same calls.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return p["LoggingConfiguration"] != nil }},
	{IDs: "S3.7, S3.11, S3.15", Types: "AWS::S3::Bucket",
		Why: "Copies in another Region, events and object locks are yours to choose; versions protect from a mistake.",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			return p["ReplicationConfiguration"] != nil && p["NotificationConfiguration"] != nil && p["ObjectLockEnabled"] != nil
		}},
	{IDs: "DynamoDB.4", Types: "AWS::DynamoDB::Table",
		Why:   "The table can be set back to any second of the last 35 days; a backup plan is yours to choose.",
		Holds: never},
	{IDs: "APIGateway.1", Types: "AWS::ApiGateway::Stage",
		Why: "The access log and the function's log have each call already.",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			return !is(p, "", "MethodSettings", "0", "LoggingLevel")
		}},
	{IDs: "APIGateway.2", Types: "AWS::ApiGateway::Stage",
		Why:   "The stage calls a function with IAM, and no HTTP server that could check a certificate.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return p["ClientCertificateId"] != nil }},
	{IDs: "APIGateway.3, CKV_AWS_73", Types: "AWS::ApiGateway::Stage",
		Why:   "There is no tracing; the lines of all logs are joined by the id of their job.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return is(p, "true", "TracingEnabled") }},
	{IDs: "APIGateway.4", Types: "AWS::ApiGateway::Stage",
		Why:   "Only the role of tasks may call the status API, with signed requests, and throttles bound it; a web ACL is yours to add.",
		Holds: never},
	{IDs: "CKV_AWS_120", Types: "AWS::ApiGateway::Stage",
		Why:   "Every call reports something new, so no answer can come from a cache.",
		Holds: func(_ *templates.Stack, p map[string]any) bool { return is(p, "true", "CacheClusterEnabled") }},
	{IDs: "APIGateway.8", Types: "AWS::ApiGatewayV2::Api",
		Why: "The function checks the bearer token of each call below HTTP, and audits there.",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			paths, _ := templates.At(p, "Body", "paths").(map[string]any)
			for _, of := range paths {
				methods, _ := of.(map[string]any)
				for _, m := range methods {
					if templates.At(m, "security") == nil {
						return false
					}
				}
			}
			return true
		}},
	{IDs: "W63, W64, W65, W68", Types: "AWS::ApiGateway::Stage AWS::ApiGateway::RestApi AWS::ApiGatewayV2::Stage AWS::ApiGateway::Deployment",
		Why:   "Usage plans limit callers by API keys; these callers have roles or tokens, and stages have throttles.",
		Holds: func(s *templates.Stack, _ map[string]any) bool { return len(s.Of("AWS::ApiGateway::UsagePlan")) > 0 }},
	{IDs: "EC2.2, EC2.21", Types: "AWS::EC2::VPC",
		Why:   "The default security group and the network ACL come with a VPC; nothing uses the group, and the groups of the stack let nothing in.",
		Holds: never},
	{IDs: "EC2.10, EC2.55, EC2.56, EC2.57, EC2.58, EC2.60", Types: "AWS::EC2::VPC",
		Why:   "Tasks call neither EC2 nor Systems Manager; ECR has endpoints in mode `endpoints-only`.",
		Holds: never},
	{IDs: "CKV_AWS_23", Types: "AWS::EC2::SecurityGroup",
		Why:   "checkov does not read rules within `Fn::If`; each has a description.",
		Holds: never},
	{IDs: "W5", Types: groups, On: "TaskSecurityGroup",
		Why: "Modes `nat` and `public` let tasks out to every address, over HTTPS and to your additions.",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			out, _ := p["SecurityGroupEgress"].([]any)
			return !is(p, "0.0.0.0/0", "CidrIp") && !slices.ContainsFunc(out, func(r any) bool { return is(r, "0.0.0.0/0", "CidrIp") })
		}},
	{IDs: "W11, W12, W13", Types: policies, On: "ExecutionRole DeadLettersRole ReaperRole Scripts Services Storage Network Boundary",
		Why:   "IAM knows no resource for these actions; where there is a condition key, it limits them.",
		Holds: grantsNo(everywhere)},
	{IDs: "CKV_AWS_107", Types: policies, On: "ExecutionRole Scripts Boundary",
		Why: "A login to ECR has no resource; its pulls are limited by repository.",
		Holds: grantsNo(func(st map[string]any) bool {
			return unbounded(st) && slices.Contains(templates.Texts(st["Action"]), "ecr:GetAuthorizationToken")
		})},
	{IDs: "W28", Types: policies, On: "Role",
		Why: "The file of a workspace names its role, so the role has a name that lasts.",
		Holds: func(_ *templates.Stack, p map[string]any) bool {
			return p["RoleName"] == nil && p["ManagedPolicyName"] == nil
		}},
	{IDs: "CloudFormation.3, CloudFormation.4", Types: "AWS::CloudFormation::Stack",
		Why:   "`make destroy` deletes stacks, and lasting resources have their own protection; CloudFormation has the limited rights of the person who deploys.",
		Holds: never},
}
