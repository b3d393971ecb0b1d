package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/awserr"
)

// warmFor is how long after its last use a connection to Lambda is used again. The process may have been frozen since
// then, and a connection that its other end has closed meanwhile takes a request without an error.
const warmFor = 5 * time.Second

// waker wakes a pool by invoking its function (Lambda API reference, Invoke).
//
// It does not wait for the answer, which takes longer than everything else: a wake counts as sent once its request
// was handed to a connection that was opened or used within warmFor. The kernel sends it at once, also if Lambda
// freezes the process then. A goroutine reads the answer: while the process goes on, or when it is thawed for another
// invocation. A refusal is logged then. A wake that is lost all the same is repeated by the next commit that owes
// one, from 2 s on, and the schedule of the pool finds the work in any case.
type waker struct {
	cfg       aws.Config
	log       *slog.Logger
	now       func() time.Time
	transport func() *http.Transport
	sessions  tls.ClientSessionCache // so that a new connection need not check certificates again

	mu     sync.Mutex
	caller boot.Caller
	idle   interface{ CloseIdleConnections() } // of the caller
	used   time.Time                           // when it was last used, on the wall clock
}

func newWaker(cfg aws.Config, log *slog.Logger) *waker {
	return &waker{cfg: cfg, log: log, now: time.Now, transport: boot.Transport, sessions: tls.NewLRUClientSessionCache(0)}
}

// fresh returns a caller whose connections are new enough.
func (w *waker) fresh() boot.Caller {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now().Round(0) // the monotonic clock may stand still while the process is frozen
	if age := now.Sub(w.used); age < 0 || age > warmFor {
		if w.idle != nil {
			w.idle.CloseIdleConnections()
		}
		transport := w.transport()
		transport.TLSClientConfig.ClientSessionCache = w.sessions
		client := &http.Client{Transport: transport}
		cfg := w.cfg.Copy()
		cfg.HTTPClient = client
		w.caller, w.idle = boot.NewCaller(cfg), client
	}
	w.used = now
	return w.caller
}

// Wake implements controlplane.Waker: one try, because a wake may be lost and must not be waited for.
func (w *waker) Wake(ctx context.Context, target string) error {
	caller := w.fresh()
	invocation, err := caller.Invocation(ctx, target)
	if err != nil {
		return fmt.Errorf("invoke %s: %w", target, err)
	}
	sent, failed := make(chan struct{}), make(chan error, 1)
	once := sync.OnceFunc(func() { close(sent) })
	call, cancel := context.WithCancel(httptrace.WithClientTrace(context.WithoutCancel(ctx), &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				once()
			}
		},
	}))
	go func() {
		defer cancel()
		_, err := caller.Do(call, invocation)
		select {
		case <-sent:
			w.answered(call, target, err)
		default:
			failed <- err
		}
	}()
	select {
	case <-sent:
		return nil
	case err = <-failed:
	case <-ctx.Done():
		cancel()
		err = context.Cause(ctx)
	}
	return fmt.Errorf("invoke %s: %w", target, err)
}

// answered logs the result of a wake that was sent. An answer that did not arrive says nothing: the process may have
// been frozen.
func (w *waker) answered(ctx context.Context, target string, err error) {
	switch {
	case err == nil:
	case awserr.Code(err) == "":
		w.log.DebugContext(ctx, "answer to a wake lost", "target", target, "err", err)
	default:
		w.log.WarnContext(ctx, "pool not woken; its schedule finds the work", "target", target, "err", err)
	}
}
