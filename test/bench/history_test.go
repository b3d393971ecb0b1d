package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// BenchmarkHistory compares an `up` whose launcher knows many tasks that ended in the last hours with one that knows
// none: processor time of lifecycles of `true`, in turns. Then it opens a launcher on the records of 100,000.
func BenchmarkHistory(b *testing.B) {
	const ended, restart, batch = 500_000, 100_000, 50
	rounds := quick(20, 8)
	none, many := withHistory(b, 0), withHistory(b, ended)
	for _, w := range []*historic{none, many} {
		w.many(b, batch, 10) // until everything is warm
	}
	var all, self figures.Sample // as durations, so that a Sample takes them: 1 s is a ratio of 1
	for i := range rounds {
		pair := []*historic{none, many}
		if i%2 == 1 {
			pair[0], pair[1] = many, none
		}
		used := map[*historic][2]time.Duration{}
		for _, w := range pair {
			selfBefore, childrenBefore := w.cpu(b)
			w.many(b, batch, 10)
			selfAfter, childrenAfter := w.cpu(b)
			used[w] = [2]time.Duration{selfAfter - selfBefore, selfAfter - selfBefore + childrenAfter - childrenBefore}
		}
		ratio := func(what int) time.Duration {
			return time.Duration(float64(time.Second) * float64(used[many][what]) / float64(max(used[none][what], 1)))
		}
		self, all = append(self, ratio(0)), append(all, ratio(1))
	}
	b.Logf("processor time of a lifecycle with %d ended tasks against none, %d rounds of %d each: x%.3f (quartiles x%.3f to x%.3f); of `up` alone x%.3f (x%.3f to x%.3f)",
		ended, rounds, batch, all.At(0.5).Seconds(), all.At(0.25).Seconds(), all.At(0.75).Seconds(), self.At(0.5).Seconds(), self.At(0.25).Seconds(), self.At(0.75).Seconds())
	judge(b, all.At(0.5).Seconds() < 1.05, fmt.Sprintf("lifecycle with %d ended tasks", ended), fmt.Sprintf("x%.3f", all.At(0.5).Seconds()), "< x1.05")
	took, used, memory := reopened(b, restart)
	b.Logf("restart with %d ended tasks: %s on the clock; %.0f bytes of memory a task", restart, ms(took), float64(memory)/restart)
	judge(b, used < time.Second, fmt.Sprintf("processor time of a restart with %d ended tasks", restart), ms(used), "< 1 s")
	metric(b, all.At(0.5).Seconds(), "ratio")
}

// historic is an `up` of its own and the way to it.
type historic struct {
	world
	up *upProcess
}

// withHistory starts an `up` that remembers tasks.
func withHistory(b *testing.B, ended int) *historic {
	b.Helper()
	root := directory(b)
	w := &historic{world: world{source: filepath.Join(root, "source")}}
	for _, dir := range []string{w.source, filepath.Join(w.source, "empty")} {
		check(b, errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)))
	}
	w.up = startUp(b, root, w.source, 8)
	w.up.stop()
	if ended > 0 {
		remember(b, filepath.Join(root, "data", "jobs"), ended)
	}
	w.up = startUp(b, root, w.source, 8)
	w.cl = w.up.cl
	for i := range 10 {
		w.put(b, fmt.Sprintf("ws-%02d", i), "true")
	}
	return w
}

// cpu is the processor time of the process, and of those of its descendants that have ended.
func (w *historic) cpu(b *testing.B) (self, children time.Duration) {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.up.PID()))
	check(b, err)
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	ticks := func(i int) time.Duration {
		n, err := strconv.Atoi(string(f[i]))
		check(b, err)
		return time.Duration(n) * 10 * time.Millisecond // the system's unit on every platform of ours
	}
	return ticks(11) + ticks(12), ticks(13) + ticks(14)
}

// remember writes the records that a launcher leaves of tasks which ended in the last hundred minutes.
func remember(b *testing.B, dir string, ended int) {
	b.Helper()
	check(b, errors.Join(os.MkdirAll(dir, 0o711), os.Chmod(dir, 0o711)))
	f, err := os.Create(filepath.Join(dir, "journal-0"))
	check(b, err)
	w := bufio.NewWriter(f)
	at := time.Now().Add(-100 * time.Minute)
	for i := range ended {
		ref, when := fmt.Sprintf("task-%032x", i), at.Add(time.Duration(i)*100*time.Minute/time.Duration(ended)).UTC().Format(time.RFC3339Nano)
		begun := fmt.Sprintf(`{"ref":"%s","workflow":"wf_history%010d","attempt":1,"placement":"default","created_at":"%s"`, ref, i, when)
		_, _ = fmt.Fprintf(w, `%s,"pid":%d,"pid_start":%d,"boot":"a5ab53ba-5c23-4a0b-8d8c-a39a5e7a3a9e/42","engine_uid":%d}`+"\n", begun, 1000+i%30_000, 100_000+i, 200_000+i%10_000)
		_, _ = fmt.Fprintf(w, `%s,"stopped_at":"%s","exit_code":0,"text":"the runner ended with exit code 0","pid":0,"pid_start":0,"boot":""}`+"\n", begun, when)
		_, _ = fmt.Fprintf(w, `{"ref":"%s","note":"settled"}`+"\n", ref)
	}
	check(b, errors.Join(w.Flush(), f.Close()))
}

// reopened opens a launcher on records and says how long that took, how much of that the processors worked, and how
// much memory it needs.
func reopened(b *testing.B, ended int) (took, used time.Duration, memory int64) {
	b.Helper()
	dir := filepath.Join(directory(b), "jobs")
	remember(b, dir, ended)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	usedBefore, _ := cpu()
	l, err := process.New(process.Config{Machine: launcher.Machine{Dir: dir}, Command: []string{"/bin/true"}, NoCgroup: true})
	took = time.Since(began)
	usedAfter, _ := cpu()
	check(b, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	tasks, err := l.Describe(b.Context(), fmt.Sprintf("task-%032x", ended-1))
	check(b, errors.Join(err, l.Close(context.WithoutCancel(b.Context()))))
	if len(tasks) != 1 || tasks[0].Phase != launcher.Stopped {
		b.Fatalf("the last task is not known: %+v", tasks)
	}
	return took, usedAfter - usedBefore, int64(after.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // far below
}
