package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
)

// PolicyCommands are the commands of dayfly policy.
type PolicyCommands struct {
	SettingCommands
	Test policyTestCommand `cmd:"" help:"Run the tests of a package of policies, and show what it says of a recorded plan."`
}

type policyTestCommand struct {
	Directory string `arg:"" name:"dir" help:"Directory of the package." placeholder:"DIR"`
	Plan      string `help:"A plan as \"tofu show -json\" writes it; shows what the package says of it." placeholder:"FILE"`
}

// Run starts the program that evaluates policies; its exit code is the command's.
func (c *policyTestCommand) Run(a *cli.App) error {
	program, err := child.Find(api.PolicyProgram)
	if err != nil {
		return fmt.Errorf("%s is neither beside this program nor in PATH: \"make build\" builds it, and scripts/install installs it", api.PolicyProgram)
	}
	args := []string{"test"}
	if c.Plan != "" {
		args = append(args, "--plan="+c.Plan)
	}
	if a.JSON() {
		args = append(args, "--output=json")
	}
	cmd := exec.CommandContext(a.Ctx, program, append(args, "--", c.Directory)...)
	var results bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, a.Stdout, a.Stderr // it needs nothing of the environment
	if a.JSON() {
		cmd.Stdout = &results
	}
	err = cmd.Run()
	if results.Len() > 0 {
		if err := a.Encode(json.RawMessage(results.Bytes())); err != nil {
			return err
		}
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() > 0 {
		return &cli.ExitError{Code: ended.ExitCode()} // it said why
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}
