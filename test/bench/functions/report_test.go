package functions_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
)

// aims are the most that a function's zip, peak memory at init and init time should be.
type aims struct {
	zip, memory float64 // MB
	init        float64 // times the empty function's
}

// aimsOf are the aims of the functions by name.
var aimsOf = map[string]aims{
	"poller":       {3.7, 11, 1.8}, // it links ECS too
	"status":       {3.7, 11, 1.5},
	"dispatcher":   {3.7, 11, 1.8},
	"reaper":       {3.7, 11, 1.8},
	"deliverer":    {4, 11.5, 2}, // nobody waits for it
	"controlplane": {5.6, 14.5, 2.5},
}

func median(values []int64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return float64(sorted[len(sorted)/2])
}

// table writes it. The first measurement is the empty function's.
func table(out io.Writer, functions []*measurement, connections int) {
	base := median(functions[0].inits)
	fmt.Fprintf(out, "%-14s %22s %20s %30s\n", "function", "zip "+shipped+" (here) MB", "memory at init MB", "init: ratio (ms, fastest)")
	missed := 0
	for _, f := range functions {
		zip, memory := float64(f.zip)/1e6, median(f.peakMemory)/1e6
		ms, ratio := median(f.inits)/1e6, median(f.inits)/base
		aim, known := aimsOf[f.name]
		line := fmt.Sprintf("%-14s %22s %20s %30s", f.name,
			fmt.Sprintf("%.2f (%.2f)%s", zip, float64(f.here)/1e6, beside(zip, aim.zip, known)),
			fmt.Sprintf("%.1f%s", memory, beside(memory, aim.memory, known)),
			fmt.Sprintf("%.2f (%.2f, %.2f)%s", ratio, ms, float64(slices.Min(f.inits))/1e6, beside(ratio, aim.init, known)))
		switch {
		case !known && f == functions[0]:
			line += "   the measure"
		case !known:
			line += "   no aims"
		case zip <= aim.zip && memory <= aim.memory && ratio <= aim.init:
			line += "   met"
		default:
			line += "   missed"
			missed++
		}
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "\nconnections made before the first event: %d (aim 0)\n", connections)
	if missed > 0 {
		fmt.Fprintf(out, "%d functions miss an aim; WHY=1 shows which packages take long to initialise\n", missed)
	}
}

func beside(got, aim float64, known bool) string {
	switch {
	case !known:
		return ""
	case got <= aim:
		return fmt.Sprintf(" <= %g", aim)
	}
	return fmt.Sprintf(" > %g", aim)
}

// trace starts each function once with the runtime's own account of package inits.
func trace(ctx context.Context, out io.Writer, functions []*measurement, address string) error {
	for _, f := range functions {
		var mu sync.Mutex
		var inits []string
		host := lambdahost.New(lambdahost.Config{Log: func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(line, "init ") {
				inits = append(inits, line)
			}
		}})
		spec := deployed(f.name, f.bootstrap, address)
		spec.Environment["GODEBUG"] = "inittrace=1"
		err := host.Put(spec)
		if err == nil {
			_, err = host.Warm(ctx, f.name)
		}
		host.Close()
		if err != nil {
			return fmt.Errorf("trace %s: %w", f.name, err)
		}
		slices.SortFunc(inits, func(a, b string) int { return cmp.Compare(clock(b), clock(a)) })
		fmt.Fprintf(out, "\n%s: %d package inits, the longest:\n", f.name, len(inits))
		for _, line := range inits[:min(8, len(inits))] {
			fmt.Fprintln(out, "  ", line)
		}
	}
	return nil
}

// clock reads "init PACKAGE @START ms, DURATION ms clock, ...".
func clock(line string) float64 {
	parts := strings.Split(line, ", ")
	if len(parts) < 2 {
		return 0
	}
	ms, _ := strconv.ParseFloat(strings.TrimSuffix(parts[1], " ms clock"), 64)
	return ms
}

// network listens where every address of the functions leads, and counts who comes.
type network struct {
	listener net.Listener
	count    atomic.Int64
	ended    chan struct{}
}

func newNetwork(ctx context.Context) (*network, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &network{listener: l, ended: make(chan struct{})}
	go func() {
		defer close(n.ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.count.Add(1)
			_ = conn.Close()
		}
	}()
	return n, nil
}

func (n *network) address() string  { return n.listener.Addr().String() }
func (n *network) connections() int { return int(n.count.Load()) }

func (n *network) close() {
	_ = n.listener.Close()
	<-n.ended
}
