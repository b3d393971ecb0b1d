// Command pickup measures how long a submitted workflow waits until ECS has accepted its task, and how fast a
// backlog is launched, with the built functions deployed from the templates to an AWS of fakes. It prints what it
// measured next to its aims, judges no change, and fails only if something did not work. It is a program, not a
// benchmark of go test: one run takes half an hour, and an interrupted run must still print what it has measured.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\npickup: "+err.Error())
		os.Exit(1) //nolint:forbidigo // main decides the exit code
	}
}

// longest is how long everything may take together.
const longest = time.Hour

// bench is one run of this program.
type bench struct {
	out       report
	root      string
	functions string // where the built functions are
	quick     bool
	pending   int           // workflows that wait for the drain
	handshake time.Duration // of TLS, of a processor
	firstLine time.Duration // of a runner, from its start
	single    bool          // leave out the floor, and many workflows at once
	why       bool          // show where the time of a pick-up goes
	log       io.Writer     // of the functions; nil drops it
}

// section is one part of the program.
type section struct {
	name string
	run  func(context.Context, *bench) error
}

var sections = []section{
	{"line", firstLine},
	{"wake", func(ctx context.Context, b *bench) error { return pickup(ctx, b, wake) }},
	{"window", func(ctx context.Context, b *bench) error { return pickup(ctx, b, window) }},
	{"once", func(ctx context.Context, b *bench) error { return pickup(ctx, b, once) }},
	{"drain", drain},
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("pickup", flag.ContinueOnError)
	root := flags.String("root", ".", "the root of the repository")
	quick := flags.Bool("quick", false, "fewer samples")
	pending := flags.Int("drain", 0, "how many workflows wait for the drain, of which 20 a second can be launched; 0 means 10000, or 400 with -quick")
	only := flags.String("only", "", "the sections to run, divided by commas; empty means all")
	single := flags.Bool("single", false, "one workflow at a time only, with the stated latencies only")
	why := flags.Bool("why", false, "show where the time of a pick-up goes, and one of each mode call by call")
	log := flags.String("log", "", "file for what the functions log")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *pending == 0 && *quick {
		*pending = 400
	}
	if *pending = cmp.Or(*pending, 10_000); *pending < 100 {
		return errors.New("-drain: 100 at least")
	}
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("there is no section %q", name)
		}
	}
	b := &bench{out: report{w: out}, root: *root, quick: *quick, single: *single, why: *why, pending: *pending}
	if *log != "" {
		f, err := os.Create(*log)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		b.log = f
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done after %s", longest))
	defer cancel()
	var err error
	if b.functions, err = os.MkdirTemp("", "pickup-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.functions) }()
	if err := b.build(ctx); err != nil {
		return err
	}
	b.out.heading("Machine")
	b.out.line("%s, %d cores, %s/%s, %s; load average before: %s", figures.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), figures.LoadAverage())
	b.out.line("functions, fakes and this program share these cores")
	b.out.line("latency %s", nothing)
	b.out.line("latency %s", stated)
	if b.handshake, err = handshakeTime(ctx); err != nil {
		return err
	}
	b.out.line("and with it: %s", newMeter(b.handshake))
	began := time.Now()
	var failed error
	for _, s := range sections {
		if len(wanted) > 0 && !slices.Contains(wanted, s.name) {
			continue
		}
		if err := s.run(ctx, b); err != nil {
			failed = fmt.Errorf("%s: %w", s.name, err)
			break
		}
	}
	b.out.close(time.Since(began))
	return errors.Join(failed, context.Cause(ctx))
}

// build builds the functions for this machine.
func (b *bench) build(ctx context.Context) (err error) {
	if b.root, err = filepath.Abs(b.root); err != nil {
		return err
	}
	packages, err := bootstrap.Functions(b.root)
	if err != nil {
		return err
	}
	_, err = bootstrap.Build(ctx, bootstrap.Config{Root: b.root, Out: b.functions, NoZip: true}, packages...)
	return err
}
