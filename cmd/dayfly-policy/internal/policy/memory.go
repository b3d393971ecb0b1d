package policy

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"
)

// largeError is the error of a package that takes more than so many bytes of memory.
type largeError uint64

func (e largeError) Error() string {
	return fmt.Sprintf("took more than %d MiB of memory: make smaller values, or fewer of them at once", uint64(e)>>20)
}

// watchMemory calls stop with a largeError once the heap has limit more bytes in use than before. It ends with ctx.
func watchMemory(ctx context.Context, before, limit uint64, stop context.CancelCauseFunc) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if inUse() <= before+limit {
			continue
		}
		if used() > before+limit {
			stop(largeError(limit))
			return
		}
	}
}

// used is how many bytes of the heap are in use, without garbage.
func used() uint64 {
	runtime.GC()
	return inUse()
}

// inUse is how many bytes of the heap are in use, with garbage.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
