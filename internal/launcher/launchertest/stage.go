package launchertest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	contract "github.com/dayfly-dev/dayfly/internal/task"
)

// patience bounds every wait of the suite. It is long because its end proves nothing.
const patience = 4 * time.Minute

// ticket begins the ticket of a played task.
const ticket = "launchertest:"

// Hello is the first message of a player.
type Hello struct {
	Child bool     // it was spawned by a runner and is not one
	PID   int      // as it sees itself
	Env   []string // all of its environment
}

// Stage is a listener that the tasks of a test connect to.
type Stage struct {
	relay    string
	players  chan *Player
	listener net.Listener

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
	count  int // runners that connected
}

// NewStage opens a stage until the test ends. reach turns the address of a listener into the one at which
// tasks find it; nil leaves it as it is.
func NewStage(t *testing.T, reach func(address string) string) *Stage {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if reach != nil {
		address = reach(address)
	}
	s := &Stage{relay: "http://" + address, players: make(chan *Player, 100), listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.admit(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		s.closed = true
		for _, c := range s.conns {
			_ = c.Close() // which ends its player
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

func (s *Stage) admit(c net.Conn) {
	s.mu.Lock()
	s.conns = append(s.conns, c)
	if s.closed {
		_ = c.Close()
	}
	s.mu.Unlock()
	p := &Player{conn: c, lines: bufio.NewReader(c)}
	line, err := p.lines.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &p.Hello) != nil {
		return
	}
	if !p.Child {
		s.mu.Lock()
		s.count++
		s.mu.Unlock()
	}
	s.players <- p
}

// Request makes a request whose task is played. A stubborn task ignores SIGTERM.
func (s *Stage) Request(workflow string, stubborn bool) launcher.Request {
	return launcher.Request{
		Needs:    contract.Needs{Attempt: 1, Organization: "default", Workspace: "network", Pool: "pool", Size: "small"},
		Workflow: workflow, Placement: "here", Ticket: ticket + strconv.FormatBool(stubborn), Relay: s.relay,
	}
}

// Next waits for the next player, a runner or a spawned child.
func (s *Stage) Next(t *testing.T) *Player {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case p := <-s.players:
		return p
	case <-timer.C:
		t.Fatalf("no task came within %s", patience)
		return nil
	}
}

// Runners returns how many runners have connected.
func (s *Stage) Runners() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Player is the test's end of a task, or of a process that a task spawned.
type Player struct {
	Hello
	conn  net.Conn
	lines *bufio.Reader
	terms int
}

// Terms returns how many signals the player has reported so far.
func (p *Player) Terms() int { return p.terms }

// Where says where a spawned process is.
type Where string

// A spawned process is in its parent's group, in a group of its own, or in a session of its own.
const (
	SameGroup  Where = "same"
	OwnGroup   Where = "group"
	OwnSession Where = "session"
)

// Getenv looks up a variable of the player's environment.
func (p *Player) Getenv(name string) string {
	for _, v := range p.Env {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			return rest
		}
	}
	return ""
}

// Exit makes the player end with a code.
func (p *Player) Exit(t *testing.T, code int) {
	t.Helper()
	p.send(t, fmt.Sprintf("exit %d", code))
}

// Eat makes the player take more and more memory. Use it only where the memory of the task is limited.
func (p *Player) Eat(t *testing.T) {
	t.Helper()
	p.send(t, "eat")
}

// Say makes the player write a line to its standard error, and waits until it did.
func (p *Player) Say(t *testing.T, text string) {
	t.Helper()
	p.send(t, "say "+text)
	p.await(t, "said")
}

// Leave makes the player leave a file in its work directory, and waits until it did. A text that begins with -> makes
// a symbolic link to the rest.
func (p *Player) Leave(t *testing.T, name, text string) {
	t.Helper()
	p.send(t, "leave "+name+" "+text)
	p.await(t, "left")
}

// Spawn makes the player start a process that ignores signals.
func (p *Player) Spawn(t *testing.T, s *Stage, where Where) *Player {
	t.Helper()
	p.send(t, "spawn "+string(where))
	child := s.Next(t)
	if !child.Child {
		t.Fatal("got another runner, want the spawned process")
	}
	return child
}

// AwaitTerm waits until the player got SIGTERM.
func (p *Player) AwaitTerm(t *testing.T) {
	t.Helper()
	p.await(t, "term")
}

// Lives fails the test unless the player is alive.
func (p *Player) Lives(t *testing.T) {
	t.Helper()
	p.send(t, "ping")
	p.await(t, "pong")
}

// Gone fails the test if the player is alive: its connection must have ended, and it must not answer.
func (p *Player) Gone(t *testing.T) {
	t.Helper()
	_ = p.conn.SetDeadline(time.Now().Add(patience))
	if _, err := p.conn.Write([]byte("ping\n")); err != nil {
		return
	}
	for {
		line, err := p.lines.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("process %d is not gone", p.PID)
		}
		if err != nil {
			return
		}
		if line == "pong\n" {
			t.Errorf("process %d is alive", p.PID)
			return
		}
	}
}

