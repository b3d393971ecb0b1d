// Package workspacefile reads workspace files, and documents of the other kinds that dayfly apply takes: YAML with
// the fields of api.Workspace, api.PoolSettings and so on, and no others. It names the line and field of every
// mistake. It checks only the form; the control plane checks the values.
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
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Name is the file that marks a directory as a workspace.
const Name = "workspace.yaml"

// MaxSize is the maximum size of a file in bytes.
const MaxSize = 1 << 20

// maxNodes bounds the nodes of a file.
const maxNodes = 100_000

// Document is one document of a file.
type Document struct {
	Kind  string // its name in package kind; a document that names none is a workspace
	Place string // for messages: the file and the line
	Value any    // of the type of its kind: api.Workspace, api.PoolSettings, ...
}

// Read reads a file of workspaces.
func Read(path string) ([]api.Workspace, error) {
	docs, err := ReadAll(path)
	if err != nil {
		return nil, err
	}
	return Workspaces(docs)
}

// ReadAll reads a file, as Documents does. Relative directories are relative to it.
func ReadAll(path string) ([]Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return ReadFrom(f, path, filepath.Dir(path))
}

// ReadFrom reads all of a reader, as Documents does.
func ReadFrom(r io.Reader, name, dir string) ([]Document, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return Documents(name, dir, data)
}

// Parse reads documents, all of which must be workspaces, as Documents does.
func Parse(name, dir string, data []byte) ([]api.Workspace, error) {
	docs, err := Documents(name, dir, data)
	if err != nil {
		return nil, err
	}
	return Workspaces(docs)
}

// Workspaces are the workspaces of documents, none of which may be of another kind.
func Workspaces(docs []Document) ([]api.Workspace, error) {
	list := make([]api.Workspace, len(docs))
	for i, doc := range docs {
		w, ok := doc.Value.(api.Workspace)
		if !ok {
			return nil, workflow.Mistakes{fmt.Sprintf("%s: kind: want a workspace here, not %s: that is for dayfly apply -f FILE", doc.Place, article(doc.Kind))}
		}
		list[i] = w
	}
	return list, nil
}

// Documents reads documents of all kinds. Mistakes begin with name. A relative
// source.directory, of a workspace or of a policy group, is relative to dir; a workspace without a source is dir
// itself.
func Documents(name, dir string, data []byte) ([]Document, error) {
	if len(data) > MaxSize {
		return nil, workflow.Mistakes{fmt.Sprintf("%s: has more than %d bytes", name, MaxSize)}
	}
	var list []Document
	p := parser{name: name, budget: maxNodes}
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
		p.number++
		root := doc.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // an empty document, such as behind a last ---
		}
		if value, ok := p.document(root, dir); ok {
			list = append(list, Document{Kind: p.kind, Place: p.place(root), Value: value})
		}
	}

	if len(list) == 0 && len(p.mistakes) == 0 {
		p.mistakes.Add(name, "has no document")
	}
	if err := p.mistakes.Err(); err != nil {
		return nil, err
	}
	return list, nil
}

type parser struct {
	name     string
	number   int    // of the document, from 1
	kind     string // of the document
	named    bool   // whether the document names it
	budget   int    // nodes that may still be visited: aliases must not multiply without end
	depth    int    // of the node that is visited: an alias may lead into itself
	mistakes workflow.Mistakes
}

// place names the file, the line and, except for the first one, the document.
func (p *parser) place(n *yaml.Node) string {
	place := fmt.Sprintf("%s:%d", p.name, n.Line)
	if p.number > 1 {
		place += fmt.Sprintf(": document %d", p.number)
	}
	return place
}

func (p *parser) wrong(n *yaml.Node, field, format string, args ...any) {
	place := p.place(n)
	if field != "" {
		place += ": " + field
	}
	p.mistakes.Add(place, format, args...)
}

func (p *parser) document(root *yaml.Node, dir string) (any, bool) {
	before := len(p.mistakes)
	t := p.takeKind(root)
	if t == nil {
		return nil, false
	}
	if p.kind == kind.Issuer {
		claimsAsTexts(root)
	}
	value := p.value(root, t, "")
	if len(p.mistakes) > before {
		return nil, false
	}

	out := reflect.New(t)
	b, err := json.Marshal(value)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		err = d.Decode(out.Interface())
	}
	if err != nil {
		p.wrong(root, "", "%s", err)
		return nil, false
	}

	var source *api.Source
	switch v := out.Interface().(type) {
	case *api.Workspace:
		source = &v.Source
		if source.Git == nil && source.Archive == nil && source.Directory == "" {
			source.Directory = dir
		}
	case *api.PolicyGroup:
		source = &v.Source
	}
	if source != nil && source.Directory != "" && !filepath.IsAbs(source.Directory) {
		source.Directory = filepath.Join(dir, source.Directory)
	}
	return out.Elem().Interface(), true
}

// takeKind removes the line with the kind from a document, and returns the type of the document; nil: it is wrong.
func (p *parser) takeKind(root *yaml.Node) reflect.Type {
	p.kind, p.named = kind.Workspace, false
	for i := 0; root.Kind == yaml.MappingNode && i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != "kind" {
			continue
		}
		value := root.Content[i+1]
		p.kind, p.named = value.Value, true
		if _, ok := kind.Of(p.kind); !ok || value.Kind != yaml.ScalarNode {
			p.wrong(value, "kind", "want %s", strings.Join(kinds(), ", "))
			return nil
		}
		root.Content = slices.Delete(root.Content, i, i+2)
		break
	}
	k, _ := kind.Of(p.kind)
	return k.Type
}

