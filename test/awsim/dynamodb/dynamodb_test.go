package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// The suite of the store holds the fake to what the store needs. Here is what the store never asks for.

type fixture struct {
	*testing.T
	*sdk.Client
}

var table = aws.String("t")

func start(t *testing.T, s *dynamodb.Service) fixture {
	t.Helper()
	credentials := sigv4.NewTable(nil)
	server := httptest.NewServer(awsim.New(awsim.Config{Credentials: credentials, Services: map[string]awsim.Service{"dynamodb": s}}))
	t.Cleanup(server.Close)
	f := fixture{t, sdk.NewFromConfig(awsim.ClientConfig(server.URL, credentials.User("test")), func(o *sdk.Options) { o.RetryMaxAttempts = 1 })}
	_, err := f.CreateTable(t.Context(), &sdk.CreateTableInput{
		TableName: table, BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("p"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("s"), KeyType: types.KeyTypeRange},
		},
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("p"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("s"), AttributeType: types.ScalarAttributeTypeB},
		},
	})
	f.ok(err)
	return f
}

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue  { return &types.AttributeValueMemberS{Value: s} }
func bytes(s string) types.AttributeValue { return &types.AttributeValueMemberB{Value: []byte(s)} }
func number(n string) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: n}
}
func key(s string) item { return item{"p": text("p"), "s": bytes(s)} }

