package main

import (
	"runtime"
	"runtime/debug"
)

// version is set by the build; see the Makefile.
var version string

// versionText is the version of this binary: what the build says, else what Go knows of it.
func versionText() string {
	if version != "" {
		return version
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
	return a.print("dayfly %s (%s, %s/%s)", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
