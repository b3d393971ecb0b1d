package agent

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
)

// Slots opens the count of what an agent has taken on to its tests.
type Slots struct{ s *slots }

func NewSlots(limit int, now func() time.Time) Slots { return Slots{newSlots(limit, now)} }

func (s Slots) Free() int                               { return s.s.free() }
func (s Slots) Claimed(job string, n int)               { s.s.claimed(api.Job{ID: job, Attempt: n}) }
func (s Slots) Dispatched(d dispatcher.Disposition)     { s.s.dispatched(d) }
func (s Slots) Ended(t launcher.Task)                   { s.s.ended(t) }
func (s Slots) Correct(ts []launcher.Task, b time.Time) { s.s.correct(ts, b) }

func (s Slots) Freed() bool {
	select {
	case <-s.s.freed:
		return true
	default:
		return false
	}
}

// TokenStands opens the decision about a refused token to its test.
var TokenStands = tokenStands
