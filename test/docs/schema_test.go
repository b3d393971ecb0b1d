package docs_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/test/docs"
)

// checker returns a function that says what is wrong with a document. A fragment may lack what is required.
func checker(t *testing.T, text []byte, err error) func(doc any, fragment bool) []error {
	t.Helper()
	var file struct {
		huma.Schema `yaml:",inline"`
		Defs        map[string]*huma.Schema `yaml:"$defs"`
	}
	text = bytes.ReplaceAll(text, []byte(`"type": [`), []byte(`"types": [`)) // of a list or nothing: huma has one type
	if err = errors.Join(err, yaml.Unmarshal(text, &file)); err != nil {
		t.Fatal(err)
	}
	all := huma.NewMapRegistry("#/$defs/", huma.DefaultSchemaNamer)
	maps.Copy(all.Map(), file.Defs)
	required := file.Required
	return func(doc any, fragment bool) []error {
		root := file.Schema
		if root.Required = required; fragment {
			root.Required = nil
		}
		root.PrecomputeMessages()
		for _, s := range all.Map() {
			s.PrecomputeMessages()
		}
		var got huma.ValidateResult
		huma.Validate(all, &root, huma.NewPathBuffer([]byte{}, 0), huma.ModeWriteToServer, doc, &got)
		return got.Errors
	}
}

// documents are the YAML documents of a text.
func documents(t *testing.T, place, text string) (all []map[string]any) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc map[string]any
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", place, err)
		}
		all = append(all, doc)
	}
}

// D4: what an editor checks by the schemas is what the examples and the pages show.
func TestSchemas_FitTheExamplesAndThePages(t *testing.T) {
	text, err := config.Schema()
	agent := checker(t, text, err)
	kinds := map[any]func(doc any, fragment bool) []error{}
	for _, k := range kind.All() {
		text, err := httpapi.Schema(k)
		kinds[k.Name] = checker(t, text, err)
	}
	workspace := kinds[kind.Workspace]

	files, err := filepath.Glob(root + "/examples/*/workspace.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("got %q, %v", files, err)
	}
	for _, path := range files {
		name := strings.TrimPrefix(path, root+"/")
		text := read(t, name)
		if !strings.HasPrefix(text, "# yaml-language-server: $schema=../../docs/schemas/workspace.json\n") {
			t.Errorf("%s does not begin with its schema", name)
		}
		for _, doc := range documents(t, name, text) {
			if wrong := workspace(doc, false); len(wrong) > 0 {
				t.Errorf("%s: %v", name, wrong)
			}
		}
	}
	seen := 0
	for page, check := range map[string]func(any, bool) []error{
		"docs/workspaces.md": workspace, "docs/sources.md": workspace, "docs/secrets.md": workspace, "docs/engines.md": workspace,
		"docs/runs.md": workspace, "docs/configuration.md": agent,
	} {
		for _, b := range docs.Blocks(read(t, page)) {
			if b.Lang != "yaml" || strings.Contains(b.Text, "steps:") { // of a pipeline
				continue
			}
			for _, doc := range documents(t, page, b.Text) {
				check := check
				if of := doc["kind"]; of != nil {
					if check = kinds[of]; check == nil {
						t.Errorf("%s:%d: there is no kind %v", page, b.Line, of)
						continue
					}
				}
				seen++
				if wrong := check(doc, true); len(wrong) > 0 {
					t.Errorf("%s:%d: %v", page, b.Line, wrong)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("got %d documents in the pages", seen)
	}

	// They refuse what the program refuses.
	for name, wrong := range map[string][]error{
		"no engine":         workspace(map[string]any{"name": "x"}, false),
		"not an engine":     workspace(map[string]any{"name": "x", "engine": "make"}, false),
		"no such field":     workspace(map[string]any{"name": "x", "engine": "tofu", "colour": "red"}, false),
		"a field below":     workspace(map[string]any{"name": "x", "engine": "tofu", "state": map[string]any{"colour": "red"}}, false),
		"no such key":       agent(map[string]any{"poling_interval": "1m"}, false),
		"no unit":           agent(map[string]any{"polling_interval": "30"}, false),
		"no such target":    agent(map[string]any{"deploy_target": "moon"}, false),
		"text for a number": agent(map[string]any{"concurrency": "many"}, false),
		"no such type":      agent(map[string]any{"enabled_workflow_types": []any{"lunch"}}, false),
	} {
		if len(wrong) == 0 {
			t.Errorf("%s is taken", name)
		}
	}
	if wrong := agent(map[string]any{"enabled_workflow_types": []any{"deployment"}, "polling_interval": "1h30m", "concurrency": 4, "source_roots": "/a:/b"}, false); len(wrong) > 0 {
		t.Error(slices.Concat([]error{errors.New("what is right is refused")}, wrong))
	}
}
