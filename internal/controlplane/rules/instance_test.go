package rules_test

import (
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
)

func TestOccupy(t *testing.T) {
	const gone = 3 * time.Minute
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	seen := func(boot string, ago time.Duration) record.Runner {
		return record.Runner{Boot: boot, Last: now.Add(-ago)}
	}
	for name, tt := range map[string]struct {
		last    record.Runner
		by      api.Process
		refused bool
	}{
		"the first":                          {record.Runner{}, api.Process{Boot: "a"}, false},
		"the same":                           {seen("a", time.Second), api.Process{Boot: "a"}, false},
		"the next one in its directory":      {seen("a", time.Second), api.Process{Boot: "b", After: "a"}, false},
		"another one":                        {seen("a", gone-1), api.Process{Boot: "b"}, true},
		"one from a copy of the directory":   {seen("b", time.Second), api.Process{Boot: "c", After: "a"}, true},
		"one whose successor was taken":      {seen("b", time.Second), api.Process{Boot: "a", After: "z"}, true},
		"another one after the end of that":  {seen("a", gone), api.Process{Boot: "b"}, false},
		"one of a pool stack or older agent": {seen("a", time.Second), api.Process{}, false},
		"the first after an older agent":     {seen("", time.Second), api.Process{Boot: "a"}, false},
	} {
		if got := rules.Occupy(tt.last, tt.by, now, gone); got.Refused != tt.refused || got.Why == "" {
			t.Errorf("%s: got %+v, want refused %t and a reason", name, got, tt.refused)
		}
	}
}
