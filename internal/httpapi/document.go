package httpapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dayfly-dev/dayfly/internal/api"
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
					"Every error is a problem (RFC 9457) with a stable code. Calls that answer 503 or 429 may be repeated after Retry-After.",
			},
			Components: &huma.Components{
				Responses: map[string]*huma.Response{},
				Schemas:   huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					string(people):  {Type: "http", Scheme: "bearer", BearerFormat: "dfu_...", Description: "Token of a person or of CI, with a role"},
					string(stacks):  {Type: "http", Scheme: "bearer", BearerFormat: "dfp_...", Description: "Token of a pool"},
					string(runners): {Type: "http", Scheme: "bearer", BearerFormat: "dfj_...", Description: "Token of one attempt of one workflow"},
				},
			},
			Tags: []*huma.Tag{
				{Name: "workflows", Description: "Submit, follow and cancel runs"},
				{Name: "workspaces", Description: "What runs, and with which settings"},
				{Name: "pools", Description: "Groups of runners"},
				{Name: "tokens", Description: "Who may call, and who did what"},
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

// operation describes rt with every error that it may answer.
func operation(on huma.API, rt route, hasBody bool) huma.Operation {
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Summary: rt.summary, Tags: []string{rt.tag},
		DefaultStatus: rt.status, Responses: map[string]*huma.Response{},
	}
	statuses := append([]int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable}, rt.errors...)
	if rt.audience != open {
		statuses = append(statuses, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests)
	}
	if hasBody {
		statuses = append(statuses, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	for _, status := range statuses {
		op.Responses[strconv.Itoa(status)] = problemResponse(on, status)
	}
	switch rt.audience {
	case open:
	case either:
		op.Security = []map[string][]string{{string(people): {}}, {string(stacks): {}}}
	default:
		op.Security = []map[string][]string{{string(rt.audience): {}}}
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
			Content:     map[string]*huma.MediaType{problemType: {Schema: problem}},
		}
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}

// describeAll writes the document of all routes.
func (s *server) describeAll() ([]byte, error) {
	all := humago.New(http.NewServeMux(), describe())
	for _, register := range s.routes {
		register(all)
	}
	finish(all.OpenAPI())
	text, err := json.MarshalIndent(all.OpenAPI(), "", "  ")
	return append(text, '\n'), err
}

// finish puts right what huma cannot know.
func finish(doc *huma.OpenAPI) {
	// A workspace that is made anew is answered with 201.
	put := doc.Paths["/v1/workspaces/{workspace}"].Put
	put.Responses["201"] = &huma.Response{Description: "Created", Content: put.Responses["200"].Content}
	schemas := doc.Components.Schemas.Map()
	// huma registers its own error type with every operation; no answer of ours has it.
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	code := schemas["Problem"].Properties["code"]
	code.Examples = []any{codeNoRoute, codeMethod, codeMediaType, codeTimeout, api.CodeInternal}
	for _, kind := range api.Kinds() {
		code.Examples = append(code.Examples, kind.Code)
	}
}
