package main

import (
	"runtime"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/quick"
)

type versionCommand struct{}

// Run prints the version.
func (c *versionCommand) Run(a *cli.App) error {
	if a.JSON() {
		return a.Encode(map[string]string{"version": cli.VersionText(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	return a.Print("%s", quick.Line(cli.VersionText()))
}
