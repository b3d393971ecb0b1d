package embedded

import (
	"fmt"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/agent"
)

// The uses of this process's descriptors.
const (
	ofJob   = agent.MaxConnections + 8 // limit of one job: connections to its relay, pipes, files of its log
	ofSelf  = 64                       // database, locks, connections to the control plane and the engine
	ofCalls = 64                       // fewest for connections of the API
)

// descriptors divides the descriptors that a process may have: calls is how many connections of the API may be open at
// once, so that the jobs keep theirs. short is the complaint if there are too few, else it is empty.
func descriptors(limit uint64, jobs int) (calls int, short string) {
	const enough = 1 << 16
	need := ofSelf + jobs*ofJob
	if calls = int(min(limit, enough)) - need; calls >= ofCalls { //nolint:gosec // it is small
		return calls, ""
	}
	return ofCalls, fmt.Sprintf("this process may open %d files, and %d jobs may need %d: raise the limit (ulimit -n, or LimitNOFILE of its service), or lower concurrency",
		limit, jobs, need+ofCalls)
}

// openFiles is how many descriptors this process may have. The runtime raised that as far as it goes.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the smallest limit of any system
	}
	return limit.Cur
}
