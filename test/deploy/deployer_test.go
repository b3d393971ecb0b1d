package deploy_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const (
	deployerKey     = "arn:aws:kms:us-east-1:123456789012:key/0000"
	deliverySecrets = "arn:aws:secretsmanager:us-east-1:123456789012:secret:hooks/*,arn:aws:secretsmanager:us-east-1:123456789012:secret:slack-AbCdEf"
)

func deployer(t *testing.T) *templates.Stack {
	t.Helper()
	return deployerIn(t, home, "dayfly", deliverySecrets)
}

func deployerIn(t *testing.T, account templates.Account, name, secrets string) *templates.Stack {
	t.Helper()
	tmpl, err := templates.Load("../../infra/transformed/deployer.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := tmpl.Deploy("deployer", account, map[string]string{"Name": name, "RoleName": "deployers", "KmsKeyArn": deployerKey, "DeliverySecrets": secrets}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// granted are the statements of who deploys, of all policies or of one.
func granted(s *templates.Stack, of ...string) (out []templates.Statement) {
	if len(of) == 0 {
		of = slices.DeleteFunc(s.Of("AWS::IAM::ManagedPolicy"), func(p string) bool { return p == "Boundary" })
	}
	for _, p := range of {
		out = append(out, s.Statements(p)...)
	}
	return out
}

// commands are the CLI's commands that are not one call of the same name. What a waiter asks is what it waits for.
var commands = map[string]string{
	"sts get-caller-identity":          "", // IAM does not ask after it
	"configure get":                    "",
	"cloudformation wait":              "cloudformation:DescribeStacks",
	"cloudformation deploy":            "cloudformation:DescribeStacks cloudformation:CreateChangeSet cloudformation:DescribeChangeSet cloudformation:ExecuteChangeSet cloudformation:TagResource cloudformation:GetTemplateSummary",
	"cloudformation delete-stack":      "cloudformation:DeleteStack",
	"iam wait":                         "iam:GetRole",
	"apigateway get-account":           "apigateway:GET",
	"ecr get-login-password":           "ecr:GetAuthorizationToken",
	"cloudformation create-change-set": "cloudformation:CreateChangeSet cloudformation:TagResource",
	"s3 cp":                            "s3:PutObject",
	"s3 rm":                            "s3:DeleteObject",
	"s3 mb":                            "s3:CreateBucket",
	"s3 rb":                            "s3:DeleteBucket",
	"lambda get-account-settings":      "lambda:GetAccountSettings",
	"service-quotas get-service-quota": "servicequotas:GetServiceQuota",
	"service-quotas get-aws-default-service-quota": "servicequotas:GetAWSDefaultServiceQuota",
	"ecs list-tasks":                 "ecs:ListTasks",
	"ecs describe-tasks":             "ecs:DescribeTasks",
	"iam create-service-linked-role": "iam:CreateServiceLinkedRole",
}

// pushes are the calls of docker push: of a registry, by its protocol (ECR user guide, "Required IAM permissions").
const pushes = "ecr:BatchCheckLayerAvailability ecr:BatchGetImage ecr:InitiateLayerUpload ecr:UploadLayerPart ecr:CompleteLayerUpload ecr:PutImage"

func camel(operation string) (out string) {
	for word := range strings.SplitSeq(operation, "-") {
		out += strings.ToUpper(word[:1]) + word[1:]
	}
	return out
}

// asksOf is what IAM is asked for a command line of the scripts.
func asksOf(t *testing.T, line string) (out []templates.Request) {
	t.Helper()
	words := strings.Fields(line)
	if words[0] == "docker" && words[1] == "push" {
		for action := range strings.FieldsSeq(pushes) {
			out = append(out, templates.Request{Action: action, Resource: "arn:aws:ecr" + ofAccount + "repository/dayfly-runner"})
		}
		return out
	}
	if words[0] != "aws" {
		return nil
	}
	option := func(name string) string {
		if i := slices.Index(words, "--"+name); i >= 0 {
			return words[i+1]
		}
		return ""
	}
	service, operation := words[1], words[2]
	actions, special := commands[service+" "+operation]
	if !special {
		actions = service + ":" + camel(operation)
	}
	context := map[string]string{}
	resource := ""
	switch service {
	case "cloudformation":
		if resource = option("stack-name"); !strings.HasPrefix(resource, "arn:") {
			resource = "arn:aws:cloudformation" + ofAccount + "stack/" + resource + "/0a"
		}
		if option("stack-name") == "" {
			resource = "*"
		} else {
			context[isOf] = "dayfly"
		}
		for _, id := range []string{option("stack-name"), option("change-set-name")} {
			if strings.HasPrefix(id, "arn:") {
				resource = strings.Replace(id, "eu-west-1", "us-east-1", 1)
			}
		}
		if url := option("template-url"); url != "" { // CloudFormation reads it, and what it nests, with the rights of who calls
			bucket, key, _ := strings.Cut(strings.TrimPrefix(url, "https://"), ".s3.us-east-1.amazonaws.com")
			out = append(out, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::" + bucket + key})
		}
		if bucket := option("s3-bucket"); bucket != "" { // it uploads the template, unless it is there
			for _, action := range []string{"s3:GetObject", "s3:PutObject"} {
				out = append(out, templates.Request{Action: action, Resource: "arn:aws:s3:::" + bucket + "/templates/0a.template"})
			}
		}
	case "logs":
		resource = logs + option("log-group-name")
	case "s3":
		i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "s3://") })
		resource = "arn:aws:s3:::" + strings.TrimPrefix(words[i], "s3://")
	case "ecr":
		resource = "arn:aws:ecr" + ofAccount + "repository/dayfly-runner"
		if operation == "get-login-password" {
			resource = "*"
		}
	case "iam":
		resource = iam + "/aws-service-role/ecs.amazonaws.com/AWSServiceRoleForECS"
	case "secretsmanager":
		resource, context[isOf] = aSecret+option("secret-id")+"-0a1b2c3d-abcdef", "dayfly"
	case "apigateway":
		resource = apis + "/account"
	case "sqs":
		resource = "arn:aws:sqs" + ofAccount + option("queue-url")
	case "ecs":
		resource = "arn:aws:ecs" + ofAccount + "task/dayfly-main-Cluster-1A2B/0a"
		if operation == "list-tasks" {
			resource, context["ecs:cluster"] = "*", "arn:aws:ecs"+ofAccount+"cluster/"+option("cluster")
		}
	case "ec2":
		resource = "*"
		for name, kind := range map[string]string{"vpc-endpoint-ids": "vpc-endpoint", "group-id": "security-group"} {
			if id := option(name); id != "" && strings.HasPrefix(operation, "delete") {
				resource, context["aws:resourcetag/guarddutymanaged"] = ec2+kind+"/"+id, "true"
			}
		}
	case "lambda", "sts", "configure", "service-quotas":
		resource = "*"
	default:
		t.Errorf("%s: nothing says on what resource that is", line)
	}
	for action := range strings.FieldsSeq(actions) {
		out = append(out, templates.Request{Action: action, Resource: resource, Context: context})
	}
	return out
}

