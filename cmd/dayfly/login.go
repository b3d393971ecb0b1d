package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/signin"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type loginCommand struct {
	URL              string        `arg:"" optional:"" help:"Address of the control plane, such as https://dayfly.example.com; default that of the last login."`
	Organization     string        `placeholder:"NAME" help:"The organization; default default."`
	Issuer           string        `placeholder:"NAME" help:"Which issuer to log in with, where the organization has several for people."`
	Device           bool          `xor:"how" help:"Log in with a browser of another machine, by a code."`
	Token            bool          `xor:"how" help:"Read a token from standard input. This is also done where there is no terminal, or no issuer for people."`
	OIDCTokenFile    string        `name:"oidc-token-file" xor:"how" type:"path" placeholder:"FILE" help:"Log in with a token of an issuer that the organization trusts, as pipelines get one."`
	ClientID         string        `xor:"how" placeholder:"ID" help:"Log in as a service principal, with --client-secret-file."`
	ClientSecretFile string        `type:"path" placeholder:"FILE" help:"File with the secret of the service principal."`
	Expires          time.Duration `help:"How long to stay logged in, such as 8h; at most what the organization allows; default 1h."`
}

// Run logs in, asks the control plane whose the token is, and remembers it.
func (c *loginCommand) Run(a *app) error {
	if c.URL == "" {
		address, err := credentials.Address(a.getenv)
		if err != nil {
			return usage(fmt.Errorf("URL: is missing: %w", err))
		}
		c.URL = address
	}
	switch {
	case c.Expires < 0 || c.Expires%time.Second != 0:
		return usage(fmt.Errorf("--expires: want whole seconds, not %s", c.Expires))
	case (c.ClientID == "") != (c.ClientSecretFile == ""):
		return usage(errors.New("a service principal logs in with both --client-id and --client-secret-file"))
	}
	if err := credentials.CheckURL("URL", c.URL); err != nil {
		return usage(err)
	}
	to := credentials.Target{URL: strings.TrimRight(c.URL, "/")}
	in, err := c.request(a, to)
	if err != nil {
		return err
	}
	if in == nil {
		value, err := term.ReadSecret(a.ctx, a.stdin, a.stderr, "token for "+c.URL, 1024)
		if err != nil && !c.Token && !term.IsTerminal(a.stdin) {
			err = fmt.Errorf("%w, or log in with --device, --oidc-token-file or --client-id", err)
		}
		if err != nil {
			return unanswered(err)
		}
		to.Token = redact.New(value)
		return a.loggedIn(to)
	}
	bare, err := dial(to)
	if err != nil {
		return err
	}
	in.Audience, in.Expiration = api.OrganizationPrefix+cmp.Or(c.Organization, defaultOrganization), int(c.Expires/time.Second)
	began := time.Now()
	issued, err := bare.IssueToken(a.ctx, *in)
	if said, ok := errors.AsType[*workflow.Error](err); ok && errors.Is(said, workflow.ErrUnauthenticated) {
		return refused(fmt.Errorf("%s does not let you in: %s", to.URL, said.Message))
	}
	if err != nil {
		return err
	}
	to.Token, to.Ends = redact.New(issued.AccessToken), began.Add(time.Duration(issued.ExpiresIn)*time.Second)
	return a.loggedIn(to)
}

const (
	defaultOrganization = "default"
	mostFile            = 64 << 10 // bytes of a file with a token or secret
)

