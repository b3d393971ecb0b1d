// Command player is the task of the launcher's tests: it waits at its gate as a runner does, and then
// plays its part.
package main

import (
	"io"
	"os"

	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
)

func main() {
	if os.Getenv("LAUNCHERTEST_CHILD") == "" {
		if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
			os.Exit(90)
		}
	}
	code, ok := launchertest.Play()
	if !ok {
		code = 91
	}
	os.Exit(code)
}