// scriptCalls are the command lines of deployments in a new account, of an update, of a create that fails and of destroys.
func scriptCalls(t *testing.T) (all []string) {
	t.Helper()
	s := newSite(t)
	s.keep("new-account", "")
	s.keep("reasons-dayfly-main", notYet)
	for _, c := range [][]string{
		{"deploy", "PLAN=changeset", "YES=1", "AWS_REGION=us-east-1"}, {"deploy", "YES=1", "AWS_REGION=us-east-1"},
		{"deploy", "PLAN=changeset", "AWS_REGION=us-east-1"}, {"deploy", "YES=1", "VERSION=v2.0.0"}, {"destroy", "YES=1", "CONTROL_PLANE=1"},
	} {
		s.keep("stopping", "1")
		s.keep("endpoints", "vpce-0a com.amazonaws.eu-west-1.guardduty-data true\n")
		said, made, err := s.run(c[0], "", c[1:]...)
		if err != nil {
			t.Fatalf("%s: %v: %s", c[0], err, said)
		}
		all = append(all, made...)
	}
	return all
}

// Who deploys may call what the scripts call, and each right is there for one of their calls.
func TestDeployer_MayCallWhatTheScriptsCall(t *testing.T) {
	t.Parallel()
	s := deployer(t)
	// A key of the account's is used by the services that the scripts and CloudFormation call.
	asked := []templates.Request{
		{Action: "kms:GenerateDataKey", Resource: deployerKey, Context: map[string]string{"kms:viaservice": "s3.us-east-1.amazonaws.com"}},
		{Action: "kms:Decrypt", Resource: deployerKey, Context: map[string]string{"kms:viaservice": "s3.us-east-1.amazonaws.com"}},
	}
	for _, r := range asksOfHandlers(t, resourcesOfStacks(t)) {
		if strings.HasPrefix(r.Action, "kms:") && r.Context["kms:viaservice"] != "" {
			asked = append(asked, r)
		}
	}
	for _, line := range scriptCalls(t) {
		asked = append(asked, asksOf(t, line)...)
	}
	allowAll(t, granted(s, "Scripts"), asked)
	noSurplus(t, granted(s, "Scripts"), asked)
}

