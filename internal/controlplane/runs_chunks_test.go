package controlplane_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob"
	"github.com/dayfly-dev/dayfly/internal/blob/files"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// chunks are the records of a log.
func (w *world) chunks(id string) []store.Record {
	w.t.Helper()
	var all []store.Record
	for scan := (store.Scan{Part: record.WorkflowKey(id).Part, From: "log/", To: "log0", Limit: 1000}); ; {
		page, err := w.store.Range(w.ctx(), scan)
		w.must(err)
		if all = append(all, page.Records...); page.Next == "" {
			return all
		}
		scan.After = page.Next
	}
}

func (w *world) send(job api.Job, r api.Run, from int, lines ...api.LogLine) {
	w.t.Helper()
	out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{First: int64(from), Lines: lines})
	if err != nil || out.Next != int64(from+len(lines)) {
		w.t.Fatalf("from %d on: next %d, %v", from, out.Next, err)
	}
}

// Many writers with overlapping lines, as a lost answer and a second call make them, leave each line once and in order.
func TestRace_WritersOfOneLog(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		const lines = 60
		var all sync.WaitGroup
		for n := range 4 {
			rnd := rand.New(rand.NewPCG(7, uint64(n))) //nolint:gosec // a series, not a secret
			all.Go(func() {
				for next := int64(0); next < lines; {
					first := max(0, next-int64(rnd.IntN(5)))
					to := min(lines, int(next)+1+rnd.IntN(9))
					out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{First: first, Lines: numbered(int(first), to)})
					if err != nil {
						t.Error(err)
						return
					}
					next = out.Next
				}
			})
		}
		all.Wait()
		w.wantLog(wf.ID, 1, texts(numbered(0, lines))...)
	})
}

// longLine is a line that no compression makes short.
func longLine(seed, size int) api.LogLine {
	r := rand.New(rand.NewPCG(uint64(seed), 1)) //nolint:gosec // a series, not a secret
	text := make([]byte, size)
	for i := range text {
		text[i] = byte(' ' + r.IntN(95))
	}
	return api.LogLine{Text: string(text)}
}

// broken is a place of blobs that fails.
type broken struct {
	blob.Store
	err error
}

func (b *broken) Put(ctx context.Context, name string, body []byte) error {
	if b.err != nil {
		return b.err
	}
	return b.Store.Put(ctx, name, body)
}

// Lines beyond the first MiB of a log lie beside the records, and read like the others.
func TestLogs_BeyondTheFirstMiBLieInBlobs(t *testing.T) {
	w := newWorld(t, memory.New())
	place := &broken{Store: files.New(filepath.Join(t.TempDir(), "blobs"))}
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Blobs: place})
	w.workspace("net")
	wf := w.submit("net", workflow.Update)
	job, r := w.started()
	var want []string
	sent := 0
	send := func(n, size int) {
		t.Helper()
		for range n {
			line := longLine(sent, size)
			w.send(job, r, sent, line)
			want, sent = append(want, line.Text), sent+1
		}
	}
	send(20, 60<<10)
	inBlobs := func() (n, size int) {
		for _, rec := range w.chunks(wf.ID) {
			chunk, err := record.DecodeChunk(rec)
			w.must(err)
			if chunk.Blob != "" {
				if !strings.HasPrefix(chunk.Blob, "logs/") || len(rec.Value) > 300 {
					t.Errorf("a chunk of %d bytes names %q", len(rec.Value), chunk.Blob)
				}
				n++
			}
			size += len(rec.Value)
		}
		return n, size
	}
	if n, size := inBlobs(); n != 2 || size < record.BlobAfter*8/10 || size > record.BlobAfter+120<<10 {
		t.Errorf("%d chunks lie in blobs, the others have %d bytes", n, size)
	}
	place.err = &workflow.Error{Kind: workflow.ErrBusy, Message: "injected"}
	_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{First: int64(sent), Lines: []api.LogLine{longLine(sent, 100)}})
	wantErr(t, err, workflow.ErrBusy)
	place.err = nil
	send(30, 100) // small ones too
	w.wantLog(wf.ID, 1, want...)
	page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 1, 0, 0, 0)
	if err != nil || !slices.Equal(texts(page.Lines), want) {
		t.Errorf("one page has %d lines, %v", len(page.Lines), err)
	}

	// A blob that is gone takes no others with it, and one that cannot be read now does not read as if it were gone.
	elsewhere := files.New(t.TempDir())
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Blobs: elsewhere})
	page, err = w.plane.Logs(w.ctx(), w.admin, wf.ID, 1, 17, 3, 0)
	if err != nil || len(page.Lines) != 3 || page.Lines[0].Text != want[17] || page.Lines[1].Text != "[dayfly] lines 18 to 18 are no longer kept" {
		t.Errorf("got %.300v, %v", page.Lines, err)
	}
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory})
	if _, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 1, 20, 3, 0); err == nil {
		t.Error("without a place of blobs their lines were read")
	}
}

