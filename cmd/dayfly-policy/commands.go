package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dayfly-dev/dayfly/cmd/dayfly-policy/internal/policy"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Exit codes, as dayfly has them.
const (
	exitFailed = 1
	exitUsage  = 64
)

const description = `Evaluates packages of policies in Rego over a plan or a state, and runs their tests.

Exit codes: 0 done; 1 a test failed, the package cannot be evaluated, or it denies the plan; 64 wrong usage.`

type grammar struct {
	Evaluate evaluateCommand `cmd:"" help:"For runners: read a query from standard input, and write the answers of the packages to standard output."`
	Test     testCommand     `cmd:"" help:"Run the tests of a package, and show its findings for a recorded plan."`

	Timeout time.Duration    `default:"${timeout}" help:"How long one package may take."`
	Version kong.VersionFlag `help:"Print the version."`
}

// streams are the streams of every command.
type streams struct {
	ctx     context.Context //nolint:containedctx // a command is one call; kong binds values, not parameters
	stdin   io.Reader
	stdout  io.Writer
	timeout time.Duration
}

// exitError is an error with its exit code.
type exitError struct {
	code int
	err  error // nil: it was printed already
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{exitUsage, err} }

// run runs the command of the arguments.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 1 && args[0] == "version" {
		args = []string{"--version"}
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	var g grammar
	exited := false
	parser, err := kong.New(&g, kong.Name("dayfly-policy"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Vars{"version": version, "timeout": policy.DefaultTime.String()}, kong.Exit(func(int) { exited = true }))
	if err != nil {
		return fmt.Errorf("build the command line: %w", err)
	}
	parsed, err := parser.Parse(args)
	if exited {
		return nil
	}
	if err != nil {
		return usage(fmt.Errorf("%w; see dayfly-policy --help", err))
	}
	if g.Timeout <= 0 {
		return usage(errors.New("--timeout: want a time above zero, such as 60s"))
	}
	return parsed.Run(&streams{ctx: ctx, stdin: stdin, stdout: stdout, timeout: g.Timeout}) //nolint:contextcheck // it is in streams
}

// report prints an error and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if s := err.Error(); s != "" {
		fmt.Fprintln(stderr, "dayfly-policy: "+s)
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailed
}

type evaluateCommand struct{}

// Run answers one query.
func (c *evaluateCommand) Run(s *streams) error {
	q, err := policy.ReadQuery(s.stdin)
	if err != nil {
		return err
	}
	answer, err := policy.Answer(s.ctx, q, s.timeout)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(s.stdout).Encode(answer); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

type testCommand struct {
	Directory string `arg:"" name:"dir" help:"Directory of the package." placeholder:"DIR"`
	Plan      string `help:"A plan as \"tofu show -json\" writes it; shows the findings of the package for it." placeholder:"FILE"`
	Output    string `short:"o" enum:"table,json" default:"table" help:"How results are printed: table or json."`
}

// outcome is the JSON output of the command test.
type outcome struct {
	Tests []policy.TestResult `json:"tests"`
	Plan  *api.PackageAnswer  `json:"plan,omitempty"`  // with --plan
	Stops *bool               `json:"stops,omitempty"` // whether a mandatory group of this package would stop the run
	Error string              `json:"error,omitempty"` // why the tests could not run
}

// Run tests one package.
func (c *testCommand) Run(s *streams) error {
	plan, err := c.plan()
	if err != nil {
		return usage(err)
	}
	if info, err := os.Stat(c.Directory); err != nil || !info.IsDir() {
		return usage(fmt.Errorf("DIR: %s is not a directory that can be read", c.Directory))
	}
	out := outcome{Tests: []policy.TestResult{}}
	tests, err := policy.Test(s.ctx, c.Directory, s.timeout)
	if err != nil {
		out.Error = err.Error()
	} else {
		out.Tests = tests
	}
	if plan != nil {
		said, err := policy.Evaluate(s.ctx, c.Directory, plan, s.timeout)
		if err != nil {
			return usage(fmt.Errorf("--plan: %s %w", c.Plan, err))
		}
		said.Name = filepath.Base(c.Directory)
		stops := stops(said)
		out.Plan, out.Stops = &said, &stops
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(s.stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(out)
	} else {
		_, err = io.WriteString(s.stdout, out.text())
	}
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if out.failed() {
		return &exitError{code: exitFailed}
	}
	return nil
}

// plan reads the recorded plan; nil if none is given.
func (c *testCommand) plan() ([]byte, error) {
	if c.Plan == "" {
		return nil, nil
	}
	f, err := os.Open(c.Plan)
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, policy.MaxInput+1))
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	if len(raw) > policy.MaxInput {
		return nil, fmt.Errorf("--plan: %s has more than %d MiB", c.Plan, policy.MaxInput>>20)
	}
	return raw, nil
}

