package dynamodb_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	fake "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
)

// The table that is made is the one that the schema describes, as the service tells it.
func TestCreate_MakesTheTableOfTheSchema(t *testing.T) {
	for name, config := range map[string]func(t *testing.T) aws.Config{
		"fake": func(t *testing.T) aws.Config { return serve(t, &fake.Service{}).config },
		"moto": func(t *testing.T) aws.Config { return overMoto(t, http.DefaultTransport) },
	} {
		t.Run(name, func(t *testing.T) {
			client, table := sdk.NewFromConfig(config(t)), aws.String("schema")
			must(t, dynamodbtest.Create(t.Context(), client, *table, time.Minute))
			s, err := dynamodb.New(client, *table, dynamodb.Config{})
			must(t, err)
			must(t, s.Commit(t.Context(), "one", store.Put(recordOf("a", "kept"), store.Absent)))
			must(t, dynamodbtest.Create(t.Context(), client, *table, time.Minute)) // again: it is left alone
			wantRecord(t, s, "a", "kept", 1)

			described, err := client.DescribeTable(t.Context(), &sdk.DescribeTableInput{TableName: table})
			must(t, err)
			ttl, err := client.DescribeTimeToLive(t.Context(), &sdk.DescribeTimeToLiveInput{TableName: table})
			must(t, err)
			backups, err := client.DescribeContinuousBackups(t.Context(), &sdk.DescribeContinuousBackupsInput{TableName: table})
			must(t, err)
			got := dynamodbtest.Schema{
				TTL:                 aws.ToString(ttl.TimeToLiveDescription.AttributeName),
				BillingMode:         string(described.Table.BillingModeSummary.BillingMode),
				PointInTimeRecovery: backups.ContinuousBackupsDescription.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled,
			}
			got.PartitionKey, got.SortKey = keyNames(described.Table.KeySchema)
			for _, x := range described.Table.GlobalSecondaryIndexes {
				part, sort := keyNames(x.KeySchema)
				got.Indexes = append(got.Indexes, dynamodbtest.IndexSchema{
					Name: *x.IndexName, PartitionKey: part, SortKey: sort, Projection: string(x.Projection.ProjectionType),
				})
			}
			if diff := cmp.Diff(dynamodbtest.TableSchema(), got); diff != "" {
				t.Errorf("the table is not the schema's (-want +got):\n%s", diff)
			}
			for _, a := range described.Table.AttributeDefinitions {
				if a.AttributeType != types.ScalarAttributeTypeS {
					t.Errorf("key attribute %s is of type %s, want S", *a.AttributeName, a.AttributeType)
				}
			}
		})
	}
}

func keyNames(keys []types.KeySchemaElement) (part, sort string) {
	for _, k := range keys {
		if k.KeyType == types.KeyTypeHash {
			part = *k.AttributeName
		} else {
			sort = *k.AttributeName
		}
	}
	return part, sort
}

func TestNew_NeedsATable(t *testing.T) {
	if _, err := dynamodb.New(sdk.New(sdk.Options{}), "", dynamodb.Config{}); err == nil {
		t.Error("a store without a table was taken")
	}
}

// A table that is not there is said by its name, and is not an outcome to be tried again.
func TestStore_WithoutItsTable(t *testing.T) {
	f := serve(t, &fake.Service{})
	s, err := dynamodb.New(sdk.NewFromConfig(f.config), "nowhere", dynamodb.Config{})
	must(t, err)
	_, get := s.Get(t.Context(), store.Key{Part: "p", Sort: "s"})
	_, scan := s.Range(t.Context(), store.Scan{Part: "p", Limit: 1})
	_, query := s.Query(t.Context(), store.Index1, store.Scan{Part: "p", Limit: 1})
	for call, err := range map[string]error{
		"get": get, "range": scan, "query": query,
		"update":      s.Commit(t.Context(), "1", store.Put(recordOf("a", ""), 1)),
		"transaction": s.Commit(t.Context(), "2", store.Put(recordOf("a", ""), store.Absent)),
	} {
		if err == nil || outcomeOf(err) != nil {
			t.Errorf("%s: got %v, want an error that is not an outcome", call, err)
		}
	}
}
