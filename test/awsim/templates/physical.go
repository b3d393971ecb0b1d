package templates

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// invent makes up what a resource returns, in the form that AWS gives it.
func (d *deployment) invent(logical, attribute string, r Resource) (any, bool) {
	a := d.account
	property := func(key string) string { return text(d.value(logical, r.Properties[key])) }
	name := d.name + "-" + logical
	if r.Type == "AWS::Lambda::Function" {
		name = cmp.Or(property("FunctionName"), name)
	}
	arn := func(service, format string, args ...any) string {
		return fmt.Sprintf("arn:%s:%s:%s:%s:", a.Partition, service, a.Region, a.ID) + fmt.Sprintf(format, args...)
	}
	ec2 := func(kind string) string {
		sum := sha256.Sum256([]byte(name))
		return kind + "-" + hex.EncodeToString(sum[:])[:17]
	}
	path, role := cmp.Or(property("Path"), "/"), roleName(d.name, logical, property("RoleName"))
	known := map[string]map[string]string{
		"AWS::SQS::Queue": {
			"": "https://sqs." + a.Region + ".amazonaws.com/" + a.ID + "/" + name, "Arn": arn("sqs", "%s", name), "QueueName": name,
		},
		"AWS::SecretsManager::Secret": {"": arn("secretsmanager", "secret:%s-AbCdEf", cmp.Or(property("Name"), logical+"-1A2B3C4D5E6F"))},
		"AWS::IAM::Role":              {"": role, "Arn": fmt.Sprintf("arn:%s:iam::%s:role%s%s", a.Partition, a.ID, path, role)},
		"AWS::IAM::ManagedPolicy":     {"": fmt.Sprintf("arn:%s:iam::%s:policy/%s", a.Partition, a.ID, name)},
		"AWS::Lambda::Function":       {"": name, "Arn": arn("lambda", "function:%s", name)},
		"AWS::Logs::LogGroup":         {"": name, "Arn": arn("logs", "log-group:%s:*", name)},
		"AWS::ECS::Cluster":           {"": name, "Arn": arn("ecs", "cluster/%s", name)},
		"AWS::ECS::TaskDefinition":    {"": arn("ecs", "task-definition/%s:1", property("Family"))},
		"AWS::S3::Bucket":             {"": strings.ToLower(name), "Arn": fmt.Sprintf("arn:%s:s3:::%s", a.Partition, strings.ToLower(name))},
		"AWS::DynamoDB::Table":        {"": name, "Arn": arn("dynamodb", "table/%s", name)},
		"AWS::ApiGateway::RestApi":    {"": "restapi001"},
		"AWS::ApiGatewayV2::Api":      {"": "httpapi001"},
		"AWS::Events::Rule":           {"": name, "Arn": arn("events", "rule/%s", name)},
		"AWS::ApiGateway::Deployment": {"": name},
		"AWS::ApiGateway::Stage":      {"": property("StageName")},
		"AWS::ECR::Repository": {
			"": name, "RepositoryUri": fmt.Sprintf("%s.dkr.ecr.%s.amazonaws.com/%s", a.ID, a.Region, name),
		},
		"AWS::EC2::SecurityGroup":   {"": ec2("sg"), "GroupId": ec2("sg")},
		"AWS::EC2::VPC":             {"": ec2("vpc")},
		"AWS::EC2::Subnet":          {"": ec2("subnet")},
		"AWS::EC2::RouteTable":      {"": ec2("rtb")},
		"AWS::EC2::InternetGateway": {"": ec2("igw")},
		"AWS::EC2::NatGateway":      {"": ec2("nat")},
		"AWS::EC2::VPCEndpoint":     {"": ec2("vpce")},
	}
	if r.Type == "AWS::CloudFormation::Stack" {
		if out, ok := strings.CutPrefix(attribute, "Outputs."); ok {
			return d.name + "-" + logical + "-" + out, true
		}
	}
	v, ok := known[r.Type][attribute]
	return v, ok
}

// text is a scalar as CloudFormation writes it.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case nil, noValue:
		return ""
	case []any:
		return strings.Join(Texts(v), ",")
	}
	return fmt.Sprint(v)
}

// Texts is a list of scalars; a scalar is a list of one.
func Texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		if v == nil {
			return nil
		}
		return []string{text(v)}
	}
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = text(e)
	}
	return out
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

func number(v any) float64 {
	n, _ := strconv.ParseFloat(text(v), 64)
	return n
}

// Text is a decided scalar as CloudFormation writes it; "" where there is none.
func Text(v any) string { return text(v) }
