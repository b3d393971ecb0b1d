// Package bench_test measures what Dayfly costs on this machine, as ratios and counts, next to its aims. It judges no
// change: a missed aim is printed as missed, and a benchmark fails only if something did not work. Each benchmark
// takes its own samples, once, because p99s, turns and processes cannot be measured in nanoseconds per operation:
// `make bench` runs them with -benchtime 1x, and with QUICK=1 as -short, with smaller numbers.
package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// programs is the directory of the programs that are measured, once they are built.
var programs string

// build builds them as they ship, where users of their own can get to them.
var build = sync.OnceValue(func() (err error) {
	if programs, err = os.MkdirTemp("", "dayfly-bench-"); err != nil {
		return err
	}
	if err := os.Chmod(programs, 0o711); err != nil {
		return err
	}
	c := exec.Command("../../scripts/build", programs, "./cmd/dayfly", "./cmd/dayfly-policy")
	c.Env = append(os.Environ(), "LDFLAGS=-s -w -X github.com/dayfly-dev/dayfly/cmd/dayfly/internal/quick.Version=bench")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// program is the path of one of them.
func program(b *testing.B, name string) string {
	b.Helper()
	check(b, build())
	return filepath.Join(programs, name)
}

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// quick takes a smaller number where the benchmarks run as -short.
func quick(n, fewer int) int {
	if testing.Short() {
		return fewer
	}
	return n
}

// directory makes one that users of their own can pass through, as root's engines must.
func directory(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	check(b, errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o711)))
	return dir
}

// judge prints one figure next to its aim.
func judge(b *testing.B, met bool, what, got, want string) {
	b.Helper()
	b.Log(figures.Aim(met, what, got, want))
}

// metric reports a figure instead of the time of the one iteration.
func metric(b *testing.B, n float64, unit string) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(n, unit)
}

// rate is how many a second.
func rate(n int, d time.Duration) float64 { return float64(n) / max(d.Seconds(), 1e-9) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", milliseconds(d)) }

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// counted counts the calls of a store and the operations of its commits.
type counted struct {
	store.Store
	gets, keys, ranges, commits, ops atomic.Int64
}

// Get implements store.Store.
func (c *counted) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	c.gets.Add(1)
	c.keys.Add(int64(len(keys)))
	return c.Store.Get(ctx, keys...)
}

// Range implements store.Store.
func (c *counted) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	c.ranges.Add(1)
	return c.Store.Range(ctx, s)
}

// Commit implements store.Store.
func (c *counted) Commit(ctx context.Context, id string, ops ...store.Op) error {
	c.commits.Add(1)
	c.ops.Add(int64(len(ops)))
	return c.Store.Commit(ctx, id, ops...)
}

func (c *counted) reset() {
	for _, n := range []*atomic.Int64{&c.gets, &c.keys, &c.ranges, &c.commits, &c.ops} {
		n.Store(0)
	}
}

// per prints the counts divided by n.
func (c *counted) per(n int) string {
	one := func(total *atomic.Int64) float64 { return float64(total.Load()) / float64(n) }
	return fmt.Sprintf("%.2f commits of %.1f operations, %.1f reads of %.1f records, %.1f ranges",
		one(&c.commits), float64(c.ops.Load())/float64(max(c.commits.Load(), 1)), one(&c.gets), one(&c.keys), one(&c.ranges))
}

// BenchmarkMachine names what the figures are measured on: its processor, its filesystem, and what those cost alone.
func BenchmarkMachine(b *testing.B) {
	var name syscall.Utsname
	kernel := runtime.GOOS
	if syscall.Uname(&name) == nil {
		kernel = text(name.Sysname[:]) + " " + text(name.Release[:])
	}
	b.Logf("%s, %d cores, %s/%s, kernel %s, %s", figures.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, kernel, runtime.Version())
	dir := b.TempDir()
	syncs := fsyncs(b, filepath.Join(dir, "fsync"))
	b.Logf("filesystem of %s: %s; 4 KiB and fsync there: p50 %s, p99 %s", os.TempDir(), filesystem(dir), ms(syncs.At(0.5)), ms(syncs.At(0.99)))
	b.Logf("to make a directory there and remove it: %s of processor time (ext4 without a journal looks past all that was removed in the last minutes)",
		ms(madeDirectory(b, filepath.Join(dir, "directories"))))
	b.Logf("user %d; load average before: %s", os.Geteuid(), figures.LoadAverage())
	metric(b, milliseconds(syncs.At(0.5)), "fsync-ms")
}

func text(chars []int8) string {
	var out []byte
	for _, c := range chars {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}

// filesystem is the type of the mount that a path lies on.
func filesystem(path string) string {
	data, _ := os.ReadFile("/proc/self/mounts")
	best, kind := "", "unknown"
	for scan := bufio.NewScanner(bytes.NewReader(data)); scan.Scan(); {
		f := strings.Fields(scan.Text())
		if len(f) < 3 || len(f[1]) < len(best) {
			continue
		}
		if rel, err := filepath.Rel(f[1], path); err == nil && filepath.IsLocal(rel) {
			best, kind = f[1], f[2]
		}
	}
	return kind
}

// fsyncs is what one small durable write costs here: the floor of every commit.
func fsyncs(b *testing.B, path string) (out figures.Sample) {
	b.Helper()
	f, err := os.Create(path)
	check(b, err)
	defer func() { check(b, f.Close()) }()
	block := make([]byte, 4096)
	for range 200 {
		began := time.Now()
		_, err := f.Write(block)
		check(b, errors.Join(err, f.Sync()))
		out = append(out, time.Since(began))
	}
	return out
}

// madeDirectory is the processor time of making a directory and removing it: a lifecycle does that five times.
func madeDirectory(b *testing.B, dir string) time.Duration {
	b.Helper()
	const n = 100
	check(b, os.Mkdir(dir, 0o700))
	before, _ := cpu()
	for i := range n {
		check(b, os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700))
	}
	check(b, os.RemoveAll(dir))
	after, _ := cpu()
	return (after - before) / n
}

// cpu is the processor time that this process and those of its descendants that have ended have used.
func cpu() (self, children time.Duration) {
	of := func(who int) time.Duration {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) != nil {
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return of(syscall.RUSAGE_SELF), of(syscall.RUSAGE_CHILDREN)
}

// proc reads a field in kB of /proc/PID/status or smaps_rollup, in bytes.
func proc(pid int, file, field string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == field {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, field)
}

// runners returns the processes that run a job for the given launcher.
func runners(parent int) (out []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The second field is the program's name in parentheses; it may hold anything.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 2 || string(f[1]) != strconv.Itoa(parent) {
			continue
		}
		if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && (bytes.Contains(args, []byte("\x00runner\x00")) || bytes.Contains(args, []byte("/dayfly-runner\x00"))) {
			out = append(out, pid)
		}
	}
	return out
}
