package deploy_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// What the rules find and we keep, each with the reason.
var kept = map[string]string{
	"controlplane: what is kept goes with a create that failed, so that it can be repeated: Table":           "its protection would stop the rollback; its name is generated",
	"artifacts: what is kept goes with a create that failed, so that it can be repeated: ApiGatewayLogsRole": "the account's setting names it and is not set back; its name is generated",
	"artifacts: what is kept goes with a create that failed, so that it can be repeated: ApiGatewayAccount":  "the setting is the account's",
	"pool: a queue that a function reads has dead letters: DeadLettersJobsDead":                              "it reads dead letters; what it cannot settle stays there, and an alarm tells",
}

// modes are the parameters with which the templates differ.
var modes = map[string]map[string]string{
	"endpoints-only": {}, "public": {"NetworkMode": "public"},
	"created nat": {"NetworkMode": "nat"},
	"nat":         {"NetworkMode": "nat", "VpcId": "vpc-01234567", "SubnetIds": "subnet-1,subnet-2"},
	"key":         {"KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/0000", "ControlPlaneRoleArn": "arn:aws:iam::210987654321:role/dayfly-stack/control", "ApiGatewayLogs": "true"},
}

// D1: the templates as they are deployed keep the rules of reviewers, in every mode.
func TestRules(t *testing.T) {
	left := maps.Clone(kept)
	for mode, more := range modes {
		for _, name := range []string{"pool", "controlplane", "network", "artifacts"} {
			s := deploy(t, name, fitting(t, name, mode, more))
			for _, rule := range rules {
				for resource, why := range rule.Check(s) {
					at := name + ": " + rule.Name + ": " + resource
					if kept[at] == "" {
						t.Errorf("%s, mode %s: %s (%s)", at, mode, why, rule.From)
					}
					delete(left, at)
				}
			}
		}
	}
	for at := range left {
		t.Errorf("%s is excused and not found", at)
	}
}

// The SAM CLI translates the keys of a nested stack's outputs by the values of its parameters. An output with the name of
// a list parameter ends `sam build` with a crash, and one with another parameter's name gets a wrong key.
func TestOutputs_HaveNoNameOfAParameter(t *testing.T) {
	all, err := filepath.Glob("../../infra/transformed/*.json")
	if err != nil || len(all) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	for _, path := range all {
		tmpl, err := templates.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for name := range tmpl.Outputs {
			if _, taken := tmpl.Parameters[name]; taken {
				t.Errorf("%s: rename output %s: a parameter has the name", filepath.Base(path), name)
			}
		}
	}
}

// fitting are those parameters that a template has.
func fitting(t *testing.T, name, mode string, more map[string]string) map[string]string {
	t.Helper()
	tmpl, err := templates.Load("../../infra/transformed/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for k, v := range more {
		if _, ok := tmpl.Parameters[k]; ok {
			out[k] = v
		}
	}
	if name == "network" && out["NetworkMode"] == "" {
		out["NetworkMode"] = "endpoints-only"
	}
	return out
}

