package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// report prints what is measured and remembers the aims.
type report struct {
	w io.Writer

	aims []string
}

// heading begins a part.
func (r *report) heading(format string, args ...any) {
	_, _ = fmt.Fprintf(r.w, "\n== "+format+"\n", args...)
}

// line prints one line of a part.
func (r *report) line(format string, args ...any) {
	_, _ = fmt.Fprintf(r.w, "   "+format+"\n", args...)
}

// judge remembers whether an aim was met, for the end.
func (r *report) judge(met bool, what, got, want string) {
	r.aims = append(r.aims, figures.Aim(met, what, got, want))
}

// close prints all aims together.
func (r *report) close(took time.Duration) {
	r.heading("Aims (all of it took %s; load average now %s)", took.Round(time.Second), figures.LoadAverage())
	for _, a := range r.aims {
		r.line("%s", a)
	}
}

// seconds prints a duration in seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
