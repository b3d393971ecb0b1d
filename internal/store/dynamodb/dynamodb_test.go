package dynamodb_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/storetest"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fake "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

// server is our own fake behind a real client.
type server struct {
	*awsim.Server
	config aws.Config
}

func serve(t testing.TB, service *fake.Service) server {
	t.Helper()
	credentials := sigv4.NewTable(nil)
	s := server{Server: awsim.New(awsim.Config{Credentials: credentials, Services: map[string]awsim.Service{"dynamodb": service}})}
	http := httptest.NewServer(s)
	t.Cleanup(http.Close)
	s.config = awsim.ClientConfig(http.URL, credentials.User("test"))
	return s
}

// patience is how long a call of a test may take on a busy machine.
const patience = 4 * time.Minute

// table makes a table of the test's own and returns the store in it.
func table(t testing.TB, config aws.Config, cfg dynamodb.Config) *dynamodb.Store {
	t.Helper()
	return open(t, config, newName(), cfg)
}

func newName() string { return "dayfly-" + rand.Text()[:12] }

// named returns a store in the table of that name, which it makes if there is none.
func named(t testing.TB, config aws.Config, name string) *dynamodb.Store {
	t.Helper()
	return open(t, config, name, dynamodb.Config{})
}

func open(t testing.TB, config aws.Config, name string, cfg dynamodb.Config) *dynamodb.Store {
	t.Helper()
	client := sdk.NewFromConfig(config)
	if err := dynamodbtest.Create(t.Context(), client, name, patience); err != nil {
		t.Fatal(err)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, patience)
	s, err := dynamodb.New(client, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore_Conformance(t *testing.T) {
	s := serve(t, &fake.Service{IndexLag: 50})
	run := storetest.Run
	if raceEnabled {
		run = storetest.RunModest // thousands of records take minutes under it; the stage plain of .ci/run has them
	}
	run(t, func(t *testing.T) store.Store { return table(t, s.config, dynamodb.Config{}) })
}

// A second opinion, of the authors of moto. Its client tokens are ours.
func TestStore_ConformanceOverMoto(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector sees all of the client over the other stand-in; the stage plain of .ci/run has moto")
	}
	config := overMoto(t, &tokens{next: http.DefaultTransport})
	if strings.Contains(os.Getenv(moto.UnderTest), ".amazonaws.com") {
		config.HTTPClient = http.DefaultClient // AWS has client tokens
	}
	storetest.RunModest(t, func(t *testing.T) store.Store {
		name := newName()
		t.Cleanup(func() {
			_, _ = sdk.NewFromConfig(config).DeleteTable(context.WithoutCancel(t.Context()), &sdk.DeleteTableInput{TableName: &name})
		})
		return named(t, config, name)
	})
}
