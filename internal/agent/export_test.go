package agent

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// Places opens the count of what an agent has taken on to its tests.
type Places struct{ s *places }

func NewPlaces(limit int, now func() time.Time) Places { return Places{newPlaces(limit, now)} }

func (s Places) Free() int { return s.s.free() }
func (s Places) Claimed(job string, n int) {
	s.s.claimed(api.Job{ID: job, Needs: task.Needs{Attempt: n}})
}
func (s Places) Dispatched(d dispatcher.Disposition)     { s.s.dispatched(d) }
func (s Places) Ended(t launcher.Task)                   { s.s.ended(t) }
func (s Places) Correct(ts []launcher.Task, b time.Time) { s.s.correct(ts, b) }

func (s Places) Freed() bool {
	select {
	case <-s.s.freed:
		return true
	default:
		return false
	}
}

// TokenStands opens the decision about a refused token to its test.
var TokenStands = tokenStands
