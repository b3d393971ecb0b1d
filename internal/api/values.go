package api

import (
	"bytes"
	"encoding/json"
)

// Values are values by name, as JSON has them. A number keeps its text, as a json.Number, because a float would round it.
type Values map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(raw []byte) error {
	var all map[string]any
	err := decodeExactly(raw, &all)
	*v = all
	return err
}

// UnmarshalJSON implements json.Unmarshaler. A number keeps its text.
func (o *Output) UnmarshalJSON(raw []byte) error {
	type plain Output
	return decodeExactly(raw, (*plain)(o))
}

// decodeExactly decodes JSON, of which a decoder has found the end, without making floats of its numbers.
func decodeExactly(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}