func (f fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// refused wants an error of that code whose message has the words.
func (f fixture) refused(err error, code, words string) {
	f.Helper()
	e, ok := errors.AsType[smithy.APIError](err)
	if !ok || e.ErrorCode() != code || !strings.Contains(e.ErrorMessage(), words) {
		f.Errorf("got %v, want %s with %q", err, code, words)
	}
}

func (f fixture) put(s string, more item) {
	f.Helper()
	it := key(s)
	for name, v := range more {
		it[name] = v
	}
	_, err := f.PutItem(f.Context(), &sdk.PutItemInput{TableName: table, Item: it})
	f.ok(err)
}

func TestQuery_OrdersBytesAndKeepsToItsBounds(t *testing.T) {
	f := start(t, &dynamodb.Service{})
	for _, s := range []string{"b", "a\x00", "\xff", "a", "B"} {
		f.put(s, nil)
	}
	query := func(condition string, start item, values ...string) (*sdk.QueryOutput, error) {
		in := &sdk.QueryInput{
			TableName: table, KeyConditionExpression: aws.String("#p = :p" + condition), ExclusiveStartKey: start,
			ExpressionAttributeNames: map[string]string{"#p": "p"}, ExpressionAttributeValues: item{":p": text("p")},
		}
		if condition != "" {
			in.ExpressionAttributeNames["#s"] = "s"
		}
		for i, v := range values {
			in.ExpressionAttributeValues[fmt.Sprint(":", i)] = bytes(v)
		}
		return f.Query(f.Context(), in)
	}
	for _, tt := range []struct {
		condition string
		start     item
		values    []string
		want      string
	}{
		{"", nil, nil, `["B" "a" "a\x00" "b" "\xff"]`},
		{" AND #s BETWEEN :0 AND :1", nil, []string{"a", "b"}, `["a" "a\x00" "b"]`},
		{" AND #s BETWEEN :0 AND :1", key("a"), []string{"a", "b"}, `["a\x00" "b"]`},
		{" AND #s > :0", nil, []string{"a"}, `["a\x00" "b" "\xff"]`},
		{" AND #s < :0", nil, []string{"a"}, `["B"]`},
		{" AND begins_with(#s, :0)", nil, []string{"a"}, `["a" "a\x00"]`},
		{" AND #s = :0", nil, []string{"b"}, `["b"]`},
	} {
		out, err := query(tt.condition, tt.start, tt.values...)
		f.ok(err)
		var got []string
		for _, it := range out.Items {
			got = append(got, string(it["s"].(*types.AttributeValueMemberB).Value))
		}
		if fmt.Sprintf("%q", got) != tt.want {
			t.Errorf("%s %q: got %q, want %s", tt.condition, tt.values, got, tt.want)
		}
	}
	_, err := query(" AND #s BETWEEN :0 AND :1", nil, "b", "a")
	f.refused(err, "ValidationException", "upper bound")
	_, err = query(" AND #s < :0", key("z"), "b")
	f.refused(err, "ValidationException", "outside query boundaries")
	_, err = query(" AND #s <> :0", nil, "b")
	if err == nil {
		t.Error("a key condition with <> was taken")
	}
}

func TestUpdate_SeesTheItemAsItWas(t *testing.T) {
	f := start(t, &dynamodb.Service{})
	f.put("a", item{"x": number("1"), "y": number("10")})
	update := func(expression string, values item) error {
		in := &sdk.UpdateItemInput{
			TableName: table, Key: key("a"), UpdateExpression: &expression, ExpressionAttributeValues: values,
			ExpressionAttributeNames: map[string]string{"#x": "x", "#y": "y"},
		}
		_, err := f.UpdateItem(f.Context(), in)
		return err
	}
	f.ok(update("SET #x = #y, #y = #x + :one", item{":one": number("1")}))
	out, err := f.GetItem(t.Context(), &sdk.GetItemInput{TableName: table, Key: key("a"), ConsistentRead: aws.Bool(true)})
	f.ok(err)
	if x, y := out.Item["x"].(*types.AttributeValueMemberN).Value, out.Item["y"].(*types.AttributeValueMemberN).Value; x != "10" || y != "2" {
		t.Errorf("x is %s and y is %s, want 10 and 2", x, y)
	}
	f.refused(update("SET #x = :one REMOVE #x, #y", item{":one": number("1")}), "ValidationException", "overlap")
	f.refused(update("SET #x = :one", item{":one": number("1")}), "ValidationException", "unused")
	f.refused(update("SET #x = #y, #y = :one", item{":one": number("1"), ":two": number("1")}), "ValidationException", "unused")
	f.refused(update("ADD #x :one, #y :one", item{":one": number("1")}), "ValidationException", "ADD")
	f.ok(update("REMOVE #x, #y", nil))
	f.refused(update("SET #x = #y", nil), "ValidationException", "does not exist")
}

// transact raises a counter in each of two items.
func (f fixture) transact(ctx context.Context, token, by string) error {
	raise := func(s string) types.TransactWriteItem {
		return types.TransactWriteItem{Update: &types.Update{
			TableName: table, Key: key(s), UpdateExpression: aws.String("SET #n = if_not_exists(#n, :zero) + :by"),
			ExpressionAttributeNames:  map[string]string{"#n": "n"},
			ExpressionAttributeValues: item{":zero": number("0"), ":by": number(by)},
		}}
	}
	_, err := f.TransactWriteItems(ctx, &sdk.TransactWriteItemsInput{
		ClientRequestToken: aws.String(token), TransactItems: []types.TransactWriteItem{raise("a"), raise("b")},
	})
	return err
}

func (f fixture) count(s string) string {
	f.Helper()
	out, err := f.GetItem(f.Context(), &sdk.GetItemInput{TableName: table, Key: key(s), ConsistentRead: aws.Bool(true)})
	f.ok(err)
	n, ok := out.Item["n"].(*types.AttributeValueMemberN)
	if !ok {
		return "none"
	}
	return n.Value
}

func TestTransaction_ClientTokenLivesTenMinutes(t *testing.T) {
	var now atomic.Int64
	f := start(t, &dynamodb.Service{Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	for range 3 {
		f.ok(f.transact(t.Context(), "token", "1"))
	}
	if got := f.count("a"); got != "1" {
		t.Errorf("three times under one token counted %s, want 1", got)
	}
	f.refused(f.transact(t.Context(), "token", "2"), "IdempotentParameterMismatchException", "other parameters")
	f.ok(f.transact(t.Context(), "another", "2"))
	now.Add(600)
	f.ok(f.transact(t.Context(), "token", "1"))
	if a, b := f.count("a"), f.count("b"); a != "4" || b != "4" {
		t.Errorf("counted %s and %s, want 4: the token was forgotten", a, b)
	}
}

// Transactions that overlap conflict at times, and never mix.
func TestTransaction_ConflictsWhereItOverlaps(t *testing.T) {
	f := start(t, &dynamodb.Service{})
	var done, conflicts atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 60 {
				err := f.transact(t.Context(), fmt.Sprint(worker, " ", i), "1")
				if err == nil {
					done.Add(1)
					continue
				}
				e, ok := errors.AsType[*types.TransactionCanceledException](err)
				if !ok || aws.ToString(e.CancellationReasons[0].Code) != "TransactionConflict" {
					t.Errorf("got %v", err)
					return
				}
				conflicts.Add(1)
			}
		})
	}
	wg.Wait()
	want := fmt.Sprint(done.Load())
	if a, b := f.count("a"), f.count("b"); a != want || b != want {
		t.Errorf("counted %s and %s, want %s each", a, b, want)
	}
	t.Logf("%d done, %d conflicts", done.Load(), conflicts.Load())
}
