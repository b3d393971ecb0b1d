package dynamodb_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/test/awsim/moto"
)

// second is one moto_server for all tests of this package, started by the first that asks for it.
var second struct {
	once   sync.Once
	stop   func()
	config aws.Config
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if second.stop != nil {
		second.stop()
	}
	os.Exit(code) //nolint:forbidigo // the code is that of the tests
}

// overMoto returns the configuration of a client of moto, and skips the test where it is not on this machine.
func overMoto(t testing.TB, transport http.RoundTripper) aws.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("the second DynamoDB is compared with in the long run only: moto takes a minute")
	}
	second.once.Do(func() { second.config, second.stop, second.err = moto.Run(context.Background()) })
	if errors.Is(second.err, moto.ErrMissing) {
		t.Skip("no second DynamoDB to compare with: ", second.err)
	}
	if second.err != nil {
		t.Fatal(second.err)
	}
	config := second.config.Copy()
	config.HTTPClient = &http.Client{Transport: transport}
	return config
}
