package setup

import (
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// The control plane forgets after a day when a pool was seen: that is not never.
func TestSeen_OfAPoolOfBeforeIsNotNever(t *testing.T) {
	lately := time.Now().Add(-2 * time.Hour)
	for want, p := range map[string]api.Pool{
		"2h00m ago":      {LastSeen: &lately},
		"never":          {CreatedAt: lately},
		"over a day ago": {CreatedAt: lately.Add(-api.RunnerKept)},
	} {
		if got := seen(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
