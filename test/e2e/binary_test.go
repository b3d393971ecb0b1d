package e2e_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/test/built"
)

// builtIn is where the product is built, if it is; TestMain removes it.
var builtIn string

var product = sync.OnceValues(func() (path string, err error) {
	if builtIn, err = os.MkdirTemp("", "dayfly-e2e-"); err != nil {
		return "", err
	}
	return built.Program(context.Background(), builtIn, "cmd/dayfly")
})

// binary returns the path of the product as it ships, without the race detector.
func binary(t *testing.T) string {
	t.Helper()
	path, err := product()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func removeBinary() error {
	if builtIn == "" {
		return nil
	}
	return os.RemoveAll(builtIn)
}
