package deploy_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/gateway"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

const endpoint = "vpce-0123456789abcdef0"

// private is the control plane's stack with a private API.
func private(t *testing.T) *templates.Stack {
	t.Helper()
	return deploy(t, "controlplane", map[string]string{
		"ApiType": "private", "VpcEndpointIds": endpoint + ",vpce-11111111", "RateLimit": "777", "BurstLimit": "888", "AlarmTopicArn": topic,
	})
}

// methods are the functions of a REST API's methods, by resource and method.
func methods(s *templates.Stack) map[string]map[string]string {
	out := map[string]map[string]string{}
	paths, _ := templates.At(s.Resources["PrivateApi"].Properties, "Body", "paths").(map[string]any)
	for path, of := range paths {
		out[path] = map[string]string{}
		list, _ := of.(map[string]any)
		for method, m := range list {
			if method == "x-amazon-apigateway-any-method" {
				method = "ANY"
			}
			_, function, _ := strings.Cut(templates.Text(templates.At(m, "x-amazon-apigateway-integration", "uri")), ":function:")
			out[path][strings.ToUpper(method)] = strings.TrimSuffix(function, "/invocations")
		}
	}
	return out
}

// step is the resource below another one that takes a segment of a path: the one of that name, else a variable. API Gateway
// refuses two variables below one resource.
func step(t *testing.T, all []string, parent, segment string) (child string) {
	t.Helper()
	variables := map[string]bool{}
	for _, path := range all {
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(parent, "/")+"/")
		first, _, _ := strings.Cut(rest, "/")
		if !ok || first == "" {
			continue
		}
		full := strings.TrimSuffix(parent, "/") + "/" + first
		if first == segment {
			return full
		}
		if strings.HasPrefix(first, "{") {
			variables[full] = true
		}
	}
	if len(variables) > 1 {
		t.Fatalf("below %s there are the variables %v", parent, slices.Collect(maps.Keys(variables)))
	}
	for child = range variables {
		return child
	}
	return ""
}

// resource is the resource of a REST API that takes a path, walking down and never back; "" where there is none.
func resource(t *testing.T, all map[string]map[string]string, path string) string {
	t.Helper()
	at, names := "/", slices.Collect(maps.Keys(all))
	for segment := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if at == "" || segment == "" || strings.HasSuffix(at, "+}") {
			break
		}
		at = step(t, names, at, segment)
	}
	return at
}

// restRoute is the function that a REST API takes a request to; "" where it refuses.
func restRoute(t *testing.T, all map[string]map[string]string, method, path string) string {
	t.Helper()
	at := resource(t, all, path)
	if f := all[at][method]; f != "" {
		return f
	}
	return all[at]["ANY"]
}

// operations are a call of each operation of the API: its method and a path.
func operations(t *testing.T) (calls []string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(readFile(t, "../../docs/openapi.json"), &doc); err != nil {
		t.Fatal(err)
	}
	for path, of := range doc.Paths {
		for method := range of {
			calls = append(calls, strings.ToUpper(method)+" "+strings.NewReplacer("{", "", "}", "").Replace(path))
		}
	}
	return calls
}

// A private API takes every call to the function that the HTTP API takes it to.
func TestPrivate_RoutesAsTheHTTPAPIDoes(t *testing.T) {
	asked := []string{"GET /", "GET /openapi.json", "GET /.env", "GET /v1", "GET /v2/claims", "GET /a/b/c", "DELETE /v1/claims", "GET /v1/jobs", "GET /v1/jobs/wf_1", "GET /v1/jobs/states", "POST /v1/workflows/wf_1/logs"}
	asked = append(asked, operations(t)...)
	s := private(t)
	if n := len(s.Of("AWS::ApiGatewayV2::Api")); n != 0 {
		t.Errorf("there are %d HTTP APIs too, which the Internet reaches", n)
	}
	all, routes, waits := methods(s), deploy(t, "controlplane", nil).Routes(), 0
	for _, call := range asked {
		method, path, _ := strings.Cut(call, " ")
		want := routes[gateway.Route(routes, method, path)]
		if got := restRoute(t, all, method, path); got != want {
			t.Errorf("%s goes to %q, want %s", call, got, want)
		}
		if strings.HasSuffix(want, "LongPolls") {
			waits++
		}
	}
	if len(asked) < 40 || waits != 4 {
		t.Errorf("of %d calls %d wait", len(asked), waits)
	}
	// Whichever API there is may call both functions, and no other may.
	for of, id := range map[*templates.Stack]string{s: "restapi001", deploy(t, "controlplane", nil): "httpapi001"} {
		for _, function := range []string{"ControlPlane", "LongPolls"} {
			if got := of.Resources[function+"Call"].Properties["SourceArn"]; got != "arn:aws:execute-api:us-east-1:123456789012:"+id+"/*" {
				t.Errorf("%s may be called by %v", function, got)
			}
		}
	}
}

