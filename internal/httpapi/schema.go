package httpapi

import (
	_ "embed" // the schema of settings
	"encoding/json"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Where a control plane serves the schemas of settings files, which is config.SchemaPath, and of workspace files.
const (
	AgentSchemaPath     = "/schemas/agent.json"
	WorkspaceSchemaPath = "/schemas/workspace.json"
)

// agentSchema is what config.Schema returns. A test keeps it so. It is not called here, because a function on AWS links
// no reader of settings.
//
//go:embed agent.json
var agentSchema []byte

// WorkspaceSchema returns the JSON Schema of a workspace file. It is made from the type that the API takes.
func WorkspaceSchema() ([]byte, error) {
	all := huma.NewMapRegistry("#/$defs/", huma.DefaultSchemaNamer)
	aliases(all)
	root := *all.SchemaFromRef(all.Schema(reflect.TypeFor[api.Workspace](), true, "Workspace").Ref)
	delete(all.Map(), "Workspace")
	root.Title, root.Description = "workspace.yaml", "A workspace of Dayfly"
	// A file without a source is a directory that is its own source, and its kind may be left out.
	root.Required = slices.DeleteFunc(slices.Clone(root.Required), func(name string) bool { return name == "source" })
	root.Properties["kind"] = &huma.Schema{Type: huma.TypeString, Enum: []any{"workspace"}, Description: "What the document describes; default workspace"}
	root.Extensions = map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": all.Map()}
	text, err := json.MarshalIndent(&root, "", "  ")
	return append(text, '\n'), err
}

// aliases list the words of our own types.
func aliases(all huma.Registry) {
	all.RegisterTypeAlias(reflect.TypeFor[workflow.Type](), reflect.TypeFor[typeWord]())
	all.RegisterTypeAlias(reflect.TypeFor[workflow.Operation](), reflect.TypeFor[operationWord]())
	all.RegisterTypeAlias(reflect.TypeFor[workflow.State](), reflect.TypeFor[stateWord]())
	all.RegisterTypeAlias(reflect.TypeFor[workflow.Reason](), reflect.TypeFor[reasonWord]())
}

// schemaRoutes serve what editors check files with.
func (s *server) schemaRoutes() {
	agent := func() ([]byte, error) { return agentSchema, nil }
	for path, schema := range map[string]func() ([]byte, error){AgentSchemaPath: agent, WorkspaceSchemaPath: WorkspaceSchema} {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			text, err := schema()
			if err != nil {
				s.writeProblem(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/schema+json")
			_, _ = w.Write(text)
		})
	}
}
