package api

import (
	"bytes"
	"encoding/json"
	"regexp"
	"sync"
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

var secretSetting = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)secret|passw|token|credential|access_key|private_key|conn_str`)
})

// SecretSetting reports whether a setting of a backend holds a secret by its name. No workspace has its value.
func SecretSetting(name string) bool { return secretSetting().MatchString(name) }
