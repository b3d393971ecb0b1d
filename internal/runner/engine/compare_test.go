package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// values compares as the engine does.
func values(t *testing.T, raw []byte, refreshOnly bool) string {
	t.Helper()
	sum, err := engine.PlanValues(raw, refreshOnly)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// otherOrder writes the same plan with its lists of changes turned round, and all keys sorted.
func otherOrder(t *testing.T, raw []byte) []byte {
	t.Helper()
	var doc map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"resource_changes", "resource_drift"} {
		list, _ := doc[name].([]any)
		for i := range len(list) / 2 {
			list[i], list[len(list)-1-i] = list[len(list)-1-i], list[i]
		}
	}
	out, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPlanValues_AreThoseOfAllPlannedChanges(t *testing.T) {
	for file, tc := range map[string]struct {
		refreshOnly bool
		differ      map[string]string // old to new
		equal       map[string]string
	}{
		"plan.json": {
			differ: map[string]string{
				`"planted-one"`:                    `"planted-two"`, // sensitive
				`"q": "cd"`:                        `"q": "ce"`,
				`"pin": 1234567`:                   `"pin": 12345678`,
				`"list": [false, true]`:            `"list": [true, true]`,
				`"a.delete"`:                       `"a.deleted"`,
				`"planted-user"`:                   `"planted-other"`, // of a sensitive output
				`"open-output"`:                    `1`,
				`["delete", "create"]`:             `["create", "delete"]`,
				`{"password": {"sensitive": true}`: `{"password": {}}}, "provider_config": {"a": {"name": "a", "expressions": {"region": {"constant_value": "eu"}}}}, "root_module": {"variables": {"x": {}`,
			},
			equal: map[string]string{`"planted-variable"`: `"another"`, `"open-variable"`: `"another"`, `"planted-prior"`: `"another"`, `"1.11.4"`: `"1.11.5"`},
		},
		"structure.json": {
			differ: map[string]string{
				`9007199254740993`:    `9007199254740995`, // which are one float
				`"computed": true`:    `"computed": false`,
				`["name"],`:           `["id"],`,
				`"1a2b3c4d"`:          `"1a2b3c4e"`,
				`"a.before"`:          `"a.begin"`,
				`{"id": "CANARY"}`:    `{"id": "OTHER"}`,
				`"text": "CANARY2"`:   `"text": null`,
				`"after": "CANARY"}`:  `"after": "OTHER"}`,
				`{"p": "CANARY"}, "p`: `{"p": "OTHER"}, "p`, // of an action
			},
			equal: map[string]string{
				`"a.elsewhere"`: `"a.other"`, // drift that the plan does nothing about
				`{"address": "a.same", "change": {"actions": ["no-op"], "before": {"p": "CANARY"}, "after": {"p": "CANARY"}}}`: `{"address": "a.same", "change": {"actions": ["no-op"], "before": {"p": "OTHER"}, "after": {"p": "OTHER"}}}`,
			},
		},
		"drift.json": {refreshOnly: true, differ: map[string]string{`"planted-after"`: `"another"`}},
	} {
		raw, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		sum := values(t, raw, tc.refreshOnly)
		for range 20 { // the order of maps
			if got := values(t, raw, tc.refreshOnly); got != sum || len(got) != 64 {
				t.Fatalf("%s: got %q, then %q", file, sum, got)
			}
		}
		if got := values(t, otherOrder(t, raw), tc.refreshOnly); got != sum {
			t.Errorf("%s: the order of keys and of lists counts", file)
		}
		for want, all := range map[bool]map[string]string{false: tc.differ, true: tc.equal} {
			for old, changed := range all {
				if !bytes.Contains(raw, []byte(old)) {
					t.Fatalf("%s has no %s", file, old)
				}
				if got := values(t, bytes.Replace(raw, []byte(old), []byte(changed), 1), tc.refreshOnly); (got == sum) != want {
					t.Errorf("%s: with %s in place of %s it is equal: %t", file, changed, old, got == sum)
				}
			}
		}
	}
}

// What a value is and what is only known later are not the same, and neither are texts that are put together otherwise.
func TestPlanValues_AreNotMixedUp(t *testing.T) {
	seen := map[string]string{}
	for _, change := range []string{
		`{"actions":["create"],"after":{"a":"1"}}`,
		`{"actions":["create"],"after":{"a":1}}`,
		`{"actions":["create"],"after":{"a":1.0}}`,
		`{"actions":["create"],"after":{"a":null}}`,
		`{"actions":["create"],"after":{"a":"\"1\""}}`,
		`{"actions":["create"],"after":{},"after_unknown":{"a":true}}`,
		`{"actions":["create"],"after":{"a":"1"},"after_sensitive":{"a":true}}`,
		`{"actions":["update"],"before":{"a":"1"},"after":{"a":"1"}}`,
		`{"actions":["update"],"after":{"a":"1"}}`,
	} {
		sum := values(t, fmt.Appendf(nil, `{"format_version":"1.2","resource_changes":[{"address":"a.b","change":%s}]}`, change), false)
		if other := seen[sum]; other != "" {
			t.Errorf("%s and %s are equal", change, other)
		}
		seen[sum] = change
	}
}

// What a provisioner runs is part of no planned change.
func TestPlanValues_NoneWhereTheCodeHasProvisioners(t *testing.T) {
	const provisioner = `"resources":[{"address":"a.b","provisioners":[{"type":"local-exec","expressions":{"command":{"references":["var.a"]}}}]}]`
	for config, want := range map[string]bool{
		`{"resources":[{"address":"a.b"}]}`:                         true,
		`{"module_calls":{"m":{"module":{"resources":[]}},"n":{}}}`: true,
		`{` + provisioner + `}`:                                     false,
		`{"module_calls":{"m":{"module":{"module_calls":{"n":{"module":{` + provisioner + `}}}}}}}`: false,
	} {
		raw := fmt.Sprintf(`{"format_version":"1.2","configuration":{"root_module":%s}}`, config)
		if got := values(t, []byte(raw), false); (got != "") != want {
			t.Errorf("%s: got %q", config, got)
		}
	}
}

func FuzzPlanValues(f *testing.F) {
	for _, name := range []string{"plan", "structure", "drift"} {
		raw, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"format_version":"1.2","configuration":{"provider_config":{"a":null,"b":{"expressions":{"c":null,"d":[],"e":[{"f":{"references":["x"]}}]}}}},"deferred_changes":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		sum, err := engine.PlanValues(raw, false)
		if err == nil && sum != "" && (len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "") {
			t.Errorf("got %q", sum)
		}
		if again, err := engine.PlanValues(raw, false); err == nil && again != sum {
			t.Errorf("got %s, then %s", sum, again)
		}
	})
}
