//go:build mutate

package sim_test

import (
	"flag"
	"fmt"
	"os"
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

// mutantSeeds is how many seeds a mistake may hide from.
const mutantSeeds = 200

// A simulation that could not fail would prove nothing: each of these mistakes must be noticed.
func TestMutants(t *testing.T) {
	table := fmt.Sprintf("| %-34s | %5s | %6s | %s\n", "mutant", "seed", "step", "noticed as")
	for _, name := range mutate.All() {
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
