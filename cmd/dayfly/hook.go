package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dayfly-dev/dayfly/internal/api"
)

type hookCommands struct {
	Digest hookDigest `cmd:"" help:"Print the SHA-256 by which preapproved_hooks of a pool allows a hook."`
}

type hookDigest struct {
	File string `arg:"" help:"File with the script of the hook; - for standard input."`
}

// Run prints the digest.
func (c *hookDigest) Run(a *app) (err error) {
	in := a.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return usage(err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	script, err := io.ReadAll(io.LimitReader(in, api.MaxHook+1))
	if err == nil && len(script) > api.MaxHook {
		err = errors.New("a hook has at most 64 KiB")
	}
	if err != nil {
		return usage(fmt.Errorf("%s: %w", c.File, err))
	}
	return a.done(api.Hook{Run: string(script)}.Digest(), "%s", api.Hook{Run: string(script)}.Digest())
}
