package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// What Lambda and the network take besides the calls themselves.
const (
	// whole is the memory with which a function has one processor to itself; with less it has that part of one. (Lambda
	// developer guide, "Configure Lambda function memory": 1,769 MB are one vCPU.)
	whole = 1769
	// trips is what a new connection waits for the network: a round trip for TCP, and one for TLS 1.3, of 1 ms each.
	// That is an assumption.
	trips = 2 * time.Millisecond
	// handshakes are made before the run, to measure what one of them takes of a processor.
	handshakes = 50
)

// meter makes functions as slow as their memory size makes them, and connections as slow as TLS does: it measures what
// a process used of a processor since its last call, and delays the call by what it would have waited for the rest. An
// init is not slowed down, because Lambda gives it a whole processor. A function's connection to a service is made
// once, and anew when it was forgotten. Calls that an environment makes at once have one connection here.
type meter struct {
	handshake time.Duration // of a processor

	mu    sync.Mutex
	envs  map[int]*metered // by process id
	conns map[net.Conn]*metered
}

// metered is one environment.
type metered struct {
	lambdahost.Process

	used  time.Duration // of a processor, when it was last looked at
	busy  time.Time     // until when it waits for its part of the processor
	known map[string]bool
}

// newMeter is a meter of one deployment, for which a handshake takes so much of a processor.
func newMeter(handshake time.Duration) *meter {
	return &meter{handshake: handshake, envs: map[int]*metered{}, conns: map[net.Conn]*metered{}}
}

func (m *meter) String() string {
	parts := []string{fmt.Sprintf("a function has its memory / %d MB of a processor; a new connection takes %s for two round trips, and %.2f ms of a processor (measured, TLS 1.3 and an RSA certificate)",
		whole, trips, milliseconds(m.handshake))}
	for _, mb := range []int{128, 256, 512, 1024} {
		parts = append(parts, fmt.Sprintf("%d MB: %.1f ms for a connection", mb, milliseconds(trips+scale(m.handshake, mb))))
	}
	return strings.Join(parts, "; ")
}

// scale is how long some use of a processor takes with so much memory.
func scale(used time.Duration, mb int) time.Duration {
	return time.Duration(float64(used) * max(1, whole/float64(mb)))
}

// step is lambdahost.Config.Step.
func (m *meter) step(p lambdahost.Process, answered bool) {
	m.mu.Lock()
	e := m.envs[p.PID]
	if e == nil {
		e = &metered{Process: p, known: map[string]bool{}}
		m.envs[p.PID] = e
	}
	m.mu.Unlock()
	if answered {
		m.wait(context.Background(), e, "")
		return
	}
	used, _ := procrun.ProcessorTime(p.PID)
	m.mu.Lock()
	defer m.mu.Unlock()
	e.used, e.busy = used, time.Now() // what it did in its init, or since its last answer, nobody waited for
}

// forget is a time without calls: connections are closed.
func (m *meter) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for pid, e := range m.envs {
		clear(e.known)
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			delete(m.envs, pid)
		}
	}
}

// wrap is cloud.Config.Meter.
func (m *meter) wrap(name string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := m.of(cloud.Connection(r)); e != nil {
			service := name
			if service == "" {
				service = signedFor(r)
			}
			m.wait(r.Context(), e, service)
		}
		h.ServeHTTP(w, r)
	})
}

// wait lets an environment wait for its part of the processor, and for the handshake with a service that it does not
// know.
func (m *meter) wait(ctx context.Context, e *metered, service string) {
	used, err := procrun.ProcessorTime(e.PID)
	m.mu.Lock()
	now := time.Now()
	var more time.Duration
	if err == nil {
		more = scale(used-e.used, e.MemoryMB) - (used - e.used) // the process has waited for the last part itself
		e.used = used
	}
	var network time.Duration
	if service != "" && !e.known[service] {
		e.known[service] = true
		more += scale(m.handshake, e.MemoryMB)
		network = trips
	}
	if e.busy.Before(now) {
		e.busy = now
	}
	e.busy = e.busy.Add(more)
	until := e.busy.Add(network).Sub(now)
	m.mu.Unlock()
	_ = wait.For(ctx, until)
}

// signedFor is the service that a request is signed for.
func signedFor(r *http.Request) string {
	parts := strings.Split(r.Header.Get("Authorization"), "/")
	if len(parts) < 4 {
		return "?"
	}
	return parts[3]
}

// of is the environment at the other end of a connection; nil if it is none.
func (m *meter) of(conn net.Conn) *metered {
	m.mu.Lock()
	e, known := m.conns[conn]
	envs := slices.Collect(maps.Values(m.envs))
	m.mu.Unlock()
	if known || conn == nil {
		return e
	}
	if inode, err := inodeOf(conn.RemoteAddr(), conn.LocalAddr()); err == nil {
		socket := fmt.Sprintf("socket:[%d]", inode)
		for _, one := range envs {
			if holds(one.PID, socket) {
				e = one
				break
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns[conn] = e
	return e
}

// holds reports whether a process has a socket open.
func holds(pid int, socket string) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, _ := os.ReadDir(dir) // of a process that is gone: none
	return slices.ContainsFunc(files, func(f os.DirEntry) bool {
		to, _ := os.Readlink(dir + "/" + f.Name())
		return to == socket
	})
}

// handshakeTime is what a client's side of a handshake takes of a processor: the median of some.
func handshakeTime(ctx context.Context) (time.Duration, error) {
	server, roots, err := certificate()
	if err != nil {
		return 0, err
	}
	var all []time.Duration
	for range handshakes {
		near, far := net.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- tls.Server(far, server).HandshakeContext(ctx) }()
		took, err := func() (time.Duration, error) {
			runtime.LockOSThread() // so that the thread's time is ours
			defer runtime.UnlockOSThread()
			before := threadTime()
			err := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13}).HandshakeContext(ctx)
			return threadTime() - before, err
		}()
		if err == nil {
			err = <-ended
		}
		_, _ = near.Close(), far.Close()
		if err != nil {
			return 0, fmt.Errorf("measure a handshake: %w", err)
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}
