package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/figures"
)

func TestSlowest_IsTheLeastRateOfAnySpan(t *testing.T) {
	var times []time.Time
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range 600 { // twenty a second, but for five seconds without any
		if i == 300 {
			at = at.Add(5 * time.Second)
		}
		times = append(times, at)
		at = at.Add(50 * time.Millisecond)
	}
	if got := slowest(times, 10*time.Second); got < 9.8 || got > 10.2 {
		t.Errorf("slowest ten seconds: %.2f a second, want 10", got)
	}
	if got := longestPause(times); got != 5050*time.Millisecond {
		t.Errorf("longest pause: %s", got)
	}
}

func TestSpread_AddsEachPartOfThePeriodOnce(t *testing.T) {
	got := slices.Sorted(slices.Values(spread(make(figures.Sample, 60), time.Minute)))
	for i, d := range got {
		if want := time.Duration(i)*time.Second + 500*time.Millisecond; (d - want).Abs() > time.Millisecond {
			t.Errorf("wait %d is %s, want %s", i, d, want)
		}
	}
}

func TestLoads_NeverCoolAPollerThatOnlyItsScheduleBringsBack(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, l := range loads(quick, bySchedule) {
			if l.cold {
				t.Errorf("%+v", l)
			}
		}
	}
	if !slices.ContainsFunc(loads(true, byWake), func(l load) bool { return l.cold && l.judged }) {
		t.Error("a wake is not measured with cold functions")
	}
}

func TestReport_NamesEveryAim(t *testing.T) {
	var out bytes.Buffer
	r := figures.Report{W: &out}
	r.Judge(true, "a", "1", "<= 2")
	r.Judge(false, "b", "3", "<= 2")
	r.Close(time.Minute)
	for _, want := range []string{"aim met: a <= 2, is 1", "aim missed: b <= 2, is 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
}

func TestLatency_NamesEveryFigure(t *testing.T) {
	text := stated.String()
	for name, d := range stated.calls {
		if !strings.Contains(text, name+" "+d.String()) {
			t.Errorf("%s is not in: %s", name, text)
		}
	}
	if !strings.Contains(nothing.String(), "no claim") {
		t.Errorf("the floor says: %s", nothing)
	}
}
