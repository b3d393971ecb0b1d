package serve

import (
	"os"
	"syscall"
	"testing"
)

func TestStage_AnInterruptAdvancesAndSIGTERMDoesNotWait(t *testing.T) {
	for from, want := range map[stage][2]stage{
		working: {draining, interrupting}, draining: {interrupting, interrupting}, interrupting: {killing, killing}, killing: {killing, killing},
	} {
		if got := [2]stage{from.after(os.Interrupt), from.after(syscall.SIGTERM)}; got != want {
			t.Errorf("from %d: got %v, want %v", from, got, want)
		}
	}
}
