package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// node is a piece of the document as it is.
type node = map[string]any

// at returns what lies under keys; nil if nothing does.
func at(n node, keys ...string) node {
	for _, key := range keys {
		n, _ = n[key].(node)
	}
	return n
}

// walk visits v, all that it is made of, and all that it refers to, each once.
func walk(doc node, v any, seen map[string]bool, visit func(in string, n node)) {
	var on func(in string, v any)
	on = func(in string, v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				on(in, one)
			}
		case node:
			ref, _ := v["$ref"].(string)
			if to := strings.TrimPrefix(ref, "#/"); ref != "" && !strings.Contains(to, "/examples/") && !seen[to] {
				seen[to] = true
				on(path.Base(to), at(doc, strings.Split(to, "/")...))
			}
			visit(in, v)
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if key != "example" && key != "examples" {
					on(in, v[key])
				}
			}
		}
	}
	on("", v)
}

// breaches are the places of a document that break its rules: what an answer says may grow, what a request says may
// not, and everything is described.
func breaches(text []byte) (found []string, err error) {
	var doc node
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	breach := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }

	tags, used := map[string]bool{}, map[string]bool{}
	for _, tag := range doc["tags"].([]any) {
		name := tag.(node)["name"].(string)
		tags[name] = tag.(node)["description"] != nil
	}
	answered := map[string]bool{}
	for address, item := range at(doc, "paths") {
		for method, op := range item.(node) {
			where, op := method+" "+address, op.(node)
			for _, tag := range op["tags"].([]any) {
				if used[tag.(string)] = true; !tags[tag.(string)] {
					breach("%s: tag %s is not described", where, tag)
				}
			}
			if op["security"] == nil {
				breach("%s: says nothing of security", where)
			}
			walk(doc, op["responses"], answered, func(in string, n node) {
				if n["additionalProperties"] == false {
					breach("schema %s: is closed in an answer", in)
				}
				if n["enum"] != nil {
					breach("schema %s: has an enum in an answer: %v", in, n["enum"])
				}
				for name, header := range at(n, "headers") {
					if header.(node)["$ref"] == nil {
						breach("%s %s: header %s is not shared", where, in, name)
					}
				}
			})
		}
	}
	for tag := range tags {
		if !used[tag] {
			breach("tag %s has no operation", tag)
		}
	}
	for name, s := range at(doc, "components", "schemas") {
		s := s.(node)
		if s["description"] == nil {
			breach("schema %s: is not described", name)
		}
		if name != "WebhookEvent" && s["type"] == "object" && s["additionalProperties"] != false && !answered["components/schemas/"+name] {
			breach("schema %s: is open in a request", name)
		}
		for property, p := range at(s, "properties") {
			if kinds, ok := p.(node)["type"].([]any); ok && slices.Contains(kinds, any("array")) {
				breach("schema %s: list %s may be null", name, property)
			}
		}
	}
	for name, header := range at(doc, "components", "headers") {
		if header.(node)["description"] == nil {
			breach("header %s: is not described", name)
		}
	}
	for _, of := range [][2]string{{"Problem", "code"}, {"Workflow", "state"}, {"Workflow", "reason"}} {
		if at(doc, "components", "schemas", of[0], "properties", of[1])["x-extensible-enum"] == nil {
			breach("schema %s: does not say which words %s has so far", of[0], of[1])
		}
	}
	if at(doc, "info", "license")["identifier"] != "Apache-2.0" || doc["servers"] == nil {
		breach("no license or no servers")
	}
	return found, nil
}

// Clients are generated from the document. One of today must not break on an answer of a later version.
func TestDocument_AnswersMayGrow(t *testing.T) {
	text := newWorld(t).send(t, request{method: http.MethodGet, path: "/openapi.json"}).Body.Bytes()
	found, err := breaches(text)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	for _, breach := range slices.Compact(found) {
		t.Error(breach)
	}
}

// typeComment is the first paragraph of a type's comment, and its name.
var typeComment = regexp.MustCompile(`(?m)((?:^// .*\n)+)(?:^//.*\n)*^type (\w+)`)

// sentence is a comment without the name that it begins with.
func sentence(comment, name string) string {
	words := strings.Fields(strings.ReplaceAll(comment, "// ", ""))
	if words[0] == name {
		words = words[1:]
	}
	if words[0] == "is" || words[0] == "are" {
		words = words[1:]
	}
	text := strings.TrimSuffix(strings.Join(words, " "), ".")
	return strings.ToUpper(text[:1]) + text[1:]
}

// What a schema is, is said once: at its type.
func TestDocument_SchemasSayWhatTheirTypesSay(t *testing.T) {
	files, err := filepath.Glob("../api/*.go")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range typeComment.FindAllStringSubmatch(string(text), -1) {
			said[found[2]] = sentence(found[1], found[2])
		}
	}
	_, served := readDocument(t, newWorld(t))
	texts := map[string]string{}
	for name := range served.Components.Schemas {
		if text := said[name]; text != "" {
			texts[name] = text
		} else if strings.HasPrefix(name, "Page") {
			texts[name] = said["Page"]
		}
	}
	want, err := json.MarshalIndent(texts, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("schemas.json", want, 0o644); err != nil { //nolint:gosec // a document of the repository
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile("schemas.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, want) {
		t.Error("schemas.json is not what the comments of package api say; run twice: go test ./internal/httpapi -run TestDocument -update")
	}
}