// A batch becomes chunks that a reader can take one by one, whatever its lines are.
func TestLogs_ChunksHaveBounds(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	wf := w.submit("net", workflow.Update)
	job, r := w.started()
	var want []api.LogLine
	for n := range 5 {
		want = append(want, longLine(n, 58<<10))
	}
	w.send(job, r, 0, want...)
	want = append(want, numbered(5, 2600)...)
	w.send(job, r, 5, want[5:]...)
	for _, rec := range w.chunks(wf.ID) {
		chunk, err := record.DecodeChunk(rec)
		w.must(err)
		if n := chunk.Next - chunk.First; len(chunk.Lines) > record.MaxChunk || n > record.MaxChunkLines {
			t.Errorf("the chunk at %d has %d lines in %d bytes", chunk.First, n, len(chunk.Lines))
		}
	}
	var got []string
	for offset := int64(0); ; {
		page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 1, offset, 0, 0)
		w.must(err)
		if len(page.Lines) == 0 {
			break
		}
		got, offset = append(got, texts(page.Lines)...), page.Next
	}
	if !slices.Equal(got, texts(want)) {
		t.Errorf("read %d lines, want %d", len(got), len(want))
	}
}

// A page reads little more than it shows, in few calls, wherever it is and however the lines came.
func TestLogs_APageReadsLittleMoreThanItShows(t *testing.T) {
	for name, batch := range map[string]int{"many small batches": 40, "large batches": 2500, "lines one by one": 1} {
		t.Run(name, func(t *testing.T) {
			meter := dynamodbtest.NewMeter(memory.New())
			w := newWorld(t, meter)
			w.workspace("net")
			wf := w.submit("net", workflow.Update)
			job, r := w.started()
			const lines, limit = 5000, 1000
			for n := 0; n < lines; n += batch {
				some := numbered(n, min(n+batch, lines))
				for i := range some {
					some[i].At, some[i].Text = w.clock.now(), some[i].Text+longLine(n+i, 60).Text
				}
				w.send(job, r, n, some...)
			}
			whole := 0
			for _, rec := range w.chunks(wf.ID) {
				whole += dynamodbtest.ItemSize(rec)
			}
			share := float64(whole) / lines * limit / 4096 // read units of a page's lines
			for _, offset := range []int64{0, 20, 1000, 3333, 4000} {
				meter.Reset()
				page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 1, offset, limit, 0)
				if err != nil || len(page.Lines) != limit || page.Next != offset+limit {
					t.Fatalf("from %d on: %d lines to %d, %v", offset, len(page.Lines), page.Next, err)
				}
				used, calls := meter.Used()
				// The workflow, who reads it and how it ended; a part of the first and of the last chunk.
				if limit := 2.5*share + 8; used.Read > limit || calls > 30 {
					t.Errorf("from %d on: %.0f read units in %d calls, want at most %.0f in 30", offset, used.Read, calls, limit)
				}
			}
			meter.Reset()
			if _, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 1, 10, 1, 0); err != nil {
				t.Fatal(err)
			}
			if used, _ := meter.Used(); used.Read > 2*share+8 {
				t.Errorf("a page of one line: %.0f read units", used.Read)
			}
		})
	}
}

