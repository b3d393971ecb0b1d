package serve

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// HookCommands are the commands of dayfly hook.
type HookCommands struct {
	Digest hookDigest `cmd:"" help:"Print the SHA-256 by which preapproved_hooks of a pool allows a hook."`
}

type hookDigest struct {
	File string `arg:"" help:"File with the script of the hook; - for standard input."`
}

// Run prints the digest.
func (c *hookDigest) Run(a *cli.App) (err error) {
	in := a.Stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return cli.Usage(err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	script, err := io.ReadAll(io.LimitReader(in, api.MaxHook+1))
	if err == nil && len(script) > api.MaxHook {
		err = errors.New("a hook has at most 64 KiB")
	}
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", c.File, err))
	}
	return a.Done(api.Hook{Run: string(script)}.Digest(), "%s", api.Hook{Run: string(script)}.Digest())
}
