package deploy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

var home = templates.Account{Partition: "aws", Region: "us-east-1", ID: "123456789012"}

// what has no default.
var given = map[string]string{
	"PoolName": "prod", "ServiceUrl": "https://dayfly.example.com",
	"ImageUri":       "123456789012.dkr.ecr.us-east-1.amazonaws.com/dayfly-runner:v1",
	"S3PrefixListId": "pl-63a5400a", // in the default mode
}

func deploy(t *testing.T, name string, more map[string]string) *templates.Stack {
	t.Helper()
	tmpl, err := templates.Load("../../infra/transformed/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for k, v := range given {
		if _, ok := tmpl.Parameters[k]; ok {
			values[k] = v
		}
	}
	for k, v := range more {
		values[k] = v
	}
	s, err := tmpl.Deploy("dayfly-prod", home, values, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// D1: every mode, with and without what is optional, can be decided: nothing names what is not there.
func TestDeploy_EveryModeIsDecided(t *testing.T) {
	key := "arn:aws:kms:us-east-1:123456789012:key/0000"
	for name, more := range map[string]map[string]string{
		"endpoints": {}, "public": {"NetworkMode": "public"},
		"created": {"NetworkMode": "nat"},
		"nat":     {"NetworkMode": "nat", "VpcId": "vpc-01234567", "SubnetIds": "subnet-1,subnet-2"},
		"brought": {"VpcId": "vpc-01234567", "SubnetIds": "subnet-1,subnet-2", "RouteTableIds": "rtb-1", "EgressCidr": "10.0.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			more["KmsKeyArn"], more["AlarmTopicArn"] = key, "arn:aws:sns:us-east-1:123456789012:alarms"
			more["ControlPlaneRoleArn"] = "arn:aws:iam::210987654321:role/dayfly-stack/control"
			s := deploy(t, "pool", more)
			if len(s.Of("AWS::Lambda::Function")) != 6 {
				t.Errorf("functions: %v", s.Of("AWS::Lambda::Function"))
			}
			// The network is decided by what the pool hands it.
			handed, _ := s.Resources["Network"].Properties["Parameters"].(map[string]any)
			network := map[string]string{}
			for k, v := range handed {
				network[k], _ = v.(string)
			}
			n := deploy(t, "network", network)
			if created := len(n.Of("AWS::EC2::VPC")) == 1; created != (more["VpcId"] == "") {
				t.Errorf("a VPC is created: %v", created)
			}
			if endpoints := len(n.Of("AWS::EC2::VPCEndpoint")); endpoints != map[bool]int{true: 7}[more["NetworkMode"] == ""] {
				t.Errorf("%d endpoints", endpoints)
			}
		})
	}
	deploy(t, "controlplane", map[string]string{"KmsKeyArn": key})
	deploy(t, "controlplane", map[string]string{"WakeElsewhere": "arn:aws:lambda:*:210987654321:function:dayfly-wake-*"})
}

// A VPC that is created has the way out of its mode, and one only.
func TestDeploy_ACreatedVPCHasTheWayOutOfItsMode(t *testing.T) {
	for mode, want := range map[string]string{"endpoints-only": "", "public": "GatewayId InternetGateway", "nat": "NatGatewayId NatGateway"} {
		n := deploy(t, "network", map[string]string{"NetworkMode": mode})
		var got []string
		for _, route := range n.Of("AWS::EC2::Route") {
			for _, by := range []string{"GatewayId", "NatGatewayId"} {
				if n.Resources[route].Properties[by] != nil {
					got = append(got, by+" "+map[string]string{"GatewayId": "InternetGateway", "NatGatewayId": "NatGateway"}[by])
				}
			}
		}
		if strings.Join(got, ", ") != want || len(n.Of("AWS::EC2::InternetGateway")) != len(got) {
			t.Errorf("%s: %v, want %q", mode, got, want)
		}
	}
	nat := deploy(t, "network", map[string]string{"NetworkMode": "nat"}).Resources["NatGateway"]
	if p := nat.Properties; p["AvailabilityMode"] != "regional" || p["VpcId"] == nil || p["SubnetId"] != nil || nat.DependsOn != "InternetGatewayAttachment" {
		t.Errorf("the gateway serves no zone: %v", nat)
	}
	if taken := deploy(t, "network", map[string]string{"NetworkMode": "nat", "VpcId": "vpc-01234567", "SubnetIds": "subnet-1"}); len(taken.Of("AWS::EC2::NatGateway")) != 0 {
		t.Error("a VPC of somebody else gets a gateway")
	}
}

// Every ARN is of the partition that is deployed to. SAM writes that in which it runs.
func TestDeploy_IsOfThePartitionItIsDeployedTo(t *testing.T) {
	for _, name := range []string{"pool", "controlplane", "network", "artifacts"} {
		tmpl, err := templates.Load("../../infra/transformed/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		gov := templates.Account{Partition: "aws-us-gov", Region: "us-gov-west-1", ID: home.ID}
		values := fitting(t, name, "", given)
		if name == "artifacts" {
			values["ApiGatewayLogs"] = "true"
		}
		s, err := tmpl.Deploy("dayfly-prod", gov, values, nil)
		if err != nil {
			t.Fatal(err)
		}
		for logical, r := range s.Resources {
			b, err := json.Marshal(r.Properties)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "arn:aws:") {
				t.Errorf("%s: %s names the partition aws: %s", name, logical, b)
			}
		}
	}
}

// What another account's roles need of the endpoints is let through where it is asked for, and only there.
func TestDeploy_EndpointsAllowOtherAccounts(t *testing.T) {
	for other, want := range map[string]string{"": "123456789012", "210987654321,111111111111": "123456789012,210987654321,111111111111"} {
		n := deploy(t, "network", map[string]string{"NetworkMode": "endpoints-only", "WorkspaceAccounts": other})
		for _, name := range n.Of("AWS::EC2::VPCEndpoint") {
			want := want
			if name != "StsEndpoint" && name != "SecretsManagerEndpoint" && name != "S3Endpoint" {
				want = "123456789012" // what only ECS and the runner itself call
			}
			condition := templates.At(n.Resources[name].Properties, "PolicyDocument", "Statement", "0", "Condition")
			from := templates.Text(templates.At(condition, "StringEquals", "aws:PrincipalAccount"))
			to := templates.Text(templates.At(condition, "StringEqualsIfExists", "aws:ResourceAccount"))
			if from != want || to != want {
				t.Errorf("with %q, %s lets %s through to %s, want %s", other, name, from, to, want)
			}
		}
	}
}

// A VPC takes an endpoint with a private name once: a second pool uses those of the first.
func TestDeploy_SharesTheEndpointsOfAVPC(t *testing.T) {
	n := deploy(t, "network", map[string]string{
		"NetworkMode": "endpoints-only", "VpcId": "vpc-01234567", "SubnetIds": "subnet-1,subnet-2", "VpcHasEndpoints": "true",
		"EndpointSecurityGroupId": "sg-01234567",
	})
	if got := n.Of("AWS::EC2::VPCEndpoint"); len(got) != 1 || got[0] != "ExecuteApiEndpoint" {
		t.Errorf("it makes %v", got)
	}
	if private := n.Resources["ExecuteApiEndpoint"].Properties["PrivateDnsEnabled"]; private != false {
		t.Error("two pools would want one private name")
	}
	in := n.Resources["SharedEndpointsFromTasks"].Properties
	if in["GroupId"] != "sg-01234567" || in["SourceSecurityGroupId"] != n.Outputs["TaskSecurityGroupId"] {
		t.Errorf("the endpoints let %v in", in)
	}
}

func taskEnvironment(s *templates.Stack) map[string]string {
	list, _ := templates.At(s.Resources["TaskDefinition"].Properties, "ContainerDefinitions", "0", "Environment").([]any)
	out := map[string]string{}
	for _, e := range list {
		out[templates.Text(templates.At(e, "Name"))] = templates.Text(templates.At(e, "Value"))
	}
	return out
}

// R15: tasks know the stack's bucket, its Region and its key, for workspaces that name no place for their state.
func TestDeploy_TasksKnowTheBucketOfStates(t *testing.T) {
	const key = "arn:aws:kms:us-east-1:123456789012:key/0000"
	for _, of := range []string{"", key} {
		env := taskEnvironment(deploy(t, "pool", map[string]string{"KmsKeyArn": of}))
		if env["DAYFLY_STATE_BUCKET"] != "dayfly-prod-state" || env["AWS_REGION"] != "us-east-1" || env["AWS_DEFAULT_REGION"] != "us-east-1" || env["DAYFLY_STATE_KMS_KEY_ARN"] != of {
			t.Errorf("with the key %q: got %v", of, env)
		}
	}
}

// A proxy is of use where tasks may connect to it, and AWS is asked through the endpoints that there are.
func TestDeploy_TasksReachTheirProxy(t *testing.T) {
	for mode, direct := range map[string]bool{"endpoints-only": true, "public": false} {
		s := deploy(t, "pool", map[string]string{"NetworkMode": mode, "HttpsProxy": "http://proxy.example.com:3128", "EgressCidr": "10.0.0.0/16"})
		without := taskEnvironment(s)["NO_PROXY"]
		if strings.Contains(without, ",sts.us-east-1.amazonaws.com") != direct || !strings.Contains(without, "169.254.170.2,") {
			t.Errorf("%s: not through the proxy: %s", mode, without)
		}
	}
}

func TestDeploy_PutsSubnetsIntoTheZonesThatAreNamed(t *testing.T) {
	for zones, want := range map[string]string{"": "us-east-1a us-east-1b", "us-east-1c,us-east-1f": "us-east-1c us-east-1f"} {
		n := deploy(t, "network", map[string]string{"NetworkMode": "public", "AvailabilityZones": zones})
		got := str(n.Resources["SubnetA"].Properties["AvailabilityZone"]) + " " + str(n.Resources["SubnetB"].Properties["AvailabilityZone"])
		if got != want {
			t.Errorf("zones %q: got %s, want %s", zones, got, want)
		}
	}
}

func TestDeploy_ResolvesWhatAFunctionIsGiven(t *testing.T) {
	s := deploy(t, "pool", map[string]string{"NetworkMode": "public"})
	env, _ := s.Resources["Dispatcher"].Properties["Environment"].(map[string]any)
	variables, _ := env["Variables"].(map[string]any)
	for name, want := range map[string]string{
		"DAYFLY_JOBS_QUEUE_URL":   "https://sqs.us-east-1.amazonaws.com/123456789012/dayfly-prod-Jobs",
		"DAYFLY_ASSIGN_PUBLIC_IP": "true",
		"DAYFLY_CLUSTER":          "arn:aws:ecs:us-east-1:123456789012:cluster/dayfly-prod-Cluster",
		"DAYFLY_RELAY_URL":        "https://restapi001.execute-api.us-east-1.amazonaws.com/status",
	} {
		if variables[name] != want {
			t.Errorf("%s is %v, want %s", name, variables[name], want)
		}
	}
}

// The poller and the dispatcher make the same call for a message only if they are told the same of it.
func TestTemplates_ThePollerLaunchesAsTheDispatcherDoes(t *testing.T) {
	s := deploy(t, "pool", nil)
	variables := func(function string) map[string]any {
		out, _ := templates.At(s.Resources[function].Properties, "Environment", "Variables").(map[string]any)
		return out
	}
	poller, same := variables("Poller"), 0
	for name, want := range variables("Dispatcher") {
		if diff := cmp.Diff(want, poller[name]); diff != "" {
			t.Errorf("%s (-dispatcher +poller):\n%s", name, diff)
		}
		same++
	}
	if same < 15 {
		t.Errorf("the dispatcher has %d variables only", same)
	}
}
