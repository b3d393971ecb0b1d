package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// shownTicket returns the ticket of a call, or "". Its own header comes first: with that, the other
// belongs to the gateway.
func shownTicket(req *http.Request) string {
	if sealed := req.Header.Get(api.HeaderTicket); sealed != "" {
		return sealed
	}
	scheme, sealed, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return sealed
}

// open opens a ticket with the current keys. Only a ticket that they do not open is refused as unauthenticated, which
// ends a run; keys that cannot be read are transient.
func (r *Relay) open(ctx context.Context, sealed string, now time.Time) (ticket.Claims, error) {
	if r.cfg.Know != nil {
		if err := r.cfg.Know(ctx, sealed, now); err != nil {
			r.cfg.Log.Warn("ticket keys not known", "err", err)
			return ticket.Claims{}, &workflow.Error{
				Kind: workflow.ErrBusy, Message: "the ticket cannot be opened now; try again",
				RetryAfter: cmp.Or(api.RetryAfter(err), retryAfter),
			}
		}
	}
	r.mu.Lock()
	claims, ok := r.opened[sealed]
	r.mu.Unlock()
	if ok && now.Before(claims.Expires) {
		return claims, nil
	}
	claims, err := r.opener.Open(sealed, now)
	if err != nil && !errors.Is(err, workflow.ErrUnauthenticated) {
		err = fmt.Errorf("open ticket: %w", err)
	}
	if err == nil && r.cfg.Know == nil {
		r.mu.Lock()
		r.opened[sealed] = claims
		r.mu.Unlock()
	}
	return claims, err
}

// close forgets a ticket that is hardly shown again.
func (r *Relay) close(sealed string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opened, sealed)
}
