package launcher

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Disk decides how many GiB of disk a task may use: what its workspace asks for, or else what the pool gives to each. 0
// means no bound. A pool that names no most gives nobody more than to each.
func Disk(wanted, each, most int) (int, error) {
	most = cmp.Or(most, each)
	switch {
	case wanted < 0:
		return 0, Never("disk_gib %d is negative", wanted)
	case wanted == 0:
		return each, nil
	case most > 0 && wanted > most:
		return 0, Never("the workspace asks for disk_gib %d, and this pool gives at most %d: ask for less, or raise max_disk of the pool", wanted, most)
	}
	return wanted, nil
}

// Image decides what a task runs from: what the pool has under the name that its workspace asks for, or else the pool's
// own.
func Image(name, own string, has map[string]string) (string, error) {
	if name == "" {
		return own, nil
	}
	if image, ok := has[name]; ok {
		return image, nil
	}
	if len(has) == 0 {
		return "", Never("the workspace asks for the image %q, and this pool has none with a name: leave it out, or name it in images of the pool", name)
	}
	return "", Never("the workspace asks for the image %q; this pool has %s", name, strings.Join(slices.Sorted(maps.Keys(has)), ", "))
}
