package mask_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

func TestAdd_HidesTheTextsOfADocument(t *testing.T) { // R6
	var s mask.Set
	inner, _ := json.Marshal(map[string]any{"deep": "inner-secret"})
	document, _ := json.Marshal(map[string]any{
		"username": "deploy-bot", "password": "p\"w & <x>", "port": 5432, "pin": 12345678, "exponent": json.Number("1.2345678e10"), "on": true, "none": nil,
		"list": []any{"first-secret", []any{map[string]any{"a": "nested-secret"}}, "abc"},
		"text": string(inner), "pem": "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END KEY-----\n", "dotenv": "USER=app\nTOKEN=line-secret\n",
	})
	if got := s.Add(string(document)); got != 0 {
		t.Errorf("got %d too short, want 0", got)
	}
	for in, want := range map[string]string{
		"deploy-bot": "***", `p"w & <x>`: "***", `p\"w &amp; \u003cx>`: "***", "12345678": "***", "first-secret": "***", "nested-secret": "***", "inner-secret": "***",
		"MIIEvQIBADANBgkqhkiG9w0": "***", "TOKEN=line-secret": "***", "1.2345678e10": "***",
		"port 5432, true, null, abc, username, password": "port 5432, true, null, abc, username, password",
		string(document): "***",
	} {
		if got := s.String(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestAdd_ReadsOnlySoMuchOfADocument(t *testing.T) {
	var many []string
	for i := range 1200 {
		many = append(many, fmt.Sprintf("value-%04d", i))
	}
	list, _ := json.Marshal(many)
	deep := `"the-bottom"`
	for range 100 {
		deep = `[` + deep + `]`
	}
	nested := "the-core"
	for range 20 {
		b, _ := json.Marshal([]string{nested})
		nested = string(b)
		if len(nested) > 100_000 {
			break
		}
	}
	for name, c := range map[string]struct{ value, hidden, shown string }{
		"many":         {string(list), "value-0999", "value-1000"},
		"deep":         {deep, "the-bottom", ""},
		"cut off":      {`{"a":"first-one","b":"secon`, "first-one", ""},
		"no document":  {`"only-a-text"`, `"only-a-text"`, "only-a-text "},
		"large":        {`["` + strings.Repeat("x", 300<<10) + `","after-it"]`, "", "after-it"},
		"a brace":      {"{not json at all}", "{not json at all}", "not json"},
		"two of a key": {`{"k":"older-value","k":"newer-value"}`, "older-value", ""},
	} {
		var s mask.Set
		s.Add(c.value)
		if c.hidden != "" && s.String(c.hidden) != mask.Marker {
			t.Errorf("%s: %q is shown", name, c.hidden)
		}
		if c.shown != "" && s.String(c.shown) != c.shown {
			t.Errorf("%s: %q is hidden: %q", name, c.shown, s.String(c.shown))
		}
	}
	new(mask.Set).Add(nested) // it ends
}
