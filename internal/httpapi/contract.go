package httpapi

import (
	_ "embed" // descriptions of the schemas
	"encoding/json"
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// described has the description of each schema: the comment of its type in package api. A test keeps it so.
//
//go:embed schemas.json
var described []byte

// describeSchemas gives each schema its description.
func describeSchemas(schemas map[string]*huma.Schema) error {
	var texts map[string]string
	err := json.Unmarshal(described, &texts)
	for name, text := range texts {
		if s := schemas[name]; s != nil {
			s.Description = text
		}
	}
	return err
}

// noNullLists says of each list that it is never null: an empty one is [] or left out. In a request null is taken for
// an empty list, which a client need not know.
func noNullLists(schemas map[string]*huma.Schema) {
	for _, s := range schemas {
		for _, p := range s.Properties {
			p.Nullable = p.Nullable && p.Type != huma.TypeArray
		}
	}
}

// openAnswers lets a later version say more in an answer than this document does. That holds for schemas that requests
// share, too: the schemas of a route, which stay closed, refuse unknown fields of a request.
func openAnswers(doc *huma.OpenAPI) {
	done := map[*huma.Schema]bool{}
	answer := func(r *huma.Response) {
		for _, body := range r.Content {
			openUp(doc.Components.Schemas, body.Schema, done)
		}
	}
	for _, r := range doc.Components.Responses {
		answer(r)
	}
	for _, h := range doc.Components.Headers {
		openUp(doc.Components.Schemas, h.Schema, done)
	}
	for _, op := range operations(doc) {
		for _, r := range op.Responses {
			answer(r)
		}
	}
}

// openUp makes a schema, and all that it is made of, take unknown fields and unknown words.
func openUp(all huma.Registry, s *huma.Schema, done map[*huma.Schema]bool) {
	if s == nil || done[s] {
		return
	}
	done[s] = true
	if closed, ok := s.AdditionalProperties.(bool); ok && !closed {
		s.AdditionalProperties = nil
	}
	words := s.Enum
	if s.Items != nil {
		words = s.Items.Enum
	}
	if len(words) > 0 && s.Description != "" {
		s.Description += ". Known so far: " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(words)), ", "), "[]")
	}
	if len(s.Enum) > 0 {
		// Generators take an enum for all that there will ever be. They pass over this, or know that it may grow.
		s.Extensions, s.Enum = map[string]any{"x-extensible-enum": s.Enum}, nil
	}
	if s.Ref != "" {
		openUp(all, all.SchemaFromRef(s.Ref), done)
	}
	openUp(all, s.Items, done)
	for _, p := range s.Properties {
		openUp(all, p, done)
	}
	if of, ok := s.AdditionalProperties.(*huma.Schema); ok {
		openUp(all, of, done)
	}
}

// operations are those of a document.
func operations(doc *huma.OpenAPI) (all []*huma.Operation) {
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op != nil {
				all = append(all, op)
			}
		}
	}
	return all
}
