package boot

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/aws/aws-lambda-go/lambdacontext"
)

// Began sets the invocation whose ids a log of Env.Log adds to its lines from here on. A process has one invocation
// at a time, so lines of goroutines and of packages that log without a context have its ids too. request is the id
// that an API gateway gave to the call, by which its access log names it; it is empty for other events.
func Began(ctx context.Context, log *slog.Logger, request string) {
	h, ok := log.Handler().(named)
	if !ok {
		return
	}
	var now ids
	if l, ok := lambdacontext.FromContext(ctx); ok {
		now.request = l.AwsRequestID
	}
	if request != "" {
		now.request, now.invocation = request, now.request
	}
	h.now.Store(&now)
}

// ids are those of an invocation: request_id is the gateway's id of a call, and Lambda's of any other event; a call's
// invocation_id is Lambda's.
type ids struct{ request, invocation string }

// named adds the ids of the invocation to each line. A line that names its request itself keeps that.
type named struct {
	slog.Handler

	now *atomic.Pointer[ids]
}

// Handle implements slog.Handler.
func (h named) Handle(ctx context.Context, r slog.Record) error {
	now := h.now.Load()
	if now == nil { // nothing was invoked yet
		return h.Handler.Handle(ctx, r)
	}
	const name = "request_id"
	has := now.request == ""
	r.Attrs(func(a slog.Attr) bool { has = has || a.Key == name; return !has })
	r = r.Clone()
	if !has {
		r.AddAttrs(slog.String(name, now.request))
	}
	if now.invocation != "" {
		r.AddAttrs(slog.String("invocation_id", now.invocation))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h named) WithAttrs(attrs []slog.Attr) slog.Handler {
	return named{h.Handler.WithAttrs(attrs), h.now}
}

// WithGroup implements slog.Handler.
func (h named) WithGroup(name string) slog.Handler { return named{h.Handler.WithGroup(name), h.now} }
