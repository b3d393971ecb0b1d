package dynamodb_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
)

// What was used adds up, also where nobody asked for it: a write of 3 KB, once alone and once in a transaction, which
// counts twice; a consistent read of it, and one of nothing.
func TestUsed_AddsUpWhatOperationsConsumed(t *testing.T) {
	s := &dynamodb.Service{}
	f := start(t, s)
	it := func(part string) item {
		return item{"p": text(part), "s": bytes("s"), "v": text(strings.Repeat("x", 3<<10-100))}
	}
	_, err := f.PutItem(t.Context(), &sdk.PutItemInput{TableName: table, Item: it("a")})
	f.ok(err)
	_, err = f.TransactWriteItems(t.Context(), &sdk.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: table, Item: it("b")}}}})
	f.ok(err)
	for _, part := range []string{"a", "none"} {
		_, err = f.GetItem(t.Context(), &sdk.GetItemInput{TableName: table, Key: item{"p": text(part), "s": bytes("s")}, ConsistentRead: aws.Bool(true)})
		f.ok(err)
	}
	read, written, stored := s.Used()
	const item = len("p") + len("a") + len("s") + len("s") + len("v") + 3<<10 - 100
	if want := int64(2 * (item + 100)); read != 2 || written != 9 || stored != want {
		t.Errorf("got %v read and %v written units, and %d bytes; want 2, 9 and %d", read, written, stored, want)
	}
}
