// Package figures is what measurements have in common: how an aim is told, samples of durations, and the name of the
// machine. It measures nothing itself.
package figures

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Aim is one figure next to its aim, as a line.
func Aim(met bool, what, got, want string) string {
	word := "missed"
	if met {
		word = "met"
	}
	return fmt.Sprintf("aim %s: %s %s, is %s", word, what, want, got)
}

// Sample is a list of durations.
type Sample []time.Duration

// At returns the p-th part of the sample from below: 0.5 is the median.
func (s Sample) At(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// Total is their sum.
func (s Sample) Total() (sum time.Duration) {
	for _, d := range s {
		sum += d
	}
	return sum
}

// Processor is the model of this machine's processor.
func Processor() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// LoadAverage is that of the last minute.
func LoadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:1], "")
}
