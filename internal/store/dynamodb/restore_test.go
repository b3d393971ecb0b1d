package dynamodb_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
)

// The steps of docs/backup.md, as calls of AWS: a table that was restored serves as the store, and expires again.
func TestTable_ThatWasRestoredServesAsTheStore(t *testing.T) {
	client, from, to := sdk.NewFromConfig(overMoto(t, http.DefaultTransport)), aws.String("lost"), aws.String("lost-restored")
	must(t, dynamodbtest.Create(t.Context(), client, *from, time.Minute))
	s, err := dynamodb.New(client, *from, dynamodb.Config{})
	must(t, err)
	r := recordOf("a", "kept")
	r.Expires, r.Indexes = 1<<40, map[store.Index]store.Entry{store.Index1: {Part: "list", Sort: "1"}}
	must(t, s.Commit(t.Context(), "one", store.Put(r, store.Absent)))

	_, err = client.RestoreTableToPointInTime(t.Context(), &sdk.RestoreTableToPointInTimeInput{SourceTableName: from, TargetTableName: to, UseLatestRestorableTime: aws.Bool(true)})
	must(t, err)
	must(t, sdk.NewTableExistsWaiter(client).Wait(t.Context(), &sdk.DescribeTableInput{TableName: to}, time.Minute))
	_, err = client.UpdateTimeToLive(t.Context(), &sdk.UpdateTimeToLiveInput{
		TableName: to, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(dynamodbtest.TableSchema().TTL), Enabled: aws.Bool(true)},
	})
	must(t, err)
	_, err = client.UpdateContinuousBackups(t.Context(), &sdk.UpdateContinuousBackupsInput{
		TableName: to, PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
	})
	must(t, err)

	restored, err := dynamodb.New(client, *to, dynamodb.Config{})
	must(t, err)
	wantRecord(t, restored, "a", "kept", 1)
	page, err := restored.Query(t.Context(), store.Index1, store.Scan{Part: "list", Limit: 10})
	must(t, err)
	if len(page.Records) != 1 || page.Records[0].Expires != r.Expires {
		t.Errorf("the index of the restored table has %+v", page.Records)
	}
	must(t, restored.Commit(t.Context(), "two", store.Put(recordOf("a", "changed"), 1)))
	wantRecord(t, s, "a", "kept", 1) // the table that it was made from is left alone
}
