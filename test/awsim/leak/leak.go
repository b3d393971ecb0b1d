// Package leak finds goroutines that outlive a test. It gives them minutes to end, where goleak gives them half a
// second: what was told to end may wait for its turn on a machine that has other work.
package leak

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// looks is how often goleak looks, each time for half a second: two minutes in all.
const looks = 240

// Main runs the tests of a package and returns the code to exit with. They fail when a goroutine is left.
func Main(m *testing.M) int {
	code := m.Run()
	if code == 0 {
		if err := Find(); err != nil {
			fmt.Fprintln(os.Stderr, "after the tests:", err)
			code = 1
		}
	}
	return code
}

// None fails the test when a goroutine is left, but for those that options ignore.
func None(t *testing.T, options ...goleak.Option) {
	t.Helper()
	if err := Find(options...); err != nil {
		t.Error(err)
	}
}

// Find returns an error while a goroutine is left, but for those that options ignore.
func Find(options ...goleak.Option) (err error) {
	for range looks {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}
