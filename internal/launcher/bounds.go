package launcher

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Disk decides how many GiB of disk a task may use: the number that its workspace asks for, or else the pool's
// default. 0 means no bound. In a pool that names no limit, the default is the limit.
func Disk(wanted, each, limit int) (int, error) {
	limit = cmp.Or(limit, each)
	switch {
	case wanted < 0:
		return 0, Never("disk_gib %d is negative", wanted)
	case wanted == 0:
		return each, nil
	case limit > 0 && wanted > limit:
		return 0, Never("the workspace asks for disk_gib %d, and this pool gives at most %d: ask for less, or raise max_disk of the pool", wanted, limit)
	}
	return wanted, nil
}

// Image decides from which image a task runs: the pool's image of the name that its workspace asks for, or else the
// pool's own.
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
