// Command dayfly-policy evaluates packages of policies in Rego, for runners and for those who write them. It is a
// program of its own because it alone links OPA: neither a runner's start nor dayfly pays for it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // rules may name a time zone where the machine has none

	"github.com/dayfly-dev/dayfly/internal/child"
)

var version = "unknown" // set by the build

// mostMemory is how many bytes the program may take in all: a plan of policy.MaxInput as rules read it, what a package may
// take beside it, and what is not collected yet.
const mostMemory = 6 << 30

func main() {
	child.CloseInherited()
	time.Local = time.UTC // what rules say must not depend on the machine's time zone
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// A builtin that makes one huge value in a step would be seen too late by who looks from beside.
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: mostMemory, Max: mostMemory})
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(report(os.Stderr, err))
}
