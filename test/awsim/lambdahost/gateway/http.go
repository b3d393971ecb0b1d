package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// HTTPTimeout is how long an HTTP API waits for a function.
const HTTPTimeout = 30 * time.Second

// HTTP is an HTTP API with the stage $default and no authorizer. Its fields must not change while it serves.
type HTTP struct {
	Functions Invoker
	Function  string            // of the route $default
	Routes    map[string]string // functions of other routes, by their keys
	Timeout   time.Duration     // 0 means HTTPTimeout
	Account   string            // of the API; empty means 123456789012
	ID        string            // of the API; empty means local
}

type httpDescription struct {
	Method    string `json:"method"`
	Path      string `json:"path"`
	Protocol  string `json:"protocol"`
	SourceIP  string `json:"sourceIp"`
	UserAgent string `json:"userAgent"`
}

type httpContext struct {
	AccountID    string          `json:"accountId"`
	APIID        string          `json:"apiId"`
	DomainName   string          `json:"domainName"`
	DomainPrefix string          `json:"domainPrefix"`
	HTTP         httpDescription `json:"http"`
	RequestID    string          `json:"requestId"`
	RouteKey     string          `json:"routeKey"`
	Stage        string          `json:"stage"`
	Time         string          `json:"time"`
	TimeEpoch    int64           `json:"timeEpoch"`
}

// httpEvent is the input of a Lambda proxy integration, format 2.0.
// https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
type httpEvent struct {
	Version         string            `json:"version"`
	RouteKey        string            `json:"routeKey"`
	RawPath         string            `json:"rawPath"`
	RawQueryString  string            `json:"rawQueryString"`
	Cookies         []string          `json:"cookies,omitempty"`
	Headers         map[string]string `json:"headers"`
	Query           map[string]string `json:"queryStringParameters,omitempty"`
	RequestContext  httpContext       `json:"requestContext"`
	Body            *string           `json:"body,omitempty"`
	IsBase64Encoded bool              `json:"isBase64Encoded"`
}

// ServeHTTP serves one request.
func (g *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := wire.RequestID()
	w.Header().Set("Apigw-Requestid", id)
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	route := Route(g.Routes, r.Method, r.URL.Path)
	function := cmp.Or(g.Routes[route], g.Function)
	result, err := call(r.Context(), g.Functions, function, g.event(r, id, route, body), cmp.Or(g.Timeout, HTTPTimeout))
	g.answer(w, result, err)
}

func (g *HTTP) event(r *http.Request, id, route string, body []byte) httpEvent {
	now := time.Now().UTC()
	api := cmp.Or(g.ID, "local")
	e := httpEvent{
		Version: "2.0", RouteKey: route, RawPath: r.URL.Path, RawQueryString: r.URL.RawQuery,
		Headers: map[string]string{}, Query: map[string]string{},
		RequestContext: httpContext{
			AccountID: cmp.Or(g.Account, wire.Account), APIID: api, DomainName: r.Host, DomainPrefix: api,
			RequestID: id, RouteKey: route, Stage: "$default",
			Time: now.Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
			HTTP: httpDescription{Method: r.Method, Path: r.URL.Path, Protocol: r.Proto, SourceIP: sourceIP(r), UserAgent: r.UserAgent()},
		},
	}
	for name, values := range forwarded(r) {
		if name == "Cookie" {
			for _, line := range values {
				e.Cookies = append(e.Cookies, strings.Split(line, "; ")...)
			}
			continue
		}
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	for name, values := range r.URL.Query() {
		e.Query[name] = strings.Join(values, ",")
	}
	if len(body) > 0 {
		text := asText(body)
		if e.IsBase64Encoded = !textual(r.Header.Get("Content-Type")); e.IsBase64Encoded {
			text = base64.StdEncoding.EncodeToString(body)
		}
		e.Body = &text
	}
	return e
}

// textual reports whether an HTTP API passes bodies of a media type as they are.
func textual(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") ||
		slices.Contains([]string{"application/json", "application/javascript", "application/xml"}, kind))
}

func (g *HTTP) answer(w http.ResponseWriter, result lambdahost.Result, err error) {
	switch {
	case errors.Is(err, context.Canceled):
		return // the client is gone
	case tooLong(err):
		refuse(w, http.StatusRequestEntityTooLarge, "", "Request Entity Too Large")
		return
	case err != nil: // too slow, or Lambda did not run it
		refuse(w, http.StatusServiceUnavailable, "", "Service Unavailable")
		return
	case result.FunctionError != "":
		refuse(w, http.StatusInternalServerError, "", "Internal Server Error")
		return
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(result.Payload, &fields) != nil || fields["statusCode"] == nil {
		g.infer(w, result.Payload)
		return
	}
	response, status, err := parse(result.Payload)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "", "Internal Server Error")
		return
	}
	body, err := response.bytes()
	if err != nil {
		refuse(w, http.StatusInternalServerError, "", "Internal Server Error")
		return
	}
	response.addHeaders(w.Header())
	for _, c := range response.Cookies {
		w.Header().Add("Set-Cookie", c)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// infer answers with a payload that is not a response object: JSON with status 200, a string as its text.
func (g *HTTP) infer(w http.ResponseWriter, payload []byte) {
	w.Header().Set("Content-Type", "application/json")
	var text string
	if json.Unmarshal(payload, &text) == nil {
		payload = []byte(text)
	}
	_, _ = w.Write(payload)
}
