// Package strict refuses JSON that two readers could understand in two ways. Go's decoder takes members whose names differ
// in case from those of a struct, and of members that stand twice the last one, or both: what one reader has checked is
// then not what another one goes by.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// deepest is how deep values may lie in each other: what encoding/json takes.
const deepest = 10_000

// Unmarshal is json.Unmarshal of what Members lets pass.
func Unmarshal(raw []byte, into any) error {
	if err := Members(raw, into); err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// Members refuses text that is to be decoded into a value if it is not UTF-8, if an object in it has a member twice, or
// one of a struct that is written in another case. It does not look for unknown members.
func Members(raw []byte, into any) error {
	if !utf8.Valid(raw) {
		return errors.New("it is not UTF-8")
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(raw))}
	return w.value(reflect.TypeOf(into), "")
}

type walker struct {
	dec  *json.Decoder
	deep int
}

// value goes through one value. t is its type; nil where nothing is known of it.
func (w *walker) value(t reflect.Type, path string) error {
	token, err := w.dec.Token()
	if err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	if w.deep++; w.deep > deepest {
		return fmt.Errorf("more than %d values lie in each other", deepest)
	}
	defer func() { w.deep-- }()
	switch token {
	case json.Delim('{'):
		return w.object(t, path)
	case json.Delim('['):
		return w.list(t, path)
	}
	return nil
}

func (w *walker) object(t reflect.Type, path string) error {
	seen := map[string]bool{}
	for w.dec.More() {
		token, err := w.dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return fmt.Errorf("it is not JSON: %w", err)
		}
		at := strings.TrimPrefix(fmt.Sprintf("%s.%.64s", path, name), ".")
		if seen[name] {
			return fmt.Errorf("%s stands twice", at)
		}
		seen[name] = true
		of, err := member(t, name)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if err := w.value(of, at); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

func (w *walker) list(t reflect.Type, path string) error {
	if t = plain(t); t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		t = t.Elem()
	} else {
		t = nil
	}
	for w.dec.More() {
		if err := w.value(t, path); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

// member is the type of a member of an object; nil where nothing is known of it.
func member(t reflect.Type, name string) (reflect.Type, error) {
	switch t = plain(t); {
	case t == nil:
		return nil, nil //nolint:nilnil // nothing is known
	case t.Kind() == reflect.Map:
		return t.Elem(), nil
	case t.Kind() != reflect.Struct:
		return nil, nil //nolint:nilnil // as above
	}
	known := fields(t)
	if of, ok := known[name]; ok {
		return of, nil
	}
	for wire := range known {
		if strings.EqualFold(wire, name) {
			return nil, fmt.Errorf("write it as %s", wire)
		}
	}
	return nil, nil //nolint:nilnil // it is unknown
}

// ofTypes has what fields has found before.
var ofTypes sync.Map

// fields are the types of a struct's fields, by their names in JSON.
func fields(t reflect.Type) map[string]reflect.Type {
	if known, ok := ofTypes.Load(t); ok {
		return known.(map[string]reflect.Type) //nolint:forcetypeassert // nothing else is stored
	}
	known := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		wire, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if wire == "" && f.IsExported() && !f.Anonymous {
			wire = f.Name
		}
		if wire != "" && wire != "-" {
			known[wire] = f.Type
		}
	}
	ofTypes.Store(t, known)
	return known
}

// plain is what a pointer leads to.
func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
