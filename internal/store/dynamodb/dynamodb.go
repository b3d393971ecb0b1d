// Package dynamodb is a store in one DynamoDB table. It keeps all promises of package store, for any
// number of processes over one table, and its answered writes are kept by three zones.
//
// # Consistency model
//
// Get is a strongly consistent BatchGetItem, Range a strongly consistent Query, so both see every commit that was
// answered before they began. Several records are not a snapshot, nor are the several calls of a long page. Query
// reads keys from a global secondary index, which lags behind by any amount, and then the records themselves,
// consistently: it may miss a record, and leaves out one that has moved since, but never shows an old value.
//
// A commit is one TransactWriteItems, serializable with every other write. A commit that changes
// one record that exists, as a heartbeat does, is a conditional UpdateItem, and one that only makes a record that no
// commit deletes (store.Append) a conditional PutItem: half the price, and no conflict with transactions that only
// read.
//
// # Outcomes
//
// A condition that did not hold is store.ErrConflict. A transaction that met another one
// (TransactionConflict), a throttle and a connection that could not be made are store.ErrBusy: nothing was
// written. A time-out, a broken connection and a status 5xx leave the outcome open: store.ErrUnknown. The
// SDK does not retry writes, because its retry would meet the effect of its own first try and report a condition
// that did not hold. The store itself sends a commit whose answer was lost up to twice more, at once, and its caller
// may go on with the same id. A repeat is recognised as follows:
//
//   - A transaction carries a client token made of its id. For ten minutes DynamoDB answers a repeat as done,
//     whatever the records are by then, and refuses the same id with other operations.
//   - Each record carries a mark (a hash of id and operations) of each of its latest sixteen writes. When the
//     condition of a commit does not hold, DynamoDB returns the item, and the marks show whether an earlier try of
//     the same commit was applied. Lone updates and appends have only this; transactions need it when DynamoDB has
//     forgotten their token.
//   - If a record was deleted or written sixteen times since, it no longer shows this. The process in which the
//     answer of a lone update was lost then answers ErrUnknown; a process that knows of no lost answer says
//     ErrConflict. The one repeat for which that is wrong is that of a lone update of a record that was deleted, made
//     again and brought to a later version meanwhile. If it was brought to exactly the version that the update names,
//     the update is applied again. No decision of the control plane rests on the version of a record that is deleted
//     and made again.
//
// To delete one record, or to create one that may be deleted, is a transaction as well: once the record is gone,
// nothing in the table distinguishes a repeat from a lost race.
//
// # Table
//
// The partition of a key is the partition key, its sort key the sort key, and the place in an index the
// sort key of the index; the constants attr* are the names. Keys are kept as text in an encoding that keeps
// their order (ASCII stands for itself), so that they can be read in a console, and values as text if they are
// printable. The indexes hold keys alone, so a record that changes without moving in them is written
// once, not three times.
//
// # Capacity
//
// A partition of DynamoDB takes 1,000 write units and 3,000 read units a second. Most partitions of the control plane
// are one workflow or one workspace, so load spreads over them. These are hot:
//
//   - the limits of an organization, which each claim writes, and each fold of up to 90 ends. Claims of several
//     processes lose races against one another there; ends do not, because they write entries of their own;
//   - a pool's claimable work of one type, and its list of active workflows: 500 ends a second, or 500 claims;
//   - an organization's audit trail, and its parts of Index1.
//
// These must be read in order, so they are not sharded. At the 20 launches a second that an account has, they use
// about a tenth. An organization's timers lie in four partitions, and the places that its ends free in eight of each
// limit: a job writes eight units of timers in the busiest kind and eight of freed places, so four partitions carry 500
// jobs a second. DynamoDB itself splits a hot partition between sort keys, down to a single record.
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

// Client is the part of *dynamodb.Client that a store needs.
type Client interface {
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Config are the settings of a store. The zero value works.
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
