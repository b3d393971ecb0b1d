package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/embedded"
)

// reachable is a directory that root's engines could pass through.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var served = regexp.MustCompile(`serves at (http://127\.0\.0\.1:[0-9]+)`)

// started waits until a serving command has said where it serves.
func started(t *testing.T, stderr *lockedBuffer, done <-chan int) string {
	t.Helper()
	for {
		if m := served.FindStringSubmatch(stderr.String()); m != nil {
			return m[1]
		}
		select {
		case code := <-done:
			t.Fatalf("it ended with %d: %s", code, stderr.String())
		case <-stderr.written:
		}
	}
}

func TestServer_ServesUntilItIsInterruptedAndNeverShowsItsToken(t *testing.T) {
	w := newWorld(t)
	data := reachable(t)
	stdout, stderr := lockedBuffer{}, lockedBuffer{written: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int, 1)
	go func() {
		done <- command(ctx, []string{"server", "--data", data, "--listen", "127.0.0.1:0"}, func(name string) string { return w.env[name] }, strings.NewReader(""), &stdout, &stderr)
	}()
	url := started(t, &stderr, done)
	token, err := os.ReadFile(filepath.Join(data, embedded.AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stderr.String(), strings.TrimSpace(string(token))) {
		t.Error("the token is shown")
	}
	has(t, "announcement", stderr.String(), filepath.Join(data, embedded.AdminTokenFile))
	w.env["DAYFLY_URL"], w.env["DAYFLY_API_TOKEN"] = url, strings.TrimSpace(string(token))
	has(t, "pools", w.ok("pool", "list"), "default")

	if got := w.run("server", "--data", data, "--listen", "127.0.0.1:0"); got.code != exitUsage || !strings.Contains(got.stderr, "uses the data directory") {
		t.Errorf("a second server: got %+v", got)
	}
	cancel()
	if code := <-done; code != exitOK {
		t.Errorf("got exit %d: %s", code, stderr.String())
	}
}

func TestServer_BadFlagsAreUsage(t *testing.T) {
	w := newWorld(t)
	for _, listen := range []string{"0.0.0.0:0", "nonsense"} {
		if got := w.run("server", "--data", reachable(t), "--listen", listen); got.code != exitUsage || !strings.Contains(got.stderr, "--listen") {
			t.Errorf("%s: got %+v", listen, got)
		}
	}
}