// throttles are the rate and burst limits of a REST API's stage, by method and path. A ResourcePath is a slash, and then the path
// with ~1 for each slash and ~0 for each tilde; the root and /* are written as they are.
func throttles(t *testing.T, s *templates.Stack) map[string]string {
	t.Helper()
	limits := map[string]string{}
	settings, _ := s.Resources[s.Of("AWS::ApiGateway::Stage")[0]].Properties["MethodSettings"].([]any)
	for _, of := range settings {
		encoded := templates.Text(templates.At(of, "ResourcePath"))
		path, ok := strings.CutPrefix(encoded, "/")
		if !ok || strings.Contains(path, "/") {
			t.Errorf("API Gateway knows no resource %s", encoded)
		}
		if path == "" || path == "*" { // the root, and all resources
			path = "/" + path
		}
		key := templates.Text(templates.At(of, "HttpMethod")) + " " + strings.NewReplacer("~1", "/", "~0", "~").Replace(path)
		limits[key] = templates.Text(templates.At(of, "ThrottlingRateLimit")) + " " + templates.Text(templates.At(of, "ThrottlingBurstLimit"))
	}
	return limits
}

// Each operation has the limit that its route has on the HTTP API. A setting for ANY is refused, and the stack rolls back.
func TestPrivate_ThrottlesAsTheHTTPAPIDoes(t *testing.T) {
	s := private(t)
	all, want := methods(s), map[string]string{"* /*": "100 200"}
	for _, call := range operations(t) {
		method, path, _ := strings.Cut(call, " ")
		if at := resource(t, all, path); at != "/{proxy+}" { // what strangers ask for, too
			want[method+" "+at] = "777 888"
		}
	}
	if diff := cmp.Diff(want, throttles(t, s)); diff != "" {
		t.Error(diff)
	}
}

// Only the named endpoints come in, by one stage that is looked at.
func TestPrivate_OnlyItsEndpointsComeIn(t *testing.T) {
	s := private(t)
	p := s.Resources["PrivateApi"].Properties
	if diff := cmp.Diff([]string{endpoint, "vpce-11111111"}, templates.Texts(templates.At(p, "EndpointConfiguration", "VpcEndpointIds"))); diff != "" {
		t.Error(diff)
	}
	if kind := templates.Text(templates.At(p, "EndpointConfiguration", "Types")); kind != "PRIVATE" {
		t.Errorf("its endpoint is %s", kind)
	}
	statements, _ := templates.At(p, "Body", "x-amazon-apigateway-policy", "Statement").([]any)
	if len(statements) != 1 || templates.Text(templates.At(statements[0], "Condition", "StringEquals", "aws:SourceVpce")) != endpoint+",vpce-11111111" ||
		templates.Text(templates.At(statements[0], "Resource")) != "execute-api:/api/*" {
		t.Errorf("its policy is %v", statements)
	}
	stage := s.Resources[s.Of("AWS::ApiGateway::Stage")[0]].Properties
	if len(s.Of("AWS::ApiGateway::Stage")) != 1 || stage["StageName"] != "api" {
		t.Errorf("stages %v", s.Of("AWS::ApiGateway::Stage"))
	}
	if got, want := s.Outputs["ServiceUrl"], "https://restapi001-"+endpoint+".execute-api.us-east-1.amazonaws.com/api"; got != want {
		t.Errorf("its address is %s, want %s", got, want)
	}
	pool, err := templates.Load("../../infra/transformed/pool.json")
	if err != nil {
		t.Fatal(err)
	}
	if pattern := str(pool.Parameters["ServiceUrl"].AllowedPattern); !regexp.MustCompile(pattern).MatchString(s.Outputs["ServiceUrl"]) {
		t.Errorf("a pool's stack refuses %s: %s", s.Outputs["ServiceUrl"], pattern)
	}
}

