package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build's output, instead of Package
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// key names a test of a package; an empty test means the package itself.
type key struct{ pkg, test string }

// summary gathers what the events say. Tests are counted by their leaves: a test with subtests
// is counted through them, unless it failed while all of them passed.
type summary struct {
	out     io.Writer
	label   string // told apart by it: the packages of a further run
	output  map[key]*strings.Builder
	builds  map[string]*strings.Builder
	ended   map[key]string // how each test ended
	parents map[key]bool
	skips   []skip
	failed  []string // packages, and tests as "package Test"
	noTests int
}

type skip struct{ pkg, test, reason string }

// tableLine begins each line of a table that a test prints for everybody to see.
const tableLine = "| "

func newSummary(out io.Writer) *summary {
	return &summary{
		out: out, output: map[key]*strings.Builder{}, builds: map[string]*strings.Builder{},
		ended: map[key]string{}, parents: map[key]bool{},
	}
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil {
				s.add(e)
			} else { // what go test itself has to say
				fmt.Fprint(s.out, line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) add(e event) {
	if e.Package != "" {
		e.Package += s.label
	}
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		writer(s.builds, e.ImportPath).WriteString(e.Output)
	case "output":
		if strings.HasPrefix(e.Output, tableLine) {
			fmt.Fprint(s.out, e.Output)
			return
		}
		writer(s.output, k).WriteString(e.Output)
	case "run":
		if i := strings.LastIndexByte(e.Test, '/'); i > 0 {
			s.parents[key{e.Package, e.Test[:i]}] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
			return
		}
		s.ended[k] = e.Action
		if e.Action == "skip" {
			s.skips = append(s.skips, skip{e.Package, e.Test, reason(s.text(k))})
		}
		if e.Action != "fail" {
			delete(s.output, k)
		}
	}
}

func writer[K comparable](m map[K]*strings.Builder, k K) *strings.Builder {
	if m[k] == nil {
		m[k] = &strings.Builder{}
	}
	return m[k]
}

func (s *summary) text(k key) string {
	if b := s.output[k]; b != nil {
		return b.String()
	}
	return ""
}

func (s *summary) endPackage(e event) {
	if e.Action == "skip" {
		s.noTests++
		delete(s.output, key{e.Package, ""})
		return
	}
	var passed, failed, skipped int
	for k := range s.ended {
		if k.pkg == e.Package {
			s.count(k, &passed, &failed, &skipped)
		}
	}
	if e.Action == "fail" {
		s.showFailure(e, failed)
	}
	verdict := map[string]string{"pass": "ok  ", "fail": "FAIL"}[e.Action]
	fmt.Fprintf(s.out, "%s %-62s %7.1fs %5d tests", verdict, e.Package, e.Elapsed, passed+failed+skipped)
	if skipped > 0 {
		fmt.Fprintf(s.out, ", %d skipped", skipped)
	}
	fmt.Fprintln(s.out)
	delete(s.output, key{e.Package, ""})
}

func (s *summary) count(k key, passed, failed, skipped *int) {
	switch how := s.ended[k]; {
	case s.parents[k] && (how != "fail" || s.childFailed(k)):
	case how == "pass":
		*passed++
	case how == "fail":
		*failed++
	case how == "skip":
		*skipped++
	}
}

func (s *summary) childFailed(parent key) bool {
	for k, how := range s.ended {
		if how == "fail" && k.pkg == parent.pkg && strings.HasPrefix(k.test, parent.test+"/") {
			return true
		}
	}
	return false
}

// showFailure prints what the failed tests of a package wrote and, where no test of it failed
// (it did not build, it panicked, it timed out), what the package wrote.
func (s *summary) showFailure(e event, failedTests int) {
	if b := s.builds[e.FailedBuild]; b != nil {
		fmt.Fprint(s.out, b.String())
		delete(s.builds, e.FailedBuild) // shown once, also when several packages need it
	}
	var keys []key
	for k := range s.output {
		// A test that began and never ended was cut off by a panic or the time-out.
		if k.pkg == e.Package && k.test != "" && (s.ended[k] == "fail" || s.ended[k] == "") {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Compare(a.test, b.test) })
	for _, k := range keys {
		fmt.Fprint(s.out, s.output[k])
		if s.ended[k] == "fail" && !s.childFailed(k) {
			s.failed = append(s.failed, k.pkg+" "+k.test)
		}
		delete(s.output, k)
	}
	if failedTests == 0 {
		fmt.Fprint(s.out, s.text(key{e.Package, ""}))
		s.failed = append(s.failed, e.Package)
	}
}

var place = regexp.MustCompile(`^\s*[^\s:]+\.go:\d+: `)

// reason finds what a skipped test said.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "=== ") || strings.HasPrefix(trimmed, "--- ") {
			continue
		}
		said = append(said, place.ReplaceAllString(trimmed, ""))
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return said[len(said)-1]
}

// close prints what was skipped and why, what failed, and the totals; it reports whether
// anything failed.
func (s *summary) close() bool {
	var passed, failed, skipped int
	for k := range s.ended {
		s.count(k, &passed, &failed, &skipped)
	}
	fmt.Fprintln(s.out)
	if len(s.skips) > 0 {
		fmt.Fprintln(s.out, "Skipped:")
		slices.SortFunc(s.skips, func(a, b skip) int {
			return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test))
		})
		for _, k := range s.skips {
			fmt.Fprintf(s.out, "  %s %s: %s\n", k.pkg, k.test, k.reason)
		}
	}
	if len(s.failed) > 0 {
		fmt.Fprintln(s.out, "Failed:")
		for _, f := range s.failed {
			fmt.Fprintln(s.out, "  "+f)
			if !strings.Contains(f, " ") {
				failed++ // a package that failed without a test counts as one
			}
		}
	}
	if s.noTests > 0 {
		fmt.Fprintf(s.out, "%d packages have no tests.\n", s.noTests)
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed > 0
}
