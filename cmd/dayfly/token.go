package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type tokenCommands struct {
	Create tokenCreate `cmd:"" help:"Make a user token and print it, once."`
	List   tokenList   `cmd:"" help:"List user tokens, without their values."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a user token."`
}

type tokenCreate struct {
	Name    string        `arg:"" help:"What the token is for."`
	Role    string        `enum:"viewer,operator,admin" default:"viewer" help:"What it may do: viewer, operator or admin."`
	Expires time.Duration `help:"Its lifetime, such as 24h; default: until it is revoked."`
}

// Run makes the token.
func (c *tokenCreate) Run(a *app, cl *client.Client) error {
	if c.Expires < 0 || c.Expires%time.Second != 0 {
		return usage(fmt.Errorf("--expires: want whole seconds, not %s", c.Expires))
	}
	t, err := cl.CreateToken(a.ctx, api.NewToken{Name: c.Name, Role: c.Role, ExpiresSeconds: int64(c.Expires / time.Second)})
	if err != nil {
		return err
	}
	return a.token(t, t.Value, "token %s (%s, %s) is shown only once: store it", t.Token.ID, t.Token.Name, t.Token.Role)
}

// token prints a new token: alone on standard output, so that a pipe can take it.
func (a *app) token(v any, value, format string, args ...any) error {
	if a.json() {
		return a.encode(v)
	}
	a.say(format, args...)
	return a.print("%s", value)
}

type tokenList struct{}

// Run prints the list.
func (c *tokenList) Run(a *app, cl *client.Client) error {
	return list(a, cl.Tokens, "no tokens",
		[]string{"TOKEN", "NAME", "ROLE", "STATE", "CREATED", "EXPIRES"}, func(k api.Token) []string {
			state, expires := "valid", "-"
			if k.ExpiresAt != nil {
				expires = term.Time(*k.ExpiresAt)
				if k.ExpiresAt.Before(time.Now()) {
					state = "expired"
				}
			}
			if k.Revoked {
				state = "revoked"
			}
			return []string{k.ID, dash(k.Name), k.Role, state, term.Time(k.CreatedAt), expires}
		})
}

type tokenRevoke struct {
	ID string `arg:"" help:"The token's id, as the list shows it."`
}

// Run revokes the token.
func (c *tokenRevoke) Run(a *app, cl *client.Client) error {
	if err := cl.RevokeToken(a.ctx, c.ID); err != nil {
		return err
	}
	return a.done(map[string]string{"revoked": c.ID}, "token %s is revoked", c.ID)
}

type loginCommand struct {
	URL string `arg:"" help:"Address of the control plane, such as https://dayfly.example.com."`
}

// Run reads a token from standard input, asks the control plane whose it is, and remembers it.
func (c *loginCommand) Run(a *app) error {
	if err := credentials.CheckURL("URL", c.URL); err != nil {
		return usage(err)
	}
	value, err := term.ReadSecret(a.ctx, a.stdin, a.stderr, "token for "+c.URL, 1024)
	if err != nil {
		return unanswered(err)
	}
	to := credentials.Target{URL: strings.TrimRight(c.URL, "/"), Token: redact.New(value)}
	cl, err := dial(to)
	if err != nil {
		return err
	}
	who, err := cl.Whoami(a.ctx)
	switch {
	case errors.Is(err, workflow.ErrUnauthenticated):
		return refused(fmt.Errorf("%s does not know this token: check that all of it was copied, or have an admin make one with dayfly token create", to.URL))
	case errors.Is(err, workflow.ErrRevoked):
		return refused(fmt.Errorf("this token is no longer valid at %s: have an admin make another with dayfly token create", to.URL))
	case err != nil:
		return err
	}
	if who.Audience != "user" {
		return refused(fmt.Errorf("this is the token of a pool (%s), which is for agents: log in with a user token", who.Pool))
	}
	path, err := credentials.Save(a.getenv, to)
	if err != nil {
		return err
	}
	return a.done(map[string]string{"url": to.URL, "name": who.Name, "role": who.Role, "file": path},
		"logged in to %s as %s (%s); stored in %s", to.URL, term.Clean(who.Name), who.Role, path)
}