// The log, the alarms and the rules of reviewers see whichever API there is.
func TestPrivate_IsWatched(t *testing.T) {
	s, public := private(t), deploy(t, "controlplane", map[string]string{"AlarmTopicArn": topic})
	fields := func(setting any) (map[string]string, string) {
		var out map[string]string
		if err := json.Unmarshal([]byte(str(templates.At(setting, "Format"))), &out); err != nil {
			t.Errorf("%v: %v", err, setting)
		}
		for _, variable := range out {
			if harmless[variable] == "" {
				t.Errorf("a caller can shape %s", variable)
			}
		}
		return out, templates.Text(templates.At(setting, "DestinationArn"))
	}
	got, to := fields(s.Resources[s.Of("AWS::ApiGateway::Stage")[0]].Properties["AccessLogSetting"])
	want, too := fields(public.Resources[public.Of("AWS::ApiGatewayV2::Stage")[0]].Properties["AccessLogSettings"])
	if got["route"] != "$context.resourcePath" { // a REST API has no route keys
		t.Errorf("the route is %s", got["route"])
	}
	if got["route"] = want["route"]; !maps.Equal(got, want) || to != too || to == "" {
		t.Errorf("it logs %v to %s, the HTTP API %v to %s", got, to, want, too)
	}
	if got, want := s.Of("AWS::CloudWatch::Alarm"), public.Of("AWS::CloudWatch::Alarm"); !slices.Equal(got, want) {
		t.Errorf("alarms %v, want %v", got, want)
	}
	for of, want := range map[*templates.Stack]string{s: "5XXError ApiName=dayfly-prod Stage=api", public: "5xx ApiId=httpapi001"} {
		p := of.Resources["ServerErrorsAlarm"].Properties
		looksAt := str(p["MetricName"])
		dimensions, _ := p["Dimensions"].([]any)
		for _, d := range dimensions {
			looksAt += " " + templates.Text(templates.At(d, "Name")) + "=" + templates.Text(templates.At(d, "Value"))
		}
		if looksAt != want {
			t.Errorf("the alarm looks at %s, want %s", looksAt, want)
		}
	}
	for _, rule := range rules {
		for resource, why := range rule.Check(s) {
			// Its callers have tokens of the control plane, which it checks itself.
			if at := rule.Name + ": " + resource; kept["controlplane: "+at] == "" && !strings.HasPrefix(at, "every method of a REST API asks for IAM") {
				t.Errorf("%s: %s", at, why)
			}
		}
	}
}

// Functions that are told a network run in it: Lambda may make their interfaces, and their code may not.
func TestFunctions_InAVPC(t *testing.T) {
	s := deploy(t, "pool", map[string]string{"FunctionSubnetIds": "subnet-01234567,subnet-89abcdef", "FunctionSecurityGroupIds": "sg-01234567", "KmsKeyArn": deployerKey})
	without, limit := deploy(t, "pool", nil), deployer(t).Statements("Boundary")
	none, of := "*", "arn:aws:ec2:us-east-1:123456789012:"
	calls := map[string][]string{ // AWSLambdaVPCAccessExecutionRole has these
		"ec2:CreateNetworkInterface": {of + "network-interface/*", of + "subnet/subnet-01234567", of + "security-group/sg-01234567"},
		"ec2:DeleteNetworkInterface": {of + "network-interface/eni-1", of + "*/*"}, "ec2:DescribeNetworkInterfaces": {none}, "ec2:DescribeSubnets": {none},
		"ec2:AssignPrivateIpAddresses": {of + "network-interface/eni-1"}, "ec2:UnassignPrivateIpAddresses": {of + "network-interface/eni-1"},
	}
	functions := s.Of("AWS::Lambda::Function")
	for _, f := range functions {
		p := s.Resources[f].Properties
		if got := templates.Text(templates.At(p, "VpcConfig", "SubnetIds")) + " " + templates.Text(templates.At(p, "VpcConfig", "SecurityGroupIds")); got != "subnet-01234567,subnet-89abcdef sg-01234567" {
			t.Errorf("%s runs in %q", f, got)
		}
		if v := without.Resources[f].Properties["VpcConfig"]; templates.Text(v) != "" && v != nil {
			t.Errorf("%s runs in %v unasked", f, v)
		}
		for action, resources := range calls {
			for _, resource := range resources {
				r := templates.Request{Action: action, Resource: resource}
				byCode := templates.Request{Action: action, Resource: resource, Context: map[string]string{"lambda:sourcefunctionarn": fn + "dayfly-prod-" + f}}
				for whose, statements := range map[string][]templates.Statement{f: s.Statements(f + "Role"), "the boundary": limit} {
					if allowed, _ := templates.Evaluate(statements, r); !allowed {
						t.Errorf("%s: Lambda may not call %s", whose, r)
					}
				}
				if allowed, by := templates.Evaluate(s.Statements(f+"Role"), byCode); allowed {
					t.Errorf("%s: its code may call %s: %s", f, r, by)
				}
				if allowed, by := templates.Evaluate(without.Statements(f+"Role"), r); allowed {
					t.Errorf("%s: %s without a VPC: %s", f, r, by)
				}
			}
		}
	}
	if len(functions) != 6 {
		t.Errorf("functions %v", functions)
	}
}

