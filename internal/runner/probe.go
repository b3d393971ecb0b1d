package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/task"
)

// Probe shows whether a task here would see its own directory and reach its relay. It reads a word in the
// directory and sends it to the relay. A launcher runs it before the first task.
func Probe(ctx context.Context, getenv func(string) string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	given, _ := task.Read(getenv, "") // a probe gets fewer variables than a run
	word, err := os.ReadFile(filepath.Join(given.WorkDir, task.ProbeFile))
	if err != nil {
		return fmt.Errorf("probe: the task's directory is not the one on this machine: %w", err)
	}
	address, transport := given.Relay, &http.Transport{}
	if socket, ok := strings.CutPrefix(address, "unix://"); ok {
		address = "http://relay"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+task.ProbePath+strings.TrimSpace(string(word)), http.NoBody)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("probe: cannot reach the relay: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10)); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if response.StatusCode != http.StatusNoContent {
		return errors.New("probe: another server answers at the relay's address")
	}
	return nil
}
