// Package gateway stands for API Gateway in front of a Lambda function: a REST API (version 1) with IAM
// authorization and an HTTP API (version 2), each as an http.Handler. They turn a request into the
// event of a proxy integration and the function's answer into a response, with the limits, time-outs and refusals of the
// service. There are no routes, stages beyond a prefix, authorizers, caches or CORS.
package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
)

// MaxRequest is how long a request's body may be, in bytes.
// https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html
const MaxRequest = 10 << 20

// Invoker runs a function; *lambdahost.Host is one.
type Invoker interface {
	Invoke(ctx context.Context, function string, payload []byte) (lambdahost.Result, error)
}

// errTimeout is the gateway's own limit; the function goes on.
var errTimeout = errors.New("the integration took too long")

// call runs the function with an event, for at most limit.
func call(ctx context.Context, functions Invoker, name string, event any, limit time.Duration) (lambdahost.Result, error) {
	payload, err := json.Marshal(event)
	if err != nil {
		return lambdahost.Result{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	return functions.Invoke(ctx, name, payload)
}

// tooLong reports whether Lambda refused the event for its size, which is smaller than the gateway's.
func tooLong(err error) bool {
	e, ok := errors.AsType[*lambdahost.ServiceError](err)
	return ok && e.Status == http.StatusRequestEntityTooLarge
}

// readBody reads a request's body, or refuses what is too long.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxRequest+1))
	switch {
	case err != nil:
		return nil, false // the client is gone
	case len(body) > MaxRequest:
		refuse(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", "Request Too Long")
		return nil, false
	}
	return body, true
}

// response is what a proxy integration answers, of both versions.
type response struct {
	StatusCode        json.Number         `json:"statusCode"`
	Headers           map[string]any      `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Cookies           []string            `json:"cookies"`
	Body              *string             `json:"body"`
	IsBase64Encoded   bool                `json:"isBase64Encoded"`
}

// parse reads an answer; what the service would call malformed is an error.
func parse(payload []byte) (response, int, error) {
	var r response
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, 0, err
	}
	status, err := strconv.Atoi(r.StatusCode.String())
	if err != nil || status < 100 || status > 599 {
		return r, 0, fmt.Errorf("the answer has no status code: %q", r.StatusCode)
	}
	return r, status, nil
}

func (r response) bytes() ([]byte, error) {
	switch {
	case r.Body == nil:
		return nil, nil
	case r.IsBase64Encoded:
		return base64.StdEncoding.DecodeString(*r.Body)
	}
	return []byte(*r.Body), nil
}

// addHeaders sets the headers of an answer. A header with several values wins over one with one.
func (r response) addHeaders(h http.Header) {
	for name, value := range r.Headers {
		h.Set(name, fmt.Sprint(value))
	}
	for name, values := range r.MultiValueHeaders {
		h.Del(name)
		for _, v := range values {
			h.Add(name, v)
		}
	}
}

// refuse is an answer by the gateway itself.
func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	if kind != "" {
		w.Header().Set("X-Amzn-Errortype", kind)
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message}) // it is not an error if the client has gone
}

// asText is a body as a string of JSON: what is no UTF-8 is lost, as in the service.
func asText(body []byte) string {
	if utf8.Valid(body) {
		return string(body)
	}
	return strings.ToValidUTF8(string(body), "\uFFFD")
}

func sourceIP(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// forwarded adds the headers that the gateway adds to what it passes on.
func forwarded(r *http.Request) http.Header {
	h := r.Header.Clone()
	h.Set("Host", r.Host)
	if before := r.Header.Get("X-Forwarded-For"); before != "" {
		h.Set("X-Forwarded-For", before+", "+sourceIP(r))
	} else {
		h.Set("X-Forwarded-For", sourceIP(r))
	}
	h.Set("X-Forwarded-Proto", "https")
	h.Set("X-Forwarded-Port", "443")
	return h
}
