package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// demo is one run of it.
type demo struct {
	target   string // where jobs run
	dayfly   string // the binary
	examples string
	temp     string
	engine   engine

	env     []string
	up      *server
	agent   *server
	results []outcome
}

// server is a process that serves until it is stopped. It has a process group of its own, so that
// an interrupt at the terminal reaches it through the demo only, in its turn.
type server struct {
	name   string
	cmd    *exec.Cmd
	output *watched
	ended  chan error
}

// patience is how long a server may take to begin or to end on a machine that is busy.
const patience = 4 * time.Minute

// watched keeps what a process says.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func (d *demo) serve(name string, env []string, args ...string) (*server, error) {
	s := &server{name: name, output: &watched{news: make(chan struct{}, 1)}, ended: make(chan error, 1)}
	s.cmd = exec.Command(d.dayfly, args...) //nolint:noctx // it is stopped by a signal, in its turn
	s.cmd.Env, s.cmd.Dir = env, d.temp
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	return s, nil
}

// says waits until the server said something of a form and returns its first group.
func (s *server) says(ctx context.Context, form *regexp.Regexp) (string, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if m := form.FindStringSubmatch(s.output.String()); m != nil {
			return m[1], nil
		}
		select {
		case <-s.output.news:
		case err := <-s.ended:
			s.ended <- err
			return "", fmt.Errorf("%s ended before it served:\n%s", s.name, s.output)
		case <-limited.Done():
			return "", fmt.Errorf("%s does not serve:\n%s", s.name, s.output)
		}
	}
}

// stop ends the server as an operator would and reports whether it ended well.
func (s *server) stop() error {
	if s == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.ended:
		if err != nil {
			return fmt.Errorf("%s did not stop cleanly: %w\n%s", s.name, err, s.output)
		}
		return nil
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		return fmt.Errorf("%s did not stop within %s and was killed: %w\n%s", s.name, patience, <-s.ended, s.output)
	}
}

// serves matches what `dayfly up` says when it has said everything.
var serves = regexp.MustCompile(`(?s)serves at (\S+).*\n  try:`)

// start starts the control plane with its agent, and an agent of a pool of its own.
func (d *demo) start(ctx context.Context, getenv func(string) string) (err error) {
	heading("Control plane and agent: dayfly up on a free port, data in %s", d.temp)
	home := filepath.Join(d.temp, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(d.codeDir(), 0o755); err != nil { //nolint:gosec // code, for every user
		return err
	}
	path := getenv("PATH")
	if d.engine.dir != "" {
		path = d.engine.dir + string(os.PathListSeparator) + path
	}
	// From nothing: neither the user's own credentials nor settings are to be touched.
	d.env = []string{"PATH=" + path, "HOME=" + home, "TMPDIR=" + d.temp, "TERM=" + getenv("TERM"), "NO_COLOR=" + getenv("NO_COLOR"),
		"DAYFLY_DEPLOY_TARGET=" + d.target, "DAYFLY_RUNNER_IMAGE=" + demoImage}
	if d.up, err = d.serve("dayfly up", d.env, "up", "--listen", "127.0.0.1:0", "--data", filepath.Join(d.temp, "up"), "--source-root", d.examples, "--source-root", d.codeDir()); err != nil {
		return err
	}
	url, err := d.up.says(ctx, serves)
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stdout, indent(d.up.output.String()))

	heading("A second pool, with an agent of its own")
	token, err := d.read(ctx, "pool", "create", "second", "--description", "runs the plain commands")
	if err != nil {
		return err
	}
	note("pool second was created; its token goes to dayfly agent through the environment")
	env := append([]string{
		"DAYFLY_TOKEN=" + strings.TrimSpace(string(token)), "DAYFLY_SERVICE_URL=" + url, "DAYFLY_SOURCE_ROOTS=" + d.examples,
		"DAYFLY_WORKING_DIRECTORY=" + filepath.Join(d.temp, "agent"), "DAYFLY_POLLING_INTERVAL=2s",
	}, d.env...)
	d.agent, err = d.serve("dayfly agent", env, "agent")
	return err
}

// stop ends what start started and looks for what is left.
func (d *demo) stop() error {
	heading("Stopping")
	err := errors.Join(d.agent.stop(), d.up.stop())
	if left := processes(d.temp); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("processes are left:\n  %s", strings.Join(left, "\n  ")))
	}
	if err == nil {
		note("both servers ended cleanly; no process is left")
	}
	return err
}

// processes lists those whose command line, environment or directory names a path, where the
// system shows that.
func processes(path string) []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var left []string
	for _, e := range entries {
		dir := filepath.Join("/proc", e.Name())
		if e.Name() == fmt.Sprint(os.Getpid()) || e.Name()[0] < '0' || e.Name()[0] > '9' {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		if bytes.Contains(command, []byte(path)) || bytes.Contains(env, []byte(path)) || strings.HasPrefix(cwd, path) {
			left = append(left, e.Name()+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return left
}

// read runs a command and returns its standard output.
func (d *demo) read(ctx context.Context, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, d.dayfly, args...)
	c.Env, c.Dir = d.env, d.temp
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("dayfly %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}

// ask runs a command with -o json and decodes its answer.
func ask[T any](ctx context.Context, d *demo, args ...string) (v T, err error) {
	out, err := d.read(ctx, append(args, "-o", "json")...)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return v, fmt.Errorf("dayfly %s: %w", strings.Join(args, " "), err)
	}
	return v, nil
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}
