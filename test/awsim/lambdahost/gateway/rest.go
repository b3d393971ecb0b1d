package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// RESTTimeout is how long a REST API waits for a function.
const RESTTimeout = 29 * time.Second

// REST is a REST API with one proxy resource for everything ({proxy+}) and IAM authorization. Its
// fields must not change while it serves.
type REST struct {
	Functions Invoker
	Function  string
	// Authenticate checks the signature of a request (for the service execute-api) and says who made
	// it, without using up its body. A *wire.Error is answered as it is. Required.
	Authenticate func(r *http.Request, service string) (wire.Identity, error)
	// Allow is IAM's answer to execute-api:Invoke for a caller on METHOD/path; nil allows everybody
	// whose signature is right.
	Allow       func(caller wire.Identity, resource string) bool
	Stage       string        // the first element of every path; empty means that there is none
	BinaryTypes []string      // media types whose bodies are passed in base64; */* means all
	Timeout     time.Duration // 0 means RESTTimeout
	Account     string        // of the API; empty means 123456789012
	Region      string        // empty means us-east-1
	ID          string        // of the API; empty means local
}

type restIdentity struct {
	AccountID string `json:"accountId"`
	Caller    string `json:"caller"`
	AccessKey string `json:"accessKey"`
	UserARN   string `json:"userArn"`
	User      string `json:"user"`
	SourceIP  string `json:"sourceIp"`
	UserAgent string `json:"userAgent"`
}

type restContext struct {
	AccountID        string       `json:"accountId"`
	APIID            string       `json:"apiId"`
	DomainName       string       `json:"domainName"`
	DomainPrefix     string       `json:"domainPrefix"`
	HTTPMethod       string       `json:"httpMethod"`
	Identity         restIdentity `json:"identity"`
	Path             string       `json:"path"`
	Protocol         string       `json:"protocol"`
	RequestID        string       `json:"requestId"`
	RequestTime      string       `json:"requestTime"`
	RequestTimeEpoch int64        `json:"requestTimeEpoch"`
	ResourceID       string       `json:"resourceId"`
	ResourcePath     string       `json:"resourcePath"`
	Stage            string       `json:"stage"`
}

// restEvent is the input of a Lambda proxy integration, format 1.0.
// https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-lambda-proxy-integrations.html
type restEvent struct {
	Resource        string              `json:"resource"`
	Path            string              `json:"path"`
	HTTPMethod      string              `json:"httpMethod"`
	Headers         map[string]string   `json:"headers"`
	MultiHeaders    map[string][]string `json:"multiValueHeaders"`
	Query           map[string]string   `json:"queryStringParameters"`
	MultiQuery      map[string][]string `json:"multiValueQueryStringParameters"`
	PathParameters  map[string]string   `json:"pathParameters"`
	StageVariables  map[string]string   `json:"stageVariables"`
	RequestContext  restContext         `json:"requestContext"`
	Body            *string             `json:"body"`
	IsBase64Encoded bool                `json:"isBase64Encoded"`
}

// ServeHTTP serves one request.
func (g *REST) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := wire.RequestID()
	w.Header().Set("X-Amzn-Requestid", id)
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	inner, ok := g.withinStage(r.URL.Path)
	if !ok {
		refuse(w, http.StatusForbidden, "ForbiddenException", "Forbidden")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	caller, err := g.Authenticate(r, "execute-api")
	if err != nil {
		refuseCaller(w, err)
		return
	}
	if resource := r.Method + inner; g.Allow != nil && !g.Allow(caller, resource) {
		arn := fmt.Sprintf("arn:aws:execute-api:%s:%s:%s/%s/%s", cmp.Or(g.Region, "us-east-1"), g.account(), g.id(), g.Stage, resource)
		refuse(w, http.StatusForbidden, "AccessDeniedException", fmt.Sprintf("User: %s is not authorized to perform: execute-api:Invoke on resource: %s", caller.ARN, arn))
		return
	}
	result, err := call(r.Context(), g.Functions, g.Function, g.event(r, id, inner, body, caller), cmp.Or(g.Timeout, RESTTimeout))
	g.answer(w, result, err)
}

func (g *REST) account() string { return cmp.Or(g.Account, wire.Account) }
func (g *REST) id() string      { return cmp.Or(g.ID, "local") }

