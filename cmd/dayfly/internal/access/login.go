// Package access has the commands about identities and rights: logins, tokens, principals, service principals, and
// the audit trail.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/signin"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// LoginCommand is dayfly login.
type LoginCommand struct {
	URL              string        `arg:"" optional:"" help:"Address of the control plane, such as https://dayfly.example.com; default that of the last login."`
	Organization     string        `placeholder:"NAME" help:"The organization; default default."`
	Issuer           string        `placeholder:"NAME" help:"Which issuer to log in with, where the organization has several for people."`
	Device           bool          `xor:"how" help:"Log in with a browser of another machine, by a code."`
	Token            bool          `xor:"how" help:"Read a token from standard input. This is also done where there is no terminal, or no issuer for people."`
	OIDCTokenFile    string        `name:"oidc-token-file" xor:"how" type:"path" placeholder:"FILE" help:"Log in with a token of an issuer that the organization trusts, as pipelines get one."`
	ClientID         string        `xor:"how" placeholder:"ID" help:"Log in as a service principal, with --client-secret-file."`
	ClientSecretFile string        `type:"path" placeholder:"FILE" help:"File with the secret of the service principal."`
	Expires          time.Duration `help:"How long to stay logged in, such as 8h, up to the organization's maximum; default 1h."`
}

// Run logs in, asks the control plane whose the token is, and remembers it.
func (c *LoginCommand) Run(a *cli.App) error {
	if c.URL == "" {
		address, err := credentials.Address(a.Getenv)
		if err != nil {
			return cli.Usage(fmt.Errorf("URL: is missing: %w", err))
		}
		c.URL = address
	}
	if err := c.check(); err != nil {
		return cli.Usage(err)
	}

	to := credentials.Target{URL: strings.TrimRight(c.URL, "/")}
	in, err := c.request(a, to)
	if err != nil {
		return err
	}
	if in == nil {
		if to.Token, err = c.readToken(a); err != nil {
			return cli.Unanswered(err)
		}
		return loggedIn(a, to)
	}

	bare, err := cli.Dial(to)
	if err != nil {
		return err
	}
	in.Audience, in.Expiration = api.OrganizationPrefix+cmp.Or(c.Organization, cli.DefaultOrganization), int(c.Expires/time.Second)
	began := time.Now()
	issued, err := bare.IssueToken(a.Ctx, *in)
	if said, ok := errors.AsType[*workflow.Error](err); ok && errors.Is(said, workflow.ErrUnauthenticated) {
		return cli.Refused(fmt.Errorf("%s refuses this login: %s", to.URL, said.Message))
	}
	if err != nil {
		return err
	}
	to.Token, to.Ends = redact.New(issued.AccessToken), began.Add(time.Duration(issued.ExpiresIn)*time.Second)
	return loggedIn(a, to)
}

// check refuses flags that contradict each other, and an address that is not a control plane's.
func (c *LoginCommand) check() error {
	switch {
	case c.Expires < 0 || c.Expires%time.Second != 0:
		return fmt.Errorf("--expires: want whole seconds, not %s", c.Expires)
	case (c.ClientID == "") != (c.ClientSecretFile == ""):
		return errors.New("a service principal logs in with both --client-id and --client-secret-file")
	}
	return credentials.CheckURL("URL", c.URL)
}

// readToken reads a token from standard input.
func (c *LoginCommand) readToken(a *cli.App) (redact.String, error) {
	value, err := term.ReadSecret(a.Ctx, a.Stdin, a.Stderr, "token for "+c.URL, 1024)
	if err != nil && !c.Token && !term.IsTerminal(a.Stdin) {
		err = fmt.Errorf("%w, or log in with --device, --oidc-token-file or --client-id", err)
	}
	return redact.New(value), err
}

