package embedded_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// R8: whatever connects to the API, the jobs keep their descriptors.
func TestDescriptors_AreKeptForJobs(t *testing.T) {
	for _, tc := range []struct {
		limit uint64
		jobs  int
		calls int
		short bool
	}{
		{1024, 10, 1024 - 64 - 240, false},
		{1024, 0, 960, false},
		{1 << 62, 10, 1<<16 - 64 - 240, false},
		{368, 10, 64, false},
		{367, 10, 64, true},
		{1024, 1000, 64, true},
	} {
		calls, short := embedded.Descriptors(tc.limit, tc.jobs)
		if calls != tc.calls || (short != "") != tc.short {
			t.Errorf("%d files, %d jobs: %d calls, %q, want %d", tc.limit, tc.jobs, calls, short, tc.calls)
		}
		if tc.short && !strings.Contains(short, "ulimit -n") {
			t.Errorf("%q does not say what to do", short)
		}
	}
}
