package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/test/built"
)

// BenchmarkLifecyclesAgainstBase compares the processor time of a lifecycle with that of another build, in turns, so
// that what else the machine does meets both. BASE is the other build's `dayfly`; its dayfly-runner lies beside it.
func BenchmarkLifecyclesAgainstBase(b *testing.B) {
	base := os.Getenv("BASE")
	if base == "" {
		b.Skip("BASE names no other build of dayfly")
	}
	const workspaces, each = 40, 20
	old, now := serve(b, base), serve(b, program(b, "dayfly"))
	for _, s := range []*served{old, now} {
		for i := range workspaces {
			s.put(b, fmt.Sprintf("ws-%02d", i), "true")
		}
		s.many(b, 2*workspaces, workspaces) // until everything is warm
	}
	var ratios, olds, news []float64
	for i := range quick(40, 10) {
		turn := []*served{old, now}
		if i%2 == 1 {
			slices.Reverse(turn)
		}
		used := map[*served]float64{}
		for _, s := range turn {
			before := s.cpu(b)
			s.many(b, each, workspaces)
			used[s] = milliseconds(s.cpu(b)-before) / each
		}
		ratios, olds, news = append(ratios, used[now]/used[old]), append(olds, used[old]), append(news, used[now])
	}
	b.Logf("processor time of a lifecycle, `up` with its runner and command: %s ms, of the other build %s ms; %d rounds of %d each, in turns",
		middle(news, 1), middle(olds, 1), len(ratios), each)
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	judge(b, median <= 0.65, "processor time of a lifecycle against the other build", middle(ratios, 2), "<= 0.65")
	metric(b, median, "of-base")
}

// middle tells a median, and between which values most of the others lie.
func middle(of []float64, digits int) string {
	s := slices.Sorted(slices.Values(of))
	at := func(p float64) string { return strconv.FormatFloat(s[int(p*float64(len(s)-1))], 'f', digits, 64) }
	return fmt.Sprintf("%s (%s to %s)", at(0.5), at(0.1), at(0.9))
}

// served is a `dayfly up` that is a process of its own.
type served struct {
	world
	*built.Up
}

// serve runs the program at path as `up` until the benchmark ends.
func serve(b *testing.B, path string) *served {
	b.Helper()
	root := directory(b)
	s := &served{world: world{source: filepath.Join(root, "source")}}
	for _, dir := range []string{s.source, filepath.Join(s.source, "empty")} {
		check(b, errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)))
	}
	data := filepath.Join(root, "data")
	c := exec.CommandContext(context.WithoutCancel(b.Context()), path, "up", "--data", data, "--listen", "127.0.0.1:0",
		"--source-root", s.source, "--concurrency", "16", "--deploy-target", "process")
	c.Env = []string{"HOME=" + root, "PATH=" + os.Getenv("PATH")}
	var err error
	s.Up, err = built.StartUp(b.Context(), c, data)
	check(b, err)
	b.Cleanup(func() {
		if err := s.Stop(); err != nil {
			b.Errorf("%s up: %v\n%s", path, err, s.Said())
		}
	})
	s.cl, err = client.New(client.Config{
		URL: s.URL, Token: func() redact.String { return redact.New(s.Token) },
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
	})
	check(b, err)
	return s
}

// cpu is the processor time that the process and those of its descendants that have ended have used.
func (s *served) cpu(b *testing.B) (used time.Duration) {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	check(b, err)
	// Behind the program's name in parentheses; utime, stime, cutime and cstime, in ticks of 10 ms.
	for _, f := range bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])[11:15] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		check(b, err)
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return used
}