// sam deploy calls what the AWS CLI's deploy does, and CloudFormation's macro of SAM, where the admin allows it
// (samcli/lib/deploy/deployer.py; AWS SAM developer guide, "Managing resource access").
func TestDeployer_MayDeployWithSam(t *testing.T) {
	tmpl, err := templates.Load("../../infra/transformed/deployer.json")
	if err != nil {
		t.Fatal(err)
	}
	asked := asksOf(t, "aws cloudformation deploy --stack-name dayfly-main --s3-bucket dayfly-artifacts-bucket-1a2b")
	asked = append(asked, asksOf(t, "aws cloudformation describe-stack-events --stack-name dayfly-main")...)
	macro := templates.Request{Action: "cloudformation:CreateChangeSet", Resource: "arn:aws:cloudformation:us-east-1:aws:transform/Serverless-2016-10-31"}
	for _, sam := range []string{"yes", "no"} {
		s, err := tmpl.Deploy("deployer", home, map[string]string{"Name": "dayfly", "Sam": sam}, nil)
		if err != nil {
			t.Fatal(err)
		}
		allowAll(t, granted(s, "Scripts"), asked)
		if allowed, _ := templates.Evaluate(granted(s, "Scripts"), macro); allowed != (sam == "yes") {
			t.Errorf("Sam=%s: %s is allowed: %t", sam, macro, allowed)
		}
	}
}

// CloudFormation may call, for who deploys, what each resource of the templates needs; and no right is left over.
func TestDeployer_MayCallWhatCloudFormationCalls(t *testing.T) {
	s := deployer(t)
	asked := asksOfHandlers(t, resourcesOfStacks(t))
	allowAll(t, granted(s), asked)
	noSurplus(t, granted(s, "Services", "Storage", "Network"), asked)
}

type resourceOf struct {
	stack, logical, kind string
	properties           map[string]any // with their functions
}

// stackOf are the stacks that make deploy makes, by template.
var stackOf = map[string]string{"artifacts": "dayfly-artifacts", "controlplane": "dayfly-control", "pool": "dayfly-main", "network": "dayfly-main-Network-1A2B3C"}

// resourcesOfStacks are those of every template that make deploy gives CloudFormation, whatever their conditions.
func resourcesOfStacks(t *testing.T) (out []resourceOf) {
	t.Helper()
	files, err := filepath.Glob("../../infra/transformed/*.json")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if name == "deployer" || name == "workspace-role" {
			continue // an admin deploys these
		}
		if stackOf[name] == "" {
			t.Errorf("what stack is of template %s?", name)
		}
		tmpl, err := templates.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for logical, r := range tmpl.Resources {
			out = append(out, resourceOf{stackOf[name], logical, r.Type, r.Properties})
		}
	}
	return out
}

func allowAll(t *testing.T, of []templates.Statement, asked []templates.Request) {
	t.Helper()
	told := map[string]bool{}
	for _, r := range asked {
		if allowed, _ := templates.Evaluate(of, r); !allowed && !told[r.String()] {
			told[r.String()] = true
			t.Errorf("not allowed: %s %v", r, r.Context)
		}
	}
}

// noSurplus finds the actions of statements that nothing asks for.
func noSurplus(t *testing.T, of []templates.Statement, asked []templates.Request) {
	t.Helper()
	for _, st := range of {
		for _, action := range st.Actions {
			one := st
			one.Actions = []string{action}
			if !slices.ContainsFunc(asked, func(r templates.Request) bool { ok, _ := templates.Evaluate([]templates.Statement{one}, r); return ok }) {
				t.Errorf("%s allows %s, and nothing asks for it", st.Where, action)
			}
		}
	}
}

