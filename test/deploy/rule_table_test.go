package deploy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// rule is one demand that reviewers make of templates.
type rule struct {
	Name string
	From string // the checks of public tools that demand it
	// Check returns the logical names of the resources that break it, each with how.
	Check func(s *templates.Stack) map[string]string
}

// each checks every resource of the types and keeps what is not "".
func each(s *templates.Stack, check func(name string, p map[string]any) string, types ...string) map[string]string {
	out := map[string]string{}
	for _, kind := range types {
		for _, name := range s.Of(kind) {
			if why := check(name, s.Resources[name].Properties); why != "" {
				out[name] = why
			}
		}
	}
	return out
}

func number(v any) float64 {
	n, _ := strconv.ParseFloat(templates.Text(v), 64)
	return n
}

// unless is the finding where a demand does not hold.
func unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// rules are the demands on every template.
var rules = []rule{
	{"a function has a log group of its own", "CloudWatch.16, W84", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			group := templates.Text(templates.At(p, "LoggingConfig", "LogGroup"))
			return unless(strings.HasPrefix(group, s.Name+"-"), "its log group is %q", group)
		}, "AWS::Lambda::Function")
	}},
	{"a function has a role of its own", "F3", func(s *templates.Stack) map[string]string {
		seen := map[string]string{}
		return each(s, func(name string, p map[string]any) string {
			role := templates.Text(p["Role"])
			first, twice := seen[role]
			seen[role] = name
			return unless(!twice && strings.Contains(role, "-"+name+"Role-"), "its role is %s (also that of %s)", role, first)
		}, "AWS::Lambda::Function")
	}},
	{"a function is arm64 on provided.al2023", "CKV_AWS_363, Lambda.2", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			return unless(templates.Text(p["Runtime"]) == "provided.al2023" && templates.Text(p["Architectures"]) == "arm64" && templates.Text(p["Handler"]) == "bootstrap", "it is %s on %s", p["Architectures"], p["Runtime"])
		}, "AWS::Lambda::Function")
	}},
	{"an environment holds no secret and fits", "CKV_AWS_45, ECS.8", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			size := 0
			variables, _ := templates.At(p, "Environment", "Variables").(map[string]any)
			for name, v := range variables {
				size += len(name) + len(templates.Text(v))
				upper := strings.ToUpper(name)
				for _, word := range []string{"TOKEN", "KEY", "PASSWORD", "SECRET"} {
					if strings.Contains(upper, word) && !strings.HasSuffix(upper, "_RATE") && !strings.HasPrefix(templates.Text(v), "arn:") {
						return fmt.Sprintf("%s is %q, and no reference to a secret", name, templates.Text(v))
					}
				}
			}
			return unless(size <= 3<<10, "it has %d bytes of 4 KiB", size)
		}, "AWS::Lambda::Function")
	}},
	{"who may invoke a function is limited", "CKV_AWS_364, F13, Lambda.1", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			principal := templates.Text(p["Principal"])
			return unless(p["SourceArn"] != nil && principal != "*" || strings.HasPrefix(principal, "arn:"), "%s may, from anywhere", principal)
		}, "AWS::Lambda::Permission")
	}},
	{"an event source reports what failed, and hides a message for longer than its function may take", "SQS best practice", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			if templates.Text(p["FunctionResponseTypes"]) != "ReportBatchItemFailures" {
				return "a failure would bring the whole batch back"
			}
			function := s.Resources[strings.TrimPrefix(templates.Text(p["FunctionName"]), s.Name+"-")].Properties
			queue := templates.Text(p["EventSourceArn"])
			hidden := number(s.Resources[queue[strings.LastIndexByte(queue, '-')+1:]].Properties["VisibilityTimeout"])
			if most := number(templates.At(p, "ScalingConfig", "MaximumConcurrency")); function["ReservedConcurrentExecutions"] != nil && most >= number(function["ReservedConcurrentExecutions"]) {
				return "its concurrency is not below what the function reserves"
			}
			if function["ReservedConcurrentExecutions"] != nil && templates.At(p, "ScalingConfig", "MaximumConcurrency") == nil {
				return "it invokes its function more often than that reserves, and what is throttled counts as received"
			}
			return unless(hidden >= 3*number(function["Timeout"]) && number(function["Timeout"]) > 0, "hidden for %v s, its function may take %v s", hidden, function["Timeout"])
		}, "AWS::Lambda::EventSourceMapping")
	}},
	{"a queue is encrypted, over the wire too", "CKV_AWS_27, SQS.1", func(s *templates.Stack) map[string]string {
		return each(s, func(name string, p map[string]any) string {
			if templates.Text(p["SqsManagedSseEnabled"]) != "true" && p["KmsMasterKeyId"] == nil {
				return "it is not encrypted"
			}
			return unless(deniesPlain(s, "AWS::SQS::QueuePolicy", "Queues", "sqs:*", "/"+s.Name+"-"+name), "it may be used without TLS")
		}, "AWS::SQS::Queue")
	}},
	{"a statement about a queue is about one", "SQS refuses others", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			list, _ := templates.At(p, "PolicyDocument", "Statement").([]any)
			for _, st := range list {
				if n := len(templates.Texts(templates.At(st, "Resource"))); n != 1 {
					return fmt.Sprintf("one is about %d", n)
				}
			}
			return ""
		}, "AWS::SQS::QueuePolicy")
	}},
	{"a message that fails each time becomes a dead letter before it expires", "SQS best practice", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			receives := number(templates.At(p, "RedrivePolicy", "maxReceiveCount"))
			takes := receives * number(p["VisibilityTimeout"])
			return unless(takes < number(p["MessageRetentionPeriod"]), "%v receives take %v s, and it expires after %v s", receives, takes, p["MessageRetentionPeriod"])
		}, "AWS::SQS::Queue")
	}},
	{"a queue that a function reads has dead letters", "SQS best practice", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			queue := templates.Text(p["EventSourceArn"])
			name := queue[strings.LastIndexByte(queue, '-')+1:]
			return unless(templates.At(s.Resources[name].Properties, "RedrivePolicy", "deadLetterTargetArn") != nil, "%s has none", name)
		}, "AWS::Lambda::EventSourceMapping")
	}},
	{"a bucket is versioned, encrypted, private, kept, and used over TLS only", "CKV_AWS_19, CKV_AWS_21, CKV_AWS_53..56, S3.5, S3.8, S3.14, W41, W51", func(s *templates.Stack) map[string]string {
		return each(s, func(name string, p map[string]any) string {
			switch r := s.Resources[name]; {
			case templates.Text(templates.At(p, "VersioningConfiguration", "Status")) != "Enabled":
				return "it is not versioned"
			case templates.At(p, "BucketEncryption", "ServerSideEncryptionConfiguration", "0", "ServerSideEncryptionByDefault", "SSEAlgorithm") == nil:
				return "it is not encrypted"
			case !strings.HasPrefix(r.DeletionPolicy, "Retain") || r.UpdateReplacePolicy != "Retain":
				return "it goes with the stack"
			}
			for _, block := range []string{"BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"} {
				if templates.Text(templates.At(p, "PublicAccessBlockConfiguration", block)) != "true" {
					return "it may become public: " + block
				}
			}
			return unless(deniesPlain(s, "AWS::S3::BucketPolicy", "Bucket", "s3:*", strings.ToLower(s.Name+"-"+name)), "it may be used without TLS")
		}, "AWS::S3::Bucket")
	}},
	{"a table is protected, kept, and can be set back", "CKV_AWS_28, DynamoDB.2, DynamoDB.6, W78", func(s *templates.Stack) map[string]string {
		return each(s, func(name string, p map[string]any) string {
			r := s.Resources[name]
			return unless(templates.Text(p["DeletionProtectionEnabled"]) == "true" && r.DeletionPolicy == "Retain" && r.UpdateReplacePolicy == "Retain" &&
				templates.Text(templates.At(p, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled")) == "true", "it is not")
		}, "AWS::DynamoDB::Table")
	}},
	{"containers cannot write to their root, have no user 0, no capability and no shell, and log without blocking", "ECS.3, ECS.4, ECS.5, ECS.9, ECS.17, ECS.20", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			if templates.Text(p["NetworkMode"]) != "awsvpc" || templates.Text(p["RequiresCompatibilities"]) != "FARGATE" || p["PidMode"] != nil {
				return "it does not run apart from others"
			}
			list, _ := p["ContainerDefinitions"].([]any)
			for _, c := range list {
				user, _, _ := strings.Cut(templates.Text(templates.At(c, "User")), ":")
				switch {
				case templates.Text(templates.At(c, "ReadonlyRootFilesystem")) != "true":
					return "it can write to its root"
				case user == "" || user == "0" || user == "root":
					return "it runs as root"
				case templates.Text(templates.At(c, "LinuxParameters", "Capabilities", "Drop")) != "ALL" || templates.At(c, "LinuxParameters", "Capabilities", "Add") != nil:
					return "it keeps capabilities"
				case templates.Text(templates.At(c, "Privileged")) == "true":
					return "it is privileged"
				case templates.Text(templates.At(c, "LogConfiguration", "LogDriver")) != "awslogs" || templates.Text(templates.At(c, "LogConfiguration", "Options", "mode")) == "":
					return "its log mode is not set"
				case number(templates.At(c, "StopTimeout")) != 120:
					return "an interrupted engine has not all the time that there is"
				case templates.At(c, "Secrets") != nil:
					return "secrets lie in its environment"
				case templates.At(c, "RestartPolicy") != nil:
					return "it is started again"
				}
			}
			return unless(len(list) > 0 && p["TaskRoleArn"] != nil && templates.Text(p["TaskRoleArn"]) != templates.Text(p["ExecutionRoleArn"]), "its roles are not apart")
		}, "AWS::ECS::TaskDefinition")
	}},
	{"images are scanned, encrypted, kept, and keep their tags", "ECR.1, ECR.2, CKV_AWS_51, CKV_AWS_163, W79", func(s *templates.Stack) map[string]string {
		return each(s, func(name string, p map[string]any) string {
			return unless(strings.HasPrefix(s.Resources[name].DeletionPolicy, "Retain") && templates.Text(p["ImageTagMutability"]) == "IMMUTABLE" && templates.Text(templates.At(p, "ImageScanningConfiguration", "ScanOnPush")) == "true" &&
				templates.At(p, "EncryptionConfiguration", "EncryptionType") != nil, "they are not, or do not")
		}, "AWS::ECR::Repository")
	}},
	{"security groups say what they are for, and nothing comes in from the world", "CKV_AWS_24, CKV_AWS_25, CKV_AWS_260, EC2.13, EC2.14, EC2.18, EC2.19, EC2.53, EC2.54, W2, W9, W29, W40, F1000", func(s *templates.Stack) map[string]string {
		rule := func(r any) string {
			return unless(templates.Text(templates.At(r, "Description")) != "", "a rule does not say what it is for")
		}
		out := each(s, func(_ string, p map[string]any) string {
			egress, _ := p["SecurityGroupEgress"].([]any)
			ingress, _ := p["SecurityGroupIngress"].([]any)
			if templates.Text(p["GroupDescription"]) == "" || len(egress) == 0 {
				return "it has no description, or lets everything out"
			}
			for _, r := range append(slices.Clone(egress), ingress...) {
				if why := rule(r); why != "" {
					return why
				}
				if templates.Text(templates.At(r, "IpProtocol")) == "-1" {
					return "it lets every protocol out"
				}
			}
			return unless(len(ingress) == 0, "something comes in")
		}, "AWS::EC2::SecurityGroup")
		for name, why := range each(s, func(_ string, p map[string]any) string {
			if why := rule(p); why != "" {
				return why
			}
			return unless(p["CidrIp"] == nil && p["CidrIpv6"] == nil, "addresses of the world may come in")
		}, "AWS::EC2::SecurityGroupIngress") {
			out[name] = why
		}
		return out
	}},
	{"a VPC has flow logs", "EC2.6, W60", func(s *templates.Stack) map[string]string {
		return each(s, func(string, map[string]any) string {
			refused := func(log string) bool { return is(s.Resources[log].Properties, "REJECT", "TrafficType") }
			return unless(slices.ContainsFunc(s.Of("AWS::EC2::FlowLog"), refused), "none shows what was refused")
		}, "AWS::EC2::VPC")
	}},
	{"an endpoint serves principals and resources of this account only", "endpoint policies", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			list, _ := templates.At(p, "PolicyDocument", "Statement").([]any)
			for _, st := range list {
				own := templates.Text(templates.At(st, "Condition", "StringEquals", "aws:PrincipalAccount")) == s.Account.ID &&
					templates.Text(templates.At(st, "Condition", "StringEqualsIfExists", "aws:ResourceAccount")) == s.Account.ID
				layers := strings.Contains(templates.Text(templates.At(st, "Resource")), ":s3:::prod-"+s.Account.Region+"-starport-layer-bucket/")
				if !own && !layers {
					return "its policy lets others through"
				}
			}
			return unless(len(list) > 0, "it has no policy")
		}, "AWS::EC2::VPCEndpoint")
	}},
	{"every method of a REST API asks for IAM, and the API for its caller; calls are logged", "APIGateway.9, CKV_AWS_76, CKV_AWS_95, W45, W46, W69", func(s *templates.Stack) map[string]string {
		out := each(s, func(_ string, p map[string]any) string {
			paths, _ := templates.At(p, "Body", "paths").(map[string]any)
			for path, methods := range paths {
				of, _ := methods.(map[string]any)
				for method, m := range of {
					if method != "options" && templates.At(m, "security", "0", "AWS_IAM") == nil {
						return path + " does not authenticate its callers"
					}
					if credentials := templates.At(m, "x-amazon-apigateway-integration", "credentials"); credentials != nil {
						return path + " calls its function as its caller"
					}
				}
			}
			caller := templates.Text(templates.At(p, "Body", "x-amazon-apigateway-policy", "Statement", "0", "Condition", "ArnEquals", "aws:PrincipalArn"))
			return unless(len(paths) > 0 && strings.Contains(caller, ":role/"), "its policy names no role")
		}, "AWS::ApiGateway::RestApi")
		for name, why := range each(s, func(_ string, p map[string]any) string {
			return unless(templates.At(p, "AccessLogSetting", "DestinationArn") != nil || templates.At(p, "AccessLogSettings", "DestinationArn") != nil, "its calls are not logged")
		}, "AWS::ApiGateway::Stage", "AWS::ApiGatewayV2::Stage") {
			out[name] = why
		}
		return out
	}},
	{"what is kept goes with a create that failed, so that it can be repeated", "deployability", func(s *templates.Stack) map[string]string {
		out := map[string]string{}
		for name, r := range s.Resources {
			if r.DeletionPolicy == "Retain" {
				out[name] = "it stays when its create is rolled back"
			}
		}
		return out
	}},
	{"no policy has a role of the same stack as its principal", "IAM is eventually consistent", func(s *templates.Stack) map[string]string {
		out := map[string]string{}
		for name, r := range s.Resources {
			for _, principal := range principals(r.Properties) {
				if strings.Contains(principal, ":role/") && strings.HasPrefix(principal[strings.LastIndexByte(principal, '/')+1:], s.Name+"-") {
					out[name] = "its principal is " + principal
				}
			}
		}
		return out
	}},
	{"the scheduler's role waits for nothing", "the scheduler refuses a role that it cannot assume yet", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			service := templates.Text(templates.At(p, "AssumeRolePolicyDocument", "Statement", "0", "Principal", "Service"))
			return unless(service != "scheduler.amazonaws.com" || p["Policies"] == nil, "its own policies name what is made later")
		}, "AWS::IAM::Role")
	}},
	{"an API has the one stage that is looked at", "SAM's second stage", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			return unless(p["StageName"] == nil, "the deployment makes a stage %v besides", p["StageName"])
		}, "AWS::ApiGateway::Deployment")
	}},
	{"schedules have no name that a second stack would want", "deployability", func(s *templates.Stack) map[string]string {
		return each(s, func(_ string, p map[string]any) string {
			return unless(p["Name"] == nil, "its name is %v", p["Name"])
		}, "AWS::Scheduler::Schedule")
	}},
}

// principals are those of AWS that policies within a value name.
func principals(v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, of := range v {
			if key == "Principal" {
				out = append(append(out, templates.Texts(of)...), templates.Texts(templates.At(of, "AWS"))...)
			} else {
				out = append(out, principals(of)...)
			}
		}
	case []any:
		for _, of := range v {
			out = append(out, principals(of)...)
		}
	}
	return out
}

// deniesPlain reports whether a policy of a kind denies what comes without TLS to a resource whose name has
// this end.
func deniesPlain(s *templates.Stack, kind, key, action, end string) bool {
	for _, name := range s.Of(kind) {
		p := s.Resources[name].Properties
		if !slices.ContainsFunc(templates.Texts(p[key]), func(of string) bool { return strings.HasSuffix(of, end) }) {
			continue
		}
		list, _ := templates.At(p, "PolicyDocument", "Statement").([]any)
		for _, st := range list {
			if templates.Text(templates.At(st, "Effect")) == "Deny" && templates.Text(templates.At(st, "Action")) == action && templates.Text(templates.At(st, "Principal")) == "*" &&
				templates.Text(templates.At(st, "Condition", "Bool", "aws:SecureTransport")) == "false" {
				return true
			}
		}
	}
	return false
}
