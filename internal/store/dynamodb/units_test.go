package dynamodb_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb/dynamodbtest"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	fake "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
)

// both is a store and its twin: each call goes to both.
type both struct {
	*testing.T
	real, metered store.Store
}

func (b both) commit(id string, ops ...store.Op) {
	b.Helper()
	must(b.T, b.real.Commit(b.Context(), id, ops...))
	must(b.T, b.metered.Commit(b.Context(), id, ops...))
}

func indexed(sort, value, at string) store.Record {
	r := recordOf(sort, value)
	r.Indexes = map[store.Index]store.Entry{
		store.Index1: {Part: "all", Sort: at},
		store.Index2: {Part: "some", Sort: at},
	}
	return r
}

// counting is a client that asks with each call how much it consumed of the table and its indexes.
type counting struct {
	*sdk.Client
	used func(dynamodbtest.Units)
}

// add reports the consumed units: all of them of reads, or all of writes.
func (c *counting) add(write bool, all ...types.ConsumedCapacity) {
	for _, one := range all {
		if write {
			c.used(dynamodbtest.Units{Write: *one.CapacityUnits})
		} else {
			c.used(dynamodbtest.Units{Read: *one.CapacityUnits})
		}
	}
}

func (c *counting) BatchGetItem(ctx context.Context, in *sdk.BatchGetItemInput, opts ...func(*sdk.Options)) (*sdk.BatchGetItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.BatchGetItem(ctx, in, opts...)
	if err == nil {
		c.add(false, out.ConsumedCapacity...)
	}
	return out, err
}

func (c *counting) Query(ctx context.Context, in *sdk.QueryInput, opts ...func(*sdk.Options)) (*sdk.QueryOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.Query(ctx, in, opts...)
	if err == nil {
		c.add(false, *out.ConsumedCapacity)
	}
	return out, err
}

func (c *counting) PutItem(ctx context.Context, in *sdk.PutItemInput, opts ...func(*sdk.Options)) (*sdk.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.PutItem(ctx, in, opts...)
	if err == nil {
		c.add(true, *out.ConsumedCapacity)
	}
	return out, err
}

func (c *counting) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, opts ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.UpdateItem(ctx, in, opts...)
	if err == nil {
		c.add(true, *out.ConsumedCapacity)
	}
	return out, err
}

func (c *counting) TransactWriteItems(ctx context.Context, in *sdk.TransactWriteItemsInput, opts ...func(*sdk.Options)) (*sdk.TransactWriteItemsOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := c.Client.TransactWriteItems(ctx, in, opts...)
	if err == nil {
		c.add(true, out.ConsumedCapacity...)
	}
	return out, err
}

