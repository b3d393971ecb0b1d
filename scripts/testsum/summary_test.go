package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// events of a run with a pass, a failing subtest, a skip, a package that does not build and one
// without tests.
const events = `
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"run","Package":"m/a","Test":"TestTable"}
{"Action":"run","Package":"m/a","Test":"TestTable/one"}
{"Action":"pass","Package":"m/a","Test":"TestTable/one"}
{"Action":"run","Package":"m/a","Test":"TestTable/two"}
{"Action":"output","Package":"m/a","Test":"TestTable/two","Output":"    a_test.go:7: got 1, want 2\n"}
{"Action":"fail","Package":"m/a","Test":"TestTable/two"}
{"Action":"fail","Package":"m/a","Test":"TestTable"}
{"Action":"run","Package":"m/a","Test":"TestDocker"}
{"Action":"output","Package":"m/a","Test":"TestDocker","Output":"    a_test.go:9: no Docker here\n"}
{"Action":"output","Package":"m/a","Test":"TestDocker","Output":"--- SKIP: TestDocker (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestDocker"}
{"Action":"fail","Package":"m/a","Elapsed":1.5}
{"Action":"build-output","ImportPath":"m/b","Output":"b.go:1: undefined: x\n"}
{"Action":"build-fail","ImportPath":"m/b"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b [build failed]\n"}
{"Action":"fail","Package":"m/b","FailedBuild":"m/b"}
{"Action":"output","Package":"m/c","Output":"?   \tm/c\t[no test files]\n"}
{"Action":"skip","Package":"m/c"}
`

func TestSummary_NamesFailuresAndSkipsAndCountsLeaves(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	if err := s.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if !s.close() {
		t.Error("a failed run was reported as good")
	}
	for _, want := range []string{
		"got 1, want 2\n", "b.go:1: undefined: x\n",
		"  m/a TestDocker: no Docker here\n", "  m/a TestTable/two\n", "  m/b\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "m/a TestTable\n") {
		t.Errorf("a test is listed as failed beside its subtest:\n%s", out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if diff := cmp.Diff("2 passed, 2 failed, 1 skipped", lines[len(lines)-1]); diff != "" {
		t.Errorf("last line (-want +got):\n%s", diff)
	}
}

// A test that panics or is cut off by the time-out never ends: its output must be shown and the
// package counted.
func TestSummary_ShowsATestThatNeverEnded(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	err := s.read(strings.NewReader(`
{"Action":"run","Package":"m/a","Test":"TestHangs"}
{"Action":"output","Package":"m/a","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"m/a","Elapsed":600}
`))
	if err != nil {
		t.Fatal(err)
	}
	if !s.close() {
		t.Error("a run that was cut off was reported as good")
	}
	for _, want := range []string{"panic: test timed out", "0 passed, 1 failed, 0 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}

func TestSummary_GoodRunIsGood(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	err := s.read(strings.NewReader(`
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"pass","Package":"m/a","Elapsed":0.1}
`))
	if err != nil {
		t.Fatal(err)
	}
	if s.close() {
		t.Errorf("a good run was reported as failed:\n%s", out.String())
	}
	if !strings.HasSuffix(out.String(), "\n1 passed, 0 failed, 0 skipped\n") {
		t.Errorf("got %q, want the totals last", out.String())
	}
}

func TestSummary_ShowsTablesAndTellsRunsApart(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	const one = `
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"| mutant | seed\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"chatter\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"pass","Package":"m/a","Elapsed":0.1}
`
	for _, s.label = range []string{"", " (-tags x)"} {
		if err := s.read(strings.NewReader(one)); err != nil {
			t.Fatal(err)
		}
	}
	if s.close() {
		t.Errorf("a good run was reported as failed:\n%s", out.String())
	}
	for _, want := range []string{"| mutant | seed\n", "m/a (-tags x)", "\n2 passed, 0 failed, 0 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "chatter") {
		t.Errorf("the output of a good test is shown:\n%s", out.String())
	}
}

func TestRuns_AreSplitAtTwoDashes(t *testing.T) {
	got := runs([]string{"-race", "./...", "--", "-tags", "x", "./y"})
	if diff := cmp.Diff([][]string{{"-race", "./..."}, {"-tags", "x", "./y"}}, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if got := runs(nil); len(got) != 1 {
		t.Errorf("no arguments are %d runs, want one", len(got))
	}
}