// Lines of a log cost the record that they make: no transaction, and no sign of life with each.
func TestLogs_ABatchIsOnePlainWrite(t *testing.T) {
	meter := dynamodbtest.NewMeter(memory.New())
	w := newWorld(t, meter)
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	var units []string
	for n := range 10 {
		meter.Reset()
		w.send(job, r, n, numbered(n, n+1)...)
		used, _ := meter.Used()
		units = append(units, fmt.Sprint(used.Write))
		w.clock.advance(5 * time.Second)
	}
	// Every 20 s a sign of life of the run and one of its pool.
	if got, want := strings.Join(units, " "), "1 1 1 1 3 1 1 1 3 1"; got != want {
		t.Errorf("write units: got %s, want %s", got, want)
	}
}

// packed is the end of a log as a runner sends it with its result.
func packed(t *testing.T, first int64, lines ...api.LogLine) *api.LogTail {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, l := range lines {
		if _, err := z.Write(l.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &api.LogTail{First: first, Lines: b.Bytes()}
}

// A runner's last call brings the remaining steps and lines; the result counts even if these fail.
func TestResult_TakesTheLastStepsAndLines(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		step := func(seq int, status workflow.StepStatus) api.Step {
			return api.Step{Seq: seq, Name: fmt.Sprint("step ", seq), Status: status}
		}
		for name, c := range map[string]struct {
			tail *api.LogTail
			next int64
			log  []string
		}{
			"all":        {packed(t, 2, numbered(2, 5)...), 5, texts(numbered(0, 5))},
			"again":      {packed(t, 0, numbered(0, 4)...), 4, texts(numbered(0, 4))},
			"after more": {packed(t, 9, numbered(9, 12)...), 3, texts(numbered(0, 3))},
			"none":       {nil, 0, texts(numbered(0, 3))},
			"nonsense":   {&api.LogTail{Lines: []byte("x")}, 0, texts(numbered(0, 3))},
		} {
			w.workspace(strings.ReplaceAll(name, " ", "-"))
			wf := w.submit(strings.ReplaceAll(name, " ", "-"), workflow.Update)
			job, r := w.started()
			w.send(job, r, 0, numbered(0, 3)...)
			_, err := w.plane.Steps(w.ctx(), job.Token, r, api.Steps{Steps: []api.Step{step(1, workflow.StepRunning)}})
			w.must(err)
			in := api.Handover{
				Result: api.Result{Outcome: workflow.Succeeded, LogEnd: int64(len(c.log))},
				Steps:  []api.Step{step(1, workflow.StepSucceeded), step(2, workflow.StepSkipped)}, Tail: c.tail,
			}
			for range 2 { // a repeat is answered in the same way
				out, err := w.plane.Result(w.ctx(), job.Token, r, in)
				if err != nil || out.Next != c.next {
					t.Errorf("%s: next %d, %v, want %d", name, out.Next, err, c.next)
				}
			}
			if got, done := w.logOf(wf.ID, 1); !done || !slices.Equal(got, c.log) {
				t.Errorf("%s: got %q, done %v", name, got, done)
			}
			shown, err := w.plane.Workflow(w.ctx(), w.admin, wf.ID)
			w.must(err)
			if len(shown.Steps) != 2 || shown.Steps[0].Status != workflow.StepSucceeded || shown.Steps[1].Status != workflow.StepSkipped {
				t.Errorf("%s: the steps are %+v", name, shown.Steps)
			}
			w.is(wf.ID, workflow.Succeeded, workflow.ReasonNone)
		}
	})
}

// The answer to a start is also that to the question that a runner asks next.
func TestStart_AnswersWithTheSpec(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Update)
	job := w.claimOne()
	w.launch(job, "task")
	r := run(job, "task", 'a')
	for range 2 {
		got, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
		w.must(err)
		want, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		if d := cmp.Diff(&want, got.Spec); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	if got, err := w.plane.Start(w.ctx(), job.Token, run(job, "task", 'b'), api.Start{}); err == nil || got.Spec != nil {
		t.Errorf("another boot got %+v, %v", got, err)
	}
}