// stops reports whether a mandatory group would stop the run.
func stops(a api.PackageAnswer) bool {
	for _, f := range a.Findings {
		if !f.Warns {
			return true
		}
	}
	return a.Error != ""
}

func (o outcome) failed() bool {
	for _, t := range o.Tests {
		if !t.Passed() {
			return true
		}
	}
	return o.Error != "" || o.Stops != nil && *o.Stops
}

// text is an outcome as people read it.
func (o outcome) text() string {
	var b strings.Builder
	counts := map[string]int{}
	for _, t := range o.Tests {
		counts[t.Outcome]++
		fmt.Fprintf(&b, "%-7s  %s  %s (%.3fs)\n", t.Outcome, t.Name, t.Place, t.Seconds)
		for _, name := range t.Failed {
			fmt.Fprintf(&b, "         case %s failed\n", plain(name))
		}
		if t.Error != "" {
			fmt.Fprintf(&b, "         %s\n", plain(t.Error))
		}
		for line := range strings.Lines(t.Output) {
			fmt.Fprintf(&b, "         | %s\n", plain(strings.TrimRight(line, "\n")))
		}
	}
	switch {
	case o.Error != "":
		fmt.Fprintf(&b, "error: %s\n", plain(o.Error))
	case len(o.Tests) == 0:
		b.WriteString("there are no tests: no rule in the package begins with test_\n")
	default:
		fmt.Fprintf(&b, "%s: %d passed", text.Count(len(o.Tests), "test"), counts[policy.TestPassed])
		for _, other := range []struct{ outcome, word string }{
			{policy.TestFailed, "failed"}, {policy.TestBroke, "could not be evaluated"}, {policy.TestSkipped, "skipped"},
		} {
			if n := counts[other.outcome]; n > 0 {
				fmt.Fprintf(&b, ", %d %s", n, other.word)
			}
		}
		b.WriteByte('\n')
	}
	if o.Plan != nil {
		o.planText(&b)
	}
	return b.String()
}

func (o outcome) planText(b *strings.Builder) {
	b.WriteString("\nof the plan:\n")
	for _, f := range o.Plan.Findings {
		word := "denied"
		if f.Warns {
			word = "warned"
		}
		fmt.Fprintf(b, "%-7s  %s  ", word, f.Rule)
		if f.Address != "" {
			fmt.Fprintf(b, "%s: ", plain(f.Address))
		}
		fmt.Fprintf(b, "%s\n", plain(f.Message))
	}
	if o.Plan.Error != "" && o.Plan.Error != o.Error {
		fmt.Fprintf(b, "error: %s\n", plain(o.Plan.Error))
	}
	if o.Plan.Rules > 0 {
		fmt.Fprintf(b, "%s, %s\n", text.Count(o.Plan.Rules, "rule"), text.Count(len(o.Plan.Findings), "finding"))
	}
	if *o.Stops {
		b.WriteString("a mandatory group would stop this run\n")
	} else {
		b.WriteString("a mandatory group would let this run pass\n")
	}
}

// plain is foreign text on one line, without control sequences.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text.WithoutEscapes(s))
}
