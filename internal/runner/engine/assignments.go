package engine

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Assignments are the names that a file of variables, or of settings for a backend, gives values to. only reports
// whether it has nothing else. As parseHCL it reads tokens.
func Assignments(src []byte, name string) (names []string, only bool) {
	names, depth := readAssignments(src, name)
	return names, len(names) > 0 && depth >= 0
}

// readAssignments also returns how deep the values are nested; below 0 if the file has more than assignments.
func readAssignments(src []byte, name string) (names []string, deepest int) {
	if strings.HasSuffix(name, ".json") {
		var doc map[string]json.RawMessage
		if json.Unmarshal(src, &doc) != nil {
			return nil, -1
		}
		return slices.Sorted(maps.Keys(doc)), 0
	}
	tokens, diags := lex(src, name)
	other, depth := diags.HasErrors(), 0
	for i, t := range tokens {
		startsLine := depth == 0 && t.Type != hclsyntax.TokenNewline && t.Type != hclsyntax.TokenEOF &&
			(i == 0 || tokens[i-1].Type == hclsyntax.TokenNewline)
		switch {
		case startsLine && t.Type == hclsyntax.TokenIdent && i+1 < len(tokens) &&
			(tokens[i+1].Type == hclsyntax.TokenEqual || tokens[i+1].Type == hclsyntax.TokenOBrace):
			names = append(names, string(t.Bytes))
		case startsLine:
			other = true
		case opens(t):
			depth++
			deepest = max(deepest, depth)
		case closes(t):
			depth--
		}
	}
	if other || depth != 0 {
		return names, -1
	}
	return names, deepest
}

// Settings are the values of a small file that completes a backend; nil if it has others than plain ones. A block, such
// as workspaces of the backend remote, becomes an object.
func Settings(src []byte, name string) api.Values {
	const maxSize, maxDepth = 8 << 10, 10
	names, depth := readAssignments(src, name)
	if len(src) > maxSize || len(names) == 0 || depth < 0 || depth > maxDepth {
		return nil
	}
	if strings.HasSuffix(name, ".json") {
		var values api.Values
		_ = json.Unmarshal(src, &values) // it was read before
		return values
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	raw, err := json.Marshal(constants(body))
	var values api.Values
	if err != nil || json.Unmarshal(raw, &values) != nil || values["-"] != nil {
		return nil
	}
	return values
}

// constants are the values of a body; with the name "-" if one of them is not constant.
func constants(body *hclsyntax.Body) map[string]any {
	all := map[string]any{}
	for name, attribute := range body.Attributes {
		raw, err := constantOf(attribute.Expr)
		if err != nil {
			name, raw = "-", json.RawMessage("true")
		}
		all[name] = raw
	}
	for _, block := range body.Blocks {
		inner := constants(block.Body)
		if all[block.Type] = inner; inner["-"] != nil {
			all["-"] = true
		}
	}
	return all
}
