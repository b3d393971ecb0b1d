package e2e_test

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// peakMemory is the most memory that a process ever had, in KiB; 0 means that it is gone.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	return 0 // it has ended and was not waited for yet
}

// long is more in a long hunt than in CI.
var long = flag.Int("lines", 20_000, "how many lines a log has that is followed while the relay is away")

// R5: a long log arrives complete and in order although the relay cannot pass it on for most of it, a
// reader follows it meanwhile, and the runner's memory stays bounded.
func TestLogs_ArriveCompleteDespiteARelayOutage(t *testing.T) {
	t.Parallel()
	total := *long
	if testing.Short() {
		total = 20_000
	}
	const most = 64 << 10 // KiB
	way := &road{}
	changes := []func(*embedded.UpConfig){func(c *embedded.UpConfig) { c.Agent.WrapTransport = way.wrap }}
	measured := !testing.Short() && runtime.GOOS == "linux"
	if measured {
		bin := binary(t) // without the race detector, under which memory says nothing
		changes = append(changes, func(c *embedded.UpConfig) { c.Agent.Runner = []string{bin, "runner"} })
	} else {
		t.Log("the runner's memory is not measured: that takes the long test, on linux")
	}
	w := start(t, changes...)
	// One line in 100 has 2,000 characters; the others are as long as an engine's.
	text := func(n int) string {
		if n%100 == 99 {
			return fmt.Sprintf("line %06d %s", n, strings.Repeat("long ", 400))
		}
		return fmt.Sprintf("line %06d of a log that an engine might have written while it worked", n)
	}
	early := total / 10
	for name, part := range map[string][2]int{"early.txt": {0, early}, "late.txt": {early, total}} {
		var b bytes.Buffer
		for n := part[0]; n < part[1]; n++ {
			b.WriteString(text(n) + "\n")
		}
		w.write(name, b.String())
	}
	w.put("chatty", map[string]string{"update": `
cat early.txt
until [ -e "$SHARED/away" ]; do sleep 0.02; done
cat late.txt
touch "$SHARED/said"
`})
	id := w.Update("chatty")

	// follow reads on from where it was until the engine's line before end, and looks at the runner.
	offset, n, peak, pid := int64(0), 0, 0, 0
	follow := func(end int) {
		t.Helper()
		uptest.Grows(t, "lines of the log", end, func() int {
			page, err := w.Client.Logs(t.Context(), id, 0, offset, 1000, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if page.Next != offset+int64(len(page.Lines)) {
				t.Fatalf("from %d on: got %d lines and then %d", offset, len(page.Lines), page.Next)
			}
			offset = page.Next
			for _, l := range page.Lines {
				if n == 0 && !strings.HasPrefix(l.Text, "line ") {
					continue // the runner's own words come first
				}
				if l.Text != text(n) || l.More || l.Step != "run" {
					t.Fatalf("line %d: got %.100q in step %q, want %.100q", n, l.Text, l.Step, text(n))
				}
				n++
			}
			if n > 0 && measured {
				if pid == 0 {
					pid = w.runnerPID(w.Workflow(id).Task)
				}
				peak = max(peak, peakMemory(t, pid))
			}
			return n
		})
	}
	follow(early - 100) // what has not filled a batch yet may wait for more

	var refused atomic.Int64
	way.close(func(r *http.Request) bool {
		isLog := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/logs")
		if isLog {
			refused.Add(1)
		}
		return isLog
	})
	w.signal("away")
	w.shows("said")
	uptest.Eventually(t, "calls that fail", func() bool { return refused.Load() > 1 })
	if page, err := w.Client.Logs(t.Context(), id, 0, offset, 1000, 0); err != nil || n+len(page.Lines) > early || page.Done {
		t.Errorf("while the relay is away: got %d lines, done %v, %v", n+len(page.Lines), page.Done, err)
	}
	way.open()
	follow(total)

	if measured {
		t.Logf("the runner's memory was at most %d KiB with %d lines (built without the race detector)", peak, total)
		if peak == 0 || peak > most {
			t.Errorf("the runner's memory: got %d KiB, want at most %d", peak, most)
		}
	}
	got := w.Over(id)
	w.wants(got, workflow.Succeeded, "")
	page, err := w.Client.Logs(t.Context(), id, 0, offset, 1000, 0)
	if err != nil || !page.Done || len(page.Lines) > 0 || got.Result == nil || got.Result.LogEnd != offset {
		t.Errorf("at the end: got %d more lines, done %v, %v, and the result %+v; want done at line %d", len(page.Lines), page.Done, err, got.Result, offset)
	}
}

// O15: a log that is full says so, keeps room for why the run failed, and is done.
func TestLogs_EndAtTheirQuotaAndSayWhyTheRunFailed(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *embedded.UpConfig) { c.Server.LogQuota = 1 << 20 })
	w.put("chatty", map[string]string{"update": `
line=$(printf '%01000d' 0)
for n in $(seq 3000); do echo "$n $line"; done
exit 3
`})
	id := w.Update("chatty")
	w.wants(w.Over(id), workflow.Failed, workflow.ReasonStepFailed)
	got := w.Log(id, 0)
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	full := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "[dayfly] log_full: a log holds at most 1 MiB") })
	if len(got) > 1<<20 || full < 700 || full > len(lines)-2 || !strings.HasPrefix(lines[len(lines)-1], "[dayfly] failed (step_failed): ") {
		t.Errorf("%d bytes, full at line %d of %d, which ends with %.200q", len(got), full, len(lines), lines[len(lines)-1])
	}
	if page, err := w.Client.Logs(t.Context(), id, 0, 1<<20, 10, 0); err != nil || !page.Done {
		t.Errorf("at its end: done %v, %v", page.Done, err)
	}
}
