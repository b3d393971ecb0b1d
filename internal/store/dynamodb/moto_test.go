package dynamodb_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/dayfly-dev/dayfly/test/awsim/moto"
)

// second is one moto_server for all tests of this package, started by the first that asks for it.
var second struct {
	once sync.Once
	stop func()
	url  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if second.stop != nil {
		second.stop()
	}
	os.Exit(code) //nolint:forbidigo // the code is that of the tests
}

// motoURL returns the address of moto, and skips the test where it is not on this machine.
func motoURL(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the second DynamoDB is compared with in the long run only: moto takes a minute")
	}
	second.once.Do(func() {
		var cfg aws.Config
		if cfg, second.stop, second.err = moto.Run(context.Background()); second.err == nil {
			second.url = *cfg.BaseEndpoint
		}
	})
	if errors.Is(second.err, moto.ErrMissing) {
		t.Skip("no second DynamoDB to compare with: ", second.err)
	}
	if second.err != nil {
		t.Fatal(second.err)
	}
	return second.url
}

// awsConfig is that of a client of moto.
func awsConfig(url string, transport http.RoundTripper) aws.Config {
	return aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(url),
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
	}
}
