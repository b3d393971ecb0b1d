package cloud_test

import (
	"crypto/md5" //nolint:gosec // of SQS
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/gateway"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

const events = "../../events"

func TestSamples_EachFileIsOfOneFunction(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(events, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no events: %v", err)
	}
	var taken []string
	for _, of := range cloud.Samples {
		taken = append(taken, of...)
	}
	for _, f := range files {
		if n := len(taken); len(slices.DeleteFunc(slices.Clone(taken), func(s string) bool { return s == filepath.Base(f) })) != n-1 {
			t.Errorf("%s is not the sample of one function", f)
		}
	}
	if len(taken) != len(files) {
		t.Errorf("%d samples are named and %d are there", len(taken), len(files))
	}
}

// The samples are what AWS sends for the templates: their API's resources, stage and routes, bodies with their digest, the
// scheduler's detail, which is a text, and the fields of an event of ECS.
func TestSamples_AreAsAWSSendsThem(t *testing.T) {
	deployed := func(template, name string, parameters map[string]string) *templates.Stack {
		tmpl, err := templates.Load("../../infra/transformed/" + template + ".json")
		if err != nil {
			t.Fatal(err)
		}
		s, err := tmpl.Deploy(name, cloud.Account, parameters, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	pool := deployed("pool", "dayfly-main", map[string]string{"PoolName": "main", "ServiceUrl": "https://x", "ImageUri": "i", "NetworkMode": "public"})
	control := deployed("controlplane", "dayfly-control", nil)
	private := deployed("controlplane", "dayfly-control", map[string]string{"ApiType": "private", "VpcEndpointIds": "vpce-0123456789abcdef0"})
	for function, samples := range cloud.Samples {
		for _, name := range samples {
			b, err := os.ReadFile(filepath.Join(events, name))
			if err != nil {
				t.Fatal(err)
			}
			var e map[string]any
			if err := json.Unmarshal(b, &e); err != nil {
				t.Fatal(err)
			}
			at := func(keys ...string) string { return templates.Text(templates.At(e, keys...)) }
			switch {
			case e["Records"] != nil:
				for _, r := range e["Records"].([]any) {
					sum := md5.Sum([]byte(templates.Text(templates.At(r, "body")))) //nolint:gosec // it is what SQS has
					if templates.Text(templates.At(r, "md5OfBody")) != hex.EncodeToString(sum[:]) {
						t.Errorf("%s: the digest is another body's", name)
					}
				}
			case e["httpMethod"] != nil: // of a REST API
				of, api := pool, "StatusApi"
				if function == "ControlPlane" {
					of, api = private, "PrivateApi"
				}
				paths, _ := templates.At(of.Resources[api].Properties, "Body", "paths").(map[string]any)
				stage := of.Resources[of.Of("AWS::ApiGateway::Stage")[0]].Properties["StageName"]
				if paths[at("resource")] == nil || at("requestContext", "resourcePath") != at("resource") || at("requestContext", "stage") != stage ||
					at("requestContext", "path") != "/"+at("requestContext", "stage")+at("path") {
					t.Errorf("%s is not of the API of the template: %s at stage %s", name, at("resource"), at("requestContext", "stage"))
				}
			case e["rawPath"] != nil: // of an HTTP API
				route := gateway.Route(control.Routes(), at("requestContext", "http", "method"), at("rawPath"))
				if at("routeKey") != route || at("requestContext", "routeKey") != route || control.Routes()[route] != "dayfly-control-"+function {
					t.Errorf("%s goes by %s, want %s", name, at("routeKey"), route)
				}
			case at("source") == "aws.scheduler":
				if e["detail"] != "{}" {
					t.Errorf("%s: the scheduler's detail is a text, not %v", name, e["detail"])
				}
			case at("source") == "aws.ecs":
				for _, field := range []string{
					"attachments", "attributes", "availabilityZone", "clusterArn", "connectivity", "connectivityAt", "containers", "cpu", "createdAt", "desiredStatus",
					"enableExecuteCommand", "ephemeralStorage", "group", "lastStatus", "launchType", "memory", "overrides", "platformVersion", "pullStartedAt", "startedBy",
					"stopCode", "stoppedAt", "stoppedReason", "stoppingAt", "taskArn", "taskDefinitionArn", "updatedAt", "version",
				} {
					if templates.At(e, "detail", field) == nil {
						t.Errorf("%s has no %s", name, field)
					}
				}
			case len(e) > 0: // a wake is empty
				t.Errorf("%s is an event of a kind that is not known here", name)
			}
		}
	}
}

// Each sample is understood by its function, as it is built and deployed: an unknown job is not an error. Each line
// that is written then names its invocation.
func TestSamples_AreTakenByTheDeployedFunctions(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs functions")
	}
	var lines atomic.Int32
	c, err := cloud.Start(t.Context(), cloud.Config{
		Root: "../..", Functions: functions, Image: "none", Runner: &procrun.Runner{},
		Log: func(function, line string) {
			t.Log(function, line)
			if strings.HasPrefix(line, "{") {
				lines.Add(1)
				if !strings.Contains(line, `"request_id":"`) {
					t.Errorf("%s does not name its invocation: %s", function, line)
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Close()
		if lines.Load() < 5 {
			t.Errorf("only %d lines were written", lines.Load())
		}
	}()
	for function, samples := range cloud.Samples {
		for _, name := range samples {
			event, err := os.ReadFile(filepath.Join(events, name))
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.Invoke(t.Context(), function, event)
			if err != nil || out.FunctionError != "" {
				t.Errorf("%s with %s: %v %s %s", function, name, err, out.FunctionError, out.Payload)
			}
		}
	}
}
