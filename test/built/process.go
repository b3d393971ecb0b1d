package built

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// Patience is how long a process may take to begin, or to end: a machine that is busy may need more than the second or
// two that it takes, and a test that hangs must end.
const Patience = 4 * time.Minute

// Process is a server that was started as a process of its own.
type Process struct {
	cmd   *exec.Cmd
	said  output
	ended chan struct{} // closed when it has ended
	err   error         // how; to be read after that
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Start starts a command and waits until what it writes matches ready. Its two outputs are read together, unless the
// command already has others. The end of ctx ends the waiting only.
func Start(ctx context.Context, cmd *exec.Cmd, ready *regexp.Regexp) (*Process, error) {
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &p.said, &p.said
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, fmt.Errorf("not ready after %s", Patience))
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !ready.MatchString(p.said.String()) {
		select {
		case <-again.C:
			continue
		case <-p.ended:
			return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", filepath.Base(cmd.Path), p.err, &p.said)
		case <-ctx.Done():
			p.Kill()
			return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), context.Cause(ctx), &p.said)
		}
	}
	return p, nil
}

// Said is what it has written so far.
func (p *Process) Said() string { return p.said.String() }

// PID is the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends it a signal, if it has not ended.
func (p *Process) Signal(sig os.Signal) { _ = p.cmd.Process.Signal(sig) }

// Kill ends it as a crash does, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Stop ends it as an operator does, with SIGTERM, and says how it ended. One that does not end is killed.
func (p *Process) Stop() error {
	p.Signal(syscall.SIGTERM)
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-limit.C:
		p.Kill()
		return fmt.Errorf("%s had to be killed:\n%s", filepath.Base(p.cmd.Path), &p.said)
	}
}

// EndWith kills it at the end of a test, if it lives then, and shows what it said if the test has failed.
func (p *Process) EndWith(t testing.TB) {
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(p.cmd.Path), &p.said)
		}
	})
}

// Ended is closed when it has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Up is a `dayfly up` that was started as a process of its own, and its first admin.
type Up struct {
	*Process

	URL   string
	Token string // of its first admin
}

// Serving is what a program that plays a `dayfly up` prints when it serves at an address.
const Serving = "serves at %s\n  try: dayfly run\n"

var (
	servesAt = regexp.MustCompile(`serves at (https?://\S+)`)
	ready    = regexp.MustCompile(`(?m)^  try: dayfly run`)
	link     = regexp.MustCompile(`https?://\S+/signin[?#/]\S+`)
)

// StartUp starts a command that is a `dayfly up` over a data directory, and waits until it serves.
func StartUp(ctx context.Context, cmd *exec.Cmd, data string) (*Up, error) {
	p, err := Start(ctx, cmd, ready)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(data, "private", "admin-token"))
	if err != nil {
		p.Kill()
		return nil, err
	}
	return &Up{Process: p, URL: servesAt.FindStringSubmatch(p.Said())[1], Token: strings.TrimSpace(string(token))}, nil
}

// Link is the latest link that it has printed by which a browser is signed in; empty if there is none.
func (u *Up) Link() string {
	all := link.FindAllString(u.Said(), -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// Client is a client of it with a token.
func (u *Up) Client(token string) (*client.Client, error) {
	secret := redact.New(token)
	return client.New(client.Config{URL: u.URL, Token: func() redact.String { return secret }})
}
