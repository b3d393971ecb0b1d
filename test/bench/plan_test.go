package bench_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// maxUsed is the aim for processor time, in that of init and plan by hand. An earlier measurement found otf, with its agent
// and PostgreSQL, at 0.88 of this program before it kept the versions of engines. That was 2.37.
const maxUsed = 2.08

// BenchmarkPlan measures a preview as somebody who follows it sees it, and its processor time; and the same init and plan
// by hand, in turns.
func BenchmarkPlan(b *testing.B) {
	const resources = 5
	engine, name := anEngine(b)
	s := serve(b, program(b, "dayfly"))
	dir, direct := filepath.Join(s.source, "code"), b.TempDir()
	check(b, writeCode(dir, resources))
	_, _, err := s.cl.PutWorkspace(b.Context(), api.Workspace{
		Name: "code", RunSettings: api.RunSettings{
			Engine: name, Source: api.Source{Directory: dir}, Variables: map[string]any{"n": 1},
			Environment: map[string]string{"CHECKPOINT_DISABLE": "1"},
		},
	})
	check(b, err)
	var alone, first, recorded, seen, whole figures.Sample
	var aloneUsed, used, follower time.Duration // of processors
	rounds := quick(40, 10)
	for i := range rounds + 1 {
		_, before := cpu()
		d := engineAlone(b, engine, direct, resources, 1, "init", "plan")
		_, after := cpu()
		served := s.cpu(b)
		p := followed(b, s)
		usedBy := s.cpu(b) - served
		_, last := cpu()
		if i == 0 {
			continue // the first ones fill caches
		}
		alone, first, recorded = append(alone, d), append(first, p.first), append(recorded, p.recorded)
		seen, whole = append(seen, p.seen), append(whole, p.whole)
		aloneUsed, used, follower = aloneUsed+after-before, used+usedBy, follower+last-after
	}
	plain := alone.At(0.5)
	told := func(s figures.Sample) string {
		return fmt.Sprintf("%s (%s to %s), %.2f of plain", ms(s.At(0.5)), ms(s.At(0.1)), ms(s.At(0.9)), float64(s.At(0.5))/float64(plain))
	}
	per := func(d time.Duration) time.Duration { return d / time.Duration(rounds) }
	b.Logf("%s init and plan of %d resources by hand: p50 %s, processor time %s; %d rounds in turns", name, resources, ms(plain), ms(per(aloneUsed)), rounds)
	b.Logf("a preview of the same, from the start of `dayfly run --follow`: its record is at its end after p50 %s", told(recorded))
	judge(b, first.At(0.5) <= 120*time.Millisecond, "first text of the engine, from the start of the command, p50", told(first), "<= 120 ms")
	judge(b, seen.At(0.5) <= 30*time.Millisecond, "the end is seen after it is recorded, p50", told(seen), "<= 30 ms")
	judge(b, whole.At(0.5) <= 330*time.Millisecond, "the whole command, p50", told(whole), "<= 330 ms")
	ratio := float64(used) / float64(aloneUsed)
	judge(b, ratio <= maxUsed, "processor time of a preview (`up`, runner, engine) against plain",
		fmt.Sprintf("%.2f, %s; the command that follows takes %s", ratio, ms(per(used)), ms(per(follower))), fmt.Sprintf("<= %.2f", maxUsed))
	metric(b, milliseconds(whole.At(0.5)), "command-ms")
}

// seenPlan is when a follower saw what, from the start of its command.
type seenPlan struct {
	first    time.Duration // the engine's first text
	recorded time.Duration // the end in the workflow's record
	seen     time.Duration // from then until its result is shown
	whole    time.Duration // the command has ended
}

// followed runs a preview with the command that follows it.
func followed(b *testing.B, s *served) (out seenPlan) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), program(b, "dayfly"), "run", "code", "--op", "preview", "--follow")
	cmd.Env = []string{"DAYFLY_URL=" + s.URL, "DAYFLY_API_TOKEN=" + s.Token, "HOME=" + b.TempDir()}
	pipe, err := cmd.StdoutPipe()
	check(b, err)
	began := time.Now()
	check(b, cmd.Start())
	var id string
	var shown time.Time
	for in := bufio.NewScanner(pipe); in.Scan(); {
		now := time.Now()
		if out.first == 0 && bytes.Contains(in.Bytes(), []byte("│ Initializing")) {
			out.first = now.Sub(began)
		}
		if id == "" && bytes.HasPrefix(in.Bytes(), []byte("wf_")) {
			id, shown = string(bytes.Fields(in.Bytes())[0]), now
		}
	}
	check(b, cmd.Wait())
	out.whole = time.Since(began)
	w, err := s.cl.Workflow(b.Context(), id)
	check(b, err)
	if out.first == 0 || w.EndedAt == nil {
		b.Fatalf("the engine's first text was not shown, or %s has no end", id)
	}
	out.recorded, out.seen = w.EndedAt.Sub(began), shown.Sub(*w.EndedAt)
	return out
}
