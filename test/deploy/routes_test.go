package deploy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/gateway"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// Calls that wait have a function of their own, so that they take no concurrency from the others.
func TestRoutes_CallsThatWaitHaveAFunctionOfTheirOwn(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters  []struct{ Name string } `json:"parameters"`
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					} `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(readFile(t, "../../docs/openapi.json"), &doc); err != nil {
		t.Fatal(err)
	}
	routes := deploy(t, "controlplane", nil).Routes()
	waiting := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			waits := slices.ContainsFunc(op.Parameters, func(p struct{ Name string }) bool { return p.Name == "wait_seconds" })
			for _, c := range op.RequestBody.Content {
				schema := doc.Components.Schemas[c.Schema.Ref[strings.LastIndexByte(c.Schema.Ref, '/')+1:]]
				waits = waits || schema.Properties["wait_seconds"] != nil
			}
			want := "dayfly-prod-ControlPlane"
			if waits {
				want = "dayfly-prod-LongPolls"
				waiting++
			}
			asked := strings.NewReplacer("{", "", "}", "").Replace(path)
			key := gateway.Route(routes, strings.ToUpper(method), asked)
			if got := routes[key]; got != want || (key == "$default") == strings.HasPrefix(path, "/v1/") {
				t.Errorf("%s %s goes by %q to %s, want %s", method, path, key, got, want)
			}
		}
	}
	if waiting != 4 {
		t.Errorf("%d calls wait", waiting)
	}
}

// Each kind of call has a limit of its own, also that of browsers and strangers.
func TestRoutes_EachHasAThrottleOfItsOwn(t *testing.T) {
	s := deploy(t, "controlplane", map[string]string{"RateLimit": "777", "BurstLimit": "888"})
	stage := s.Resources[s.Of("AWS::ApiGatewayV2::Stage")[0]].Properties
	settings, _ := stage["RouteSettings"].(map[string]any)
	if got, want := slices.Sorted(maps.Keys(settings)), slices.Sorted(maps.Keys(s.Routes())); !slices.Equal(got, want) {
		t.Errorf("limits of %v, routes %v", got, want)
	}
	for key, of := range settings {
		rate, burst := templates.Text(templates.At(of, "ThrottlingRateLimit")), templates.Text(templates.At(of, "ThrottlingBurstLimit"))
		if want := map[bool]string{true: "100 200", false: "777 888"}[key == "$default"]; rate+" "+burst != want {
			t.Errorf("%s is limited to %s %s, want %s", key, rate, burst, want)
		}
	}
	for _, asked := range []string{"/", "/openapi.json", "/.env", "/v2/claims"} {
		if key := gateway.Route(s.Routes(), "GET", asked); key != "$default" {
			t.Errorf("%s goes by %s", asked, key)
		}
	}
}
