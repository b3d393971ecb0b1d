// Package quick answers `dayfly version` before the rest of the program begins. A program that serves links libraries
// that fill tables when it starts (the SDK's schemas, huma, HCL), which takes several times as long as the answer. Go
// initialises the packages that are ready in the order of their paths. This one needs only package os, so it comes
// before everything that needs the network. It answers nothing else.
package quick

import (
	"os"
	"runtime"
)

// Version is set by the build; see the Makefile. Empty means that this package answers nothing.
var Version string

func init() {
	if Version == "" || len(os.Args) != 2 || os.Args[1] != "version" && os.Args[1] != "--version" {
		return
	}
	if _, err := os.Stdout.WriteString(Line(Version) + "\n"); err != nil {
		os.Exit(1) //nolint:forbidigo // before main
	}
	os.Exit(0) //nolint:forbidigo // before main
}

// Line is the output of `dayfly version`.
func Line(version string) string {
	return "dayfly " + version + " (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")"
}