func (p *Player) send(t *testing.T, line string) {
	t.Helper()
	_ = p.conn.SetDeadline(time.Now().Add(patience))
	if _, err := p.conn.Write([]byte(line + "\n")); err != nil {
		t.Fatalf("send %[2]q to process %[1]d: %[3]v", p.PID, line, err)
	}
}

func (p *Player) await(t *testing.T, want string) {
	t.Helper()
	_ = p.conn.SetDeadline(time.Now().Add(patience))
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			t.Fatalf("wait for %q of process %d: %v", want, p.PID, err)
		}
		line = strings.TrimSpace(line)
		if line == "term" {
			p.terms++
		}
		if line == want {
			return
		}
	}
}

const (
	childVariable = "LAUNCHERTEST_CHILD"
	termCode      = 3 // exit code of a task that ended because it was asked to
)

// Play plays a task if the environment is that of one. TestMain calls it first, in a binary that the
// launcher runs, and exits with its code. ok is false if there is no task to play.
func Play() (code int, ok bool) {
	stubborn, ok := strings.CutPrefix(os.Getenv("DAYFLY_TICKET"), ticket)
	if !ok {
		return 0, false
	}
	_, isChild := os.LookupEnv(childVariable)
	deaf := isChild || stubborn == "true"
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	var dialer net.Dialer
	conn, err := dialer.Dial("tcp", strings.TrimPrefix(os.Getenv("DAYFLY_RELAY"), "http://")) //nolint:noctx // the process has no other end
	if err != nil {
		return 97, true
	}
	hello, err := json.Marshal(Hello{Child: isChild, PID: os.Getpid(), Env: append(os.Environ(), askWho()...)})
	if err != nil {
		return 98, true
	}
	say := func(line string) { _, _ = conn.Write([]byte(line + "\n")) }
	say(string(hello))
	lines := make(chan string)
	go func() {
		in := bufio.NewScanner(conn)
		for in.Scan() {
			lines <- in.Text()
		}
		close(lines)
	}()
	for {
		select {
		case <-terms:
			say("term")
			if !deaf {
				return termCode, true
			}
		case line, more := <-lines:
			if !more {
				return 0, true // the test is over
			}
			switch verb, rest, _ := strings.Cut(line, " "); verb {
			case "ping":
				say("pong")
			case "say":
				_, _ = os.Stderr.WriteString(rest + "\n")
				say("said")
			case "leave":
				name, text, _ := strings.Cut(rest, " ")
				if leave(filepath.Join(os.Getenv("DAYFLY_WORK_DIR"), name), text) == nil {
					say("left")
				}
			case "eat":
				eat()
			case "exit":
				code, _ := strconv.Atoi(rest)
				return code, true
			case "spawn":
				if spawn(Where(rest)) != nil {
					return 99, true
				}
			}
		}
	}
}

// eat takes memory until the system kills this process.
func eat() {
	for all := [][]byte{}; ; {
		page := make([]byte, 16<<20)
		for i := 0; i < len(page); i += 4096 {
			page[i] = 1
		}
		all = append(all, page)
	}
}

// askWho returns DAYFLY_TASK for an ECS task. Its name is made after its environment, so it asks for it.
func askWho() []string {
	uri := os.Getenv("ECS_CONTAINER_METADATA_URI_V4")
	if uri == "" || os.Getenv("DAYFLY_TASK") != "" {
		return nil
	}
	resp, err := http.Get(uri + "/task") //nolint:gosec,noctx // the address that its launcher gave it; the process has no other end
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	var task struct{ TaskARN string }
	if json.NewDecoder(resp.Body).Decode(&task) != nil {
		return nil
	}
	return []string{"DAYFLY_TASK=" + task.TaskARN}
}

func leave(path, text string) error {
	if target, ok := strings.CutPrefix(text, "->"); ok {
		return os.Symlink(target, path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func spawn(where Where) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(path) //nolint:noctx // nobody waits for it
	c.Env = append(os.Environ(), childVariable+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: where == OwnGroup, Setsid: where == OwnSession}
	return c.Start()
}
