package strict_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/strict"
)

type inner struct {
	Roles map[string]string `json:"roles"`
	Raw   json.RawMessage   `json:"raw"`
}

type body struct {
	inner
	Name  string         `json:"name,omitempty"`
	Many  []*inner       `json:"many"`
	Free  map[string]any `json:"free"`
	Plain int
}

func TestMembers(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": "a", "many": [{"roles": {"A": "x", "a": "y"}}], "free": {"B": {"name": 1, "Name": 2}, "b": [1, {}]}, "raw": {"x": []}}`: "",
		`{"unknown": 1, "Plain": 2}`:                  "",
		`null`:                                        "",
		`[{"name": 1}, {"NAME": 2}]`:                  "", // of another type than it is to have: the decoder says so
		`{"name": "a", "Name": "b"}`:                  "Name: write it as name",
		`{"NAME": "a"}`:                               "NAME: write it as name",
		`{"ROLES": {}}`:                               "ROLES: write it as roles",
		`{"role\u017f": {}}`:                          "write it as roles", // to the decoder, this is an s
		`{"name": "a", "name": "b"}`:                  "name stands twice",
		`{"name": "a", "n\u0061me": "b"}`:             "name stands twice",
		`{"many": [{}, {"Raw": 1}]}`:                  "many.Raw: write it as raw",
		`{"many": [{"roles": {"a": "x", "a": "y"}}]}`: "many.roles.a stands twice",
		`{"free": {"x": [{"y": 1, "y": 2}]}}`:         "free.x.y stands twice",
		`{"raw": {"y": {"z": 1, "z": 2}}}`:            "raw.y.z stands twice",
		"{\"name\": \"\xff\"}":                        "not UTF-8",
		`{"name": `:                                   "not JSON",
		`{"name" 1}`:                                  "not JSON",
		``:                                            "not JSON",
		strings.Repeat("[", 1<<20):                    "lie in each other", // which would need a stack of its own
	} {
		var into body
		err := strict.Members([]byte(text), &into)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: got %v, want %q", text, err, want)
		}
	}
}

func TestUnmarshal_IntegersGoByTheirValue(t *testing.T) {
	type numbers struct {
		N     int64    `json:"n"`
		Small *uint8   `json:"small"`
		Many  []int    `json:"many"`
		Float float64  `json:"float"`
		Text  string   `json:"text"`
		Under *numbers `json:"under"`
	}
	for text, want := range map[string]string{
		`{"n": 531.0, "small": 2.50e2, "many": [1, -2.0, 0.05E2, 10e-1], "float": 1.5, "text": "1.0"}`: `{"n":531,"small":250,"many":[1,-2,5,1],"float":1.5,"text":"1.0","under":null}`,
		`{"under": {"n": -0.0e9, "small": 1e0}, "n": 9007199254740993.0}`:                              `{"n":9007199254740993,"small":null,"many":null,"float":0,"text":"","under":{"n":0,"small":1,"many":null,"float":0,"text":"","under":null}}`,
		`{"under": {"n": 531.5}}`:    "under.n: expected an integer of at most 64 bits",
		`{"many": [1e-1]}`:           "many: expected an integer of at most 64 bits",
		`{"n": 1e999999999}`:         "n: expected an integer of at most 64 bits",
		`{"n": 1e99999999999999999}`: "n: expected an integer of at most 64 bits",
		`{"n": 9223372036854775808}`: "json: cannot unmarshal number 9223372036854775808 into Go struct field numbers.n of type int64",
		`{"n": 1e19}`:                "json: cannot unmarshal number 10000000000000000000 into Go struct field numbers.n of type int64",
	} {
		var into numbers
		got := ""
		if err := strict.Unmarshal([]byte(text), &into); err != nil {
			got = err.Error()
		} else if again, err := json.Marshal(into); err == nil {
			got = string(again)
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// JSON that passes is read in one way: decoding and encoding it again loses unknown members only.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"name": "a", "free": {"a": [1, {"b": null}]}}`))
	f.Add([]byte(`{"name": "a", "Name": "b"}`))
	f.Add([]byte("{\"\xff\": 1}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var into map[string]json.RawMessage
		if strict.Members(raw, &into) != nil || json.Unmarshal(raw, &into) != nil {
			return
		}
		again, err := json.Marshal(into)
		if err != nil {
			t.Fatal(err)
		}
		var same map[string]json.RawMessage
		if err := json.Unmarshal(again, &same); err != nil || len(same) != len(into) {
			t.Errorf("%q became %q", raw, again)
		}
	})
}