// The meter over a store in memory counts the same as a table, kind of call by kind of call.
func TestMeter_AgreesWithTheTable(t *testing.T) {
	var mu sync.Mutex
	var used dynamodbtest.Units
	f := serve(t, &fake.Service{})
	meter := dynamodbtest.NewMeter(memory.New())
	name := newName()
	named(t, f.config, name)
	counted, err := dynamodb.New(&counting{Client: sdk.NewFromConfig(f.config), used: func(u dynamodbtest.Units) {
		mu.Lock()
		defer mu.Unlock()
		used = used.Plus(u)
	}}, name, dynamodb.Config{Timeout: patience})
	must(t, err)
	b := both{T: t, metered: meter, real: counted}
	value := func(n int) string { return string(bytes.Repeat([]byte("x"), n)) }
	key := func(sort string) store.Key { return recordOf(sort, "").Key }
	reads := func(do func(s store.Store) error) func() {
		return func() { must(t, do(b.real)); must(t, do(b.metered)) }
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"create", func() { b.commit("1", store.Put(recordOf("a", value(100)), store.Absent)) }},
		{"create large", func() { b.commit("2", store.Put(recordOf("b", value(5000)), store.Absent)) }},
		{"create indexed", func() {
			b.commit("3", store.Put(indexed("c", value(3000), "1"), store.Absent), store.Put(indexed("d", "", "2"), store.Absent))
		}},
		{"append", func() { b.commit("3a", store.Append(recordOf("n", value(1500)))) }},
		{"append with another", func() {
			b.commit("3b", store.Append(recordOf("o", value(1500))), store.Check(key("nobody"), store.Absent))
		}},
		{"lone update", func() { b.commit("4", store.Put(recordOf("a", value(1500)), 1)) }},
		{"shrink", func() { b.commit("5", store.Put(recordOf("b", ""), 1)) }},
		{"stay in the index", func() { b.commit("6", store.Put(indexed("c", value(2900), "1"), 1)) }},
		{"move in the index", func() { b.commit("7", store.Put(indexed("c", value(2900), "9"), 2), store.Check(key("a"), 2)) }},
		{"leave the index", func() { b.commit("8", store.Put(recordOf("d", "x"), 1), store.Check(key("nobody"), store.Absent)) }},
		{"delete", func() { b.commit("9", store.Delete(key("a"), 2), store.Delete(key("c"), 3)) }},
		{"delete alone", func() { b.commit("10", store.Delete(key("b"), 2)) }},
		{"many", func() {
			var ops []store.Op
			for i := range 90 {
				ops = append(ops, store.Put(indexed(fmt.Sprint("m", i), value(i*20), fmt.Sprint(i)), store.Absent))
			}
			b.commit("11", ops...)
		}},
		{"write often", func() {
			for i := range 20 {
				b.commit(fmt.Sprint("often", i), store.Put(recordOf("m0", value(800)), int64(i+1)))
			}
		}},
		{"get", reads(func(s store.Store) error {
			_, err := s.Get(t.Context(), key("m1"), key("m80"), key("nobody"), key("m1"))
			return err
		})},
		{"get nothing", reads(func(s store.Store) error { _, err := s.Get(t.Context()); return err })},
		{"range", reads(func(s store.Store) error {
			_, err := s.Range(t.Context(), store.Scan{Part: "p", From: "m", Limit: 50})
			return err
		})},
		{"empty range", reads(func(s store.Store) error {
			_, err := s.Range(t.Context(), store.Scan{Part: "q", Limit: 50})
			return err
		})},
		{"query", reads(func(s store.Store) error {
			_, err := s.Query(t.Context(), store.Index1, store.Scan{Part: "all", Limit: 70, Reverse: true})
			return err
		})},
		{"empty query", reads(func(s store.Store) error {
			_, err := s.Query(t.Context(), store.Index2, store.Scan{Part: "none", Limit: 70})
			return err
		})},
	} {
		used = dynamodbtest.Units{}
		meter.Reset()
		step.do()
		if got, _ := meter.Used(); got != used {
			t.Errorf("%s: the meter counted %+v, the table %+v", step.name, got, used)
		}
	}
}

// The rules that AWS gives, on cases that can be worked out by hand.
func TestUnits_ByTheBook(t *testing.T) {
	r := recordOf("a", "")
	bare := dynamodbtest.ItemSize(r)
	// pk "p", sk "a", ver 0 (one byte): 2+1, 2+1, 3+1.
	if want := 10; bare != want {
		t.Errorf("an empty record of version 0 has %d bytes, want %d", bare, want)
	}
	sized := func(n int) store.Record { // with one mark, and a version of one digit
		return recordOf("a", string(bytes.Repeat([]byte("x"), n-bare-1-len("val")-len("w1")-11)))
	}
	for _, tt := range []struct {
		name string
		got  dynamodbtest.Units
		want dynamodbtest.Units
	}{
		{"create, 1 KB", dynamodbtest.CommitUnits([]store.Op{store.Put(sized(1024), store.Absent)}, nil), dynamodbtest.Units{Write: 2}},
		{"create, one byte more", dynamodbtest.CommitUnits([]store.Op{store.Put(sized(1025), store.Absent)}, nil), dynamodbtest.Units{Write: 4}},
		{"append, 1 KB", dynamodbtest.CommitUnits([]store.Op{store.Append(sized(1024))}, nil), dynamodbtest.Units{Write: 1}},
		{"append, one byte more", dynamodbtest.CommitUnits([]store.Op{store.Append(sized(1025))}, nil), dynamodbtest.Units{Write: 2}},
		{"check of nothing", dynamodbtest.CommitUnits([]store.Op{store.Check(r.Key, store.Absent)}, nil), dynamodbtest.Units{Write: 2}},
		{"get of nothing", dynamodbtest.GetUnits(1, nil), dynamodbtest.Units{Read: 1}},
		{"range of nothing", dynamodbtest.RangeUnits(nil), dynamodbtest.Units{Read: 1}},
		{"query of nothing", dynamodbtest.QueryUnits(store.Index1, nil), dynamodbtest.Units{Read: 0.5}},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, tt.got, tt.want)
		}
	}
}
