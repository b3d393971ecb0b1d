package gateway_test

import (
	"encoding/base64"
	"errors"
	"maps"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/functions/internal/gateway"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestHeaders_DropsTheAdaptersOwn(t *testing.T) {
	in := map[string]string{"X-GoLambdaProxy-ApiGw-Context": "1", "x-golambdaproxy-anything": "1", "X-GOLAMBDAPROXY-APIGW-STAGEVARS": "1", "A": "1"}
	if got := gateway.Headers(in); !maps.Equal(got, map[string]string{"A": "1"}) {
		t.Errorf("got %v", got)
	}
	if len(in) != 4 {
		t.Error("the event was changed")
	}
	if got := gateway.Headers[string](nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestBody_IsAsItWasSent(t *testing.T) {
	for _, tt := range []struct {
		in      string
		encoded bool
		want    string
	}{{"e30=", true, "{}"}, {"e30=", false, "e30="}, {"", true, ""}} {
		if got, err := gateway.Body(tt.in, tt.encoded); err != nil || got != tt.want {
			t.Errorf("%q: %q, %v", tt.in, got, err)
		}
	}
	if _, err := gateway.Body("%", true); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("broken: %v", err)
	}
}

func TestREST_DropsTheAdaptersHeadersAndDecodes(t *testing.T) {
	in := events.APIGatewayProxyRequest{
		Headers:           map[string]string{"X-GoLambdaProxy-ApiGw-Context": "1", "X-GOLAMBDAPROXY-APIGW-STAGEVARS": "1", "A": "1"},
		MultiValueHeaders: map[string][]string{"x-golambdaproxy-anything": {"1"}, "A": {"1"}},
		Body:              base64.StdEncoding.EncodeToString([]byte("{}")), IsBase64Encoded: true,
	}
	got, err := gateway.REST(in)
	want := events.APIGatewayProxyRequest{Headers: map[string]string{"A": "1"}, MultiValueHeaders: map[string][]string{"A": {"1"}}, Body: "{}"}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if len(in.Headers) != 3 || len(in.MultiValueHeaders) != 2 {
		t.Error("the event was changed")
	}
}

func TestPath_IsWithoutTheStage(t *testing.T) {
	for _, tt := range []struct{ path, stage, want string }{
		{"/api/v1/pools", "api", "/v1/pools"}, {"/v1/pools", "api", "/v1/pools"}, {"/api", "api", "/"}, {"/apis/v1", "api", "/apis/v1"},
		{"/v1/api", "api", "/v1/api"}, {"/$default/x", "$default", "/$default/x"}, {"/v1/pools", "", "/v1/pools"},
	} {
		if got := gateway.Path(tt.path, tt.stage); got != tt.want {
			t.Errorf("%s at stage %q: %s, want %s", tt.path, tt.stage, got, tt.want)
		}
		event := events.APIGatewayProxyRequest{Path: tt.path, RequestContext: events.APIGatewayProxyRequestContext{Stage: tt.stage}}
		if got, err := gateway.REST(event); err != nil || got.Path != tt.want {
			t.Errorf("an event of %s at stage %q: %s, %v", tt.path, tt.stage, got.Path, err)
		}
	}
}
