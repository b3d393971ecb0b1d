// Command dayfly-policy evaluates packages of policies in Rego, for runners and for authors of policies. It is a
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

// maxMemory bounds the data of the program, in bytes. It leaves room for a plan of policy.MaxInput as rules read it, for
// policy.MaxMemory beside it, and for garbage.
const maxMemory = 6 << 30

func main() {
	child.CloseInherited()
	time.Local = time.UTC // rules must not depend on the machine's time zone
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// policy.MaxMemory is watched while rules run. A builtin that makes a huge value in one step is faster than that.
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: maxMemory, Max: maxMemory})
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(report(os.Stderr, err))
}
