// Package strict refuses JSON that two readers could understand in two ways. Go's decoder accepts members whose names
// differ in case from those of a struct, and takes the last of two members of the same name, or merges both. Then one
// reader checks a value, and another one uses a different value.
package strict

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// deepest is the limit of nesting, the same as in encoding/json.
const deepest = 10_000

// Unmarshal is json.Unmarshal for JSON that passes Members. An integer may be written as 5.0 or 5e1: JSON Schema goes by
// its value.
func Unmarshal(raw []byte, into any) error {
	w, err := walk(raw, into)
	if err != nil {
		return err
	}
	return json.Unmarshal(w.plainIntegers(raw), into)
}

// Members refuses text that is to be decoded into a value if it is not UTF-8, if an object in it has a member twice, or
// one of a struct that is written in another case. It does not look for unknown members.
func Members(raw []byte, into any) error {
	_, err := walk(raw, into)
	return err
}

func walk(raw []byte, into any) (*walker, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("it is not UTF-8")
	}
	w := &walker{dec: json.NewDecoder(bytes.NewReader(raw))}
	w.dec.UseNumber()
	return w, w.value(reflect.TypeOf(into), "")
}

type walker struct {
	dec   *json.Decoder
	deep  int
	whole []number // numbers in the place of integers, in a form that Go's decoder refuses
}

// number is the place of a number in the text, between two offsets, and its digits alone.
type number struct {
	from, to int64
	text     string
}

// plainIntegers writes the noted numbers as digits alone.
func (w *walker) plainIntegers(raw []byte) []byte {
	if len(w.whole) == 0 {
		return raw
	}
	out, from := make([]byte, 0, len(raw)), int64(0)
	for _, n := range w.whole {
		out = append(append(out, raw[from:n.from]...), n.text...)
		from = n.to
	}
	return append(out, raw[from:]...)
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
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return w.object(t, path)
		}
		return w.list(t, path)
	case json.Number:
		if t = plain(t); t == nil || !integer(t.Kind()) || !strings.ContainsAny(token.String(), ".eE") {
			return nil
		}
		digits, ok := whole(token.String())
		if !ok {
			return fmt.Errorf("%s: expected an integer of at most 64 bits", path)
		}
		end := w.dec.InputOffset()
		w.whole = append(w.whole, number{end - int64(len(token)), end, digits})
	}
	return nil
}

func integer(k reflect.Kind) bool {
	return k >= reflect.Int && k <= reflect.Uint64
}

// whole writes a number without fraction and exponent. It refuses a number that needs them, or that is beyond all of Go's
// integers.
func whole(text string) (digits string, ok bool) {
	const longest = 20 // digits of the largest integer
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	before, after, _ := strings.Cut(mantissa, ".")
	shift, err := strconv.Atoi(cmp.Or(power, "0"))
	before, minus := strings.CutPrefix(before, "-")
	digits = strings.TrimRight(before+after, "0")
	point := len(before) + shift
	switch {
	case digits == "":
		return "0", true
	case err != nil || len(digits) > point || point > longest:
		return "", false
	}
	digits = strings.TrimLeft(digits+strings.Repeat("0", point-len(digits)), "0")
	if minus {
		digits = "-" + digits
	}
	return digits, true
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

// ofTypes caches the results of fields.
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

// plain follows pointers to the type that they point to.
func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
