package main

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
)

// rest makes a request of a REST API out of a sample.
func (w *world) rest(method, path, body string, change ...func(*events.APIGatewayProxyRequest)) events.APIGatewayProxyResponse {
	w.t.Helper()
	var e events.APIGatewayProxyRequest
	w.must(json.Unmarshal(sample(w.t, "rest-api-list"), &e))
	e.Path, e.RequestContext.Path, e.HTTPMethod, e.RequestContext.HTTPMethod, e.Body = path, "/api"+path, method, method, body
	e.QueryStringParameters, e.MultiValueQueryStringParameters = nil, nil
	e.Headers["Authorization"], e.MultiValueHeaders["Authorization"] = "Bearer "+adminToken, []string{"Bearer " + adminToken}
	for _, c := range change {
		c(&e)
	}
	return answered[events.APIGatewayProxyResponse](w, e)
}

// A private API is a REST API: its requests are served as those of the HTTP API are.
func TestHandle_RequestsOfARESTAPI(t *testing.T) {
	w := newWorld(t, memory.New())
	encoded := func(e *events.APIGatewayProxyRequest) {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(e.Body)), true
	}
	if got := w.rest("POST", "/v1/pools", `{"name":"other"}`, encoded); got.StatusCode != 201 && got.StatusCode != 200 {
		t.Errorf("base64: %d %s", got.StatusCode, got.Body)
	}
	zips := func(e *events.APIGatewayProxyRequest) { e.MultiValueHeaders["accept-encoding"] = []string{"gzip"} }
	if got := w.rest("GET", "/openapi.json", "", zips); got.StatusCode != 200 || got.IsBase64Encoded || !strings.HasPrefix(got.Body, "{") {
		t.Errorf("a caller that takes gzip: %d, base64 %t, %.40s", got.StatusCode, got.IsBase64Encoded, got.Body)
	}
	broken := func(e *events.APIGatewayProxyRequest) { e.Body, e.IsBase64Encoded = "%", true }
	if got := w.rest("POST", "/v1/pools", "", broken); got.StatusCode != 422 || !slices.Equal(got.MultiValueHeaders["Content-Type"], []string{"application/problem+json"}) {
		t.Errorf("broken base64: %d %v %s", got.StatusCode, got.MultiValueHeaders, got.Body)
	}
	limited := func(e *events.APIGatewayProxyRequest) {
		e.Path = "/api" + e.Path // as below the base path of a custom domain
		e.QueryStringParameters, e.MultiValueQueryStringParameters = map[string]string{"limit": "1"}, map[string][]string{"limit": {"1"}}
	}
	got := w.rest("GET", "/v1/pools", "", limited)
	var pools api.Page[api.Pool]
	w.must(json.Unmarshal([]byte(got.Body), &pools))
	if got.StatusCode != 200 || len(pools.Items) != 1 || pools.Next == "" {
		t.Errorf("with a stage and a query: %d %s", got.StatusCode, got.Body)
	}
	if !slices.Equal(got.MultiValueHeaders["Content-Type"], []string{"application/json"}) || !slices.Equal(got.MultiValueHeaders["Cache-Control"], []string{"no-store"}) {
		t.Errorf("headers %v", got.MultiValueHeaders)
	}
	if got := w.rest("GET", "/nowhere", ""); got.StatusCode != 404 {
		t.Errorf("nowhere: %d %s", got.StatusCode, got.Body)
	}
	// The token says who calls, not what the event says of a principal in AWS.
	signed := func(e *events.APIGatewayProxyRequest) {
		e.RequestContext.Identity.UserArn = "arn:aws:iam::123456789012:user/admin"
		delete(e.Headers, "Authorization")
		delete(e.MultiValueHeaders, "Authorization")
	}
	if got := w.rest("GET", "/v1/pools", "", signed); got.StatusCode != 401 {
		t.Errorf("without a token: %d %s", got.StatusCode, got.Body)
	}
	out, err := w.f.Handle(t.Context(), sample(t, "rest-api-list")) // nobody has its token
	if answer, ok := out.(events.APIGatewayProxyResponse); err != nil || !ok || answer.StatusCode != 401 {
		t.Errorf("the sample: %+v, %v", out, err)
	}
}

// The answer names the request as the gateway's log does, unless its caller has named it.
func TestCleanREST_NamesTheRequest(t *testing.T) {
	in := events.APIGatewayProxyRequest{RequestContext: events.APIGatewayProxyRequestContext{RequestID: "of-the-gateway"}}
	for given, want := range map[string]string{"": "of-the-gateway", "run-7": "run-7"} {
		in.MultiValueHeaders = map[string][]string{"x-request-id": {given}}
		got, err := cleanREST(in)
		var ids []string
		for name, values := range got.MultiValueHeaders {
			if strings.EqualFold(name, api.HeaderRequestID) {
				ids = append(ids, values...)
			}
		}
		if err != nil || !slices.Equal(ids, []string{want}) {
			t.Errorf("request id %q became %q, want %q: %v", given, ids, want, err)
		}
	}
	in.MultiValueHeaders = nil
	if got, err := cleanREST(in); err != nil || !slices.Equal(got.MultiValueHeaders[api.HeaderRequestID], []string{"of-the-gateway"}) {
		t.Errorf("without headers: %v, %v", got.MultiValueHeaders, err)
	}
}
