package dynamodb

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// value is a value of an attribute: a text, a number, bytes, a truth value or null. Documents and sets
// are refused.
type value struct {
	kind string // S, N, B, BOOL, NULL
	text string // of a B its bytes, of a BOOL "true" or "false"
}

// item is an item, or its key. It is never changed once it is stored.
type item map[string]value

// MarshalJSON implements json.Marshaler.
func (v value) MarshalJSON() ([]byte, error) {
	switch v.kind {
	case "B":
		return json.Marshal(map[string][]byte{"B": []byte(v.text)})
	case "BOOL":
		return json.Marshal(map[string]bool{"BOOL": v.text == "true"})
	case "NULL":
		return json.Marshal(map[string]bool{"NULL": true})
	}
	return json.Marshal(map[string]string{v.kind: v.text})
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *value) UnmarshalJSON(data []byte) error {
	var one map[string]json.RawMessage
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	if len(one) != 1 {
		return fmt.Errorf("an attribute value has one type, not %d", len(one))
	}
	for kind, raw := range one {
		v.kind = kind
		switch kind {
		case "S", "N":
			if err := json.Unmarshal(raw, &v.text); err != nil {
				return err
			}
		case "B":
			var b []byte
			if err := json.Unmarshal(raw, &b); err != nil {
				return err
			}
			v.text = string(b)
		case "BOOL", "NULL":
			var b bool
			if err := json.Unmarshal(raw, &b); err != nil {
				return err
			}
			v.text = fmt.Sprint(b)
		default:
			return fmt.Errorf("attribute values of type %s are not known here", kind)
		}
	}
	if _, ok := v.number(); v.kind == "N" && !ok {
		return fmt.Errorf("the parameter %q cannot be converted to a numeric value", v.text)
	}
	return nil
}

func (v value) number() (*big.Rat, bool) {
	if v.kind != "N" || len(v.text) > 60 || strings.ContainsAny(v.text, "/_xXpP") {
		return nil, false
	}
	return new(big.Rat).SetString(v.text)
}

// compare orders two values of one type; ok is false for others, and for types without an order.
func (v value) compare(w value) (order int, ok bool) {
	if v.kind != w.kind {
		return 0, false
	}
	switch v.kind {
	case "S", "B":
		return strings.Compare(v.text, w.text), true // of UTF-8, and of bytes
	case "N":
		a, okA := v.number()
		b, okB := w.number()
		if !okA || !okB {
			return 0, false
		}
		return a.Cmp(b), true
	}
	return 0, false
}

func (v value) equal(w value) bool {
	if order, ok := v.compare(w); ok {
		return order == 0
	}
	return v == w
}

// size is what a value counts in an item. (Developer Guide, "DynamoDB item sizes and formats".)
func (v value) size() int {
	switch v.kind {
	case "S", "B":
		return len(v.text)
	case "N":
		n := 1
		if strings.HasPrefix(v.text, "-") {
			n++
		}
		digits := strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(v.text), "0")
		return n + (len(digits)+1)/2
	}
	return 1
}

func (it item) size() int {
	n := 0
	for name, v := range it {
		n += len(name) + v.size()
	}
	return n
}

// project returns the attributes of that name.
func (it item) project(names ...string) item {
	out := item{}
	for _, name := range names {
		if v, ok := it[name]; ok {
			out[name] = v
		}
	}
	return out
}

// spell writes an item so that equal ones are spelled alike.
func (it item) spell() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(it)) {
		fmt.Fprintf(&b, "%q:%s%q ", name, it[name].kind, it[name].text)
	}
	return b.String()
}
