package bench_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// item is something that AWS charges for.
type item string

// pricesAsOf says when and for which Region the prices were collected. Without free tiers. Those marked "check" come
// from memory.
const pricesAsOf = "us-east-1, list prices of November 2026, without free tiers"

// prices are in dollars for one of each, in the order in which a bill has them.
var prices = []struct {
	part    string // of the bill
	item    item
	unit    string
	dollars float64
}{
	{"table", "write units", "unit", 0.625e-6},       // check
	{"table", "read units", "unit", 0.125e-6},        // check
	{"table", "stored", "GB-month", 0.25 + 0.20},     // check; with point-in-time recovery
	{"functions", "invocations", "request", 0.20e-6}, // Lambda
	{"functions", "memory", "GB-s", 0.0000133334},    // on arm64
	{"API of the control plane", "HTTP API", "request", 1.00e-6},
	{"API of tasks", "REST API", "request", 3.50e-6},
	{"queues", "SQS", "request", 0.40e-6}, // check
	{"secrets", "Secrets Manager", "request", 0.05 / 10_000},
	{"secrets", "secret", "month", 0.40},
	{"objects", "S3 writes", "request", 0.005 / 1000}, // check
	{"objects", "S3 reads", "request", 0.0004 / 1000}, // check
	{"logs", "log", "GB", 0.50},                       // CloudWatch Logs, taken in
	{"schedules", "schedule", "invocation", 1.00e-6},
	{"alarms", "alarmed metric", "month", 0.10}, // check
	{"alarms", "custom metric", "month", 0.30},  // check
}

// counts are how many of what was used.
type counts map[item]float64

// plus adds other counts, each of them so many times.
func (c counts) plus(other counts, times float64) counts {
	sum := counts{}
	for _, of := range []struct {
		counts
		times float64
	}{{c, 1}, {other, times}} {
		for what, n := range of.counts {
			sum[what] += n * of.times
		}
	}
	return sum
}

// sum is one part of a bill.
type sum struct {
	part    string
	of      []string // what it is made of
	dollars float64
}

// bill says what counts cost. It refuses what has no price.
func bill(c counts) (parts []sum, total float64, err error) {
	known := map[item]bool{}
	for _, p := range prices {
		known[p.item] = true
		n := c[p.item]
		if n == 0 {
			continue
		}
		if len(parts) == 0 || parts[len(parts)-1].part != p.part {
			parts = append(parts, sum{part: p.part})
		}
		last := &parts[len(parts)-1]
		last.of = append(last.of, fmt.Sprintf("%s %s at $%g a %s", amount(n), p.item, p.dollars, p.unit))
		last.dollars += n * p.dollars
		total += n * p.dollars
	}
	for what := range c {
		if !known[what] {
			return nil, 0, fmt.Errorf("%q has no price", what)
		}
	}
	return parts, total, nil
}

// amount prints a count with three digits that matter.
func amount(n float64) string {
	if math.Abs(n) >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

func TestBill_AddsUpWhatHasAPrice(t *testing.T) {
	used := counts{"write units": 2e6, "read units": 4e6, "REST API": 1000}.plus(counts{"REST API": 500, "log": 2}, 2)
	parts, total, err := bill(used)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		got = append(got, fmt.Sprintf("%s $%.4f", p.part, p.dollars))
	}
	// 2 x 0.625 + 4 x 0.125; 2000 x 3.50 / 1,000,000; 4 x 0.50
	if want := "table $1.7500, API of tasks $0.0070, logs $2.0000"; strings.Join(got, ", ") != want || math.Abs(total-3.757) > 1e-9 {
		t.Errorf("got %v and %v in all, want %s and 3.757", got, total, want)
	}
	if want := "2000000 write units at $6.25e-07 a unit"; parts[0].of[0] != want {
		t.Errorf("got %q, want %q", parts[0].of[0], want)
	}
	if _, _, err := bill(counts{"gold": 1}); err == nil {
		t.Error("what has no price was priced")
	}
}
