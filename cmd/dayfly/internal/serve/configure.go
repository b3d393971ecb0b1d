package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// ConfigureCommand is dayfly configure.
type ConfigureCommand struct {
	agentSettings
	TokenFile string `placeholder:"FILE" help:"File with the pool token; - reads it from standard input. On a terminal it is asked for."`
	SkipCheck bool   `help:"Write the file without trying the token."`
	Force     bool   `help:"Replace the file if it exists."`
}

// Run asks for missing settings, checks them as the agent would, and writes the settings file.
func (c *ConfigureCommand) Run(a *cli.App) error {
	path, err := filepath.Abs(cmp.Or(c.Config, config.FileName))
	if err != nil {
		return fmt.Errorf("find the settings file: %w", err)
	}
	if _, err := os.Lstat(path); err == nil && !c.Force {
		return cli.Usage(fmt.Errorf("%s exists already: --force replaces it, and --config names another", path))
	}

	values := map[string]string{}
	for key, flag := range a.Flags(config.Agent) {
		values[key] = flag.Value
	}
	if err := c.ask(a, values); err != nil {
		return err
	}
	text, err := config.Render(config.Agent, path, values)
	if err != nil {
		return cli.Usage(err)
	}
	if token := values["token"]; token != "" && !c.SkipCheck {
		if err := tryToken(a, values["service_url"], token); err != nil {
			return err
		}
	}

	write := disk.Create
	if c.Force {
		write = disk.Replace
	}
	if err := write(path, text); errors.Is(err, fs.ErrExist) {
		return cli.Usage(fmt.Errorf("%s was created meanwhile: --force replaces it", path))
	} else if err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}
	next := "dayfly agent"
	if c.Config != "" {
		next += " --config " + path
	}
	return a.Done(map[string]string{"file": path, "next": next}, "wrote %s; start the agent with: %s", path, next)
}

// ask gets the token and, at a terminal, the settings that no flag sets.
func (c *ConfigureCommand) ask(a *cli.App, values map[string]string) (err error) {
	terminal := term.IsTerminal(a.Stdin) && term.IsTerminal(a.Stderr)
	if terminal {
		if err := askSettings(a, values); err != nil {
			return cli.Unanswered(err)
		}
	}

	var token redact.String
	switch {
	case c.TokenFile == "-" || c.TokenFile == "" && terminal && values["oidc_token_file"] == "":
		var text string
		text, err = term.ReadSecret(a.Ctx, a.Stdin, a.Stderr, "pool token, which dayfly pool create printed", 1024)
		token = redact.New(text)
	case c.TokenFile != "":
		token, err = cli.ReadSecretFile("--token-file", c.TokenFile)
	}
	if token.Reveal() != "" {
		values["token"] = token.Reveal()
	}
	if err != nil {
		return cli.Unanswered(err)
	}
	return nil
}

// askSettings asks for the settings that have no value yet.
func askSettings(a *cli.App, values map[string]string) error {
	for _, q := range []struct{ key, question string }{
		{"service_url", "Address of the control plane, such as https://dayfly.example.com: "},
		{"working_directory", "Data directory (empty: the default of this user): "},
		{"deploy_target", "Where jobs run: auto, docker, process or ecs (empty: auto): "},
		{"source_roots", "Directories of this machine that may be sources, separated by : (empty: none): "},
	} {
		if values[q.key] != "" || q.key == "source_roots" && values["deploy_target"] == config.TargetECS {
			continue
		}
		answer, err := term.Ask(a.Ctx, a.Stdin, a.Stderr, q.question)
		if err != nil {
			return err
		}
		if answer != "" {
			values[q.key] = answer
		}
	}
	return nil
}

// tryToken asks the control plane whether it takes a pool token.
func tryToken(a *cli.App, address, token string) error {
	cl, err := cli.Dial(credentials.Target{URL: address, Token: redact.New(token)})
	if err != nil {
		return err
	}
	who, err := cl.Whoami(a.Ctx)
	if refusal := agent.TokenRefused(err, address, "compare it with the output of dayfly pool create or dayfly pool rotate-token"); refusal != nil {
		return cli.Refused(refusal)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w; --skip-check writes the file without trying the token", err)
	case who.Pool == "":
		return cli.Refused(errors.New("this is the token of a person: an agent needs that of a pool, which dayfly pool create prints"))
	}
	a.Say("the control plane accepts the token: it is that of pool %s", term.Clean(who.Pool))
	return nil
}