// Each rule can find something: what it demands is taken away, and it must tell.
func TestRules_CanFail(t *testing.T) {
	tried := map[string]bool{}
	for at := range kept { // TestRules finds these
		tried[strings.Split(at, ": ")[1]] = true
	}
	for _, c := range []struct {
		template, resource, rule string
		spoil                    func(p map[string]any)
	}{
		{"pool", "Poller", "a function has a log group of its own", func(p map[string]any) { delete(p, "LoggingConfig") }},
		{"pool", "Poller", "a function has a role of its own", func(p map[string]any) { p["Role"] = map[string]any{"Fn::GetAtt": []any{"ReaperRole", "Arn"}} }},
		{"pool", "Poller", "a function is arm64 on provided.al2023", func(p map[string]any) { p["Runtime"] = "provided.al2" }},
		{"pool", "Poller", "an environment holds no secret and fits", func(p map[string]any) {
			p["Environment"] = map[string]any{"Variables": map[string]any{"API_TOKEN": "abc"}}
		}},
		{"pool", "ReaperTaskChangedPermission", "who may invoke a function is limited", func(p map[string]any) { delete(p, "SourceArn") }},
		{"pool", "DispatcherJobs", "an event source reports what failed, and hides a message for longer than its function may take", func(p map[string]any) { delete(p, "FunctionResponseTypes") }},
		{"pool", "Jobs", "a queue is encrypted, over the wire too", func(p map[string]any) { delete(p, "SqsManagedSseEnabled") }},
		{"pool", "State", "a bucket is versioned, encrypted, private, kept, and used over TLS only", func(p map[string]any) { delete(p, "VersioningConfiguration") }},
		{"pool", "StatePolicy", "a bucket is versioned, encrypted, private, kept, and used over TLS only", func(p map[string]any) { p["PolicyDocument"] = map[string]any{} }},
		{"controlplane", "Table", "a table is protected, kept, and can be set back", func(p map[string]any) { delete(p, "DeletionProtectionEnabled") }},
		{"pool", "TaskDefinition", "containers cannot write to their root, have no user 0, no capability and no shell, and log without blocking", func(p map[string]any) {
			p["ContainerDefinitions"].([]any)[0].(map[string]any)["ReadonlyRootFilesystem"] = false
		}},
		{"artifacts", "Repository", "images are scanned, encrypted, kept, and keep their tags", func(p map[string]any) { p["ImageTagMutability"] = "MUTABLE" }},
		{"network", "EndpointFromTasks", "security groups say what they are for, and nothing comes in from the world", func(p map[string]any) { p["CidrIp"] = "0.0.0.0/0" }},
		{"network", "FlowLog", "a VPC has flow logs", func(p map[string]any) { p["TrafficType"] = "ACCEPT" }},
		{"network", "StsEndpoint", "an endpoint serves principals and resources of this account only", func(p map[string]any) { delete(p, "PolicyDocument") }},
		{"pool", "StatusApi", "every method of a REST API asks for IAM, and the API for its caller; calls are logged", func(p map[string]any) {
			for _, methods := range p["Body"].(map[string]any)["paths"].(map[string]any) {
				for _, m := range methods.(map[string]any) {
					delete(m.(map[string]any), "security")
				}
			}
		}},
		{"pool", "JobsPolicy", "a statement about a queue is about one", func(p map[string]any) {
			st := p["PolicyDocument"].(map[string]any)["Statement"].([]any)[0].(map[string]any)
			st["Resource"] = []any{st["Resource"], map[string]any{"Fn::GetAtt": []any{"Reports", "Arn"}}}
		}},
		{"pool", "Jobs", "a message that fails each time becomes a dead letter before it expires", func(p map[string]any) { p["MessageRetentionPeriod"] = 7200 }},
		{"pool", "DeadLettersJobsDead", "an event source reports what failed, and hides a message for longer than its function may take", func(p map[string]any) { delete(p, "ScalingConfig") }},
		{"pool", "StatusApi", "no policy has a role of the same stack as its principal", func(p map[string]any) {
			st := p["Body"].(map[string]any)["x-amazon-apigateway-policy"].(map[string]any)["Statement"].([]any)[0].(map[string]any)
			st["Principal"] = map[string]any{"AWS": map[string]any{"Fn::GetAtt": []any{"TaskRole", "Arn"}}}
		}},
		{"pool", "TickRole", "the scheduler's role waits for nothing", func(p map[string]any) { p["Policies"] = []any{map[string]any{"PolicyName": "tick"}} }},
		{"pool", "StatusApi", "an API has the one stage that is looked at", nil},
		{"pool", "ReaperSweep", "schedules have no name that a second stack would want", func(p map[string]any) { p["Name"] = "Sweep" }},
	} {
		tmpl, err := templates.Load("../../infra/transformed/" + c.template + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if c.spoil == nil { // the name of a deployment has a hash of what it deploys
			for _, r := range tmpl.Resources {
				if r.Type == "AWS::ApiGateway::Deployment" {
					r.Properties["StageName"] = "Stage"
				}
			}
		} else {
			c.spoil(tmpl.Resources[c.resource].Properties)
		}
		values := fitting(t, c.template, "", given)
		s, err := tmpl.Deploy("dayfly-prod", home, values, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, rule := range rules {
			found = found || rule.Name == c.rule && len(rule.Check(s)) > 0
		}
		if !found {
			t.Errorf("%s does not break %q", c.resource, c.rule)
		}
		tried[c.rule] = true
	}
	for _, rule := range rules {
		if !tried[rule.Name] {
			t.Errorf("nothing breaks %q", rule.Name)
		}
	}
}

// The table is the one that the store works with.
func TestTable_IsThatOfTheStore(t *testing.T) {
	p := deploy(t, "controlplane", nil).Resources["Table"].Properties
	want := dynamodbtest.TableSchema()
	got := dynamodbtest.Schema{
		PartitionKey: str(templates.At(p, "KeySchema", "0", "AttributeName")), SortKey: str(templates.At(p, "KeySchema", "1", "AttributeName")),
		TTL: str(templates.At(p, "TimeToLiveSpecification", "AttributeName")), BillingMode: str(p["BillingMode"]),
		PointInTimeRecovery: templates.At(p, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled") == true,
	}
	indexes, _ := p["GlobalSecondaryIndexes"].([]any)
	for _, i := range indexes {
		got.Indexes = append(got.Indexes, dynamodbtest.IndexSchema{
			Name: str(templates.At(i, "IndexName")), Projection: str(templates.At(i, "Projection", "ProjectionType")),
			PartitionKey: str(templates.At(i, "KeySchema", "0", "AttributeName")), SortKey: str(templates.At(i, "KeySchema", "1", "AttributeName")),
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What a metric counts is a line that a function writes.
func TestMetrics_CountLinesThatThereAre(t *testing.T) {
	for name, functions := range map[string][]string{"pool": {"functions/reaper", "internal/reaper", "internal/dispatcher"}, "controlplane": {"functions/controlplane"}} {
		s := deploy(t, name, nil)
		var all []byte
		for _, function := range functions {
			sources, _ := filepath.Glob("../../" + function + "/*.go")
			for _, f := range sources {
				all = append(all, readFile(t, f)...)
			}
		}
		filters := s.Of("AWS::Logs::MetricFilter")
		for _, filter := range filters {
			pattern := str(s.Resources[filter].Properties["FilterPattern"])
			if pattern == tooMany {
				continue // a line of API Gateway: TestAccessLogs
			}
			_, line, _ := strings.Cut(pattern, "$.msg = ")
			line = regexp.MustCompile(`^"[^"]*"`).FindString(line)
			if line == "" || !strings.Contains(string(all), "InfoContext(ctx, "+line) && !strings.Contains(string(all), "Info("+line) {
				t.Errorf("%s counts %s, which %s do not write", filter, pattern, functions)
			}
			value := str(templates.At(s.Resources[filter].Properties, "MetricTransformations", "0", "MetricValue"))
			if field, ok := strings.CutPrefix(value, "$."); ok && !strings.Contains(string(all), `"`+field+`"`) {
				t.Errorf("%s takes %s, which %s do not write", filter, value, functions)
			}
		}
		if len(filters) == 0 {
			t.Errorf("%s counts nothing", name)
		}
		// They are lines of level info: a function that logs less would seem to stand still.
		tmpl, err := templates.Load("../../infra/transformed/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]any{"debug", "info"}, tmpl.Parameters["LogLevel"].AllowedValues); diff != "" {
			t.Errorf("%s: LogLevel %s", name, diff)
		}
	}
}

// A function of a template is one that sam, make deploy and the Terraform module know how to build.
func TestFunctions_AreBuiltFromWhatThereIs(t *testing.T) {
	makefile := string(readFile(t, "../../Makefile"))
	m := string(readFile(t, moduleDir+"/main.tf"))
	for _, name := range []string{"pool", "controlplane"} {
		for _, logical := range deploy(t, name, nil).Of("AWS::Lambda::Function") {
			_, after, ok := strings.Cut(makefile, "\nSAM_"+logical+" := ")
			dir, _, _ := strings.Cut(after, "\n")
			if _, err := os.Stat("../../functions/" + dir + "/main.go"); !ok || err != nil {
				t.Errorf("make build-%s builds functions/%s: %v", logical, dir, err)
			}
			if name == "pool" && !regexp.MustCompile(logical+` += "`+dir+`"`).MatchString(m) {
				t.Errorf("the Terraform module does not take %s from %s", logical, dir)
			}
		}
	}
}

func str(v any) string { s, _ := v.(string); return s }

// Every launch names a size, so the task definition's own is none that anybody could choose.
func TestTaskDefinition_HasTheSizeOfSmall(t *testing.T) {
	small, err := contract.SizeOf("")
	if err != nil {
		t.Fatal(err)
	}
	p := deploy(t, "pool", nil).Resources["TaskDefinition"].Properties
	if got := str(p["Cpu"]) + "/" + str(p["Memory"]); got != small.String() {
		t.Errorf("got %s, want %s", got, small)
	}
}

// With a key of one's own, nothing at rest is under another.
func TestKey_IsThatOfEverything(t *testing.T) {
	const key = "arn:aws:kms:us-east-1:123456789012:key/0000"
	pool := deploy(t, "pool", map[string]string{"KmsKeyArn": key})
	if got := templates.Text(templates.At(pool.Resources["Network"].Properties, "Parameters", "KmsKeyArn")); got != key {
		t.Errorf("the network is handed the key %q", got)
	}
	for _, s := range []*templates.Stack{
		pool, deploy(t, "controlplane", map[string]string{"KmsKeyArn": key}), deploy(t, "artifacts", map[string]string{"KmsKeyArn": key}),
		deploy(t, "network", map[string]string{"KmsKeyArn": key, "NetworkMode": "public"}),
	} {
		for name, r := range s.Resources {
			if path, ok := keyAt[r.Type]; ok {
				if got := templates.Text(templates.At(r.Properties, path...)); got != key {
					t.Errorf("%s %s is under %q", r.Type, name, got)
				}
			}
		}
	}
}
