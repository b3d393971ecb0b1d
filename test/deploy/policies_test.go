package deploy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const (
	region = "us-east-1:123456789012:"
	queue  = "arn:aws:sqs:" + region
	fn     = "arn:aws:lambda:" + region + "function:"
	task   = "arn:aws:ecs:" + region + "task/dayfly-prod-Cluster/0123"
	iam    = "arn:aws:iam::123456789012:role"
)

// D1: what must not be allowed is not, to any role that could ask for it.
func TestPolicies_WhatMustNotBeAllowed(t *testing.T) {
	s := deploy(t, "pool", nil)
	cluster := map[string]string{"ecs:cluster": "arn:aws:ecs:" + region + "cluster/dayfly-prod-Cluster"}
	other := map[string]string{"ecs:cluster": "arn:aws:ecs:" + region + "cluster/payroll"}
	shell := map[string]string{"ecs:cluster": cluster["ecs:cluster"], "ecs:enable-execute-command": "true"}
	toECS := map[string]string{"iam:passedtoservice": "ecs-tasks.amazonaws.com"}
	definition := "arn:aws:ecs:" + region + "task-definition/dayfly-prod-runner:1"
	everybody := roles(s)
	lambdas := slices.DeleteFunc(slices.Clone(everybody), func(r string) bool { return r == "TaskRole" || r == "ExecutionRole" || r == "TickRole" })
	for _, c := range []struct {
		what  string
		roles []string
		r     templates.Request
	}{
		{"a secret of somebody else", everybody, templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:payroll-AbCdEf"}},
		{"the pool token, to a task", []string{"TaskRole", "ExecutionRole", "StatusRole"}, templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:dayfly-prod-PoolTokenSecret-AbCdEf"}},
		{"the ticket keys, to who needs none", []string{"TaskRole", "ExecutionRole", "DispatcherRole", "ReaperRole", "DeadLettersRole", "DelivererRole"}, templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:dayfly-prod-TicketKeysSecret-AbCdEf"}},
		{"to change a secret", everybody, templates.Request{Action: "secretsmanager:PutSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:dayfly-prod-PoolTokenSecret-AbCdEf"}},
		{"a role outside of the pool's path", everybody, templates.Request{Action: "sts:AssumeRole", Resource: iam + "/admin"}},
		{"a role of another pool", everybody, templates.Request{Action: "sts:AssumeRole", Resource: iam + "/dayfly/staging/deploy"}},
		{"a role of the stack itself", everybody, templates.Request{Action: "sts:AssumeRole", Resource: s.RoleARN("DispatcherRole")}},
		{"a workspace's role, to a function", lambdas, templates.Request{Action: "sts:AssumeRole", Resource: iam + "/dayfly/prod/deploy"}},
		{"to run in another cluster", everybody, templates.Request{Action: "ecs:RunTask", Resource: definition, Context: other}},
		{"to run another task definition", everybody, templates.Request{Action: "ecs:RunTask", Resource: "arn:aws:ecs:" + region + "task-definition/payroll:1", Context: cluster}},
		{"to run with a shell", everybody, templates.Request{Action: "ecs:RunTask", Resource: definition, Context: shell}},
		{"to run, to who does not launch", slices.DeleteFunc(slices.Clone(everybody), func(r string) bool { return r == "DispatcherRole" || r == "PollerRole" }), templates.Request{Action: "ecs:RunTask", Resource: definition, Context: cluster}},
		{"to stop in another cluster", everybody, templates.Request{Action: "ecs:StopTask", Resource: "arn:aws:ecs:" + region + "task/payroll/0123"}},
		{"to stop, to a task", []string{"TaskRole", "ExecutionRole"}, templates.Request{Action: "ecs:StopTask", Resource: task}},
		{"to look, to a task", []string{"TaskRole", "ExecutionRole"}, templates.Request{Action: "ecs:DescribeTasks", Resource: task}},
		{"to list another cluster", everybody, templates.Request{Action: "ecs:ListTasks", Resource: "*", Context: other}},
		{"a shell in a task", everybody, templates.Request{Action: "ecs:ExecuteCommand", Resource: task}},
		{"to change a task definition", everybody, templates.Request{Action: "ecs:RegisterTaskDefinition", Resource: "*"}},
		{"to give another role", everybody, templates.Request{Action: "iam:PassRole", Resource: iam + "/admin", Context: toECS}},
		{"to give a workspace's role", everybody, templates.Request{Action: "iam:PassRole", Resource: iam + "/dayfly/prod/deploy", Context: toECS}},
		{"to give a role to a function", everybody, templates.Request{Action: "iam:PassRole", Resource: s.RoleARN("TaskRole"), Context: map[string]string{"iam:passedtoservice": "lambda.amazonaws.com"}}},
		{"to invoke a function", slices.DeleteFunc(slices.Clone(everybody), func(r string) bool { return r == "TickRole" }), templates.Request{Action: "lambda:InvokeFunction", Resource: fn + "dayfly-prod-Dispatcher"}},
		{"to invoke a foreign function", everybody, templates.Request{Action: "lambda:InvokeFunction", Resource: fn + "payroll"}},
		{"the queue, to a task", []string{"TaskRole", "ExecutionRole"}, templates.Request{Action: "sqs:ReceiveMessage", Resource: queue + "dayfly-prod-Jobs"}},
		{"to send, to a task", []string{"TaskRole", "ExecutionRole"}, templates.Request{Action: "sqs:SendMessage", Resource: queue + "dayfly-prod-Reports"}},
		{"another queue", everybody, templates.Request{Action: "sqs:ReceiveMessage", Resource: queue + "payroll"}},
		{"to read what it queued, to the poller", []string{"PollerRole"}, templates.Request{Action: "sqs:ReceiveMessage", Resource: queue + "dayfly-prod-Jobs"}},
		{"the state, to the stack's own roles", everybody, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::dayfly-prod-state/default/ws/terraform.tfstate"}},
		{"another API", everybody, templates.Request{Action: "execute-api:Invoke", Resource: "arn:aws:execute-api:" + region + "other/status/POST/v1/jobs/x/start"}},
		{"to make a policy", everybody, templates.Request{Action: "iam:PutRolePolicy", Resource: s.RoleARN("TaskRole")}},
		{"another image", []string{"ExecutionRole"}, templates.Request{Action: "ecr:BatchGetImage", Resource: "arn:aws:ecr:" + region + "repository/payroll"}},
	} {
		for _, role := range c.roles {
			if allowed, by := templates.Evaluate(s.Statements(role), c.r); allowed {
				t.Errorf("%s: %s may %s, because of %s", c.what, role, c.r, by)
			}
		}
	}
	// A launch that does not speak of a shell may be told to IAM with the key or without it. The poller may launch only
	// where DirectLaunch is on, and then as the dispatcher may.
	off := deploy(t, "pool", map[string]string{"DirectLaunch": "false"})
	for _, key := range []map[string]string{{}, {"ecs:enable-execute-command": "false"}} {
		maps.Copy(key, cluster)
		for _, c := range []struct {
			of   *templates.Stack
			role string
			want bool
		}{{s, "DispatcherRole", true}, {s, "PollerRole", true}, {off, "DispatcherRole", true}, {off, "PollerRole", false}} {
			if allowed, _ := templates.Evaluate(c.of.Statements(c.role), templates.Request{Action: "ecs:RunTask", Resource: definition, Context: key}); allowed != c.want {
				t.Errorf("a launch with %v by %s is allowed: %t, want %t", key, c.role, allowed, c.want)
			}
		}
	}
	for _, action := range []string{"iam:PassRole", "ecs:TagResource"} {
		if slices.ContainsFunc(off.Statements("PollerRole"), func(st templates.Statement) bool { return slices.Contains(st.Actions, action) }) {
			t.Errorf("without DirectLaunch the poller still has %s", action)
		}
	}
	control := deploy(t, "controlplane", nil)
	for _, r := range []templates.Request{
		{Action: "lambda:InvokeFunction", Resource: fn + "payroll"},
		{Action: "lambda:InvokeFunction", Resource: fn + "dayfly-prod-Dispatcher"},
		{Action: "lambda:InvokeFunction", Resource: "arn:aws:lambda:us-east-1:210987654321:function:dayfly-wake-x"},
		{Action: "dynamodb:DeleteTable", Resource: "arn:aws:dynamodb:" + region + "table/dayfly-prod-Table"},
		{Action: "dynamodb:Scan", Resource: "arn:aws:dynamodb:" + region + "table/dayfly-prod-Table"},
		{Action: "dynamodb:GetItem", Resource: "arn:aws:dynamodb:" + region + "table/payroll"},
		{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:dayfly-prod-PoolTokenSecret-AbCdEf"},
		{Action: "sts:AssumeRole", Resource: iam + "/dayfly/prod/deploy"},
		{Action: "ecs:RunTask", Resource: definition, Context: cluster},
	} {
		for _, role := range roles(control) {
			if allowed, by := templates.Evaluate(control.Statements(role), r); allowed {
				t.Errorf("control plane: %s may %s, because of %s", role, r, by)
			}
		}
	}
}

// A stack that shows its roles has no pool token, and asks AWS for tokens for its organization alone.
func TestPolicies_AStackWithoutAStoredPoolToken(t *testing.T) {
	stored := deploy(t, "pool", nil)
	s := deploy(t, "pool", map[string]string{"PoolIdentity": "aws", "OrganizationName": "acme"})
	if _, there := s.Resources["PoolTokenSecret"]; there {
		t.Error("it has a secret for a pool token")
	}
	ask := templates.Request{Action: "sts:GetWebIdentityToken", Resource: "*", Context: map[string]string{"sts:identitytokenaudience": "urn:dayfly:org:acme"}}
	other := templates.Request{Action: "sts:GetWebIdentityToken", Resource: "*", Context: map[string]string{"sts:identitytokenaudience": "urn:dayfly:org:other"}}
	read := templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:dayfly-prod-PoolTokenSecret-AbCdEf"}
	callers := []string{"PollerRole", "DispatcherRole", "DeadLettersRole", "ReaperRole", "DelivererRole"}
	for _, role := range roles(s) {
		for _, c := range []struct {
			of   *templates.Stack
			r    templates.Request
			want bool
		}{{s, ask, slices.Contains(callers, role)}, {s, other, false}, {s, read, false}, {stored, ask, false}} {
			if allowed, by := templates.Evaluate(c.of.Statements(role), c.r); allowed != c.want {
				t.Errorf("%s may %s: %t by %s, want %t", role, c.r, allowed, by, c.want)
			}
		}
	}
}

// The poller invokes the deliverer, which reads the secrets that deliveries may name: nobody else does either.
func TestPolicies_Deliveries(t *testing.T) {
	none := deploy(t, "pool", nil)
	s := deploy(t, "pool", map[string]string{"DeliverySecrets": "arn:aws:secretsmanager:" + region + "secret:hooks/*,arn:aws:secretsmanager:" + region + "secret:slack-AbCdEf"})
	for _, role := range roles(s) {
		for _, c := range []struct {
			of   *templates.Stack
			r    templates.Request
			want string
		}{
			{s, templates.Request{Action: "lambda:InvokeFunction", Resource: fn + "dayfly-prod-Deliverer"}, "PollerRole"},
			{s, templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:hooks/on-call-AbCdEf"}, "DelivererRole"},
			{s, templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:slack-AbCdEf"}, "DelivererRole"},
			{s, templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:payroll-AbCdEf"}, ""},
			{none, templates.Request{Action: "secretsmanager:GetSecretValue", Resource: "arn:aws:secretsmanager:" + region + "secret:slack-AbCdEf"}, ""},
		} {
			if allowed, by := templates.Evaluate(c.of.Statements(role), c.r); allowed != (role == c.want) {
				t.Errorf("%s may %s: %t by %s", role, c.r, allowed, by)
			}
		}
	}
}

func roles(s *templates.Stack) []string { return s.Of("AWS::IAM::Role") }

// Statements that name every resource, each with the reason why there is no narrower one.
var wide = map[string]string{
	"ExecutionRole/begin-tasks/LogIn":  "ecr:GetAuthorizationToken knows no resources",
	"DeadLettersRole/deadletters/List": "the same",
	"ReaperRole/reaper/List":           "ecs:ListTasks knows no tasks; the condition names the cluster",
}

func TestPolicies_NoWildcardWithoutAReason(t *testing.T) {
	left := maps.Clone(wide)
	for _, name := range []string{"pool", "controlplane"} {
		s := deploy(t, name, nil)
		for _, role := range roles(s) {
			for _, st := range s.Statements(role) {
				for _, a := range st.Actions {
					if strings.HasSuffix(a, "*") {
						t.Errorf("%s allows the actions %s", st.Where, a)
					}
				}
				if slices.Contains(st.Resources, "*") {
					if wide[st.Where] == "" {
						t.Errorf("%s allows every resource, and nothing says why", st.Where)
					}
					delete(left, st.Where)
				}
			}
		}
	}
	for where := range left {
		t.Errorf("%s is excused and not there", where)
	}
}

// Who may take a role: services of AWS only, and for somebody of this account where the service says for whom.
func TestPolicies_TrustIsLimitedByAccountAndSource(t *testing.T) {
	for _, name := range []string{"pool", "controlplane", "network"} {
		s := deploy(t, name, networkMode(name))
		for _, role := range roles(s) {
			doc, _ := s.Resources[role].Properties["AssumeRolePolicyDocument"].(map[string]any)
			list, _ := doc["Statement"].([]any)
			for _, e := range list {
				m, _ := e.(map[string]any)
				principal, _ := m["Principal"].(map[string]any)
				service, _ := principal["Service"].(string)
				if len(principal) != 1 || service == "" {
					t.Errorf("%s can be taken by %v", role, m["Principal"])
				}
				conditions, _ := m["Condition"].(map[string]any)
				equals, _ := conditions["StringEquals"].(map[string]any)
				if service == "lambda.amazonaws.com" {
					continue // it gives no source
				}
				if equals["aws:SourceAccount"] != home.ID {
					t.Errorf("%s: %s may take it for any account", role, service)
				}
				like, _ := conditions["ArnLike"].(map[string]any)
				if source, _ := like["aws:SourceArn"].(string); !strings.Contains(source, ":"+home.Region+":"+home.ID+":") {
					t.Errorf("%s: %s may take it for whatever it does in the account", role, service)
				}
				if source, _ := like["aws:SourceArn"].(string); service == "scheduler.amazonaws.com" && !strings.Contains(source, ":schedule-group/") {
					t.Errorf("%s: %s names the group of a schedule there, never the schedule", role, service)
				}
			}
		}
	}
}

func networkMode(template string) map[string]string {
	if template == "network" {
		return map[string]string{"NetworkMode": "public"}
	}
	return nil
}

// What no call asks for is found, and what is asked for under another condition counts as not asked for.
func TestUnused(t *testing.T) {
	s := deploy(t, "pool", nil)
	launch := templates.Request{Action: "ecs:RunTask", Resource: "arn:aws:ecs:" + region + "task-definition/dayfly-prod-runner:1"}
	unused := func(r ...templates.Request) bool {
		for _, u := range s.Unused(map[string][]templates.Request{"DispatcherRole": r}) {
			if u == "DispatcherRole ecs:RunTask" {
				return true
			}
		}
		return false
	}
	if !unused() || !unused(launch) {
		t.Error("an action that was not requested is not found")
	}
	launch.Context = map[string]string{"ecs:cluster": "arn:aws:ecs:" + region + "cluster/dayfly-prod-Cluster"}
	if unused(launch) {
		t.Error("an action that was asked for is called unused")
	}
	if passed := s.PassedRoles(); len(passed) != 2 {
		t.Errorf("RunTask hands over %v", passed)
	}
}

// Every role that a stack makes lies under the path that is asked for, and has the boundary.
func TestRoles_HaveTheirPathAndBoundary(t *testing.T) {
	const boundary = "arn:aws:iam::123456789012:policy/boundary"
	more := map[string]string{"RolePath": "/teams/platform/", "PermissionsBoundaryArn": boundary, "ApiGatewayLogs": "true", "NetworkMode": "public"}
	for _, name := range []string{"pool", "controlplane", "network", "artifacts"} {
		s := deploy(t, name, fitting(t, name, "", more))
		of := []*templates.Stack{s}
		if name == "pool" {
			of = append(of, network(t, s))
		}
		for _, s := range of {
			if len(roles(s)) == 0 {
				t.Errorf("%s has no roles", name)
			}
			for _, role := range roles(s) {
				p := s.Resources[role].Properties
				want := "/teams/platform/"
				if name == "pool" {
					want += "prod/"
				}
				if p["Path"] != want || p["PermissionsBoundary"] != boundary {
					t.Errorf("%s: %s lies under %v, with the boundary %v", name, role, p["Path"], p["PermissionsBoundary"])
				}
			}
		}
		if p := deploy(t, name, fitting(t, name, "", map[string]string{"NetworkMode": "public"})); p.Resources[roles(s)[0]].Properties["PermissionsBoundary"] != nil {
			t.Errorf("%s has a boundary that nobody asked for", name)
		}
	}
}

// Flow logs are delivered with what the VPC guide asks for ("IAM role for publishing flow logs to CloudWatch Logs"), into
// the group of the stack only.
func TestPolicies_FlowLogsAreDelivered(t *testing.T) {
	s := deploy(t, "network", map[string]string{"NetworkMode": "public"})
	group := "arn:aws:logs:" + region + "log-group:dayfly-prod-FlowLogs"
	for _, r := range []templates.Request{
		{Action: "logs:CreateLogGroup", Resource: group},
		{Action: "logs:CreateLogStream", Resource: group + ":log-stream:eni-1"},
		{Action: "logs:PutLogEvents", Resource: group + ":log-stream:eni-1"},
		{Action: "logs:DescribeLogStreams", Resource: group + ":*"},
		{Action: "logs:DescribeLogGroups", Resource: "arn:aws:logs:" + region + "log-group::log-stream:"},
	} {
		if allowed, _ := templates.Evaluate(s.Statements("FlowLogRole"), r); !allowed {
			t.Errorf("delivery may not %s", r)
		}
		if r.Action == "logs:DescribeLogGroups" {
			continue
		}
		r.Resource = strings.Replace(r.Resource, "FlowLogs", "Other", 1)
		if allowed, by := templates.Evaluate(s.Statements("FlowLogRole"), r); allowed {
			t.Errorf("delivery may %s, because of %s", r, by)
		}
	}
}
