// Package gateway makes what API Gateway passes on fit for the adapter that turns it into a request. It is pure.
package gateway

import (
	"encoding/base64"
	"maps"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// adapterHeaders begins the names of the headers in which the adapter can pass on an event's own context. Here it
// passes that in the request's context, so whatever has such a name came from outside.
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
