package e2e_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/test/built"
)

// builtIn is where programs are built, if they are; TestMain removes it.
var builtIn = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "dayfly-e2e-") })

func program(pkg string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := builtIn()
		if err != nil {
			return "", err
		}
		return built.Program(context.Background(), dir, pkg)
	})
}

var product, runner = program("cmd/dayfly"), program("runnerimage")

// binary returns the path of the product as it ships, without the race detector.
func binary(t *testing.T) string {
	t.Helper()
	path, err := product()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runnerBinary returns the path of the program that runs jobs, as it ships.
func runnerBinary(t *testing.T) string {
	t.Helper()
	path, err := runner()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func removeBinaries() error {
	dir, err := builtIn()
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