func (g *REST) withinStage(p string) (string, bool) {
	if g.Stage == "" {
		return p, true
	}
	rest, ok := strings.CutPrefix(p, "/"+g.Stage)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return cmp.Or(rest, "/"), true
}

// refuseCaller is how the gateway says no to who cannot say who they are: no function runs.
func refuseCaller(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		refuse(w, http.StatusForbidden, e.Code, e.Message)
		return
	}
	refuse(w, http.StatusForbidden, "InvalidSignatureException", err.Error())
}

func (g *REST) event(r *http.Request, id, inner string, body []byte, caller wire.Identity) restEvent {
	now := time.Now().UTC()
	headers, query := forwarded(r), r.URL.Query()
	unique := uniqueID(caller.ARN)
	e := restEvent{
		Resource: "/{proxy+}", Path: inner, HTTPMethod: r.Method,
		Headers: lastOf(headers), MultiHeaders: headers, Query: lastOf(query), MultiQuery: query,
		PathParameters: map[string]string{"proxy": strings.TrimPrefix(inner, "/")},
		RequestContext: restContext{
			AccountID: g.account(), APIID: g.id(), DomainName: r.Host, DomainPrefix: g.id(),
			HTTPMethod: r.Method, Path: r.URL.Path, Protocol: r.Proto, RequestID: id,
			RequestTime: now.Format("02/Jan/2006:15:04:05 -0700"), RequestTimeEpoch: now.UnixMilli(),
			ResourceID: "proxy", ResourcePath: "/{proxy+}", Stage: g.Stage,
			Identity: restIdentity{
				AccountID: caller.Account, Caller: unique, User: unique, AccessKey: caller.AccessKeyID,
				UserARN: caller.ARN, SourceIP: sourceIP(r), UserAgent: r.UserAgent(),
			},
		},
	}
	if len(body) > 0 {
		text := asText(body)
		if e.IsBase64Encoded = g.binary(r.Header.Get("Content-Type")); e.IsBase64Encoded {
			text = base64.StdEncoding.EncodeToString(body)
		}
		e.Body = &text
	}
	return e
}

// binary reports whether bodies of a media type are passed in base64.
func (g *REST) binary(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return slices.ContainsFunc(g.BinaryTypes, func(t string) bool { return t == "*/*" || err == nil && t == kind })
}

func (g *REST) answer(w http.ResponseWriter, result lambdahost.Result, err error) {
	const own = "InternalServerErrorException"
	switch {
	case errors.Is(err, errTimeout):
		refuse(w, http.StatusGatewayTimeout, "IntegrationTimeoutException", "Endpoint request timed out")
		return
	case errors.Is(err, context.Canceled):
		return // the client is gone
	case tooLong(err):
		refuse(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", "Request Too Long")
		return
	case err != nil: // Lambda did not run it, because of too little concurrency for instance
		refuse(w, http.StatusInternalServerError, own, "Internal server error")
		return
	case result.FunctionError != "":
		refuse(w, http.StatusBadGateway, own, "Internal server error")
		return
	}
	response, status, err := parse(result.Payload)
	if err != nil {
		refuse(w, http.StatusBadGateway, own, "Internal server error")
		return
	}
	body, err := response.bytes()
	if err != nil {
		refuse(w, http.StatusBadGateway, own, "Internal server error")
		return
	}
	w.Header().Set("Content-Type", "application/json") // unless the function says otherwise
	response.addHeaders(w.Header())
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// lastOf takes the last value of each name.
func lastOf(values map[string][]string) map[string]string {
	out := map[string]string{}
	for name, all := range values {
		if len(all) > 0 {
			out[name] = all[len(all)-1]
		}
	}
	return out
}

// uniqueID is what IAM calls a caller: of a role's session AROA...:SESSION, of a user AIDA.... It is made
// up, and always the same for the same role or user.
func uniqueID(arn string) string {
	sum := sha256.Sum256([]byte(path.Dir(arn)))
	if strings.Contains(arn, ":assumed-role/") {
		return "AROA" + base32.StdEncoding.EncodeToString(sum[:])[:17] + ":" + path.Base(arn)
	}
	sum = sha256.Sum256([]byte(arn))
	return "AIDA" + base32.StdEncoding.EncodeToString(sum[:])[:17]
}
