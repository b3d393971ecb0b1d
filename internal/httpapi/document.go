package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// describe returns huma's configuration: our types as they are, without links to schemas, pages
// of documentation or formats other than JSON.
func describe() huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "Dayfly control plane",
				Version: "1",
				Description: "Runs infrastructure-as-code workflows on runners that live for one job. " +
					"Every error is a problem (RFC 9457) with a stable code. Calls that answer 503 or 429 may be repeated after Retry-After. " +
					"A request may name itself in X-Request-Id, with at most 64 of the characters A-Z, a-z, 0-9, ., _, =, +, / and -.\n\n" +
					"Within version 1 an answer may get new fields, and a field whose values are words, such as code, state or reason, new words " +
					"(x-extensible-enum has those of today): a client passes over fields that it does not know, and goes by the HTTP status where it does not " +
					"know a code. A workflow ends as succeeded, failed or cancelled, and in no other state. " +
					"A request, unless it is a runner's, is refused for a field that the control plane does not know, also where its schema, which answers " +
					"share, takes any; so is a word that it does not know.",
				License: &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"},
			},
			Servers: []*huma.Server{{URL: "/", Description: "The control plane that serves this document"}},
			Components: &huma.Components{
				Responses: map[string]*huma.Response{},
				Headers: map[string]*huma.Header{
					api.HeaderRequestID: {Description: "Id of the request, by which the control plane's log names it", Schema: &huma.Schema{Type: "string"}, Example: "3KQ7ZB5XNDTM"},
					retryAfterHeader:    {Description: "Seconds to wait before the call is repeated", Schema: &huma.Schema{Type: "integer"}, Example: 1},
				},
				Examples: map[string]*huma.Example{},
				Schemas:  huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					string(people):  {Type: "http", Scheme: "bearer", BearerFormat: "dfu_...", Description: "Token of a person or of CI, with a role"},
					string(stacks):  {Type: "http", Scheme: "bearer", BearerFormat: "dfp_...", Description: "Token of a pool"},
					string(runners): {Type: "http", Scheme: "bearer", BearerFormat: "dfj_...", Description: "Token of one attempt of one workflow"},
				},
			},
			Tags: []*huma.Tag{
				{Name: "workflows", Description: "Submit, follow and cancel runs"},
				{Name: "workspaces", Description: "The code to run, and its settings"},
				{Name: "trees", Description: "Runs of a workspace and of all that depend on it"},
				{Name: "schedules", Description: "Runs by the clock"},
				{Name: "notifications", Description: "Receivers of events"},
				{Name: "policies", Description: "Rules for plans, and exceptions for a time"},
				{Name: "git hosts", Description: "Whose webhooks are taken, and where pull requests are answered"},
				{Name: "deliveries", Description: "Notifications and calls of git hosts, as pools make them"},
				{Name: "organizations", Description: "The settings of an organization"},
				{Name: "projects", Description: "The tree in which workspaces and roles lie"},
				{Name: "pools", Description: "Groups of runners"},
				{Name: "tokens", Description: "Credentials of callers"},
				{Name: "audit", Description: "The audit trail, and its seals"},
				{Name: "pool stacks", Description: "Calls of a pool's poller, dispatcher, relay and reaper"},
				{Name: "runners", Description: "Calls from inside a task. Fields that this version does not know are passed over in them"},
				{Name: "service", Description: "The control plane itself"},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{translate},
	}
}

// operation describes a route with every error that it may answer. in is the type of its input, out that of the body of
// its answer.
func (r registration) operation(in, out reflect.Type) huma.Operation {
	op := huma.Operation{
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Description: strings.TrimSpace(r.takes() + " " + r.note), Tags: []string{r.tag},
		DefaultStatus: r.status, Responses: map[string]*huma.Response{},
		// The middleware reads the body, within bounds of time and size. huma would then change the connection's read
		// deadline, which would cut a long poll short.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
	}
	limit := min(r.s.maxBody, smallBody)
	if r.large {
		limit = r.s.maxBody
	}
	op.Middlewares = huma.Middlewares{r.s.admit(r.route), r.s.readBody(limit)}
	statuses := append([]int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable}, r.errors...)
	if r.audience != open {
		statuses = append(statuses, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests)
	}
	_, raw := in.FieldByName("RawBody")
	op.SkipValidateBody = raw // its bytes are not a string of JSON, which huma takes them for
	if raw || r.body != nil {
		statuses = append(statuses, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	for _, status := range statuses {
		op.Responses[strconv.Itoa(status)] = problemResponse(r.on, status)
	}
	switch r.audience {
	case open:
		op.Security = []map[string][]string{}
	case either:
		op.Security = []map[string][]string{{string(people): {}}, {string(stacks): {}}}
	default:
		op.Security = []map[string][]string{{string(r.audience): {}}}
	}
	schemas := r.on.OpenAPI().Components.Schemas
	if r.named.Name != "" {
		op.Parameters = []*huma.Param{nameParameter(schemas, r.named)}
	}
	if out == reflect.TypeFor[none]() {
		op.DefaultStatus = http.StatusNoContent
	} else {
		op.Responses[strconv.Itoa(cmp.Or(op.DefaultStatus, http.StatusOK))] = &huma.Response{
			Content: map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(out, true, r.id+"Response")}},
		}
	}
	if r.body != nil {
		op.RequestBody = &huma.RequestBody{
			Required: r.body.Kind() != reflect.Pointer,
			Content:  map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(r.body, true, r.id+"Request")}},
		}
	}
	return op
}

