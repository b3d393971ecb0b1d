// Package figures is what programs that measure have in common: a report that keeps its aims, samples of
// durations, and the name of the machine. It measures nothing itself.
package figures

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Report prints what is measured and remembers the aims.
type Report struct {
	W io.Writer

	aims []string
}

// Heading begins a part.
func (r *Report) Heading(format string, args ...any) {
	_, _ = fmt.Fprintf(r.W, "\n== "+format+"\n", args...)
}

// Line prints one line of a part.
func (r *Report) Line(format string, args ...any) {
	_, _ = fmt.Fprintf(r.W, "   "+format+"\n", args...)
}

// Judge remembers whether an aim was met, for the end.
func (r *Report) Judge(met bool, what, got, want string) {
	r.aims = append(r.aims, Aim(met, what, got, want))
}

// Aim is one figure beside what it should be, as a line.
func Aim(met bool, what, got, want string) string {
	word := "missed"
	if met {
		word = "met"
	}
	return fmt.Sprintf("aim %s: %s %s, is %s", word, what, want, got)
}

// Close prints all aims together.
func (r *Report) Close(took time.Duration) {
	r.Heading("Aims (all of it took %s; load average now %s)", took.Round(time.Second), LoadAverage())
	for _, a := range r.aims {
		r.Line("%s", a)
	}
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
