// Package deliverer performs deliveries on a pool's side: it claims them, resolves the references that they name, makes
// the calls, and reports the result of each. It executes no code, follows no redirect, calls no private address that
// is not listed, and reports neither a secret, nor the path of an address, nor the text of an answer.
//
// # Consistency model
//
// It keeps nothing. A delivery that was claimed and not reported is claimed again when its lease has lapsed, so each is
// tried at least once, under the same id each time, by which a receiver recognises a repeat.
//
// An agent runs it when a claim's answer says that deliveries wait. On AWS the poller then invokes the function, without
// waiting for it.
package deliverer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Upstream hands out deliveries and takes their results.
type Upstream interface {
	ClaimDeliveries(ctx context.Context, in api.DeliveryClaim) (api.DeliveriesClaimed, error)
	DeliveryDone(ctx context.Context, id string, in api.DeliveryResult) error
}

// Bounds of a pass. Claimed deliveries are tried and reported within TryTime and reportTime, which is far less than a
// lease.
const (
	batch       = 5                // deliveries in one claim, which are all tried at once
	maxRounds   = 20               // claims in one pass
	connectTime = 10 * time.Second // for a connection, for TLS and for the beginning of an answer, each
	callTime    = 15 * time.Second // for all of a call
	maxAnswer   = 64 << 10         // bytes of an answer that are read, and dropped
	reportTime  = 10 * time.Second
)

// TryTime bounds one try with all that it resolves. A pass that is told to end takes so long at most, and the time of a
// report.
const TryTime = 20 * time.Second

// Config says how a deliverer works.
type Config struct {
	Instance string           // the claimant; stable over restarts; required
	Secrets  secrets.Resolver // of the references that deliveries name; it decides which may be read; required
	Private  outbound.Private // private addresses that may be called; the zero value is none
	// Setting names the setting that lists these, for messages: "private_deliveries of the agent"; required.
	Setting string
	Now     func() time.Time // nil means time.Now
	Log     *slog.Logger     // nil means no log
}

// Deliverer performs deliveries. Its methods may be called concurrently: claims are exclusive.
type Deliverer struct {
	upstream Upstream
	cfg      Config
	client   *http.Client
	hosts    *http.Client // for git hosts
}

// New returns a deliverer.
func New(upstream Upstream, cfg Config) (*Deliverer, error) {
	var missing workflow.Mistakes
	if cfg.Instance == "" {
		missing.Add("instance", "a deliverer needs the name of its instance")
	}
	if cfg.Secrets == nil {
		missing.Add("secrets", "a deliverer needs something that resolves references")
	}
	if cfg.Setting == "" {
		missing.Add("setting", "a deliverer needs the name of the setting that lists private addresses")
	}
	if err := missing.Err(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	limits := outbound.Limits{Setting: cfg.Setting, Connect: connectTime, Timeout: callTime, Body: maxAnswer}
	d := &Deliverer{upstream: upstream, cfg: cfg, client: cfg.Private.Client(limits)}
	limits.Body = githost.MaxBody
	d.hosts = cfg.Private.Client(limits)
	return d, nil
}

// Summary counts the work of one pass.
type Summary struct {
	Claimed    int
	Done       int
	Failed     int  // tries that were not done and are made again
	GivenUp    int  // of which another try would do no better
	Unreported int  // whose report was not taken: they are tried again when their lease has lapsed
	More       bool // there may be more to claim
}

// Pass claims and tries until a claim comes back short, or ctx ends or leaves too little time. Deliveries claimed by
// then are still tried and reported, within TryTime and 10 s. An error is of a claim; the summary counts the work
// done before.
func (d *Deliverer) Pass(ctx context.Context) (s Summary, err error) {
	defer func() { // no connection stays open between passes
		d.client.CloseIdleConnections()
		d.hosts.CloseIdleConnections()
	}()
	for range maxRounds {
		if s.More = true; !roomy(ctx) {
			return s, nil
		}
		out, err := d.upstream.ClaimDeliveries(ctx, api.DeliveryClaim{Max: batch, Instance: d.cfg.Instance})
		if err != nil {
			if ctx.Err() != nil {
				return s, nil //nolint:nilerr // to be told to stop is not a failure
			}
			return s, fmt.Errorf("claim deliveries for %s: %w", d.cfg.Instance, err)
		}
		s.Claimed += len(out.Tasks)
		d.try(context.WithoutCancel(ctx), out.Tasks, &s)
		if s.More = !out.Short && len(out.Tasks) > 0; !s.More {
			return s, nil
		}
	}
	return s, nil
}

// roomy reports whether deliveries claimed now can be tried and reported before the deadline.
func roomy(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() == nil && (!ok || time.Until(deadline) > TryTime+reportTime)
}

// try performs tasks, all at once, and reports each.
func (d *Deliverer) try(ctx context.Context, tasks []api.DeliveryTask, s *Summary) {
	var mu sync.Mutex
	var group errgroup.Group
	for _, task := range tasks {
		group.Go(func() error {
			result := d.perform(ctx, task)
			err := d.report(ctx, task.ID, result)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				s.Unreported++
			case result.IsDone:
				s.Done++
			case result.IsPermanent:
				s.GivenUp++
			default:
				s.Failed++
			}
			return nil
		})
	}
	_ = group.Wait() // no member fails
}

// perform tries a task once.
func (d *Deliverer) perform(ctx context.Context, task api.DeliveryTask) api.DeliveryResult {
	ctx, cancel := context.WithTimeout(ctx, TryTime)
	defer cancel()
	var result api.DeliveryResult
	switch {
	case task.Send != nil:
		result = Outcome(d.send(ctx, task.ID, *task.Send))
	case task.Host != nil:
		result = d.ask(ctx, *task.Host)
	default:
		result = Outcome(Try{Err: errUnknown})
	}
	result.Attempt = task.Attempt
	return result
}

// errUnknown refuses a task of a kind that only a newer control plane makes.
var errUnknown = &ownError{text: "this version does not know this kind of delivery: it is older than the control plane"}

func (d *Deliverer) report(ctx context.Context, id string, result api.DeliveryResult) error {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	err := d.upstream.DeliveryDone(ctx, id, result)
	level, attrs := slog.LevelInfo, []any{"delivery", id, "attempt", result.Attempt, "done", result.IsDone, "detail", result.Detail}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	if err != nil || !result.IsDone {
		level = slog.LevelWarn
	}
	d.cfg.Log.Log(ctx, level, "delivery tried", attrs...)
	return err
}