// What cannot work together is refused with the parameter to set.
func TestPrivate_TogetherOrRefused(t *testing.T) {
	for _, c := range []struct{ template, parameters, want string }{
		{"controlplane", "", ""},
		{"controlplane", "ApiType=private VpcEndpointIds=" + endpoint, ""},
		{"controlplane", "ApiType=private", "Set VpcEndpointIds"},
		{"controlplane", "VpcEndpointIds=" + endpoint, "Set ApiType"},
		{"pool", "FunctionSubnetIds=subnet-01234567 FunctionSecurityGroupIds=sg-01234567", ""},
		{"pool", "FunctionSubnetIds=subnet-01234567", "Set FunctionSecurityGroupIds"},
		{"pool", "FunctionSecurityGroupIds=sg-01234567", "Set FunctionSubnetIds"},
	} {
		tmpl, err := templates.Load("../../infra/transformed/" + c.template + ".json")
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]string{}
		for k, v := range given {
			if _, ok := tmpl.Parameters[k]; ok {
				values[k] = v
			}
		}
		for p := range strings.FieldsSeq(c.parameters) {
			k, v, _ := strings.Cut(p, "=")
			values[k] = v
		}
		_, err = tmpl.Deploy("dayfly-prod", home, values, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, want %q", c.template, c.parameters, err, c.want)
		}
	}
}

const (
	privateURL    = "https://klmno12345-" + endpoint + ".execute-api.eu-west-1.amazonaws.com/api"
	privateParams = "ApiType=private VpcEndpointIds=" + endpoint
	inVPC         = "FunctionSubnetIds=subnet-01234567 FunctionSecurityGroupIds=sg-01234567"
)

// The script refuses what could not work before it makes anything, and hands on what can.
func TestDeploy_WithAPrivateAPI(t *testing.T) {
	t.Parallel()
	admin := "DAYFLY_API_TOKEN=first-admin-token-of-the-deployment"
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"CONTROL_PARAMETERS=ApiType=private", "PARAMETERS=" + inVPC}, "give VpcEndpointIds too"},
		{[]string{"CONTROL_PARAMETERS=" + privateParams}, "give FunctionSubnetIds and FunctionSecurityGroupIds"},
		{[]string{"CONTROL_PARAMETERS=" + privateParams, "PARAMETERS=FunctionSubnetIds=subnet-01234567"}, "give FunctionSecurityGroupIds too"},
		{[]string{"SERVICE_URL=" + privateURL, admin}, "give FunctionSubnetIds and FunctionSecurityGroupIds"},
	} {
		s := newSite(t)
		said, calls, err := s.run("deploy", "", append(c.env, "YES=1")...)
		if err == nil || !strings.Contains(said, c.want) || len(changing(calls)) > 0 {
			t.Errorf("%v: %v, %v: %s", c.env, err, changing(calls), said)
		}
	}
	s := newSite(t)
	said, calls, err := s.run("deploy", "", "CONTROL_PARAMETERS="+privateParams, "PARAMETERS="+inVPC, "YES=1")
	if err != nil || !strings.Contains(said, "API of type private") {
		t.Fatalf("%v: %s", err, said)
	}
	before(t, calls, "deploy --stack-name dayfly-control .*ApiType=private VpcEndpointIds="+endpoint, "deploy --stack-name dayfly-main .*FunctionSubnetIds=subnet-01234567 FunctionSecurityGroupIds=sg-01234567")
	// Once more: the stacks know it.
	if said, _, err := s.run("deploy", "", "YES=1"); err != nil || !strings.Contains(said, "API of type private") {
		t.Errorf("a second time: %v: %s", err, said)
	}
	// A machine that does not reach the API is told so.
	for _, script := range []string{"deploy", "destroy"} {
		for _, address := range []string{privateURL, "https://dayfly.example.com"} {
			s.keep("busy", "pool list")
			said, _, err := s.run(script, "", "SERVICE_URL="+address, admin, "PARAMETERS="+inVPC, "YES=1")
			if told := strings.Contains(said, "This API is private: run the command again on a machine in the VPC"); err == nil || told != (address == privateURL) {
				t.Errorf("%s with %s: %v: %s", script, address, err, said)
			}
		}
	}
}

