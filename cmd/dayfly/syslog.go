package main

import (
	"context"
	"fmt"
	"log/slog"
	"log/syslog"
	"strings"
)

// toSyslog writes each record with the severity of its level.
type toSyslog struct{ debug, info, warn, err slog.Handler }

// syslogHandler connects to a syslog.
func syslogHandler(dial func() (*syslog.Writer, error), options *slog.HandlerOptions) (slog.Handler, error) {
	w, err := dial()
	if err != nil {
		return slog.DiscardHandler, usage(fmt.Errorf("syslog: this machine has none that answers: %w; leave syslog out, and the log goes to standard error", err))
	}
	timeless := *options
	timeless.ReplaceAttr = func(groups []string, at slog.Attr) slog.Attr { // the syslog has the time and the severity
		if len(groups) == 0 && (at.Key == slog.TimeKey || at.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return at
	}
	at := func(write func(string) error) slog.Handler { return slog.NewTextHandler(severity(write), &timeless) }
	return toSyslog{at(w.Debug), at(w.Info), at(w.Warning), at(w.Err)}, nil
}

// severity is a writer of whole lines.
type severity func(string) error

func (s severity) Write(line []byte) (int, error) {
	return len(line), s(strings.TrimSuffix(string(line), "\n"))
}

func (h toSyslog) of(level slog.Level) slog.Handler {
	switch {
	case level >= slog.LevelError:
		return h.err
	case level >= slog.LevelWarn:
		return h.warn
	case level >= slog.LevelInfo:
		return h.info
	}
	return h.debug
}

func (h toSyslog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.info.Enabled(ctx, level)
}

func (h toSyslog) Handle(ctx context.Context, r slog.Record) error {
	return h.of(r.Level).Handle(ctx, r)
}

func (h toSyslog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return toSyslog{h.debug.WithAttrs(attrs), h.info.WithAttrs(attrs), h.warn.WithAttrs(attrs), h.err.WithAttrs(attrs)}
}

func (h toSyslog) WithGroup(name string) slog.Handler {
	return toSyslog{h.debug.WithGroup(name), h.info.WithGroup(name), h.warn.WithGroup(name), h.err.WithGroup(name)}
}