// request returns the request to the token endpoint; nil means that the person has a token.
func (c *LoginCommand) request(a *cli.App, to credentials.Target) (*api.TokenRequest, error) {
	exchange := func(token redact.String, kind string) *api.TokenRequest {
		return &api.TokenRequest{GrantType: api.GrantExchange, SubjectToken: token.Reveal(), SubjectTokenType: kind}
	}
	switch {
	case c.Token:
		return nil, nil //nolint:nilnil // as documented
	case c.ClientID != "":
		secret, err := cli.ReadSecretFile("--client-secret-file", c.ClientSecretFile)
		return &api.TokenRequest{GrantType: api.GrantClientCredentials, ClientID: c.ClientID, ClientSecret: secret.Reveal()}, err
	case c.OIDCTokenFile != "":
		token, err := cli.ReadSecretFile("--oidc-token-file", c.OIDCTokenFile)
		return exchange(token, api.TokenTypeJWT), err
	}

	wanted := c.Device || c.Organization != "" || c.Issuer != ""
	if !wanted && (!term.IsTerminal(a.Stdin) || !term.IsTerminal(a.Stderr)) {
		return nil, nil //nolint:nilnil // as documented
	}
	option, err := c.option(a, to, wanted)
	if err != nil || option == nil {
		return nil, err
	}

	cfg := signin.Config{Issuer: option.Issuer, ClientID: option.ClientID, Scopes: option.Scopes, Say: a.Say, Open: a.Browse}
	login := signin.Browser
	if c.Device {
		login = signin.Device
	}
	token, err := login(a.Ctx, cfg)
	if err != nil {
		if errors.Is(a.Ctx.Err(), context.Canceled) {
			return nil, cli.Unanswered(term.ErrAborted)
		}
		return nil, &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("you are not logged in: %s", term.Clean(err.Error()))}
	}
	in := exchange(token, api.TokenTypeID)
	in.RequestedTokenType = api.TokenTypePrefix + api.KindUser
	return in, nil
}

// option is the issuer to log in with; nil: people log in with a token.
func (c *LoginCommand) option(a *cli.App, to credentials.Target, wanted bool) (*api.LoginOption, error) {
	bare, err := cli.Dial(to)
	if err != nil {
		return nil, err
	}
	organization := cmp.Or(c.Organization, cli.DefaultOrganization)
	options, err := bare.LoginOptions(a.Ctx, organization)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, one := range options.Issuers {
		if names = append(names, one.Name); one.Name == c.Issuer {
			return &one, nil
		}
	}
	switch {
	case len(names) == 0 && !wanted:
		return nil, nil //nolint:nilnil // as documented
	case len(names) == 0:
		return nil, cli.Refused(fmt.Errorf("organization %s has no issuer with which people log in: use dayfly login --token", organization))
	case len(names) == 1 && c.Issuer == "":
		return &options.Issuers[0], nil
	}
	return nil, cli.Refused(fmt.Errorf("organization %s has these issuers: %s; choose one with --issuer", organization, strings.Join(names, ", ")))
}

// loggedIn asks the control plane whose a token is, and remembers it.
func loggedIn(a *cli.App, to credentials.Target) error {
	cl, err := cli.Dial(to)
	if err != nil {
		return err
	}
	who, err := cl.Whoami(a.Ctx)
	switch {
	case errors.Is(err, workflow.ErrUnauthenticated):
		return cli.Refused(fmt.Errorf("%s does not know this token: check that all of it was copied, or have an admin make one with dayfly token create", to.URL))
	case errors.Is(err, workflow.ErrRevoked):
		return cli.Refused(fmt.Errorf("this token is no longer valid at %s: have an admin make another with dayfly token create", to.URL))
	case err != nil:
		return err
	}
	if who.Audience != "user" {
		return cli.Refused(fmt.Errorf("this is the token of a pool (%s), which is for agents: log in with a user token", who.Pool))
	}
	path, err := credentials.Save(a.Getenv, to)
	if err != nil {
		return err
	}
	if a.Getenv(credentials.EnvToken) != "" {
		a.Say("%s is set, and takes precedence over this login: unset it", credentials.EnvToken)
	}
	facts, until := map[string]string{"url": to.URL, "name": who.Name, "role": who.Role, "file": path}, ""
	if !to.Ends.IsZero() {
		facts["expires_at"] = to.Ends.UTC().Format(time.RFC3339)
		until = " until " + term.Time(to.Ends)
	}
	return a.Done(facts, "logged in to %s as %s (%s)%s; stored in %s", to.URL, term.Clean(who.Name), api.Roles(who.Role, who.Grants), until, path)
}

// LogoutCommand is dayfly logout.
type LogoutCommand struct {
	URL string `arg:"" optional:"" help:"Address of the control plane; default that of the last login."`
}

// Run forgets the token. It does not revoke it: a token that people log in for ends soon by itself.
func (c *LogoutCommand) Run(a *cli.App) error {
	address := strings.TrimRight(c.URL, "/")
	if address == "" {
		var err error
		if address, err = credentials.Address(a.Getenv); err != nil {
			return cli.Usage(err)
		}
	}
	found, err := credentials.Remove(a.Getenv, address)
	if err != nil {
		return err
	}
	if !found {
		return cli.Usage(fmt.Errorf("no token is stored for %s", address))
	}
	return a.Done(map[string]string{"url": address}, "the token for %s is removed from this machine", address)
}
