package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// TokenFile returns a func that reads an issuer's token from a file. Another program renews it before it expires.
// A token that has expired is not shown to anybody: the file is behind, which passes.
// now may be nil.
func TokenFile(path string, now func() time.Time) func(context.Context) (redact.String, error) {
	if now == nil {
		now = time.Now
	}
	return func(context.Context) (redact.String, error) {
		content, err := os.ReadFile(path)
		if err != nil {
			return redact.String{}, workflow.Refuse(workflow.ErrBusy, "", "the issuer's token cannot be read: %v", err)
		}
		value := strings.TrimSpace(string(content))
		switch ends := expiry(value); {
		case value == "" || len(content) > maxToken:
			return redact.String{}, workflow.Refuse(workflow.ErrBusy, "", "%s holds no token: it is empty or too long", path)
		case !ends.IsZero() && !now().Before(ends):
			return redact.String{}, workflow.Refuse(workflow.ErrBusy, "",
				"the token in %s expired at %s: the program that writes the file must write a new one", path, ends.UTC().Format(time.RFC3339))
		}
		return redact.New(value), nil
	}
}

const maxToken = 64 << 10 // bytes of an issuer's token

// expiry reads when a token expires, without a look at its signature; zero means that it does not say so.
func expiry(token string) time.Time {
	var claims struct {
		Expires float64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}

// exchangeTime bounds one exchange, so that calls whose token is still valid are not held up by it for long.
const exchangeTime = 10 * time.Second

// Exchanged returns a pool token that nobody stores: whenever one is needed, it sends the token that subject returns
// to the token endpoint. now and log may be nil.
func Exchanged(to *Client, in api.TokenRequest, now func() time.Time, log *slog.Logger, subject func(context.Context) (redact.String, error)) *Secret {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = func() time.Time { return time.Now().Round(0) } // as NewSecret
	}
	exchange := func(ctx context.Context) (api.IssuedToken, error) {
		token, err := subject(ctx)
		if err != nil {
			return api.IssuedToken{}, err
		}
		with := in
		with.GrantType, with.SubjectTokenType, with.SubjectToken = api.GrantExchange, api.TokenTypeJWT, token.Reveal()
		out, err := to.IssueToken(ctx, with)
		if said, ok := errors.AsType[*workflow.Error](err); ok && errors.Is(said, workflow.ErrUnauthenticated) {
			err = workflow.Refuse(workflow.ErrForbidden, "", "%s", said.Message) // of the issuer's token: the caller has no other
		}
		return out, err
	}
	var said string // the last failure in the log, and when: calls come several times a second
	var at time.Time
	return NewSecret("the pool token", now, func(ctx context.Context) (redact.String, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, exchangeTime)
		defer cancel()
		got, err := exchange(ctx)
		if clock := now(); err != nil && (err.Error() != said || clock.Sub(at) >= secretFloor) {
			said, at = err.Error(), clock
			log.Warn("pool token not exchanged", "err", err)
		}
		return redact.New(got.AccessToken), time.Duration(got.ExpiresIn) * time.Second, err
	})
}
