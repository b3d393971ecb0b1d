package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// OutputDot is the form of output that only the graph has.
const OutputDot = "dot"

// Encode writes a result for programs.
func (a *App) Encode(v any) error { return a.EncodeTo(a.Stdout, v) }

// EncodeTo writes a result as JSON, as YAML with the same fields in the same order, or as names, one to a line.
func (a *App) EncodeTo(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}

	switch a.Output {
	case "yaml":
		var doc yaml.Node
		if err := yaml.Unmarshal(b.Bytes(), &doc); err != nil { // JSON is YAML
			return fmt.Errorf("write YAML: %w", err)
		}
		unquote(&doc)
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		return e.Encode(&doc)
	case "name":
		var plain any
		if err := json.Unmarshal(b.Bytes(), &plain); err != nil {
			return fmt.Errorf("find names: %w", err)
		}
		keys := []string{"name", "id", "workflow", "pool"}
		if _, tokens := v.([]api.Token); tokens {
			keys = []string{"id"} // several tokens may have one name
		}
		_, err := io.WriteString(w, nameLines(plain, keys))
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteLine writes a value as JSON on a line.
func WriteLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// unquote takes the form of JSON away. The writer puts quotes where they are needed, except around words that only an
// older YAML reads as true or false, and lines that it would write as a block that cannot be read.
func unquote(n *yaml.Node) {
	old := []string{"y", "n", "yes", "no", "on", "off"}
	block := strings.Contains(n.Value, "\n") && (strings.TrimSpace(n.Value[:1]) == "" || strings.ContainsAny(n.Value, "\t\r"))
	if n.Kind != yaml.ScalarNode || !block && !slices.Contains(old, strings.ToLower(n.Value)) {
		n.Style = 0
	}
	for _, inner := range n.Content {
		unquote(inner)
	}
}

// nameLines are the names or ids of a result, one to a line.
func nameLines(v any, keys []string) string {
	switch v := v.(type) {
	case string:
		return v + "\n"
	case []any:
		var b strings.Builder
		for _, one := range v {
			b.WriteString(nameLines(one, keys))
		}
		return b.String()
	case map[string]any:
		for _, key := range keys {
			if one := v[key]; one != nil {
				return nameLines(one, keys)
			}
		}
	}
	return ""
}
