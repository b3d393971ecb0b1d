package sim_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/test/sim"
)

var (
	seeds = flag.Uint64("seeds", 20, "how many seeds to play, from 0")
	part  = flag.Uint64("part", 0, "with -parts: which of them, from 0")
	parts = flag.Uint64("parts", 1, "how many processes share the seeds")
	only  = flag.Int64("seed", -1, "play this seed alone; with -v print every event")
	keep  = flag.String("keep", "", "with -seed: play only these entries of its schedule, such as 3,17")
	first = flag.Bool("first", false, "end with the first seed that fails, and do not look for its shortest schedule")
)

const (
	shrinkTries = 400 // plays that the search for the shortest schedule may take
	lastEvents  = 40  // that are printed of a failing run
	enough      = 20  // seeds that must have met everything
	maxFailed   = 3   // seeds that fail before the test ends
)

// play runs a schedule of a seed in a bubble.
func play(t *testing.T, seed uint64, schedule []sim.Entry, trace func(string)) (out sim.Outcome) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) { out = sim.Run(t.Context(), seed, schedule, trace) })
	return out
}

func TestSim(t *testing.T) {
	if *only >= 0 {
		one(t, uint64(*only))
		return
	}
	played, workflows, steps, failed := 0, 0, 0, 0
	met := map[string]int{}
	for seed := *part; seed < *seeds; seed += max(*parts, 1) {
		out := play(t, seed, sim.Schedule(seed), nil)
		workflows, steps = workflows+out.Workflows, steps+out.Steps
		for what, n := range out.Met {
			met[what] += n
		}
		if played++; played%100 == 0 {
			t.Logf("%d seeds played, %d workflows", played, workflows)
		}
		if out.Violation == nil {
			continue
		}
		if *first {
			t.Fatalf("seed %d: %s", seed, out.Violation)
		}
		explain(t, seed, sim.Schedule(seed), out.Violation)
		if failed++; failed == maxFailed {
			break
		}
	}
	t.Logf("%d workflows in %d steps", workflows, steps)
	// A fault that never happens proves nothing.
	for _, what := range sim.Everything() {
		if played >= enough && met[what] == 0 {
			t.Errorf("%d seeds have not met: %s", played, what)
		}
	}
}

// one plays one seed, or a part of its schedule.
func one(t *testing.T, seed uint64) {
	schedule := sim.Schedule(seed)
	if *keep != "" {
		var indexes []int
		for text := range strings.SplitSeq(*keep, ",") {
			i, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("-keep: %q is not the index of an entry", text)
			}
			indexes = append(indexes, i)
		}
		schedule = sim.Keep(schedule, indexes)
	}
	var trace func(string)
	if testing.Verbose() {
		trace = func(line string) { t.Log(line) }
	}
	out := play(t, seed, schedule, trace)
	t.Logf("seed %d: %d workflows, %d steps, %s of virtual time, %v", seed, out.Workflows, out.Steps, out.Lasted, out.States)
	if out.Violation != nil && *keep != "" {
		t.Errorf("seed %d: %s", seed, out.Violation)
	} else if out.Violation != nil {
		explain(t, seed, schedule, out.Violation)
	}
}

// explain reports a failing seed by the shortest schedule that fails in the same way.
func explain(t *testing.T, seed uint64, schedule []sim.Entry, found *sim.Violation) {
	t.Helper()
	short := sim.Shrink(schedule, shrinkTries, func(part []sim.Entry) bool {
		v := play(t, seed, part, nil).Violation
		return v != nil && v.Invariant == found.Invariant
	})
	var events []string
	out := play(t, seed, short, func(line string) { events = append(events, line) })
	t.Errorf("seed %d: %s\nits shortest schedule, of %d entries:\n%s\nits last events:\n%s\nreplay: %s",
		seed, out.Violation, len(schedule), strings.Join(out.Applied, "\n"),
		strings.Join(events[max(0, len(events)-lastEvents):], "\n"), sim.Replay(seed, short))
}

// A failing seed is useful only if it fails again.
func TestSim_OneSeedIsOneRun(t *testing.T) {
	for seed := range uint64(3) {
		var runs [2][]string
		for i := range runs {
			play(t, seed, sim.Schedule(seed), func(line string) { runs[i] = append(runs[i], line) })
		}
		if len(runs[0]) == 0 {
			t.Fatalf("seed %d has no events", seed)
		}
		for i, line := range runs[0] {
			if i >= len(runs[1]) || runs[1][i] != line {
				t.Fatalf("seed %d: event %d differs between two runs:\n%s", seed, i, cmp.Diff(line, runs[1][min(i, len(runs[1])-1)]))
			}
		}
	}
}

func TestShrink_FindsWhatIsNeeded(t *testing.T) {
	schedule := sim.Schedule(7)
	needed := []int{2, 11, len(schedule) - 1}
	plays := 0
	short := sim.Shrink(schedule, 1000, func(part []sim.Entry) bool {
		plays++
		return len(sim.Keep(part, needed)) == len(needed)
	})
	var got []int
	for _, e := range short {
		got = append(got, e.Index)
	}
	if d := cmp.Diff(needed, got); d != "" {
		t.Errorf("entries (-needed +left):\n%s", d)
	}
	if most := 10 * len(schedule); plays > most {
		t.Errorf("it took %d plays, more than %d", plays, most)
	}
	if want, got := fmt.Sprintf("go test ./test/sim -run 'TestSim$' -seed 7 -keep 2,11,%d -v", len(schedule)-1), sim.Replay(7, short); got != want {
		t.Errorf("replay is %q, want %q", got, want)
	}
	if !slices.Equal(sim.Keep(schedule, got), short) {
		t.Error("the replayed schedule is another one")
	}
}
