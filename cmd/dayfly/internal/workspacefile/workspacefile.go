// Package workspacefile reads workspace files: YAML documents with the fields of api.Workspace and
// no others. It names the line and field of every mistake. It checks only the form; the control plane
// checks the values.
package workspacefile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Name is the file that marks a directory as a workspace.
const Name = "workspace.yaml"

// MaxSize is the most bytes that a file may have.
const MaxSize = 1 << 20

// later are fields of other versions, with what to do instead.
var later = map[string]string{
	"hooks":         "hooks are not in this version: remove them",
	"source.sha256": "write it below source.archive, beside its url",
}

// Read reads a file. A relative source.directory is relative to the file; a workspace without a
// source is the file's own directory.
func Read(path string) ([]api.Workspace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the workspace file: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return ReadFrom(f, path, filepath.Dir(path))
}

// ReadFrom reads all of a reader. Mistakes begin with name; relative directories are relative to dir.
func ReadFrom(r io.Reader, name, dir string) ([]api.Workspace, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read the workspace file %s: %w", name, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("read the workspace file %s: %w", name, err)
	}
	return Parse(name, dir, data)
}

// Parse reads documents. Mistakes begin with name; relative directories are relative to dir.
func Parse(name, dir string, data []byte) ([]api.Workspace, error) {
	if len(data) > MaxSize {
		return nil, workflow.Mistakes{fmt.Sprintf("%s: has more than %d bytes", name, MaxSize)}
	}
	var list []api.Workspace
	p := parser{name: name, left: 100_000}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.mistakes.Add(name, "is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
			break
		}
		root := doc.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // an empty document, such as behind a last ---
		}
		if w, ok := p.workspace(root, dir); ok {
			list = append(list, w)
		}
	}
	if len(list) == 0 && len(p.mistakes) == 0 {
		p.mistakes.Add(name, "has no workspace")
	}
	if err := p.mistakes.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

type parser struct {
	name     string
	left     int // nodes that may still be visited: aliases must not multiply without end
	depth    int // of the node that is visited: an alias may lead into itself
	mistakes workflow.Mistakes
}

func (p *parser) wrong(n *yaml.Node, field, format string, args ...any) {
	place := fmt.Sprintf("%s:%d", p.name, n.Line)
	if field != "" {
		place += ": " + field
	}
	p.mistakes.Add(place, format, args...)
}

func (p *parser) workspace(root *yaml.Node, dir string) (api.Workspace, bool) {
	before := len(p.mistakes)
	value := p.value(root, reflect.TypeFor[api.Workspace](), "")
	if len(p.mistakes) > before {
		return api.Workspace{}, false
	}
	var w api.Workspace
	b, err := json.Marshal(value)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		err = d.Decode(&w)
	}
	if err != nil {
		p.wrong(root, "", "%s", err)
		return api.Workspace{}, false
	}
	switch {
	case w.Source.Git == nil && w.Source.Archive == nil && w.Source.Directory == "":
		w.Source.Directory = dir
	case w.Source.Directory != "" && !filepath.IsAbs(w.Source.Directory):
		w.Source.Directory = filepath.Join(dir, w.Source.Directory)
	}
	return w, true
}

// value turns a node into what encoding/json would have read for the type, or notes what is wrong.
func (p *parser) value(n *yaml.Node, t reflect.Type, field string) any {
	const deepest = 30
	p.depth++
	defer func() { p.depth-- }()
	if p.left--; p.left < 0 || p.depth > deepest {
		if p.left > 0 {
			p.left = 0 // said once
			p.wrong(n, "", "the document is too deep or too large")
		} else if p.left == -1 {
			p.wrong(n, "", "the document is too large")
		}
		return nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // the kinds that api.Workspace is made of
	case reflect.Struct:
		return p.mapping(n, field, func(k *yaml.Node, path string) (reflect.Type, bool) { return p.field(k, t, field, path) })
	case reflect.Map:
		return p.mapping(n, field, func(*yaml.Node, string) (reflect.Type, bool) { return t.Elem(), true })
	case reflect.Slice:
		return p.list(n, t.Elem(), field)
	case reflect.Interface:
		switch n.Kind { //nolint:exhaustive // a scalar is below
		case yaml.MappingNode:
			return p.mapping(n, field, func(*yaml.Node, string) (reflect.Type, bool) { return t, true })
		case yaml.SequenceNode:
			return p.list(n, t, field)
		}
		return p.any(n, field)
	case reflect.String:
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			p.wrong(n, field, "want a string")
			return nil
		}
		if n.Tag != "!!str" && n.Tag != "!!timestamp" {
			p.wrong(n, field, "want a string: put %s into quotes", clip(n.Value))
			return nil
		}
		return n.Value
	case reflect.Int, reflect.Int64:
		var number int64
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&number) != nil {
			p.wrong(n, field, "want a whole number")
			return nil
		}
		return number
	case reflect.Bool:
		var yes bool
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&yes) != nil {
			p.wrong(n, field, "want true or false")
			return nil
		}
		return yes
	}
	p.wrong(n, field, "cannot be read")
	return nil
}

func (p *parser) any(n *yaml.Node, field string) any {
	var v any
	switch n.Tag {
	case "!!str", "!!timestamp":
		return n.Value
	case "!!null", "!!bool", "!!int", "!!float":
		if err := n.Decode(&v); err != nil {
			p.wrong(n, field, "cannot be read: put it into quotes")
			return nil
		}
		if _, err := json.Marshal(v); err != nil { // .inf and .nan
			p.wrong(n, field, "%s cannot be written as JSON", clip(n.Value))
			return nil
		}
		return v
	}
	p.wrong(n, field, "want plain values, not %s", clip(n.Tag))
	return nil
}

func (p *parser) list(n *yaml.Node, elem reflect.Type, field string) any {
	if n.Kind != yaml.SequenceNode {
		p.wrong(n, field, "want a list")
		return nil
	}
	list := make([]any, 0, len(n.Content))
	for i, item := range n.Content {
		list = append(list, p.value(item, elem, fmt.Sprintf("%s[%d]", field, i)))
	}
	return list
}

func (p *parser) mapping(n *yaml.Node, field string, typeOf func(key *yaml.Node, path string) (reflect.Type, bool)) any {
	if n.Kind != yaml.MappingNode {
		p.wrong(n, field, "want lines of the form key: value")
		return nil
	}
	out := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		path := k.Value
		if field != "" {
			path = field + "." + k.Value
		}
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			p.wrong(k, field, "want a plain key")
			continue
		}
		if _, twice := out[k.Value]; twice {
			p.wrong(k, path, "is given twice")
			continue
		}
		if t, ok := typeOf(k, path); ok {
			out[k.Value] = p.value(v, t, path)
		}
	}
	return out
}

// field finds the type of a field by its name on the wire.
func (p *parser) field(k *yaml.Node, t reflect.Type, parent, path string) (reflect.Type, bool) {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		switch {
		case parent == "" && (name == "version" || name == "id"): // set by the control plane
		case name == k.Value:
			return t.Field(i).Type, true
		default:
			names = append(names, name)
		}
	}
	if why, ok := later[path]; ok {
		p.wrong(k, path, "%s", why)
		return nil, false
	}
	if near := config.Nearest(k.Value, names); near != "" {
		p.wrong(k, path, "unknown field: did you mean %s?", near)
	} else {
		p.wrong(k, path, "unknown field: %s has %s", cmp.Or(parent, "a workspace"), strings.Join(names, ", "))
	}
	return nil, false
}

func clip(s string) string { return text.Quote(s, 60) }
