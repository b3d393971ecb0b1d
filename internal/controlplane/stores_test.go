package controlplane_test

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/store/storefault"
	"github.com/dayfly-dev/dayfly/test/awsim"
	fake "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

// stores are those that the rules are tested over. The race detector looks at the rules, which are the same over each
// store, and at each store in its own suite. So under it the two slowest are left out; the stage
// plain of .ci/run has them.
func stores() map[string]func(t *testing.T) store.Store {
	all := map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New() },
		// C8: an index that lags, commits that are busy, and answers that are lost.
		"faulty": func(*testing.T) store.Store {
			return storefault.New(memory.New(), 7, storefault.Faults{Busy: 0.1, LostRequest: 0.05, LostAnswer: 0.1, Stale: 0.5})
		},
	}
	if !raceEnabled {
		all["sqlite"] = openSQLite
		// Behind the real client and the real protocol, with an index that lags and transactions that conflict.
		all["dynamodb"] = openDynamoDB
	}
	return all
}

// everyStore runs a test of the rules over each store, each in a world of its own and all at once.
func everyStore(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "dynamodb" && testing.Short() {
				t.Skip("the rules run over DynamoDB in the long run only: each call is one over HTTP")
			}
			test(t, newWorld(t, open(t)))
		})
	}
}

func openDynamoDB(t *testing.T) store.Store {
	t.Helper()
	credentials := sigv4.NewTable(nil)
	server := httptest.NewServer(awsim.New(awsim.Config{
		Credentials: credentials, Services: map[string]awsim.Service{"dynamodb": &fake.Service{IndexLag: 10}},
	}))
	t.Cleanup(server.Close)
	client := awsdynamodb.NewFromConfig(awsim.ClientConfig(server.URL, credentials.User("test")))
	if err := dynamodbtest.Create(t.Context(), client, "table", 4*time.Minute); err != nil {
		t.Fatal(err)
	}
	st, err := dynamodb.New(client, "table", dynamodb.Config{Timeout: 4 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func openSQLite(t *testing.T) store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "dayfly.db"), sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}
