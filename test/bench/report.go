package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// report prints what is measured and remembers the aims.
type report struct {
	w    io.Writer
	aims []aim
}

// aim is one figure beside what it should be.
type aim struct {
	what, got, want string
	met             bool
}

func (r *report) heading(format string, args ...any) {
	_, _ = fmt.Fprintf(r.w, "\n== "+format+"\n", args...)
}

func (r *report) line(format string, args ...any) {
	_, _ = fmt.Fprintf(r.w, "   "+format+"\n", args...)
}

// judge prints whether an aim was met, here and once more at the end.
func (r *report) judge(met bool, what, got, want string) {
	a := aim{what: what, got: got, want: want, met: met}
	r.aims = append(r.aims, a)
	r.line("%s", a)
}

func (a aim) String() string {
	word := "missed"
	if a.met {
		word = "met"
	}
	return fmt.Sprintf("aim %s: %s %s, is %s", word, a.what, a.want, a.got)
}

// close prints all aims together.
func (r *report) close(took time.Duration) {
	r.heading("Aims (all of it took %s; load average now %s)", took.Round(time.Second), loadAverage())
	for _, a := range r.aims {
		r.line("%s", a)
	}
}

// sample is a list of durations.
type sample []time.Duration

// at returns the p-th part of the sample from below: 0.5 is the median.
func (s sample) at(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

func (s sample) total() (sum time.Duration) {
	for _, d := range s {
		sum += d
	}
	return sum
}

// rate is how many a second.
func rate(n int, d time.Duration) float64 { return float64(n) / max(d.Seconds(), 1e-9) }

// ms prints a duration in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

// mb is bytes in megabytes.
func mb(bytes int64) float64 { return float64(bytes) / 1e6 }
