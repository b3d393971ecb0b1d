package taskdir_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// entry is a task without a process. It counts how often any was looked at.
type entry struct {
	taskdir.Record
	looks *atomic.Int64
}

func (e *entry) Base() *taskdir.Record { e.looks.Add(1); return &e.Record }

func (e *entry) Phase() launcher.Phase {
	e.looks.Add(1)
	if e.StoppedAt.IsZero() {
		return launcher.Running
	}
	return launcher.Stopped
}

func (e *entry) Where() (key string, value any) { return "nowhere", 0 }

// home is the directory of a launcher whose tasks do nothing.
type home struct {
	*taskdir.Dir[*entry]
	looks atomic.Int64
}

// Stop implements launcher.Launcher.
func (h *home) Stop(context.Context, string, string) error { return launcher.ErrNotFound }

// openHome opens it until the test ends, or until it is closed.
func openHome(t testing.TB, dir string, now func() time.Time) *home {
	t.Helper()
	d, err := taskdir.Open[*entry](launcher.Machine{Dir: dir, Now: now}, 0, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	h := &home{Dir: d}
	d.Start = func(_ context.Context, ref string, r launcher.Request) (*entry, error) {
		e := &entry{d.RecordOf(ref, r), &h.looks}
		return e, d.Write(ref, e)
	}
	d.Refusal = func(err error) *launcher.Refusal { return &launcher.Refusal{Text: err.Error()} }
	t.Cleanup(func() { h.close(t) })
	if err := d.Read(func(b []byte) (*entry, error) {
		e := &entry{looks: &h.looks}
		return e, errors.Join(json.Unmarshal(b, e), e.Check())
	}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *home) close(t testing.TB) {
	t.Helper()
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
}

func request(n int) launcher.Request {
	return launcher.Request{Needs: task.Needs{Attempt: 1, Size: "small"}, Workflow: fmt.Sprintf("wf-%d", n), Placement: "here", Ticket: "t", Relay: "r"}
}

func (h *home) launch(t testing.TB, n int) (ref string) {
	t.Helper()
	made, err := h.Launch(t.Context(), request(n))
	if err != nil {
		t.Fatal(err)
	}
	return made.Ref
}

// end ends a task, as a launcher does that has proven it.
func (h *home) end(t testing.TB, ref string) {
	t.Helper()
	h.Mu.Lock()
	defer h.Mu.Unlock()
	ended := *h.Entries[ref]
	ended.StoppedAt, ended.Text = h.Now().UTC(), "it is over"
	ended.Since = ended.StoppedAt
	if err := h.WriteEnd(ref, &ended); err != nil {
		t.Fatal(err)
	}
	h.Ended(&ended)
}

func still(at time.Time) func() time.Time { return func() time.Time { return at } }

func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// How many tasks have ended must not matter to the next one: neither to its launch nor to its end nor to a list.
func TestHistory_IsNotLookedAtForATask(t *testing.T) {
	per := map[int]int64{}
	for _, ended := range []int{10, 3000} {
		h := openHome(t, t.TempDir(), still(time.Unix(1000, 0)))
		for i := range ended {
			ref := h.launch(t, i)
			h.end(t, ref)
			h.Acknowledge(ref)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped, watched := make(chan string), make(chan error)
		go func() {
			watched <- h.Watch(ctx, func(_ context.Context, t launcher.Task) { stopped <- t.Ref })
		}()
		first := h.launch(t, ended) // until its stop is reported, the watch may be at the beginning
		h.end(t, first)
		if got := <-stopped; got != first {
			t.Fatalf("got the stop of %s, want %s", got, first)
		}
		h.Acknowledge(first)
		before := h.looks.Load()
		ref := h.launch(t, ended+1)
		h.end(t, ref)
		if got := <-stopped; got != ref {
			t.Fatalf("got the stop of %s, want %s", got, ref)
		}
		if tasks, err := h.List(t.Context()); err != nil || len(tasks) != 1 || tasks[0].Ref != ref {
			t.Errorf("got %+v, %v; want the one that is not acknowledged", tasks, err)
		}
		h.Acknowledge(ref)
		if tasks, err := h.Describe(t.Context(), ref); err != nil || len(tasks) != 1 {
			t.Errorf("got %+v, %v; want the task", tasks, err)
		}
		per[ended] = h.looks.Load() - before
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
	}
	if per[10] != per[3000] {
		t.Errorf("looked %d times at tasks with 10 in the past, and %d times with 3000", per[10], per[3000])
	}
}

func TestRestart_NobodyIsToldTwice(t *testing.T) {
	dir, now := t.TempDir(), still(time.Unix(1000, 0))
	h := openHome(t, dir, now)
	var refs []string
	for i := range 4 {
		refs = append(refs, h.launch(t, i))
	}
	for _, ref := range refs[:3] {
		h.end(t, ref)
	}
	h.Acknowledge(refs[0])
	h.Acknowledge(refs[2])
	h.Acknowledge(refs[3])                           // it lives: that means nothing
	if err := h.Forget(h.launch(t, 4)); err != nil { // as one whose container never began
		t.Fatal(err)
	}
	h.close(t)
	for start := range 3 {
		h = openHome(t, dir, now)
		if start == 0 {
			h.end(t, refs[3])
		}
		pending := []string{refs[1], refs[3]}
		slices.Sort(pending)
		launchertest.CheckAcknowledged(t, h, pending, []string{refs[0], refs[2]})
		if len(h.Entries) != len(refs) {
			t.Errorf("%d tasks are known, want %d: one was forgotten", len(h.Entries), len(refs))
		}
		if again := h.launch(t, 0); again != refs[0] {
			t.Errorf("the same request made task %s, want %s", again, refs[0])
		}
		h.close(t)
	}
	before := names(t, dir)
	h.Acknowledge(refs[1])
	if diff := cmp.Diff(before, names(t, dir)); diff != "" {
		t.Errorf("a closed launcher wrote to a directory that may be another's (-before +after):\n%s", diff)
	}
}

// A journal is as long as what is known, whatever else it was given, and one long task keeps no more than its record.
func TestJournal_KeepsWhatIsKnownAndNoMore(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1000, 0)
	now := func() time.Time { return at }
	h := openHome(t, dir, now)
	long, late := h.launch(t, -1), h.launch(t, -2)
	h.end(t, late)
	h.Acknowledge(late)
	maxFiles, refs := 0, []string{}
	for i := range 100 {
		at = at.Add(5 * time.Minute)
		ref := h.launch(t, i)
		h.end(t, ref)
		h.Acknowledge(ref)
		refs = append(refs, ref)
		maxFiles = max(maxFiles, len(names(t, dir))-1)
		if i == 50 {
			h.close(t)
			h = openHome(t, dir, now)
		}
	}
	if maxFiles > 20 {
		t.Errorf("%d files at once, want those of two hours and a quarter, and of as long before the restart", maxFiles)
	}
	h.close(t)
	h = openHome(t, dir, now)
	launchertest.CheckAcknowledged(t, h, nil, refs[len(refs)-24:])
	if left := h.Unended(); !slices.Equal(left, []string{long}) {
		t.Errorf("living: got %v, want %s", left, long)
	}
	if again := h.launch(t, -1); again != long {
		t.Errorf("the same request made task %s, want %s", again, long)
	}
	at = at.Add(taskdir.Keep)
	h.end(t, long)
	h.Acknowledge(long)
	at = at.Add(taskdir.Keep)
	if tasks, err := h.List(t.Context()); err != nil || len(tasks) != 0 || len(h.Entries) != 0 {
		t.Errorf("got %+v, %v and %d known; want nothing", tasks, err, len(h.Entries))
	}
	if diff := cmp.Diff([]string{"lock"}, names(t, dir)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
}

// Somebody emptied a file. The launcher still knows its tasks and works on.
func TestJournal_WorksOnWithoutAnOldFile(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1000, 0)
	h := openHome(t, dir, func() time.Time { return at })
	long := h.launch(t, 0)
	if err := os.Truncate(filepath.Join(dir, "journal-0"), 0); err != nil {
		t.Fatal(err)
	}
	at = at.Add(2 * taskdir.Keep)
	h.end(t, h.launch(t, 1))
	if left := h.Unended(); !slices.Equal(left, []string{long}) {
		t.Errorf("living: got %v, want %s", left, long)
	}
}

// Whatever a kill, a power failure or a bad disk made of the files: what can be read counts, nothing else is taken for
// a task, and the launcher works on.
func FuzzJournal(f *testing.F) {
	ref := "task-" + strings.Repeat("0", 32)
	record := `{"ref":"` + ref + `","workflow":"w","attempt":1}` + "\n"
	for _, b := range []string{
		"", record, record + record[:20], record + `{"ref":"` + ref + `","note":"settled"}` + "\n", record + `{"ref":"` + ref + `","note":"go`,
		record + `{"ref":"` + ref + `","note":"gone"}` + "\n", `{"ref":"../x"}` + "\n" + record, "\x00\x00\x00\n" + record, record + "\n\n{}\n",
		strings.Replace(record, "}", `,"stopped_at":"2026-01-02T03:04:05Z"}`, 1) + record,
	} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "journal-7"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		h := openHome(t, dir, still(time.Unix(1000, 0)))
		for ref, e := range h.Entries {
			if !taskdir.IsRef(ref) || e.Ref != ref || e.Workflow == "" || !bytes.Contains(b, []byte(ref)) {
				t.Errorf("took %+v for a task", e.Record)
			}
		}
		before := len(h.Entries)
		made := h.launch(t, 1)
		known := 1
		if before == len(h.Entries) { // it happens to be the request of one of them
			known = 0
		}
		h.close(t)
		h = openHome(t, dir, still(time.Unix(1000, 0)))
		if h.Entries[made] == nil || len(h.Entries) != before+known {
			t.Errorf("%d tasks before a launch and %d after the next start", before, len(h.Entries))
		}
	})
}
