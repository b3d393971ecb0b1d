package runner

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/dayfly-dev/dayfly/internal/runner/mask"
)

// veiled is a handler of the runner's own log that hides every masked value: a launcher shows the end of that log to
// people, when a runner could not report.
type veiled struct {
	slog.Handler
	hidden *mask.Set
}

// Handle implements slog.Handler.
func (v veiled) Handle(ctx context.Context, in slog.Record) error {
	out := slog.NewRecord(in.Time, in.Level, v.hidden.String(in.Message), in.PC)
	in.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(v.attr(a))
		return true
	})
	return v.Handler.Handle(ctx, out)
}

func (v veiled) attr(a slog.Attr) slog.Attr {
	switch value := a.Value.Resolve(); value.Kind() { //nolint:exhaustive // the others hold no text
	case slog.KindString, slog.KindAny: // also errors, and the value of a panic
		return slog.String(a.Key, v.hidden.String(value.String()))
	default:
		return a
	}
}

// WithAttrs implements slog.Handler.
func (v veiled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return veiled{v.Handler.WithAttrs(attrs), v.hidden}
}

// WithGroup implements slog.Handler.
func (v veiled) WithGroup(name string) slog.Handler {
	return veiled{v.Handler.WithGroup(name), v.hidden}
}

// hide returns an error that says the same without masked values; nil for nil.
func (v veiled) hide(err error) error {
	if err == nil {
		return nil
	}
	return &unsaid{v.hidden.String(fmt.Sprint(err)), err}
}

type unsaid struct {
	text string
	err  error
}

func (e *unsaid) Error() string { return e.text }

// Unwrap lets the error be classified by its cause.
func (e *unsaid) Unwrap() error { return e.err }
