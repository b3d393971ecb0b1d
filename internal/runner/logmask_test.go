package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// quoting is a relay that quotes a value in its errors: one of a lost race, which is repeated, then a refusal.
type quoting struct {
	runner.Relay

	calls int
}

func (q *quoting) Start(context.Context) (api.Started, error) {
	if q.calls++; q.calls == 1 {
		return api.Started{}, fmt.Errorf("the call with value-of-the-ticket: %w", workflow.ErrConflict)
	}
	return api.Started{}, fmt.Errorf("the call with value-of-the-ticket: %w", workflow.ErrInvalid)
}

// R6: the end of the runner's own log, and its error, are shown to people when it ends without a result.
func TestRunJob_ItsOwnLogIsMaskedToo(t *testing.T) {
	_, cfg := job(t, "true")
	var words bytes.Buffer
	cfg.Hide, cfg.Relay = []string{"value-of-the-ticket"}, &quoting{}
	cfg.Log = slog.New(slog.NewJSONHandler(&words, &slog.HandlerOptions{Level: slog.LevelDebug}))
	err := runner.RunJob(t.Context(), cfg)
	if err == nil || strings.Contains(err.Error(), "value-of") || !strings.Contains(err.Error(), "***") {
		t.Errorf("got the error %v", err)
	}
	if strings.Contains(words.String(), "value-of") || !strings.Contains(words.String(), "the call with ***") {
		t.Errorf("got the log %s", words.String())
	}
}
