// Package dynamodb is a store in one DynamoDB table. It keeps all promises of package store, for any
// number of processes over one table, and what it has answered is kept by three zones.
//
// # Consistency model
//
// Get is a strongly consistent BatchGetItem, Range a strongly consistent Query, so both see every commit
// that was answered before they began; several records, and the several calls behind a long page, are no
// snapshot. Query reads keys from a global secondary index, which lags behind by any amount, and then
// the records themselves, consistently: it may miss a record, and leaves out one that has
// moved since, but never shows an old value.
//
// A commit is one TransactWriteItems, serializable with every other write. A commit that changes
// one record that exists, as a heartbeat does, is a conditional UpdateItem: half the price, and no conflict
// with transactions that only read.
//
// # Outcomes
//
// A condition that did not hold is store.ErrConflict. A transaction that met another one
// (TransactionConflict), a throttle and a connection that could not be made are store.ErrBusy: nothing was
// written. A time-out, a broken connection and a status 5xx leave the outcome open: store.ErrUnknown. The
// SDK repeats no write, for its repeat would meet the effect of its own first try and report a condition
// that did not hold. The store sends a commit whose answer was lost twice more, at once, and its caller may go
// on with the same id. This is how a repeat is recognised:
//
//   - A transaction carries a client token made of its id. For ten minutes DynamoDB answers a repeat as done,
//     whatever became of the records, and refuses the same id with other operations.
//   - Each record carries a mark (id and operations, hashed) of each of its latest sixteen writes. A
//     commit whose condition did not hold reads there, from the item that comes with the refusal,
//     whether it was itself that was first. Lone updates have only this, transactions have it when DynamoDB
//     has forgotten their token.
//   - Where a record no longer tells, because it was deleted or written sixteen times since, the process in
//     which the answer of a lone update was lost leaves it at ErrUnknown. A process that knows of no
//     lost answer calls it lost. The one repeat that is called lost wrongly is of a lone update of a record that was
//     meanwhile deleted, made again and brought to a later version, and it is applied
//     again to one that was brought to the very version that it names. No decision of the control plane rests on the
//     version of a record that is deleted and made again.
//
// Making and deleting a record alone are transactions, too: nothing in the table could tell the repeat of
// one from a race after the record was deleted.
//
// # Table
//
// The partition of a key is the partition key, its sort key the sort key, and the place in an index the
// sort key of the index; the constants attr* are the names. Keys are kept as text in an order-keeping spelling
// (ASCII stands for itself), so that they can be read in a console, and values as text where they are
// printable. The indexes carry keys alone, so a record that changes without moving in them is written
// once, not three times.
//
// # Capacity
//
// A partition of DynamoDB takes 1,000 write units and 3,000 read units a second, and a record is in
// one. Most partitions of the control plane are one workflow or one workspace, and spread by themselves.
// Hot by their nature are the limits of an organization (written by each claim and each end: with two
// units per write in a transaction 500 a second, and fewer before commits lose races against one another),
// a pool's claimable work of one type, an organization's timers and audit trail, and its part of Index1.
// All of them must be read in order, so they are not sharded; at the 20 launches a second that an account
// has they take about a tenth. DynamoDB splits a hot partition between sort keys by itself, all but a
// single record.
//
// The limits of package store keep to DynamoDB's: 100 operations and 4 MB in a transaction, 400 KB in
// an item, 1,024 bytes in a sort key.
package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Client is what a store needs of *dynamodb.Client.
type Client interface {
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Config holds what may be told to a store. The zero value works.
type Config struct {
	// Timeout bounds each call to DynamoDB that reads, with its repeats by the SDK, and all tries of one
	// commit together; 0 means 5 s. A read that takes longer is store.ErrBusy, a commit store.ErrUnknown.
	Timeout time.Duration
	// Now is the clock by which lost answers are forgotten; nil means time.Now.
	Now func() time.Time
}

// Store is a store in a table. It holds nothing that has to be closed.
type Store struct {
	client  Client
	table   string
	timeout time.Duration
	now     func() time.Time
	unsure  unsure
}

// New returns the store in a table that exists and has this package's schema. It makes no call.
func New(client Client, table string, cfg Config) (*Store, error) {
	if table == "" {
		return nil, errors.New("a DynamoDB store needs the name of its table")
	}
	s := &Store{client: client, table: table, timeout: cmp.Or(cfg.Timeout, 5*time.Second), now: cfg.Now}
	if s.now == nil {
		s.now = time.Now
	}
	return s, nil
}