// request returns what to ask the token endpoint for; nil means that the person has a token.
func (c *loginCommand) request(a *app, to credentials.Target) (*api.TokenRequest, error) {
	exchange := func(token redact.String, kind string) *api.TokenRequest {
		return &api.TokenRequest{GrantType: api.GrantExchange, SubjectToken: token.Reveal(), SubjectTokenType: kind}
	}
	switch {
	case c.Token:
		return nil, nil //nolint:nilnil // as documented
	case c.ClientID != "":
		secret, err := readSecretFile("--client-secret-file", c.ClientSecretFile)
		return &api.TokenRequest{GrantType: api.GrantClientCredentials, ClientID: c.ClientID, ClientSecret: secret.Reveal()}, err
	case c.OIDCTokenFile != "":
		token, err := readSecretFile("--oidc-token-file", c.OIDCTokenFile)
		return exchange(token, api.TokenTypeJWT), err
	}
	wanted := c.Device || c.Organization != "" || c.Issuer != ""
	if !wanted && (!term.IsTerminal(a.stdin) || !term.IsTerminal(a.stderr)) {
		return nil, nil //nolint:nilnil // as documented
	}
	option, err := c.option(a, to, wanted)
	if err != nil || option == nil {
		return nil, err
	}
	cfg := signin.Config{Issuer: option.Issuer, ClientID: option.ClientID, Scopes: option.Scopes, Say: a.say, Open: a.browse}
	login := signin.Browser
	if c.Device {
		login = signin.Device
	}
	token, err := login(a.ctx, cfg)
	if err != nil {
		if errors.Is(a.ctx.Err(), context.Canceled) {
			return nil, unanswered(term.ErrLeft)
		}
		return nil, &exitError{code: exitFailed, err: fmt.Errorf("you are not logged in: %s", term.Clean(err.Error()))}
	}
	in := exchange(token, api.TokenTypeID)
	in.RequestedTokenType = api.TokenTypePrefix + api.KindUser
	return in, nil
}

// option is the issuer to log in with; nil: people log in with a token.
func (c *loginCommand) option(a *app, to credentials.Target, wanted bool) (*api.LoginOption, error) {
	bare, err := dial(to)
	if err != nil {
		return nil, err
	}
	organization := cmp.Or(c.Organization, defaultOrganization)
	options, err := bare.LoginOptions(a.ctx, organization)
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
		return nil, refused(fmt.Errorf("organization %s has no issuer with which people log in: use dayfly login --token", organization))
	case len(names) == 1 && c.Issuer == "":
		return &options.Issuers[0], nil
	}
	return nil, refused(fmt.Errorf("organization %s has these issuers: %s; choose one with --issuer", organization, strings.Join(names, ", ")))
}

// browse opens an address with the program that this system has for it.
func (a *app) browse(ctx context.Context, address string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	if !installed(program, a.getenv) {
		return fmt.Errorf("there is no %s", program)
	}
	c := exec.CommandContext(ctx, program, address) //nolint:gosec // the address begins with https://, and no shell reads it
	if err := c.Start(); err != nil {
		return err
	}
	go func() { _ = c.Wait() }()
	return nil
}

// loggedIn asks the control plane whose a token is, and remembers it.
func (a *app) loggedIn(to credentials.Target) error {
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
	if a.getenv(credentials.EnvToken) != "" {
		a.say("%s is set, and wins over this login: unset it", credentials.EnvToken)
	}
	facts, until := map[string]string{"url": to.URL, "name": who.Name, "role": who.Role, "file": path}, ""
	if !to.Ends.IsZero() {
		facts["expires_at"] = to.Ends.UTC().Format(time.RFC3339)
		until = " until " + term.Time(to.Ends)
	}
	return a.done(facts, "logged in to %s as %s (%s)%s; stored in %s", to.URL, term.Clean(who.Name), api.Roles(who.Role, who.Grants), until, path)
}

func readSecretFile(flag, path string) (redact.String, error) {
	f, err := os.Open(path)
	if err != nil {
		return redact.String{}, usage(fmt.Errorf("%s: %w", flag, err))
	}
	defer f.Close() //nolint:errcheck // it was only read
	b, err := io.ReadAll(io.LimitReader(f, mostFile+1))
	value := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return redact.String{}, usage(fmt.Errorf("%s: %w", flag, err))
	case value == "" || len(b) > mostFile:
		return redact.String{}, usage(fmt.Errorf("%s: %s is empty or too long", flag, path))
	}
	return redact.New(value), nil
}

type logoutCommand struct {
	URL string `arg:"" optional:"" help:"Address of the control plane; default that of the last login."`
}

// Run forgets the token. It does not revoke it: a token that people log in for ends soon by itself.
func (c *logoutCommand) Run(a *app) error {
	address := strings.TrimRight(c.URL, "/")
	if address == "" {
		var err error
		if address, err = credentials.Address(a.getenv); err != nil {
			return usage(err)
		}
	}
	found, err := credentials.Remove(a.getenv, address)
	if err != nil {
		return err
	}
	if !found {
		return usage(fmt.Errorf("no token is stored for %s", address))
	}
	return a.done(map[string]string{"url": address}, "the token for %s is removed from this machine", address)
}
