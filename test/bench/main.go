// Command bench measures what Dayfly costs on this machine and prints it, as ratios and counts, beside
// what it aims at. It judges no change and fails only where something did not work: times are
// those of the machine that it names, with whatever else ran there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/test/figures"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nbench: "+err.Error())
		os.Exit(1) //nolint:forbidigo // main decides the exit code
	}
}

// longest is how long everything may take together.
const longest = 10 * time.Minute

// bench is one run of this program.
type bench struct {
	out    figures.Report
	quick  bool
	dayfly string // the binary
	runner string // the runner alone; empty: a runner is dayfly with the argument "runner"
	temp   string // removed at the end; users of their own can pass through it
}

// runnerCommand starts a runner.
func (b *bench) runnerCommand() []string {
	if b.runner != "" {
		return []string{b.runner}
	}
	return []string{b.dayfly, "runner"}
}

// section is one part of the program.
type section struct {
	name string
	run  func(context.Context, *bench) error
}

var sections = []section{
	{"claims", claims},
	{"lifecycles", lifecycles},
	{"overhead", overhead},
	{"logs", logs},
	{"follow", follow},
	{"memory", memoryOfUp},
	{"dynamodb", units},
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "smaller numbers, in a third of the time")
	dayfly := flags.String("dayfly", "", "the binary of cmd/dayfly")
	runner := flags.String("runner", "", "the binary of runnerimage; empty means that dayfly is its own runner")
	only := flags.String("only", "", "the sections to run, divided by commas; empty means all")
	profile := flags.String("cpuprofile", "", "file for a CPU profile of this process")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("there is no section %q", name)
		}
	}
	b := &bench{out: figures.Report{W: out, AtOnce: true}, quick: *quick}
	if b.dayfly, err = exec.LookPath(*dayfly); err != nil {
		return fmt.Errorf("find the binary (build cmd/dayfly and name it with -dayfly): %w", err)
	}
	if b.dayfly, err = filepath.Abs(b.dayfly); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done after %s", longest))
	defer cancel()
	if b.temp, err = tempDir(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.temp)) }()
	if b.dayfly, err = reachable(b.dayfly, b.temp); err != nil {
		return err
	}
	if *runner != "" {
		if b.runner, err = reachable(*runner, b.temp); err != nil {
			return err
		}
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	if err := machine(b); err != nil {
		return err
	}
	began := time.Now()
	for _, s := range sections {
		if len(wanted) > 0 && !slices.Contains(wanted, s.name) {
			continue
		}
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	b.out.Close(time.Since(began))
	return nil
}

// tempDir makes a directory that users of their own can pass through, as root's engines must.
func tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "dayfly-bench-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return filepath.EvalSymlinks(dir)
}

// reachable copies a program into the temporary directory, where the launcher and whoever it starts
// as finds it, wherever the repository lies.
func reachable(program, dir string) (string, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(program))
	return to, os.WriteFile(to, data, 0o755)
}