// kinds are the names of all kinds.
func kinds() (names []string) {
	for _, k := range kind.All() {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

// claimsAsTexts makes the values of claims texts, as they are written: an id of digits is not a number.
func claimsAsTexts(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value != "claims" || n.Content[i+1].Kind != yaml.MappingNode {
				continue
			}
			for j := 1; j < len(n.Content[i+1].Content); j += 2 {
				if v := n.Content[i+1].Content[j]; v.Kind == yaml.ScalarNode {
					v.Tag = "!!str"
				}
			}
		}
	}
	for _, inner := range n.Content {
		claimsAsTexts(inner)
	}
}

func article(of string) string {
	if of == kind.Issuer || of == kind.Organization {
		return "an " + of
	}
	return "a " + of
}

// value converts a node to the value that encoding/json would have read for the type, or notes a mistake.
func (p *parser) value(n *yaml.Node, t reflect.Type, field string) any {
	p.depth++
	defer func() { p.depth-- }()
	if !p.visit(n) {
		return nil
	}

	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() {
		return p.time(n, field)
	}

	switch t.Kind() { //nolint:exhaustive // the kinds that the types are made of
	case reflect.Struct:
		return p.mapping(n, field, func(k *yaml.Node, path string) (reflect.StructField, bool) { return p.field(k, t, field, path) })
	case reflect.Map:
		return p.mapping(n, field, func(*yaml.Node, string) (reflect.StructField, bool) { return reflect.StructField{Type: t.Elem()}, true })
	case reflect.Slice:
		return p.list(n, t.Elem(), field)
	case reflect.Interface:
		switch n.Kind { //nolint:exhaustive // a scalar is below
		case yaml.MappingNode:
			return p.mapping(n, field, func(*yaml.Node, string) (reflect.StructField, bool) { return reflect.StructField{Type: t}, true })
		case yaml.SequenceNode:
			return p.list(n, t, field)
		}
		return p.any(n, field)
	}
	return p.scalar(n, t, field)
}

// visit counts a node, and reports whether it may be read.
func (p *parser) visit(n *yaml.Node) bool {
	const deepest = 30
	if p.budget--; p.budget >= 0 && p.depth <= deepest {
		return true
	}
	if p.budget > 0 {
		p.budget = 0 // said once
		p.wrong(n, "", "the document is too deep or too large")
	} else if p.budget == -1 {
		p.wrong(n, "", "the document is too large")
	}
	return false
}

// scalar reads a string, a whole number or a boolean.
func (p *parser) scalar(n *yaml.Node, t reflect.Type, field string) any {
	switch t.Kind() { //nolint:exhaustive // the kinds that the types are made of
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

// time reads a time, or a day, which begins at midnight UTC.
func (p *parser) time(n *yaml.Node, field string) any {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, n.Value); n.Kind == yaml.ScalarNode && err == nil {
			return at
		}
	}
	p.wrong(n, field, "want a time such as 2027-03-31T00:00:00Z, or a day such as 2027-03-31")
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
		written, err := json.Marshal(v)
		if err != nil { // .inf and .nan
			p.wrong(n, field, "%s cannot be written as JSON", clip(n.Value))
			return nil
		}
		// An account number that begins with a 0 is octal to YAML, and 1.10 is 1.1.
		if number := n.Tag == "!!int" || n.Tag == "!!float"; number && string(written) != n.Value {
			p.wrong(n, field, "the number %s would become %s: put it into quotes, or write it as a number that stays the same", clip(n.Value), clip(string(written)))
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

func (p *parser) mapping(n *yaml.Node, field string, fieldOf func(key *yaml.Node, path string) (reflect.StructField, bool)) any {
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
		if f, ok := fieldOf(k, path); ok {
			out[k.Value] = p.value(v, f.Type, path)
			p.listed(v, f.Tag.Get("enum"), path)
		}
	}
	return out
}

// listed notes a text that is not in the list of a field; an empty list allows any text. The control plane refuses it
// too, but knows neither the file nor the line.
func (p *parser) listed(n *yaml.Node, list, field string) {
	known := strings.Split(list, ",")
	if list == "" || n.Kind != yaml.ScalarNode || n.Tag != "!!str" || slices.Contains(known, n.Value) {
		return
	}
	if near := config.Nearest(n.Value, known); near != "" {
		p.wrong(n, field, "%s is unknown: did you mean %s?", clip(n.Value), near)
	} else {
		p.wrong(n, field, "%s is unknown: want %s", clip(n.Value), strings.Join(known, ", "))
	}
}

// field finds a field by its name on the wire.
func (p *parser) field(k *yaml.Node, t reflect.Type, parent, path string) (f reflect.StructField, ok bool) {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "": // an embedded struct, whose fields follow
		case parent == "" && (name == "version" || name == "id" || name == "created_at"): // set by the control plane
		case name == k.Value:
			return f, true
		default:
			names = append(names, name)
		}
	}
	if near := config.Nearest(k.Value, names); near != "" {
		p.wrong(k, path, "unknown field: did you mean %s?", near)
	} else {
		of := article(p.kind)
		if !p.named {
			of = "without a line such as kind: schedule this is a workspace, which"
		}
		p.wrong(k, path, "unknown field: %s has %s", cmp.Or(parent, of), strings.Join(names, ", "))
	}
	return f, false
}

func clip(s string) string { return text.Quote(s, 60) }
