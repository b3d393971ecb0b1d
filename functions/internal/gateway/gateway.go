// Package gateway prepares the events of API Gateway for the adapter that turns them into requests. It is pure.
package gateway

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// REST makes an event of a REST API (payload format 1.0) one that the adapter can take: without forged headers, without
// the stage in its path, with its body decoded. The event that it is given stays as it is. A body that is marked as base64
// but is not gives an error that wraps workflow.ErrInvalid.
func REST(in events.APIGatewayProxyRequest) (events.APIGatewayProxyRequest, error) {
	in.Headers, in.MultiValueHeaders = Headers(in.Headers), Headers(in.MultiValueHeaders)
	in.Path = Path(in.Path, in.RequestContext.Stage)
	var err error
	in.Body, err = Body(in.Body, in.IsBase64Encoded)
	in.IsBase64Encoded = false
	return in, err
}

// Refusal is the answer of a REST API's function to a request that it refused with err.
func Refusal(err error) events.APIGatewayProxyResponse {
	p := api.ProblemFor(err)
	body, _ := json.Marshal(p) // of strings and numbers: it cannot fail
	return events.APIGatewayProxyResponse{
		StatusCode: p.Status, Body: string(body),
		MultiValueHeaders: map[string][]string{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}},
	}
}

// Path returns an event's path without the stage, which some addresses of an API leave in it.
func Path(path, stage string) string {
	if stage == "" || stage == "$default" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "/"+stage); ok && (rest == "" || rest[0] == '/') {
		return "/" + strings.TrimPrefix(rest, "/")
	}
	return path
}

// adapterHeaders begins the names of the headers in which the adapter can pass on an event's own context. Here it
// passes that in the request's context, so any header with such a name came from outside.
const adapterHeaders = "x-golambdaproxy-"

// Headers returns a copy of an event's headers without those that the adapter would take for its own. It is never nil.
func Headers[V any](in map[string]V) map[string]V {
	out := map[string]V{}
	maps.Copy(out, in)
	maps.DeleteFunc(out, func(name string, _ V) bool { return strings.HasPrefix(strings.ToLower(name), adapterHeaders) })
	return out
}

// Body returns an event's body as it was sent.
func Body(body string, encoded bool) (string, error) {
	if !encoded {
		return body, nil
	}
	sent, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return "", workflow.Refuse(workflow.ErrInvalid, "", "the body is marked as base64 but is not")
	}
	return string(sent), nil
}
