package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
)

// together puts items in transactions of their own at once, and returns how each ended.
func (f fixture) together(keys ...string) <-chan error {
	ends := make(chan error, len(keys))
	for _, k := range keys {
		go func() {
			_, err := f.TransactWriteItems(f.Context(), &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: table, Item: key(k)}}}})
			ends <- err
		}()
	}
	return ends
}

// Of a hundred transactions on one item while it is held, one is done; a hundred on as many items are all done.
func TestLoad_TransactionsHoldTheirItems(t *testing.T) {
	const n = 100
	var under atomic.Int64
	first, all, release := make(chan struct{}, n), make(chan struct{}), make(chan struct{})
	f := start(t, &dynamodb.Service{Load: &dynamodb.Load{Transaction: 30 * time.Millisecond, Wait: func(d time.Duration) {
		if d != 30*time.Millisecond {
			t.Errorf("a transaction takes %s", d)
		}
		first <- struct{}{}
		if under.Add(1) == n+1 { // the others, all at once
			close(all)
		}
		<-release
	}}})
	ends := f.together(slices.Repeat([]string{"hot"}, n)...)
	for range n - 1 {
		f.refused(<-ends, "TransactionCanceledException", "[TransactionConflict]")
	}
	<-first
	_, err := f.PutItem(t.Context(), &sdk.PutItemInput{TableName: table, Item: key("hot")})
	f.refused(err, "TransactionConflictException", "ongoing")
	f.put("cold", nil)
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprint(i))
	}
	others := f.together(keys...)
	<-all
	close(release)
	f.ok(<-ends)
	for range n {
		f.ok(<-others)
	}
	f.put("hot", nil)
}

// A partition serves 1,000 write units and 3,000 read units in a second, and recovers by the clock.
func TestLoad_PartitionsServeSoManyUnits(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1_800_000_000, 0)
	f := start(t, &dynamodb.Service{Load: &dynamodb.Load{}, Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	later := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	big := item{"v": text(strings.Repeat("x", 100<<10-100))} // 100 units to write, 25 to read
	put := func(part string) error {
		it := item{"p": text(part), "s": bytes("s"), "v": big["v"]}
		_, err := f.PutItem(t.Context(), &sdk.PutItemInput{TableName: table, Item: it})
		return err
	}
	get := func(part string) error {
		_, err := f.GetItem(t.Context(), &sdk.GetItemInput{TableName: table, Key: item{"p": text(part), "s": bytes("s")}, ConsistentRead: aws.Bool(true)})
		return err
	}
	for range 10 {
		f.ok(put("p"))
	}
	err := put("p")
	f.refused(err, "ThrottlingException", "Throughput exceeds")
	if e, ok := errors.AsType[*types.ThrottlingException](err); !ok || len(e.ThrottlingReasons) != 1 || aws.ToString(e.ThrottlingReasons[0].Reason) != "TableWriteKeyRangeThroughputExceeded" {
		t.Errorf("got %#v, want the reason of a partition", err)
	}
	f.refused(<-f.together("a"), "TransactionCanceledException", "[ThrottlingError]")
	f.ok(put("another"))
	later(100 * time.Millisecond)
	f.ok(put("p"))
	f.refused(put("p"), "ThrottlingException", "Throughput exceeds")

	for range 120 {
		f.ok(get("p"))
	}
	f.refused(get("p"), "ThrottlingException", "Throughput exceeds")
	query := &sdk.QueryInput{TableName: table, KeyConditionExpression: aws.String("#p = :p"), ExpressionAttributeNames: map[string]string{"#p": "p"}, ExpressionAttributeValues: item{":p": text("p")}}
	_, err = f.Query(t.Context(), query)
	f.refused(err, "ThrottlingException", "Throughput exceeds")
	batch := func(parts ...string) (*sdk.BatchGetItemOutput, error) {
		var keys []item
		for _, p := range parts {
			keys = append(keys, item{"p": text(p), "s": bytes("s")})
		}
		return f.BatchGetItem(t.Context(), &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*table: {Keys: keys}}})
	}
	_, err = batch("p")
	f.refused(err, "ThrottlingException", "Throughput exceeds")
	out, err := batch("another", "p")
	f.ok(err)
	if len(out.Responses[*table]) != 1 || len(out.UnprocessedKeys[*table].Keys) != 1 {
		t.Errorf("got %v and %v left, want one each", out.Responses, out.UnprocessedKeys)
	}
	later(time.Second)
	f.ok(get("p"))
}
