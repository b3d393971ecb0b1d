package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/test/figures"
)

// machine names what the figures were measured on.
func machine(b *bench) error {
	b.out.Heading("Machine")
	var name syscall.Utsname
	kernel := runtime.GOOS
	if syscall.Uname(&name) == nil {
		kernel = text(name.Sysname[:]) + " " + text(name.Release[:])
	}
	b.out.Line("%s, %d cores, %s/%s, kernel %s, %s", figures.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, kernel, runtime.Version())
	syncs, err := fsyncs(filepath.Join(b.temp, "fsync"))
	if err != nil {
		return err
	}
	b.out.Line("filesystem of %s: %s; 4 KiB and fsync there: p50 %s, p99 %s", filepath.Dir(b.temp), filesystem(b.temp), ms(syncs.At(0.5)), ms(syncs.At(0.99)))
	made, err := madeDirectory(filepath.Join(b.temp, "directories"))
	if err != nil {
		return err
	}
	b.out.Line("to make a directory there and remove it: %s of processor time (ext4 without a journal looks past all that was removed in the last minutes)", ms(made))
	b.out.Line("user %d; load average before: %s", os.Geteuid(), figures.LoadAverage())
	return nil
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
func fsyncs(path string) (out figures.Sample, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	block := make([]byte, 4096)
	for range 200 {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		out = append(out, time.Since(began))
	}
	return out, nil
}

// madeDirectory is the processor time of making a directory and removing it: a lifecycle does that five times.
func madeDirectory(dir string) (time.Duration, error) {
	const n = 100
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	before, _ := cpu()
	for i := range n {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			return 0, err
		}
	}
	err := os.RemoveAll(dir)
	after, _ := cpu()
	return (after - before) / n, err
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

// status reads a field in kB of /proc/PID/status, in bytes.
func status(pid int, field string) (int64, error) {
	return kilobytes(fmt.Sprintf("/proc/%d/status", pid), field)
}

// proportional is the memory of a process, of what it shares its part.
func proportional(pid int) (int64, error) {
	return kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
}

func kilobytes(path, field string) (int64, error) {
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
