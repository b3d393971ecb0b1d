package ecs_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
)

// L3: the task definition and the disk of a launch are what its workspace asks for, within the pool's bounds.
func TestInput_ImageAndDiskAreWithinThePool(t *testing.T) {
	c := config()
	c.Images, c.MaxDisk = map[string]string{"big": "dayfly-runner-big:3"}, 100
	for _, tc := range []struct {
		image, definition string
		disk              int
		want              int32 // 0: the task definition's; -1: the launch is refused
	}{
		{"", "dayfly-runner:7", 0, 0}, {"big", "dayfly-runner-big:3", 100, 100}, {"", "dayfly-runner:7", 20, 0},
		{"", "dayfly-runner:7", 21, 21}, {"", "", 101, -1}, {"huge", "", 0, -1},
	} {
		r := request()
		r.Image, r.DiskGiB = tc.image, tc.disk
		in, err := ecs.Input(c, r)
		if tc.want < 0 {
			if err == nil {
				t.Errorf("%+v: not refused", tc)
			}
			continue
		}
		var disk int32
		if err == nil && in.Overrides.EphemeralStorage != nil {
			disk = in.Overrides.EphemeralStorage.SizeInGiB
		}
		if err != nil || *in.TaskDefinition != tc.definition || disk != tc.want {
			t.Errorf("%+v: got %v with %d GiB, %v", tc, in, disk, err)
		}
	}
}
