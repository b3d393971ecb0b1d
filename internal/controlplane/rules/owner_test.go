package rules_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
)

func TestOwner(t *testing.T) {
	mine, other := &record.Owner{ID: "me"}, &record.Owner{ID: "other"}
	at := func(id, lineage string, copies ...string) *record.Owner {
		return &record.Owner{ID: id, Lineage: lineage, Copies: copies}
	}
	for name, tc := range map[string]struct {
		lineage         string
		place, lineaged *record.Owner
		want            *record.Owner
	}{
		"nobody's":                               {"l", nil, nil, nil},
		"nobody's, and empty":                    {"", nil, nil, nil},
		"mine":                                   {"l", at("me", "l"), mine, nil},
		"mine, with a lineage that was forged":   {"l", at("me", "l"), other, nil},
		"mine and empty, and it comes by a copy": {"l", at("me", ""), other, other},
		"mine, and another state is in it":       {"l", at("me", "k"), other, other},
		"mine, and a new state is in it":         {"l", at("me", "k"), nil, nil},
		"a copy elsewhere":                       {"l", nil, other, other},
		"a copy that I may have":                 {"l", nil, at("other", "", "me"), nil},
		"a place where another one begins":       {"l", at("other", ""), nil, at("other", "")},
		"an empty place of another one":          {"", at("other", "l"), nil, at("other", "l")},
		"the state of another one":               {"l", at("other", "l"), other, at("other", "l")},
		"a place that only looks the same":       {"l", at("other", "k"), nil, nil},
		"such a place, and a copy in it":         {"l", at("other", "k"), other, other},
		"a place that I share":                   {"l", at("other", "k", "me"), nil, nil},
	} {
		got := rules.Owner("me", tc.lineage, tc.place, tc.lineaged)
		if (got == nil) != (tc.want == nil) || got != nil && (got.ID != tc.want.ID || got.Lineage != tc.want.Lineage) {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}
