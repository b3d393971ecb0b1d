package serve

import (
	"fmt"
	"log/slog"
	"log/syslog"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
)

// syslogHandler writes to the syslog of this machine, each record with the severity of its level.
func syslogHandler(dial func() (*syslog.Writer, error), level slog.Level) (slog.Handler, error) {
	w, err := dial()
	if err != nil {
		return slog.DiscardHandler, cli.Usage(fmt.Errorf("syslog: this machine has none that answers: %w; leave syslog out, and the log goes to standard error", err))
	}
	return slog.NewTextHandler(severity{w}, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, at slog.Attr) slog.Attr {
		if len(groups) == 0 && at.Key == slog.TimeKey { // the syslog has its own
			return slog.Attr{}
		}
		return at
	}}), nil
}

// severity takes the lines of a text handler without times: each begins with its level.
type severity struct{ *syslog.Writer }

// Write implements io.Writer.
func (s severity) Write(line []byte) (int, error) {
	level, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
	write := s.Info
	switch level {
	case "level=DEBUG":
		write = s.Debug
	case "level=WARN":
		write = s.Warning
	case "level=ERROR":
		write = s.Err
	}
	return len(line), write(rest)
}
