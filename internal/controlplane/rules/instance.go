package rules

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// Occupied is the decision about a process that calls as an instance.
type Occupied struct {
	Refused bool
	Why     string
}

// Occupy decides whether a process may work as an instance. last is the record of the previous process; the zero
// record means that there was none. gone is how long after its last call a process counts as gone. It is a pure
// function.
//
// That a process follows the last one in its data directory is shown by the id of that one: a copy of the directory
// knows it only until the next start.
func Occupy(last record.Runner, by api.Process, now time.Time, gone time.Duration) Occupied {
	switch {
	case by.Boot == "":
		return Occupied{Why: "it names no process"}
	case last.Boot == "":
		return Occupied{Why: "no other process is known"}
	case last.Boot == by.Boot:
		return Occupied{Why: "it is the process that works as the instance"}
	case last.Boot == by.After:
		return Occupied{Why: "it follows that process in its data directory"}
	case now.Sub(last.Last) >= gone:
		return Occupied{Why: "the other process is gone"}
	}
	return Occupied{Refused: true, Why: "another process works as the instance, its last call was " + now.Sub(last.Last).Round(time.Second).String() + " ago"}
}
