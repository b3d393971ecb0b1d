package sqssource

import (
	"maps"
	"slices"
	"testing"
)

// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html, "Success and failure conditions"
func TestFailures(t *testing.T) {
	ids := map[string]bool{"a": true, "b": true}
	for _, c := range []struct {
		name, answer string
		want         []string
		all          bool
	}{
		{"nothing", ``, nil, false},
		{"null", `null`, nil, false},
		{"an object without a list", `{}`, nil, false},
		{"a list that is null", `{"batchItemFailures":null}`, nil, false},
		{"an empty list", `{"batchItemFailures":[]}`, nil, false},
		{"one", `{"batchItemFailures":[{"itemIdentifier":"b"}]}`, []string{"b"}, false},
		{"both, one twice", `{"batchItemFailures":[{"itemIdentifier":"b"},{"itemIdentifier":"a"},{"itemIdentifier":"b"}]}`, []string{"a", "b"}, false},
		{"no JSON", `batchItemFailures`, nil, true},
		{"text", `"b"`, nil, true},
		{"a list", `["b"]`, nil, true},
		{"no list of objects", `{"batchItemFailures":["b"]}`, nil, true},
		{"an empty identifier", `{"batchItemFailures":[{"itemIdentifier":""}]}`, nil, true},
		{"a null identifier", `{"batchItemFailures":[{"itemIdentifier":null}]}`, nil, true},
		{"another key", `{"batchItemFailures":[{"messageId":"b"}]}`, nil, true},
		{"another case of the key", `{"batchItemFailures":[{"ItemIdentifier":"b"}]}`, nil, true},
		{"a message of another batch", `{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"c"}]}`, nil, true},
	} {
		got, err := failures([]byte(c.answer), ids)
		if (err != nil) != c.all {
			t.Errorf("%s: error %v, want the whole batch to fail: %t", c.name, err, c.all)
		}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, c.want) {
			t.Errorf("%s: failed %v, want %v", c.name, names, c.want)
		}
	}
}
