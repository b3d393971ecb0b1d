package sim

import (
	"fmt"
	"slices"
	"strings"
)

// Keep returns the entries of a schedule with the given indexes.
func Keep(schedule []Entry, indexes []int) []Entry {
	return slices.DeleteFunc(slices.Clone(schedule), func(e Entry) bool { return !slices.Contains(indexes, e.Index) })
}

// Shrink looks for the shortest part of a schedule that still fails. It takes out halves, quarters and so on down to
// single entries, as long as that helps and at most so many times. fails plays a schedule and reports whether it
// fails in the same way as the whole.
func Shrink(schedule []Entry, tries int, fails func([]Entry) bool) []Entry {
	for size := max(len(schedule)/2, 1); ; {
		shorter := false
		for from := 0; from < len(schedule) && tries > 0; {
			without := slices.Concat(schedule[:from], schedule[min(from+size, len(schedule)):])
			tries--
			if len(without) < len(schedule) && fails(without) {
				schedule, shorter = without, true
				continue // what follows has moved here
			}
			from += size
		}
		switch {
		case tries <= 0 || size == 1 && !shorter:
			return schedule
		case size > 1:
			size /= 2
		}
	}
}

// Replay is the command that plays a part of the schedule of a seed again.
func Replay(seed uint64, schedule []Entry) string {
	var indexes []string
	for _, e := range schedule {
		indexes = append(indexes, fmt.Sprint(e.Index))
	}
	return fmt.Sprintf("go test ./test/sim -run 'TestSim$' -seed %d -keep %s -v", seed, strings.Join(indexes, ","))
}
