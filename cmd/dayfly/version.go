package main

import (
	"runtime"
	"runtime/debug"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/quick"
)

// versionText is the version of this binary: what the build says, else what Go knows of it.
func versionText() string {
	if quick.Version != "" {
		return quick.Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

type versionCommand struct{}

// Run prints the version.
func (c *versionCommand) Run(a *app) error {
	if a.json() {
		return a.encode(map[string]string{"version": versionText(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
	}
	return a.print("%s", quick.Line(versionText()))
}
