// Package hosttest builds the function that the tests of the host and of its event sources run, and lets
// functions talk to a test.
package hosttest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

// Wait bounds what a test waits for: reaching it is a failure, and nothing is judged by it.
const Wait = 4 * time.Minute

// Main builds the test function, runs the tests of a package and looks for goroutines that they left. It
// returns the exit code; *path is set before the first test.
func Main(m *testing.M, path *string) int {
	code, err := func() (int, error) {
		dir, err := os.MkdirTemp("", "lambdahost-")
		if err != nil {
			return 0, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		*path = filepath.Join(dir, "bootstrap")
		build := exec.Command("go", "build", "-tags", "lambda.norpc", "-trimpath", "-buildvcs=false", "-o", *path, "github.com/dayfly-dev/dayfly/test/awsim/lambdahost/testdata/function") //nolint:noctx // it ends by itself
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build the test function: %w\n%s", err, said)
		}
		code := m.Run()
		if code != 0 {
			return code, nil
		}
		return 0, leak.Find()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Context is the test's, with Wait as its bound.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Wait, fmt.Errorf("not done after %s", Wait))
	t.Cleanup(cancel)
	return ctx
}

// Until asks again and again whether something is true, with a bound.
func Until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx := Context(t)
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not after %s", what, Wait)
		}
	}
}

// Partner is somebody that functions talk to: each says a line and waits for one.
type Partner struct {
	t        *testing.T
	listener net.Listener
	said     chan Heard
}

// Heard is what one function said.
type Heard struct {
	Line string
	conn net.Conn
}

// NewPartner listens until the test ends.
func NewPartner(t *testing.T) *Partner {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Partner{t: t, listener: l, said: make(chan Heard, 100)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				_ = conn.Close()
				continue
			}
			p.said <- Heard{line[:len(line)-1], conn}
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
		close(p.said)
		for h := range p.said {
			_ = h.conn.Close()
		}
	})
	return p
}

// Address is where the partner listens.
func (p *Partner) Address() string { return p.listener.Addr().String() }

// Hear waits until a function says something.
func (p *Partner) Hear() Heard {
	p.t.Helper()
	select {
	case h := <-p.said:
		p.t.Cleanup(func() { _ = h.conn.Close() })
		return h
	case <-Context(p.t).Done():
		p.t.Fatal("the function said nothing")
		return Heard{}
	}
}

// Silent reports whether there is nothing that was said and not yet heard.
func (p *Partner) Silent() bool { return len(p.said) == 0 }

// Reply lets the function go on.
func (h Heard) Reply(t *testing.T, text string) {
	t.Helper()
	if _, err := fmt.Fprintln(h.conn, text); err != nil {
		t.Fatal(err)
	}
}
