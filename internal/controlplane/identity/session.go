package identity

import (
	"context"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A session ends by itself: maxSession after it began, and idleSession after its last activity.
const (
	maxSession  = 12 * time.Hour
	idleSession = 2 * time.Hour
	seenStep    = 5 * time.Minute // how old the time of the last activity may get before it is written again
)

const sessionPrefix = "dfw_"

func signedOut() error {
	return workflow.Refuse(workflow.ErrUnauthenticated, "", "you are not signed in, or your session has ended; sign in again")
}

// SignIn begins a session for the principal of a user token, and returns the value of the session. The session has a
// record of its own, so that its value is not a token of the API. The record names the token that the session came
// from. Both are checked at each request: the session ends with the token, and has the current roles of the token.
func (p *Calls) SignIn(ctx context.Context, token string) (string, error) {
	who, err := p.Authenticate(ctx, token)
	if err != nil {
		return "", err
	}
	if who.Audience != User {
		return "", p.Refuse(ctx, who, "session.begin", workflow.Refuse(workflow.ErrForbidden, "token", "this is the token of pool %s; sign in with a user token, which starts with %s", who.Pool, userPrefix))
	}
	value, hash := newToken(sessionPrefix)
	err = p.ledger.Change(ctx, func(_ context.Context, c *ledger.Change) error {
		s := record.Session{ID: record.NewID("ses_", c.Now), Org: who.Organization, Name: who.Name, ByID: who.ID, Token: record.Hash(token), Seen: c.Now, Expires: c.Now.Add(maxSession)}
		if !who.Expires.IsZero() && who.Expires.Before(s.Expires) {
			s.Expires = who.Expires
		}
		c.PutUntil(record.SessionKey(hash), s, s.Expires)
		Audit(c, who, "session.begin", s.ID, "done", "by token "+who.TokenID+", until "+s.Expires.Format(time.RFC3339))
		return nil
	})
	return value, err
}

// Session returns the principal of a session. active says that the request comes from a person, and not from a page
// that polls for updates: only such a request counts as activity.
func (p *Calls) Session(ctx context.Context, value string, active bool) (Principal, error) {
	if !strings.HasPrefix(value, sessionPrefix) || len(value) > 200 {
		return Principal{}, signedOut()
	}
	c, k := p.ledger.View(), record.SessionKey(record.Hash(value))
	if err := c.LoadLinked(ctx, k); err != nil {
		return Principal{}, err
	}
	s, ok, err := ledger.Get[record.Session](c.Read, k)
	if err != nil {
		return Principal{}, err
	}
	if !ok || !live(s, c.Now) {
		return Principal{}, signedOut()
	}
	tk := record.TokenKey(s.Token)
	c.Link(k, tk)
	if err := c.Load(ctx, tk); err != nil {
		return Principal{}, err
	}
	who, err := principalOf(ctx, c, tk)
	if err != nil {
		return Principal{}, err
	}
	who.Expires = s.Expires
	if active && c.Now.Sub(s.Seen) >= seenStep {
		p.markActive(ctx, value)
	}
	return who, nil
}

// live reports whether a session has not ended by time. It is a pure function.
func live(s record.Session, now time.Time) bool {
	return now.Before(s.Expires) && now.Sub(s.Seen) < idleSession
}

// markActive stores that a session is in use. If that fails, the next request does it.
func (p *Calls) markActive(ctx context.Context, value string) {
	k := record.SessionKey(record.Hash(value))
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		s, ok, err := ledger.Load[record.Session](ctx, c, k)
		if err != nil || !ok || c.Now.Sub(s.Seen) < seenStep {
			return err
		}
		s.Seen = c.Now
		c.PutUntil(k, s, s.Expires)
		return nil
	})
	if err != nil {
		p.ledger.Log.DebugContext(ctx, "session's last use not written", "err", err)
	}
}

// SignOut ends a session. One that has ended is no error.
func (p *Calls) SignOut(ctx context.Context, value string) error {
	if !strings.HasPrefix(value, sessionPrefix) || len(value) > 200 {
		return nil
	}
	k := record.SessionKey(record.Hash(value))
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		s, ok, err := ledger.Load[record.Session](ctx, c, k)
		if err != nil || !ok {
			return err
		}
		c.Remove(k)
		Audit(c, Principal{Organization: s.Org, ID: s.ByID, Name: s.Name}, "session.end", s.ID, "done", "")
		return nil
	})
}
