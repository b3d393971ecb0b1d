package httpapi

import (
	_ "embed" // the schema of settings
	"encoding/json"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// AgentSchemaPath is where a control plane serves the schema of settings files, which is config.SchemaPath.
const AgentSchemaPath = "/schemas/agent.json"

// SchemaPath is where a control plane serves the schema of the documents of a kind.
func SchemaPath(k kind.Kind) string { return "/schemas/" + k.Dashed() + ".json" }

// agentSchema is the result of config.Schema. A test keeps it so. It is not called here, because a function on AWS links
// no reader of settings.
//
//go:embed agent.json
var agentSchema []byte

// Schema returns the JSON Schema of the documents of a kind, as dayfly apply takes them. It is made from the type that
// the API takes.
func Schema(k kind.Kind) ([]byte, error) {
	all := huma.NewMapRegistry("#/$defs/", huma.DefaultSchemaNamer)
	aliases(all)
	name := k.Type.Name()
	root := *all.SchemaFromRef(all.Schema(k.Type, true, name).Ref)
	delete(all.Map(), name)
	root.Title, root.Description = k.Name, "A document of dayfly apply: "+k.Noun()
	of := &huma.Schema{Type: huma.TypeString, Enum: []any{k.Name}, Description: "The kind of the document"}
	if k.Name == kind.Workspace {
		// A file without a source is a directory that is its own source, and its kind may be left out.
		root.Title, root.Description = "workspace.yaml", "A workspace of Dayfly"
		root.Required = slices.DeleteFunc(slices.Clone(root.Required), func(name string) bool { return name == "source" })
		of.Description += "; default workspace"
	} else {
		root.Required = append([]string{"kind"}, root.Required...)
	}
	root.Properties["kind"] = of
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

// schemaRoutes serve the schemas with which editors check files.
func (s *server) schemaRoutes() {
	serve := func(path string, schema func() ([]byte, error)) {
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
	serve(AgentSchemaPath, func() ([]byte, error) { return agentSchema, nil })
	for _, k := range kind.All() {
		serve(SchemaPath(k), func() ([]byte, error) { return Schema(k) })
	}
}
