package deploy_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

var roleOfNetwork = map[string]string{
	"RoleName": "network", "PoolName": "main", "TaskRoleArn": iam + "/dayfly-stack/main/dayfly-main-TaskRole-1A2B3C4D5E6F", "WorkspaceId": "ws_one",
	"StateBucket": "states", "KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/0000",
}

// session is what a request of a run has: the tags that the runner sets (internal/runner/cloud), and the resource's.
func session(tags map[string]string, more ...string) map[string]string {
	out := map[string]string{}
	for k, v := range tags {
		out["aws:principaltag/"+k] = v
	}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

func tags(id, name string) map[string]string {
	return map[string]string{api.TagOrganization: "default", api.TagWorkspace: name, api.TagWorkspaceID: id}
}

// A workspace's role reaches the state and the secrets of the workspace that its session is tagged with, and of no other.
func TestWorkspaceRole_ReachesItsOwn(t *testing.T) {
	const secret, tag = "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf", "secretsmanager:resourcetag/dayfly:workspace_id"
	const parameter, of = "arn:aws:ssm:us-east-1:123456789012:parameter/app/db", "aws:resourcetag/dayfly:workspace_id"
	one, two := tags("ws_one", "network"), tags("ws_two", "web")
	named := tags("ws_two", "ws_one") // a name like the id of another one
	s := deploy(t, "workspace-role", roleOfNetwork)
	may := func(action, resource string, context map[string]string) bool {
		allowed, _ := templates.Evaluate(s.Statements("Role"), templates.Request{Action: action, Resource: resource, Context: context})
		return allowed
	}
	for _, c := range []struct {
		who              map[string]string
		action, resource string
		more             []string
		want             bool
	}{
		{one, "s3:GetObject", "states/default/ws_one/terraform.tfstate", nil, true},
		{one, "s3:PutObject", "states/default/ws_one/terraform.tfstate", nil, true},
		{one, "s3:PutObject", "states/default/ws_one/terraform.tfstate.tflock", nil, true},
		{one, "s3:DeleteObject", "states/default/ws_one/terraform.tfstate.tflock", nil, true},
		{one, "s3:PutObject", "states/env:/blue/default/ws_one/terraform.tfstate", nil, true},
		{one, "s3:ListBucket", "states", []string{"s3:prefix", "env:/"}, true},
		{one, "s3:ListBucket", "states", []string{"s3:prefix", "default/ws_one/terraform.tfstate"}, true},
		{one, "s3:ListBucket", "states", []string{"s3:prefix", "default/network/terraform.tfstate"}, false},
		{one, "s3:ListBucket", "states", []string{"s3:prefix", "default/"}, false},
		{one, "s3:ListBucket", "states", nil, false},
		{one, "s3:GetObject", "states/default/network/terraform.tfstate", nil, false},
		{one, "s3:PutObject", "states/default/network/terraform.tfstate", nil, false},
		{one, "s3:GetObject", "others/default/ws_one/terraform.tfstate", nil, false},
		{one, "s3:GetObject", "states/default/ws_two/terraform.tfstate", nil, false},
		{one, "s3:GetObject", "states/other/ws_one/terraform.tfstate", nil, false},
		{one, "s3:GetObject", "states/env:/blue/default/ws_two/terraform.tfstate", nil, false},
		{two, "s3:GetObject", "states/default/ws_one/terraform.tfstate", nil, false},
		{two, "s3:PutObject", "states/default/ws_one/terraform.tfstate", nil, false},
		{two, "s3:DeleteObject", "states/default/ws_one/terraform.tfstate", nil, false},
		{named, "s3:GetObject", "states/default/ws_one/terraform.tfstate", nil, false},
		{nil, "s3:GetObject", "states/default/ws_one/terraform.tfstate", nil, false}, // a session without tags
		{one, "secretsmanager:GetSecretValue", secret, []string{tag, "ws_one"}, true},
		{two, "secretsmanager:GetSecretValue", secret, []string{tag, "ws_one"}, false},
		{one, "secretsmanager:GetSecretValue", secret, nil, false},
		{nil, "secretsmanager:GetSecretValue", secret, []string{tag, ""}, false},
		{one, "secretsmanager:PutSecretValue", secret, []string{tag, "ws_one"}, false},
		{one, "ssm:GetParameter", parameter, []string{of, "ws_one"}, true},
		{two, "ssm:GetParameter", parameter, []string{of, "ws_one"}, false},
		{nil, "ssm:GetParameter", parameter, []string{of, ""}, false},
		{one, "ssm:PutParameter", parameter, []string{of, "ws_one"}, false},
		{one, "kms:Decrypt", roleOfNetwork["KmsKeyArn"], nil, true},
		{one, "s3:GetObject", "states/default/ws_gone/terraform.tfstate", nil, false},
	} {
		resource := c.resource
		if strings.HasPrefix(c.action, "s3:") {
			resource = "arn:aws:s3:::" + resource
		}
		if got := may(c.action, resource, session(c.who, c.more...)); got != c.want {
			t.Errorf("%s: %s on %s %v: got %v", c.who[api.TagWorkspaceID], c.action, c.resource, c.more, got)
		}
	}
	with := maps.Clone(roleOfNetwork)
	with["EarlierWorkspaceId"] = "ws_gone"
	s = deploy(t, "workspace-role", with)
	if !may("s3:GetObject", "arn:aws:s3:::states/default/ws_gone/terraform.tfstate", session(one)) || may("s3:PutObject", "arn:aws:s3:::states/default/ws_gone/terraform.tfstate", session(one)) ||
		!may("s3:ListBucket", "arn:aws:s3:::states", session(one, "s3:prefix", "default/ws_gone/terraform.tfstate")) {
		t.Error("the state of the deleted namesake cannot be read, or can be written")
	}
	with["StateBucket"] = ""
	s = deploy(t, "workspace-role", with)
	if may("s3:GetObject", "arn:aws:s3:::states/default/ws_one/terraform.tfstate", session(one)) {
		t.Error("without a bucket it reads one")
	}
}

// The code of a pull request is a stranger's: with a role for previews it writes nothing, and reads no secret that is not
// marked for previews.
func TestWorkspaceRole_OfPreviewsWritesNothing(t *testing.T) {
	with := maps.Clone(roleOfNetwork)
	with["Previews"] = "yes"
	s := deploy(t, "workspace-role", with)
	one := tags("ws_one", "network")
	const state, secret, of = "arn:aws:s3:::states/default/ws_one/terraform.tfstate", "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf", "secretsmanager:resourcetag/dayfly:"
	const parameter, ofParameter = "arn:aws:ssm:us-east-1:123456789012:parameter/app/db", "aws:resourcetag/dayfly:"
	for _, c := range []struct {
		action, resource string
		more             []string
		want             bool
	}{
		{"s3:GetObject", state, nil, true},
		{"s3:GetObject", "arn:aws:s3:::states/env:/blue/default/ws_one/terraform.tfstate", nil, true},
		{"s3:ListBucket", "arn:aws:s3:::states", []string{"s3:prefix", "default/ws_one/terraform.tfstate"}, true},
		{"s3:PutObject", state + ".tflock", nil, false},
		{"s3:PutObject", state, nil, false},
		{"s3:DeleteObject", state, nil, false},
		{"s3:PutObject", "arn:aws:s3:::states/env:/blue/default/ws_one/terraform.tfstate", nil, false},
		{"secretsmanager:GetSecretValue", secret, []string{of + "workspace_id", "ws_one", of + "preview", "true"}, true},
		{"secretsmanager:GetSecretValue", secret, []string{of + "workspace_id", "ws_one"}, false},
		{"secretsmanager:GetSecretValue", secret, []string{of + "workspace_id", "ws_two", of + "preview", "true"}, false},
		{"secretsmanager:GetSecretValue", secret, []string{of + "preview", "true"}, false},
		{"ssm:GetParameter", parameter, []string{ofParameter + "workspace_id", "ws_one", ofParameter + "preview", "true"}, true},
		{"ssm:GetParameter", parameter, []string{ofParameter + "workspace_id", "ws_one"}, false},
	} {
		got, _ := templates.Evaluate(s.Statements("Role"), templates.Request{Action: c.action, Resource: c.resource, Context: session(one, c.more...)})
		if got != c.want {
			t.Errorf("%s on %s %v: got %v", c.action, c.resource, c.more, got)
		}
	}
}

// The tasks of the pool take the role for this workspace, and for no other.
func TestWorkspaceRole_IsTakenForItsWorkspaceOnly(t *testing.T) {
	s := deploy(t, "workspace-role", roleOfNetwork)
	role := s.Resources["Role"].Properties
	if role["Path"] != "/dayfly/main/" || role["PermissionsBoundary"] != nil || role["ManagedPolicyArns"] != nil {
		t.Errorf("got %v", role)
	}
	bound := maps.Clone(roleOfNetwork)
	bound["PermissionsBoundaryArn"], bound["PolicyArns"] = "arn:aws:iam::123456789012:policy/limit", "arn:aws:iam::aws:policy/ReadOnlyAccess"
	if p := deploy(t, "workspace-role", bound).Resources["Role"].Properties; p["PermissionsBoundary"] != bound["PermissionsBoundaryArn"] || templates.Text(p["ManagedPolicyArns"]) != bound["PolicyArns"] {
		t.Errorf("got %v", p)
	}
	task := templates.Principal{ARN: roleOfNetwork["TaskRoleArn"], ID: "AROA1"}
	trust := trustOf(t, s, task)
	for name, c := range map[string]struct {
		external string
		tags     map[string]string
		want     bool
	}{
		"its run":              {"ws_one", tags("ws_one", "network"), true},
		"another workspace":    {"ws_two", tags("ws_two", "web"), false},
		"another one's tags":   {"ws_one", tags("ws_two", "web"), false},
		"another organization": {"ws_one", map[string]string{api.TagOrganization: "o", api.TagWorkspaceID: "ws_one"}, false},
		"no tags":              {"ws_one", nil, false},
		"another name":         {"ws_one", tags("ws_one", "renamed"), true},
		"a tag of another key": {"ws_one", map[string]string{api.TagOrganization: "default", api.TagWorkspaceID: "ws_one", "state_key": "ws_two"}, false},
	} {
		for action, got := range assumes(trust, task, c.external, c.tags) {
			if got != c.want && (c.want || action == "sts:AssumeRole") {
				t.Errorf("%s: %s is %v", name, action, got)
			}
		}
	}
}

// trustOf is the trust policy of a workspace's role, saved while there are these roles and users.
func trustOf(t *testing.T, s *templates.Stack, now ...templates.Principal) []templates.Statement {
	t.Helper()
	trust, err := templates.Trust(s.Resources["Role"].Properties["AssumeRolePolicyDocument"], now...)
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// assumes says what a trust policy lets a principal do.
func assumes(trust []templates.Statement, who templates.Principal, external string, tags map[string]string) map[string]bool {
	context := map[string]string{"sts:externalid": external, "aws:tagkeys": strings.Join(slices.Sorted(maps.Keys(tags)), ",")}
	for k, v := range tags {
		context["aws:requesttag/"+k] = v
	}
	out := map[string]bool{}
	for _, action := range []string{"sts:AssumeRole", "sts:TagSession"} {
		out[action] = templates.Admits(trust, who, action, context)
	}
	return out
}

// A stack that is made anew has a task role with another name and id. The roles of workspaces trust it, and nobody else.
func TestWorkspaceRole_TrustsLaterTaskRoles(t *testing.T) {
	const path = ":role/dayfly-stack/main/"
	s := deploy(t, "workspace-role", roleOfNetwork)
	trust := trustOf(t, s, templates.Principal{ARN: roleOfNetwork["TaskRoleArn"], ID: "AROA1"})
	for arn, want := range map[string]bool{
		roleOfNetwork["TaskRoleArn"]: true,
		"arn:aws:iam::123456789012" + path + "dayfly-main-TaskRole-9zY8xW7vU6t":         true,
		"arn:aws:iam::123456789012" + path + "other-main-TaskRole-9zY8xW7vU6t":          false, // another stack's pool of the same name
		"arn:aws:iam::123456789012" + path + "my-dayfly-main-TaskRole-9zY8xW7vU6t":      false,
		"arn:aws:iam::123456789012" + path + "dayfly-main-TaskRole-x-TaskRole-9zY8xW7v": false, // a stack named dayfly-main-TaskRole-x
		"arn:aws:iam::123456789012" + path + "dayfly-main-TaskRole-x/evil":              false,
		"arn:aws:iam::123456789012" + path + "dayfly-main-StatusRole-9zY8xW7vU6t":       false,
		"arn:aws:iam::123456789012:role/dayfly-stack/prod/dayfly-main-TaskRole-9zY8xW7": false, // another pool of the stack's name
		"arn:aws:iam::123456789012:role/dayfly-main-TaskRole-9zY8xW7vU6t":               false,
		"arn:aws:iam::123456789012:role/x/dayfly-stack/main/dayfly-main-TaskRole-9zY8x": false,
		"arn:aws:iam::210987654321" + path + "dayfly-main-TaskRole-9zY8xW7vU6t":         false,
		"arn:aws:iam::123456789012:user/dayfly-stack/main/dayfly-main-TaskRole-9zY8xW7": false,
		"arn:aws:iam::123456789012:root":                                                false,
	} {
		for action, got := range assumes(trust, templates.Principal{ARN: arn, ID: "AROA2"}, "ws_one", tags("ws_one", "network")) {
			if got != want {
				t.Errorf("%s: %s is %v", arn, action, got)
			}
		}
	}
	// The pattern is that of the ARN, in every partition, and what is no task role of a stack gives none.
	with := maps.Clone(roleOfNetwork)
	with["TaskRoleArn"] = "arn:aws-cn:iam::210987654321:role/main/a-TaskRole-1A2B3C4D5E6F"
	trust = trustOf(t, deploy(t, "workspace-role", with))
	for arn, want := range map[string]bool{"arn:aws-cn:iam::210987654321:role/main/a-TaskRole-0": true, "arn:aws:iam::210987654321:role/main/a-TaskRole-0": false} {
		if got := assumes(trust, templates.Principal{ARN: arn}, "ws_one", tags("ws_one", "network"))["sts:AssumeRole"]; got != want {
			t.Errorf("%s: %v", arn, got)
		}
	}
	tmpl, err := templates.Load("../../infra/transformed/workspace-role.json")
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(tmpl.Parameters["TaskRoleArn"].AllowedPattern)
	for arn, want := range map[string]bool{
		deploy(t, "pool", nil).Outputs["TaskRoleArn"]: true, iam + "/dayfly-main-TaskRole": false, iam + "/dayfly-main-Role-1A2B3C4D5E6F": false, iam + "/a-TaskRole-*": false,
	} {
		if pattern.MatchString(arn) != want {
			t.Errorf("%s is taken: %t", arn, !want)
		}
	}
}