// deployment is the name of an API's deployment in a stack that the script made.
func (s *site) deployment(stack, kind string, env ...string) string {
	s.t.Helper()
	if said, _, err := s.run("deploy", "", append(env, "YES=1")...); err != nil {
		s.t.Fatalf("%v: %s", err, said)
	}
	found := regexp.MustCompile(kind+`Deployment[0-9a-f]+`).FindAllString(string(readFile(s.t, filepath.Join(s.state, "stacks", stack, "template"))), -1)
	if len(found) != 2 || found[0] != found[1] || len(found[0]) != len(kind+"Deployment")+26 {
		s.t.Fatalf("got %v", found)
	}
	return found[0]
}

// An API is deployed anew when its policy names another role or endpoint, and only then.
func TestDeploy_DeploysAnAPIAnewWithAnotherPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.deployment("dayfly-main", "StatusApi")
	for _, env := range []string{"PARAMETERS=RolePath=/teams/platform/", "PARAMETERS=NetworkMode=public"} {
		other := s.deployment("dayfly-main", "StatusApi", env)
		if other == first {
			t.Errorf("%s, and the same deployment", env)
		}
		if again := s.deployment("dayfly-main", "StatusApi"); again != other {
			t.Errorf("%s is forgotten", env)
		}
		first = other
	}
	if other := newSite(t).deployment("dayfly-prod", "StatusApi", "POOL=prod", "PARAMETERS=NetworkMode=public"); other == newSite(t).deployment("dayfly-main", "StatusApi", "PARAMETERS=NetworkMode=public") {
		t.Error("the path of another pool's role, and the same deployment")
	}
	callers := s.deployment("dayfly-control", "PrivateApi", "CONTROL_PARAMETERS="+privateParams, "PARAMETERS="+inVPC)
	if again := s.deployment("dayfly-control", "PrivateApi"); again != callers {
		t.Errorf("it is deployed anew without a reason: %s, %s", callers, again)
	}
	if other := s.deployment("dayfly-control", "PrivateApi", "CONTROL_PARAMETERS="+privateParams+",vpce-11111111"); other == callers {
		t.Error("another endpoint, and the same deployment")
	}
}

// The Terraform module refuses a pool whose functions would not reach its control plane.
func TestTerraform_FunctionsReachAPrivateAPI(t *testing.T) {
	for _, c := range []struct {
		url   string
		inVPC bool
		want  bool
	}{{privateURL, false, false}, {privateURL, true, true}, {"https://dayfly.example.com", false, true}, {"https://fghij67890.execute-api.us-east-1.amazonaws.com", false, true}} {
		subnets := cty.ListValEmpty(cty.String)
		if c.inVPC {
			subnets = cty.ListVal([]cty.Value{cty.StringVal("subnet-01234567")})
		}
		m := readModule(t, map[string]cty.Value{
			"service_url": cty.StringVal(c.url), "function_subnet_ids": subnets, "pool_name": cty.StringVal("prod"), "image_uri": cty.StringVal("i"),
			"stack_name": cty.StringVal("dayfly-prod"), "artifacts_bucket": cty.StringVal("artifacts"), "functions_directory": cty.StringVal("dist/functions"),
		})
		m.eval.Functions["length"], m.eval.Functions["regex"], m.eval.Functions["can"] = stdlib.LengthFunc, stdlib.RegexFunc, tryfunc.CanFunc
		var precondition *hclsyntax.Block
		for _, b := range m.of("resource", "aws_cloudformation_stack", "pool")[0].Body.Blocks {
			if b.Type == "lifecycle" {
				precondition = b.Body.Blocks[0]
			}
		}
		if precondition == nil {
			t.Fatal("nothing is refused")
		}
		if got := m.attr(t, precondition, "condition", nil).True(); got != c.want {
			t.Errorf("%s, in a VPC %t: taken %t", c.url, c.inVPC, got)
		}
	}
}
