package launches_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/launches"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
)

// The pool's share of the account's rate is divided among the invocations that there may be at once.
func TestDispatcher_DividesTheRateOfThePool(t *testing.T) {
	for name, tc := range map[string]struct {
		rate, invocations string
		part              float64
		want              float64
	}{
		"nothing said": {"", "", 1, 10}, "a share": {"8", "4", 1, 2}, "one invocation": {"20", "1", 1, 20}, "a quarter": {"20", "2", 0.25, 2.5},
	} {
		got := launches.Dispatcher(boot.Read(func(variable string) string {
			return map[string]string{
				"DAYFLY_LAUNCH_RATE": tc.rate, "DAYFLY_LAUNCH_CONCURRENCY": tc.invocations, "DAYFLY_RELAY_URL": "https://status.example.com",
			}[variable]
		}), ecs.Config{}, tc.part)
		if got.Rate != tc.want || got.Relay("wf_1") != "https://status.example.com" {
			t.Errorf("%s: %g calls a second, relay %s; want %g", name, got.Rate, got.Relay("wf_1"), tc.want)
		}
	}
}
