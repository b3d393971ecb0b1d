package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// The results of a test.
const (
	TestPassed  = "passed"
	TestFailed  = "failed"
	TestBroke   = "error"   // it could not be evaluated
	TestSkipped = "skipped" // its name begins with todo_
)

// maxOutput bounds the output of the print statements of one test.
const maxOutput = 64 << 10

// TestResult is the result of one test of a package.
type TestResult struct {
	Name    string   `json:"name"`  // package and rule, such as main.test_public_bucket
	Place   string   `json:"place"` // file and line
	Outcome string   `json:"outcome"`
	Failed  []string `json:"failed,omitempty"` // of a test with cases, those that failed
	Error   string   `json:"error,omitempty"`
	Output  string   `json:"output,omitempty"` // of print
	Seconds float64  `json:"seconds"`
}

// Passed reports whether nothing is wrong with a test.
func (t TestResult) Passed() bool { return t.Outcome == TestPassed || t.Outcome == TestSkipped }

// Test runs the tests of the package in a directory, in the order of their names. The package itself must be one that
// can be evaluated. It may take timeout, and so may each test.
func Test(ctx context.Context, directory string, timeout time.Duration) ([]TestResult, error) {
	results, err := within(ctx, timeout, MaxMemory, func(ctx context.Context) ([]TestResult, error) {
		p, err := load(directory, true)
		if err != nil {
			return nil, err
		}
		if _, err := p.compile(ctx); err != nil {
			return nil, err
		}
		return p.test(ctx, timeout)
	})
	if err != nil {
		return nil, errors.New(sentence(err))
	}
	return results, nil
}

func (p *loaded) test(ctx context.Context, timeout time.Duration) ([]TestResult, error) {
	all := maps.Clone(p.modules)
	maps.Copy(all, p.tests)
	store := inmem.NewFromObjectWithOpts(p.documents, inmem.OptRoundTripOnWrite(false))
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the data: %w", err)
	}
	defer store.Abort(ctx, txn)
	results, err := tester.NewRunner().
		SetCompiler(newCompiler().WithEnablePrintStatements(true)).SetStore(store).SetModules(all).
		CapturePrintOutput(true).RaiseBuiltinErrors(true).SetTimeout(timeout).SetParallel(1).
		RunTests(ctx, txn)
	if err != nil {
		return nil, err
	}
	out := []TestResult{}
	for r := range results {
		out = append(out, testResult(r))
	}
	slices.SortFunc(out, func(a, b TestResult) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func testResult(r *tester.Result) TestResult {
	t := TestResult{
		Name:    strings.TrimPrefix(r.Package, "data.") + "." + r.Name,
		Place:   strings.TrimSuffix(place(r.Location), ": "),
		Outcome: TestPassed, Output: text.Cut(string(r.Output), maxOutput), Seconds: r.Duration.Seconds(),
	}
	switch {
	case r.Error != nil:
		t.Outcome, t.Error = TestBroke, sentence(r.Error)
	case r.Skip:
		t.Outcome = TestSkipped
	case r.Fail:
		t.Outcome = TestFailed
	}
	for name, sub := range r.SubResults.Iter {
		if sub.Fail && len(sub.SubResults) == 0 {
			t.Failed = append(t.Failed, strings.Join(name, "/"))
		}
	}
	return t
}
