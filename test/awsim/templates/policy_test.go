package templates_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

func TestEvaluate(t *testing.T) {
	allow := templates.Statement{
		Effect: "Allow", Actions: []string{"ecs:Run*"}, Resources: []string{"arn:aws:ecs:*:1:task-definition/a:*"},
		Conditions: map[string]map[string][]string{"ArnEquals": {"ecs:cluster": {"arn:c"}}},
	}
	deny := templates.Statement{Effect: "Deny", Actions: []string{"*"}, Resources: []string{"*a:7"}}
	not := templates.Statement{
		Effect: "Allow", Actions: []string{"*"}, Resources: []string{"*"},
		Conditions: map[string]map[string][]string{"StringNotEquals": {"shell": {"true"}}},
	}
	ours := templates.Statement{
		Effect: "Allow", Actions: []string{"*"}, Resources: []string{"*"},
		Conditions: map[string]map[string][]string{"StringEqualsIfExists": {"owner": {"us"}}},
	}
	own := templates.Statement{
		Effect: "Allow", Actions: []string{"s3:GetObject"}, Resources: []string{"arn:aws:s3:::b/${aws:PrincipalTag/key}/*"},
		Conditions: map[string]map[string][]string{
			"StringEquals": {"tag": {"${aws:PrincipalTag/id}"}}, "Null": {"source": {"true"}}, "ForAnyValue:StringEquals": {"via": {"x", "y"}},
		},
	}
	of := func(key, id string) map[string]string {
		return map[string]string{"aws:principaltag/key": key, "aws:principaltag/id": id, "tag": "1", "via": "y"}
	}
	with := func(m map[string]string, key, value string) map[string]string {
		m[key] = value
		return m
	}
	rest := templates.Statement{
		Effect: "Allow", Actions: []string{"s3:Get*"}, Resources: []string{"*/push/*"}, Conditions: map[string]map[string][]string{"ArnNotLike": {"who": {"arn:a*"}}},
	}
	rest.Inverted.Actions, rest.Inverted.Resources = true, true
	in := map[string]string{"ecs:cluster": "arn:c"}
	for name, c := range map[string]struct {
		of   []templates.Statement
		r    templates.Request
		want bool
	}{
		"nothing allows":               {nil, templates.Request{Action: "ecs:RunTask", Resource: "x"}, false},
		"allowed":                      {[]templates.Statement{allow}, templates.Request{Action: "ecs:runtask", Resource: "arn:aws:ecs:r:1:task-definition/a:1", Context: in}, true},
		"another resource":             {[]templates.Statement{allow}, templates.Request{Action: "ecs:RunTask", Resource: "arn:aws:ecs:r:1:task-definition/ab:1", Context: in}, false},
		"another cluster":              {[]templates.Statement{allow}, templates.Request{Action: "ecs:RunTask", Resource: "arn:aws:ecs:r:1:task-definition/a:1", Context: map[string]string{"ecs:cluster": "arn:d"}}, false},
		"no key":                       {[]templates.Statement{allow}, templates.Request{Action: "ecs:RunTask", Resource: "arn:aws:ecs:r:1:task-definition/a:1"}, false},
		"a denial wins":                {[]templates.Statement{allow, deny}, templates.Request{Action: "ecs:RunTask", Resource: "arn:aws:ecs:r:1:task-definition/a:7", Context: in}, false},
		"a denial of another":          {[]templates.Statement{deny, allow}, templates.Request{Action: "ecs:RunTask", Resource: "arn:aws:ecs:r:1:task-definition/a:8", Context: in}, true},
		"a negated key, not there":     {[]templates.Statement{not}, templates.Request{Action: "ecs:RunTask", Resource: "x"}, true},
		"a negated key, as negated":    {[]templates.Statement{not}, templates.Request{Action: "ecs:RunTask", Resource: "x", Context: map[string]string{"shell": "true"}}, false},
		"a negated key, as it must be": {[]templates.Statement{not}, templates.Request{Action: "ecs:RunTask", Resource: "x", Context: map[string]string{"shell": "false"}}, true},
		"if it exists, not there":      {[]templates.Statement{ours}, templates.Request{Action: "ecs:RunTask", Resource: "x"}, true},
		"if it exists, of others":      {[]templates.Statement{ours}, templates.Request{Action: "ecs:RunTask", Resource: "x", Context: map[string]string{"owner": "them"}}, false},
		"if it exists, ours":           {[]templates.Statement{ours}, templates.Request{Action: "ecs:RunTask", Resource: "x", Context: map[string]string{"owner": "us"}}, true},
		"its own variable":             {[]templates.Statement{own}, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k/o", Context: of("k", "1")}, true},
		"a variable of another":        {[]templates.Statement{own}, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k/o", Context: of("l", "1")}, false},
		"a condition's variable":       {[]templates.Statement{own}, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k/o", Context: of("k", "2")}, false},
		"a variable that is a pattern": {[]templates.Statement{own}, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k/o", Context: of("*", "1")}, false},
		"no variable":                  {[]templates.Statement{own}, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k/o"}, false},
		"what is not named":            {[]templates.Statement{rest}, templates.Request{Action: "s3:PutObject", Resource: "b/k", Context: map[string]string{"who": "arn:b"}}, true},
		"an action that is named":      {[]templates.Statement{rest}, templates.Request{Action: "s3:GetObject", Resource: "b/k", Context: map[string]string{"who": "arn:b"}}, false},
		"a resource that is named":     {[]templates.Statement{rest}, templates.Request{Action: "s3:PutObject", Resource: "b/push/k", Context: map[string]string{"who": "arn:b"}}, false},
		"who is named":                 {[]templates.Statement{rest}, templates.Request{Action: "s3:PutObject", Resource: "b/k", Context: map[string]string{"who": "arn:ab"}}, false},
		"a key that must not be there": {[]templates.Statement{own}, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k/o", Context: with(of("k", "1"), "source", "s")}, false},
		"none of the values":           {[]templates.Statement{own}, templates.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::b/k/o", Context: with(of("k", "1"), "via", "z")}, false},
		"another action":               {[]templates.Statement{allow}, templates.Request{Action: "ecs:StopTask", Resource: "arn:aws:ecs:r:1:task-definition/a:1", Context: in}, false},
	} {
		if got, by := templates.Evaluate(c.of, c.r); got != c.want {
			t.Errorf("%s: %v (%s)", name, got, by)
		}
	}
}

// IAM keeps a role that is a principal by its id, and an account as what it is.
func TestTrust_KeepsTheIdsOfRoles(t *testing.T) {
	role := templates.Principal{ARN: "arn:aws:iam::123456789012:role/a/task", ID: "AROA1"}
	document := func(principal string) any {
		return map[string]any{"Statement": []any{map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": map[string]any{"AWS": principal}}}}
	}
	if _, err := templates.Trust(document(role.ARN)); err == nil {
		t.Error("a role that does not exist is a principal")
	}
	for principal, want := range map[string][3]bool{role.ARN: {true, false, false}, "arn:aws:iam::123456789012:root": {true, true, false}} {
		trust, err := templates.Trust(document(principal), role)
		if err != nil {
			t.Fatal(err)
		}
		var got [3]bool
		for i, who := range []templates.Principal{role, {ARN: role.ARN, ID: "AROA2"}, {ARN: "arn:aws:iam::210987654321:role/a/task", ID: "AROA3"}} {
			got[i] = templates.Admits(trust, who, "sts:AssumeRole", nil)
		}
		if got != want {
			t.Errorf("%s admits %v, want %v", principal, got, want)
		}
	}
}