// wideOfDeployer are the actions that may name every resource, because their services know none for them, or because the
// scripts ask without one.
var wideOfDeployer = regexp.MustCompile(`^(cloudformation:DescribeStacks|lambda:(GetAccountSettings|CreateEventSourceMapping)|servicequotas:Get(AWSDefault)?ServiceQuota|ecr:GetAuthorizationToken|ecs:(ListTasks|CreateCluster|RegisterTaskDefinition|DeregisterTaskDefinition|DescribeTaskDefinition)` +
	`|secretsmanager:GetRandomPassword|kms:ListAliases|autoscaling:DescribeTags|sts:GetWebIdentityToken|guardduty:SendSecurityTelemetry|logs:(DescribeLogGroups|(Create|Get|Update|Delete)LogDelivery|ListLogDeliveries|PutResourcePolicy|DescribeResourcePolicies)|ec2:Describe[A-Za-z]+)$`)

// No statement allows a pattern of actions, or every resource where there could be fewer; and each policy fits IAM.
func TestDeployer_IsNotTooWide(t *testing.T) {
	s := deployer(t)
	for _, policy := range s.Of("AWS::IAM::ManagedPolicy") {
		// The longest names that there are, and as many secrets as docs/aws-permissions.md promises.
		long := deployerIn(t, templates.Account{Partition: "aws-us-gov", Region: "ap-southeast-15", ID: home.ID}, strings.Repeat("n", 20), strings.Repeat(","+strings.Repeat("s", 100), 20)[1:])
		document, err := json.Marshal(long.Resources[policy].Properties["PolicyDocument"])
		if strings.Contains(strings.ReplaceAll(string(document), deployerKey, ""), "arn:aws:") {
			t.Errorf("%s names the partition aws", policy)
		}
		if err != nil || len(document) > 6144 { // IAM counts no white space (IAM user guide, "IAM and STS quotas")
			t.Errorf("%s has %d characters: %v", policy, len(document), err)
		}
		for _, st := range s.Statements(policy) {
			for _, why := range tooWide(st, policy != "Scripts" && policy != "Boundary") {
				t.Errorf("%s: %s", st.Where, why)
			}
		}
	}
	narrow := templates.Statement{Actions: []string{"sqs:CreateQueue"}, Resources: []string{queue + "dayfly-*"}, Conditions: map[string]map[string][]string{"ForAnyValue:StringEquals": {"aws:calledvia": {"cloudformation.amazonaws.com"}}}}
	if why := tooWide(narrow, true); len(why) > 0 {
		t.Error(why)
	}
	for name, spoil := range map[string]func(*templates.Statement){
		"every action": func(st *templates.Statement) { st.Actions = []string{"*"} }, "a pattern": func(st *templates.Statement) { st.Actions = []string{"sqs:Create*"} },
		"every resource": func(st *templates.Statement) { st.Resources = []string{"*"} }, "every queue": func(st *templates.Statement) { st.Resources = []string{queue + "*"} },
		"anybody's call": func(st *templates.Statement) { st.Conditions = nil },
	} {
		st := narrow
		if spoil(&st); len(tooWide(st, true)) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
}

// byID are resources whose names nobody chooses, or that belong to others: limited by their type, account and Region.
var byID = regexp.MustCompile(`^arn:aws:(ec2:us-east-1:123456789012:([a-z-]+|\*)/\*|apigateway:us-east-1::/(restapis|apis|tags)/\*|lambda:us-east-1:123456789012:event-source-mapping:\*` +
	`|logs:us-east-1:123456789012:\*|execute-api:us-east-1:123456789012:\*|ecr:us-east-1:(123456789012:repository/\*|\*:repository/aws-guardduty-agent-fargate)|lambda:\*:\*:function:dayfly-wake-\*|iam::\*:role/dayfly/\*)$`)

func tooWide(st templates.Statement, viaCloudFormation bool) (why []string) {
	for _, a := range st.Actions {
		if strings.Contains(a, "*") {
			why = append(why, "it allows the actions "+a)
		}
		if slices.Contains(st.Resources, "*") && !wideOfDeployer.MatchString(a) {
			why = append(why, "it allows "+a+" on every resource")
		}
	}
	for _, r := range st.Resources {
		if r != "*" && strings.Contains(r, "*") && !byID.MatchString(r) && !strings.Contains(r, "dayfly-") && !strings.Contains(r, "dayfly/") && !strings.Contains(deliverySecrets, r) && !slices.Equal(st.Conditions["StringEquals"][isOf], []string{"dayfly"}) {
			why = append(why, "it does not name the deployment: "+r)
		}
	}
	if viaCloudFormation && !slices.Equal(st.Conditions["ForAnyValue:StringEquals"]["aws:calledvia"], []string{"cloudformation.amazonaws.com"}) {
		why = append(why, "it is not limited to calls of CloudFormation")
	}
	return why
}

// What who deploys must not do, with the policies of all four.
func TestDeployer_MustNot(t *testing.T) {
	s := deployer(t)
	via := map[string]string{"aws:calledvia": "cloudformation.amazonaws.com"}
	with := func(more ...string) map[string]string {
		m := maps.Clone(via)
		for i := 0; i+1 < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	boundary := bounded["iam:permissionsboundary"]
	own := iam + "/dayfly-stack/dayfly/main/dayfly-main-PollerRole-1A2B"
	for what, r := range map[string]templates.Request{
		"a role without the boundary":       {Action: "iam:CreateRole", Resource: own, Context: via},
		"a role with another boundary":      {Action: "iam:CreateRole", Resource: own, Context: with("iam:permissionsboundary", "arn:aws:iam::aws:policy/AdministratorAccess")},
		"rights for a role without one":     {Action: "iam:PutRolePolicy", Resource: own, Context: via},
		"a role by itself":                  {Action: "iam:CreateRole", Resource: own, Context: map[string]string{"iam:permissionsboundary": boundary}},
		"to take the boundary away":         {Action: "iam:DeleteRolePermissionsBoundary", Resource: own, Context: with("iam:permissionsboundary", boundary)},
		"to change the boundary":            {Action: "iam:CreatePolicyVersion", Resource: boundary, Context: via},
		"any managed policy":                {Action: "iam:AttachRolePolicy", Resource: iam + "/dayfly-stack/dayfly/dayfly-artifacts-R", Context: with("iam:permissionsboundary", boundary, "iam:policyarn", "arn:aws:iam::aws:policy/AdministratorAccess")},
		"another role":                      {Action: "iam:PutRolePolicy", Resource: iam + "/admin", Context: with("iam:permissionsboundary", boundary)},
		"the role of a workspace":           {Action: "iam:CreateRole", Resource: iam + "/dayfly/main/network", Context: with("iam:permissionsboundary", boundary)},
		"to pass another role":              {Action: "iam:PassRole", Resource: iam + "/admin", Context: with("iam:passedtoservice", "lambda.amazonaws.com")},
		"to pass a role to another service": {Action: "iam:PassRole", Resource: own, Context: with("iam:passedtoservice", "ec2.amazonaws.com")},
		"another stack":                     {Action: "cloudformation:DeleteStack", Resource: "arn:aws:cloudformation" + ofAccount + "stack/payroll/0a"},
		"to import":                         {Action: "cloudformation:CreateChangeSet", Resource: "arn:aws:cloudformation" + ofAccount + "stack/dayfly-main/0a", Context: map[string]string{"cloudformation:importresourcetypes": "AWS::S3::Bucket"}},
		"to delete a VPC by itself":         {Action: "ec2:DeleteVpc", Resource: ec2 + "vpc/vpc-1"},
		"another deployment's function":     {Action: "lambda:DeleteFunction", Resource: "arn:aws:lambda" + ofAccount + "function:payroll", Context: via},
		"another table":                     {Action: "dynamodb:DeleteTable", Resource: "arn:aws:dynamodb" + ofAccount + "table/payroll", Context: via},
		"another secret":                    {Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager" + ofAccount + "secret:payroll-AbCdEf", Context: via},
		"to read a pool's token":            {Action: "secretsmanager:GetSecretValue", Resource: aSecret + "dayfly-main-PoolTokenSecret-0a1b2c3d-AbCdEf", Context: map[string]string{isOf: "dayfly"}},
		"to read states":                    {Action: "s3:GetObject", Resource: "arn:aws:s3:::dayfly-main-state-1a2b/default/ws/terraform.tfstate"},
		"the key for itself":                {Action: "kms:Decrypt", Resource: deployerKey},
		"an image of another repository":    {Action: "ecr:PutImage", Resource: "arn:aws:ecr" + ofAccount + "repository/payroll"},
		"to run a task":                     {Action: "ecs:RunTask", Resource: "arn:aws:ecs" + ofAccount + "task-definition/dayfly-main-runner:1"},
		"to invoke a function":              {Action: "lambda:InvokeFunction", Resource: "arn:aws:lambda" + ofAccount + "function:dayfly-main-Reaper-1A2B"},
	} {
		if allowed, by := templates.Evaluate(granted(s), r); allowed {
			t.Errorf("%s: %s, because of %s", what, r, by)
		}
	}
}

// asksOfStatement are the requests that a statement allows, with its own conditions fulfilled.
func asksOfStatement(st templates.Statement) (out []templates.Request) {
	context := map[string]string{}
	for operator, keys := range st.Conditions {
		for k, v := range keys {
			if operator != "Null" && !strings.Contains(operator, "Not") {
				context[k] = v[0]
			}
		}
	}
	for _, action := range st.Actions {
		for _, resource := range st.Resources {
			out = append(out, templates.Request{Action: action, Resource: resource, Context: context})
		}
	}
	return out
}

// The boundary lets the roles of the stacks do what their policies say, in each branch of the templates, and no more.
func TestDeployer_BoundaryLetsTheStacksWork(t *testing.T) {
	limit := deployer(t).Statements("Boundary")
	// API Gateway's own policy, for the role that an artifacts stack may make.
	var asked []templates.Request
	for action := range strings.FieldsSeq("CreateLogGroup CreateLogStream DescribeLogGroups DescribeLogStreams PutLogEvents GetLogEvents FilterLogEvents") {
		asked = append(asked, templates.Request{Action: "logs:" + action, Resource: logs + "/aws/vendedlogs/dayfly-main-api"})
	}
	allowAll(t, limit, asked)
	told := map[string]bool{}
	everyBranch(t, func(branch string, s *templates.Stack) {
		for _, role := range roles(s) {
			for _, st := range s.Statements(role) {
				for _, r := range asksOfStatement(st) {
					if strings.HasPrefix(r.Action, "secretsmanager:") {
						r.Context[isOf] = "dayfly" // from the stack
					}
					if allowed, _ := templates.Evaluate(limit, r); !allowed && !told[st.Where+r.String()] {
						told[st.Where+r.String()] = true
						t.Errorf("%s: %s: the boundary forbids %s", branch, st.Where, r)
					}
					asked = append(asked, r)
				}
			}
		}
	})
	noSurplus(t, limit, asked)
	for _, r := range []templates.Request{
		{Action: "iam:CreateRole", Resource: iam + "/x"}, {Action: "iam:PassRole", Resource: iam + "/admin", Context: passed("ecs-tasks")},
		{Action: "sts:AssumeRole", Resource: iam + "/admin"}, {Action: "s3:GetObject", Resource: "arn:aws:s3:::dayfly-main-state/x"},
		{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager" + ofAccount + "secret:payroll-AbCdEf"},
		{Action: "s3:GetObject", Resource: "arn:aws:s3:::dayfly-control-audittrail-1a2b/trail/x"}, {Action: "s3:DeleteObject", Resource: "arn:aws:s3:::dayfly-control-audittrail-1a2b/trail/x"},
	} {
		if allowed, by := templates.Evaluate(limit, r); allowed {
			t.Errorf("the boundary allows %s: %s", r, by)
		}
	}
}

// byBeginning are services whose resources a deployment's policies tell from those of another by the beginning of their names
// alone: a-b-main begins with a-.
const byBeginning = "s3 sqs dynamodb lambda logs ecs ecr events cloudwatch scheduler"

// Who deploys a reaches no stack, no role and no secret of a-b, for any resource of its templates; nor do the roles of a.
func TestDeployer_KeepsDeploymentsApart(t *testing.T) {
	t.Parallel()
	asked := asksOfHandlers(t, resourcesOfStacks(t))
	for _, operation := range []string{
		"cloudformation deploy", "cloudformation delete-stack", "cloudformation get-template", "cloudformation describe-stack-events",
	} {
		asked = append(asked, asksOf(t, "aws "+operation+" --stack-name dayfly-main")...)
	}
	for _, operation := range []string{"get-secret-value", "put-secret-value", "describe-secret"} {
		asked = append(asked, asksOf(t, "aws secretsmanager "+operation+" --secret-id dayfly-control-AdminTokenSecret")...)
	}
	// of is a request for a resource of another deployment than dayfly. A deployer's policies are not those of another.
	of := func(name string, r templates.Request) templates.Request {
		renamed := strings.NewReplacer("dayfly-wake-dayfly-", "dayfly-wake-"+name+"-", "dayfly-stack/dayfly/", "dayfly-stack/"+name+"/", "dayfly-stack", "dayfly-stack", "dayfly-", name+"-")
		out := templates.Request{Action: r.Action, Resource: renamed.Replace(r.Resource), Context: map[string]string{}}
		for k, v := range r.Context {
			switch k {
			case isOf, getOf:
				v = name
			case "lambda:functionarn", "ecs:cluster":
				v = renamed.Replace(v)
			}
			out.Context[k] = v
		}
		return out
	}
	reached := map[string]bool{}
	for name, other := range map[string]string{"a": "a-b", "a-b": "a"} {
		s := deployerIn(t, home, name, deliverySecrets)
		limit := s.Statements("Boundary")
		for _, r := range asked {
			own, foreign := of(name, r), of(other, r)
			if allowed, _ := templates.Evaluate(granted(s), own); !allowed {
				t.Errorf("who deploys %s may not %s %v", name, own, own.Context)
			}
			if own.Resource == foreign.Resource && maps.Equal(own.Context, foreign.Context) || r.Action == "cloudformation:DescribeStacks" {
				continue // it names no deployment, or shows no secret
			}
			service, _, _ := strings.Cut(r.Action, ":")
			if allowed, by := templates.Evaluate(granted(s), foreign); allowed {
				if reached[strings.ToLower(service)] = true; name == "a-b" || !slices.Contains(strings.Fields(byBeginning), strings.ToLower(service)) {
					t.Errorf("who deploys %s may %s, of %s: %s", name, foreign, other, by)
				}
			}
		}
		for _, r := range []templates.Request{
			{Action: "secretsmanager:GetSecretValue", Resource: aSecret + "dayfly-main-TicketKeysSecret-0a1b2c3d-abcdef", Context: map[string]string{isOf: "dayfly"}},
			{Action: "secretsmanager:GetSecretValue", Resource: aSecret + "TicketKeysSecret-1A2B3C4D5E6F-abcdef", Context: map[string]string{isOf: "dayfly"}},
			{Action: "iam:PassRole", Resource: iam + "/dayfly-stack/dayfly/main/dayfly-main-TaskRole-1A2B", Context: passed("ecs-tasks")},
		} {
			if allowed, _ := templates.Evaluate(limit, of(name, r)); !allowed {
				t.Errorf("the boundary of %s forbids %s", name, of(name, r))
			}
			if allowed, by := templates.Evaluate(limit, of(other, r)); allowed {
				t.Errorf("the boundary of %s allows %s: %s", name, of(other, r), by)
			}
		}
	}
	for service := range strings.FieldsSeq(byBeginning) {
		if !reached[service] {
			t.Errorf("%s is said to tell by the beginning of a name, and nothing of it was reached", service)
		}
	}
	everyBranch(t, func(branch string, s *templates.Stack) {
		for _, secret := range s.Of("AWS::SecretsManager::Secret") {
			var want any
			if strings.HasSuffix(branch, "NamedSecrets") {
				want = stackOf[strings.Split(branch, ",")[0]] + "-" + secret + "-0a1b2c3d"
			}
			if got := s.Resources[secret].Properties["Name"]; got != want {
				t.Errorf("%s: %s has the name %v, want %v", branch, secret, got, want)
			}
		}
	})
	// A new stack and a new secret have no tag yet; that of a stack comes with its first change.
	s := deployerIn(t, home, "a", "")
	for _, r := range []templates.Request{
		{Action: "cloudformation:CreateChangeSet", Resource: "arn:aws:cloudformation" + ofAccount + "stack/a-main/0a"},
		{Action: "cloudformation:ExecuteChangeSet", Resource: "arn:aws:cloudformation" + ofAccount + "stack/a-main/0a"},
		{Action: "secretsmanager:TagResource", Resource: aSecret + "a-main-TicketKeysSecret-0a1b2c3d-abcdef", Context: map[string]string{getOf: "a", "aws:calledvia": "cloudformation.amazonaws.com"}},
	} {
		if allowed, _ := templates.Evaluate(granted(s), r); !allowed {
			t.Errorf("%s is not allowed", r)
		}
	}
}
