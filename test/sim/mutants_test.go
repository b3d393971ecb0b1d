//go:build mutate

package sim_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/test/sim"
)

// mutant makes one mistake in every test but TestMutants: to see the shortest schedule that shows it.
var mutant = flag.String("mutant", "", "a mistake to make, such as "+mutate.OnePhaseReap)

func TestMain(m *testing.M) {
	flag.Parse()
	mutate.Use(*mutant)
	m.Run()
}

// mutantSeeds is in how many seeds a mistake may stay unnoticed.
const mutantSeeds = 200

// ordinary are the mistakes that a test of the promise notices, sooner than chance would: its package and its name.
var ordinary = map[string][2]string{
	mutate.NoHolder:     {"reaper", "TestPlan_NeverStopsAHolderThatIsOnTime"},
	mutate.NoBeatCheck:  {"controlplane", "TestPass_AHeartbeatThatComesBeforeTheCommitCounts"},
	mutate.LateClear:    {"controlplane", "TestClaim_AWakeThatComesDuringTheLookIsNotForgotten"},
	mutate.NoPoolCheck:  {"controlplane", "TestClaim_GoesByThePoolAsItIsAtTheCommit"},
	mutate.OneTimerPage: {"controlplane", "TestPass_MovesMoreThanAPage"},
	mutate.OneHeldPage:  {"reaper", "TestPass_ReadsEveryPage"},
	mutate.HeldCut:      {"controlplane", "TestHeld_ListsMoreThanAPage"},
	mutate.CutBlind:     {"controlplane", "TestClaim_SeesAPlaceThatIsFreedBeforeItSaysThatItWaits"},
	mutate.NoPolicies:   {"controlplane", "TestPolicies_AreThoseThatHoldAtTheStartOfARun"},
	mutate.OldInputs:    {"controlplane", "TestInputs_ASuccessDuringAStartIsSeen"},
	mutate.TreeTwice:    {"controlplane", "TestTree_TwoAdvancesAtOnceSubmitOnce"},
	mutate.OldRoute:     {"controlplane", "TestRoute_ASecondChangeBeginsAnew"},
}

// Tests that cannot fail prove nothing: each of these mistakes must be noticed.
func TestMutants(t *testing.T) {
	table := fmt.Sprintf("| %-34s | %5s | %6s | %s\n", "mutant", "seed", "step", "noticed as")
	for _, name := range mutate.All() {
		if by, ok := ordinary[name]; ok {
			fails(t, name, by[0], by[1])
			table += fmt.Sprintf("| %-34s | %5s | %6s | %s\n", name, "-", "-", by[0]+": "+by[1])
			continue
		}
		mutate.Use(name)
		var found *sim.Violation
		seed := uint64(0)
		for ; found == nil && seed < mutantSeeds; seed++ {
			found = play(t, seed, sim.Schedule(seed), nil).Violation
		}
		if found == nil {
			t.Errorf("%s: %d seeds did not notice it", name, mutantSeeds)
			table += fmt.Sprintf("| %-34s | %5s | %6s | %s\n", name, "-", "-", "NOTHING")
			continue
		}
		table += fmt.Sprintf("| %-34s | %5d | %6d | %s\n", name, seed-1, found.Step, "broken: "+found.Invariant)
	}
	mutate.Use("")
	fmt.Fprint(os.Stdout, table)
}

// fails runs a test twice: it must pass, and fail where the mistake is made.
func fails(t *testing.T, name, pkg, test string) {
	t.Helper()
	for _, made := range []string{"", name} {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags", "mutate", //nolint:gosec // names of this file
			"-run", "^"+test+"$", "-v", "../../internal/"+pkg)
		cmd.Env = append(os.Environ(), "DAYFLY_MUTANT="+made)
		out, err := cmd.CombinedOutput()
		want := "--- PASS: " + test
		if made != "" {
			want = "--- FAIL: " + test
		}
		if (err != nil) != (made != "") || !strings.Contains(string(out), want) {
			t.Errorf("with %q: want %q, got %v:\n%s", made, want, err, out)
		}
	}
}
