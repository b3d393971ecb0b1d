package templates_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

var home = templates.Account{Partition: "aws", Region: "us-east-1", ID: "123456789012"}

const made = `{
	"Parameters": {
		"PoolName": {"Type": "String"},
		"Zones": {"Type": "CommaDelimitedList", "Default": "a,b"},
		"Key": {"Type": "String", "Default": ""}
	},
	"Conditions": {
		"HasKey": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Key"}, ""]}]},
		"NoKey": {"Fn::Not": [{"Condition": "HasKey"}]}
	},
	"Resources": {
		"Jobs": {"Type": "AWS::SQS::Queue", "Properties": {
			"QueueName": {"Fn::Sub": "${AWS::StackName}-${PoolName}-${!kept}"},
			"KmsMasterKeyId": {"Fn::If": ["HasKey", {"Ref": "Key"}, {"Ref": "AWS::NoValue"}]},
			"Tags": [{"Fn::Join": ["+", {"Ref": "Zones"}]}, {"Fn::Select": ["1", {"Ref": "Zones"}]}]
		}},
		"Plain": {"Type": "AWS::SQS::Queue", "Condition": "NoKey"},
		"Runner": {"Type": "AWS::ECS::TaskDefinition", "Properties": {"Family": {"Fn::Sub": "${PoolName}-runner"}}}
	},
	"Outputs": {"Arn": {"Value": {"Fn::GetAtt": ["Jobs", "Arn"]}}, "Runner": {"Value": {"Ref": "Runner"}}}
}`

func load(t *testing.T) *templates.Template {
	t.Helper()
	name := filepath.Join(t.TempDir(), "made.json")
	if err := os.WriteFile(name, []byte(made), 0o600); err != nil {
		t.Fatal(err)
	}
	tmpl, err := templates.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestDeploy_DecidesConditionsAndFunctions(t *testing.T) {
	for key, want := range map[string]struct{ jobs, queues string }{
		"":      {`{"QueueName":"s-prod-${kept}","Tags":["a+b","b"]}`, "Jobs Plain"},
		"a-key": {`{"KmsMasterKeyId":"a-key","QueueName":"s-prod-${kept}","Tags":["a+b","b"]}`, "Jobs"},
	} {
		s, err := load(t).Deploy("s", home, map[string]string{"PoolName": "prod", "Key": key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(s.Resources["Jobs"].Properties)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.jobs, string(got)); diff != "" {
			t.Errorf("with the key %q (-want +got):\n%s", key, diff)
		}
		if got := strings.Join(s.Of("AWS::SQS::Queue"), " "); got != want.queues {
			t.Errorf("with the key %q: got the queues %s, want %s", key, got, want.queues)
		}
		outputs := map[string]string{
			"Arn": "arn:aws:sqs:us-east-1:123456789012:s-Jobs", "Runner": "arn:aws:ecs:us-east-1:123456789012:task-definition/prod-runner:1",
		}
		if diff := cmp.Diff(outputs, s.Outputs); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
	}
}

func TestDecide(t *testing.T) {
	for key, want := range map[string]map[string]bool{"": {"HasKey": false, "NoKey": true}, "a-key": {"HasKey": true, "NoKey": false}} {
		got, err := load(t).Decide(home, map[string]string{"Key": key})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("with the key %q: %v (-want +got):\n%s", key, err, diff)
		}
	}
	tmpl := load(t)
	tmpl.Conditions["NoKey"] = map[string]any{"Condition": "Colour"}
	if _, err := tmpl.Decide(home, nil); err == nil || !strings.Contains(err.Error(), "Colour") {
		t.Errorf("an unknown condition: %v", err)
	}
}

func TestDeploy_TellsWhatCannotBeDecided(t *testing.T) {
	tmpl := load(t)
	if _, err := tmpl.Deploy("s", home, map[string]string{"Colour": "blue"}, nil); err == nil || !strings.Contains(err.Error(), "Colour") {
		t.Errorf("an unknown parameter: %v", err)
	}
	if _, err := tmpl.Deploy("s", home, nil, nil); err == nil || !strings.Contains(err.Error(), "parameter PoolName has no value") {
		t.Errorf("a missing parameter: %v", err)
	}
	tmpl.Outputs["X"] = struct{ Value any }{map[string]any{"Fn::GetAtt": []any{"Jobs", "Colour"}}}
	if _, err := tmpl.Deploy("s", home, map[string]string{"PoolName": "prod"}, nil); err == nil || !strings.Contains(err.Error(), "Jobs.Colour") {
		t.Errorf("an unknown attribute: %v", err)
	}
}

func TestCounted_ReadsThePatternsOfTheTemplates(t *testing.T) {
	for pattern, want := range map[string]int{
		`{ $.msg = "a" }`: 4, `{ ($.msg = "a") && ($.err IS NULL) }`: 1, `{ ($.msg = "a") && ($.on IS TRUE) }`: 1,
		`{ $.msg = "b" }`: 0, `{ $.waited > 3 }`: -1, `{ ($.msg = "a") && ($.err EXISTS) }`: -1, `msg`: -1,
	} {
		tmpl := templates.Template{Resources: map[string]templates.Resource{
			"F": {Type: "AWS::Logs::MetricFilter", Properties: map[string]any{"FilterPattern": pattern}},
		}}
		log := `{"msg":"a","err":null}` + "\n" + `{"msg":"a","err":"x","on":true}` + "\nSTART a\n" + `{"msg":"a","on":"true"}` + "\n" + `{"msg":"a"}` + "\n"
		n, err := tmpl.Counted("F", log)
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%s: got %d, want %d", pattern, n, want)
		}
	}
}
