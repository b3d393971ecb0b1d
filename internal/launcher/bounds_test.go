package launcher_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/launcher"
)

func TestDisk_IsWithinWhatThePoolGives(t *testing.T) {
	for _, tc := range []struct{ wanted, each, most, want int }{ // want -1: refused
		{0, 0, 0, 0}, {30, 0, 0, 30}, {0, 20, 50, 20}, {50, 20, 50, 50}, {51, 20, 50, -1}, {10, 20, 0, 10}, {21, 20, 0, -1}, {-1, 0, 0, -1},
	} {
		got, err := launcher.Disk(tc.wanted, tc.each, tc.most)
		if (err != nil) != (tc.want < 0) || err == nil && got != tc.want {
			t.Errorf("%+v: got %d, %v", tc, got, err)
		}
	}
}