// problemResponse refers to the description of a status, which all operations share.
func problemResponse(on huma.API, status int) *huma.Response {
	shared := on.OpenAPI().Components
	name := strings.ReplaceAll(http.StatusText(status), " ", "")
	if shared.Responses[name] == nil {
		problem := shared.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
		shared.Responses[name] = &huma.Response{
			Description: http.StatusText(status),
			Headers:     map[string]*huma.Header{api.HeaderRequestID: sharedHeader(api.HeaderRequestID)},
			Content:     map[string]*huma.MediaType{problemType: {Schema: problem, Example: sample(status)}},
		}
		if mayRetry(status) {
			shared.Responses[name].Headers[retryAfterHeader] = sharedHeader(retryAfterHeader)
		}
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}

func sharedHeader(name string) *huma.Header { return &huma.Header{Ref: "#/components/headers/" + name} }

// sample is an answer of a status as it is really given.
func sample(status int) api.Problem {
	for _, kind := range api.Kinds() {
		if kind.Status == status {
			return api.ProblemFor(kind.Err)
		}
	}
	switch status {
	case http.StatusInternalServerError:
		return api.ProblemFor(errors.ErrUnsupported)
	case http.StatusRequestTimeout:
		return unread(os.ErrDeadlineExceeded)
	}
	return mistakes(&huma.ErrorModel{Status: status, Detail: "the request's body is not JSON"})
}

// takes says whose token a route takes.
func (rt route) takes() string {
	switch rt.audience {
	case open:
		return "Takes no token."
	case people:
		where := map[scope]string{
			inOrganization: "the organization", inProject: "the organization, in the project, or in one above it", inAny: "the organization or in any project",
		}
		return "Takes a user token with the role " + rt.role + " or a higher one in " + where[rt.scope] + "."
	case runners:
		return "Takes the job token of the run that the headers name."
	default:
		return "Takes a " + string(rt.audience) + " token."
	}
}

// The words that a property of such a type may hold. They are listed in the document only: other words of a newer
// runner or stack are accepted too.
type (
	typeWord      string
	operationWord string
	stateWord     string
	reasonWord    string
)

func (typeWord) Schema(huma.Registry) *huma.Schema      { return oneOf(workflow.Types()) }
func (operationWord) Schema(huma.Registry) *huma.Schema { return oneOf(workflow.Operations()) }
func (stateWord) Schema(huma.Registry) *huma.Schema     { return oneOf(workflow.States()) }
func (reasonWord) Schema(huma.Registry) *huma.Schema    { return oneOf(workflow.Reasons()) }

func oneOf[T ~string](words []T) *huma.Schema {
	s := &huma.Schema{Type: "string"}
	for _, word := range words {
		s.Enum = append(s.Enum, string(word))
	}
	return s
}

// describeAll writes the document of all routes.
func (s *server) describeAll() ([]byte, error) {
	cfg := describe()
	aliases(cfg.Components.Schemas)
	all := humago.New(http.NewServeMux(), cfg)
	for _, register := range s.routes {
		register(all)
	}
	if err := finish(all.OpenAPI()); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(all.OpenAPI(), "", "  ")
	return append(text, '\n'), err
}

// finish adds the facts that huma cannot know.
func finish(doc *huma.OpenAPI) error {
	schemas := doc.Components.Schemas.Map()
	// huma registers its own error type with every operation; no answer of ours has it.
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	code := schemas["Problem"].Properties["code"]
	code.Enum = []any{codeNoRoute, codeMethod, codeMediaType, codeTimeout, api.CodeInternal}
	for _, kind := range api.Kinds() {
		code.Enum = append(code.Enum, kind.Code)
	}
	describeToken(doc)
	describeWebhook(doc)
	for _, op := range operations(doc) {
		if op.RequestBody != nil {
			exemplify(doc, op.RequestBody.Content)
		}
		for status, answer := range op.Responses {
			if answer.Ref != "" {
				continue
			}
			if status == "204" { // huma takes its answer for one with a body, as all answers have the same fields
				answer.Content = nil
			}
			headers := map[string]*huma.Header{api.HeaderRequestID: sharedHeader(api.HeaderRequestID)}
			for name, header := range answer.Headers {
				header.Description = header.Schema.Description
				doc.Components.Headers[name] = header
				headers[name] = sharedHeader(name)
			}
			answer.Headers = headers
			exemplify(doc, answer.Content)
		}
	}
	// A new thing under a name is answered with 201.
	paths := []string{"/v1/workspaces/{workspace}"}
	for _, k := range kind.Settings() {
		paths = append(paths, settingPath(k))
	}
	for _, path := range paths {
		put := doc.Paths[path].Put
		created := *put.Responses["200"]
		created.Description = "Created"
		put.Responses["201"] = &created
	}
	noNullLists(schemas)
	openAnswers(doc)
	return describeSchemas(schemas)
}

// describeToken describes the form that POST /v1/token takes, and its errors, which are JSON of RFC 6749.
func describeToken(doc *huma.OpenAPI) {
	op := doc.Paths[tokenPath].Post
	form := op.RequestBody.Content[formType]
	form.Schema = doc.Components.Schemas.Schema(reflect.TypeFor[api.TokenRequest](), true, "TokenRequest")
	refused := func(name, description string, err error) *huma.Response {
		doc.Components.Responses[name] = &huma.Response{
			Description: description,
			Headers:     map[string]*huma.Header{api.HeaderRequestID: sharedHeader(api.HeaderRequestID)},
			Content:     map[string]*huma.MediaType{"application/json": {Schema: doc.Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem"), Example: asOAuth(api.ProblemFor(err))}},
		}
		return &huma.Response{Ref: "#/components/responses/" + name}
	}
	final := refused("TokenRefused", "The request is refused", workflow.Refuse(workflow.ErrUnauthenticated, "", "the client id or the secret is wrong"))
	later := refused("TokenRefusedForNow", "The request is refused for now", workflow.Refuse(workflow.ErrTooMany, "", "there were too many attempts; wait, and try again"))
	doc.Components.Responses["TokenRefusedForNow"].Headers[retryAfterHeader] = sharedHeader(retryAfterHeader)
	for status := range op.Responses {
		switch code, _ := strconv.Atoi(status); {
		case mayRetry(code):
			op.Responses[status] = later
		case code >= http.StatusBadRequest:
			op.Responses[status] = final
		}
	}
}

// describeWebhook describes the body of an event, which is the host's own.
func describeWebhook(doc *huma.OpenAPI) {
	const name = "WebhookEvent"
	doc.Components.Schemas.Map()[name] = &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true, Description: "An event as its git host sends it",
		Examples: []any{map[string]any{"action": "opened", "number": 17}},
	}
	doc.Paths["/v1/webhooks/{organization}/{git_host}"].Post.RequestBody.Content["application/json"].Schema = &huma.Schema{Ref: "#/components/schemas/" + name}
}

// exemplify gives a body the example of its type.
func exemplify(doc *huma.OpenAPI, content map[string]*huma.MediaType) {
	for _, body := range content {
		name := path.Base(body.Schema.Ref)
		doc.Components.Examples[name] = &huma.Example{Value: example(doc.Components.Schemas, body.Schema)}
		body.Examples = map[string]*huma.Example{name: {Ref: "#/components/examples/" + name}}
	}
}

// example makes a value of a schema out of the examples of its properties: of those that are required, and of
// those that have one.
func example(all huma.Registry, s *huma.Schema) any {
	if s.Ref != "" {
		s = all.SchemaFromRef(s.Ref)
	}
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0]
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Format == "date-time":
		return "2026-07-01T09:30:00Z"
	case s.Type == "boolean":
		return false
	case s.Type == "array":
		return []any{example(all, s.Items)}
	case s.Type != "object":
		return nil
	}
	out := map[string]any{}
	for name, p := range s.Properties {
		if slices.Contains(s.Required, name) || len(p.Examples) > 0 {
			out[name] = example(all, p)
		}
	}
	return out
}
