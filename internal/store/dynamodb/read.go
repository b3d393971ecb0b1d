package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

const (
	// emptyAnswers is how often in a row a BatchGetItem may leave all its keys unprocessed before the read
	// ends as busy.
	emptyAnswers = 5
	firstWait    = 10 * time.Millisecond // mean wait before such keys are asked for again; it doubles
	maxWait      = firstWait << emptyAnswers
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	if err := store.CheckGet(keys); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return s.get(ctx, keys)
}

// get reads keys, at most store.MaxGet of them.
func (s *Store) get(ctx context.Context, keys []store.Key) ([]store.Record, error) {
	found := make(map[store.Key]store.Record, len(keys))
	var want []item
	for _, k := range keys {
		if _, named := found[k]; !named { // DynamoDB refuses a key that is named twice
			found[k] = store.Record{}
			want = append(want, keyOf(k))
		}
	}
	for empty := 0; len(want) > 0; {
		items, rest, err := s.batch(ctx, want)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			r, err := record(it)
			if err != nil {
				return nil, fmt.Errorf("get from table %s: %w", s.table, err)
			}
			found[r.Key] = r
		}
		// Keys come back unprocessed if the answer is full (16 MB), which is not a reason to wait, or if the table
		// is throttled.
		if empty++; len(rest) < len(want) {
			empty = 0
		}
		if want = rest; len(want) == 0 {
			break
		}
		if empty == emptyAnswers {
			return nil, fmt.Errorf("get from table %s: %w: %d keys stayed unprocessed", s.table, store.ErrBusy, len(want))
		}
		if empty > 0 {
			if wait.For(ctx, wait.Backoff(firstWait, maxWait, empty)) != nil {
				return nil, fmt.Errorf("get: %w", ctx.Err())
			}
		}
	}
	var records []store.Record
	seen := make(map[store.Key]bool, len(keys))
	for _, k := range keys {
		r := found[k]
		if r.Version == store.Absent {
			continue
		}
		if seen[k] {
			r = r.Clone()
		}
		seen[k] = true
		records = append(records, r)
	}
	return records, nil
}

// batch is one BatchGetItem; rest are the keys that it left unprocessed.
func (s *Store) batch(ctx context.Context, keys []item) (items, rest []item, err error) {
	call, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	out, err := s.client.BatchGetItem(call, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{s.table: {Keys: keys, ConsistentRead: aws.Bool(true)}},
	})
	if err != nil {
		return nil, nil, s.readError(ctx, "get", err)
	}
	return out.Responses[s.table], out.UnprocessedKeys[s.table].Keys, nil
}

// Range implements store.Store.
func (s *Store) Range(ctx context.Context, scan store.Scan) (store.Page, error) {
	if err := store.CheckScan(scan); err != nil {
		return store.Page{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Page{}, fmt.Errorf("range: %w", err)
	}
	sp := span{part: scan.Part, reverse: scan.Reverse}
	sp.low, sp.high = scan.Bounds()
	return s.page(ctx, sp, scan.Limit, func(_ context.Context, items []item) ([]store.Record, error) {
		records := make([]store.Record, 0, len(items))
		for _, it := range items {
			r, err := record(it)
			if err != nil {
				return nil, err
			}
			records = append(records, r)
		}
		return records, nil
	})
}

// Ranges is Range for several scans at once. Each is consistent by itself; together they are not a snapshot.
func (s *Store) Ranges(ctx context.Context, scans ...store.Scan) ([]store.Page, error) {
	pages := make([]store.Page, len(scans))
	group, ctx := errgroup.WithContext(ctx)
	for i, scan := range scans {
		group.Go(func() (err error) {
			pages[i], err = s.Range(ctx, scan)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return pages, nil
}

// Query implements store.Store. It may be stale.
func (s *Store) Query(ctx context.Context, index store.Index, scan store.Scan) (store.Page, error) {
	if _, ok := indexAttrs[index]; !ok {
		return store.Page{}, fmt.Errorf("store: unknown index %q", index)
	}
	if err := store.CheckScan(scan); err != nil {
		return store.Page{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Page{}, fmt.Errorf("query: %w", err)
	}
	sp := span{index: index, part: scan.Part, reverse: scan.Reverse}
	sp.low, sp.high = scan.IndexBounds()
	return s.page(ctx, sp, scan.Limit, func(ctx context.Context, items []item) ([]store.Record, error) {
		return s.indexed(ctx, index, items)
	})
}

// indexed reads the records of index entries. The index lags behind the table, so a record may be gone or lie
// elsewhere by now: it is left out, so a returned record is never old.
func (s *Store) indexed(ctx context.Context, index store.Index, entries []item) ([]store.Record, error) {
	var records []store.Record
	for len(entries) > 0 {
		some := entries[:min(len(entries), store.MaxGet)]
		entries = entries[len(some):]
		keys := make([]store.Key, len(some))
		at := make(map[store.Key]store.Entry, len(some))
		for i, it := range some {
			var err error
			if keys[i], err = keyIn(it); err != nil {
				return nil, err
			}
			if at[keys[i]], err = entryOf(it, indexAttrs[index], keys[i]); err != nil {
				return nil, err
			}
		}
		found, err := s.get(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			if e, ok := r.Indexes[index]; ok && e == at[r.Key] {
				records = append(records, r)
			}
		}
	}
	return records, nil
}

// page reads a span until it has limit records, or the span ends. load makes records of items; it may leave some
// out, so one call may not be enough.
func (s *Store) page(ctx context.Context, sp span, limit int, load func(context.Context, []item) ([]store.Record, error)) (store.Page, error) {
	var all []store.Record
	for start := item(nil); len(all) < limit; {
		items, next, err := s.some(ctx, sp, start, limit-len(all))
		if err != nil {
			return store.Page{}, err
		}
		records, err := load(ctx, items)
		if err != nil {
			return store.Page{}, fmt.Errorf("read partition %q of table %s: %w", sp.part, s.table, err)
		}
		all = append(all, records...)
		if start = next; len(start) == 0 {
			break
		}
	}
	return store.PageOf(sp.index, all, limit), nil
}

// some is one Query over a span, from behind start on. DynamoDB ends an answer at a megabyte; next is then
// where to go on, and empty at the end of the span.
func (s *Store) some(ctx context.Context, sp span, start item, limit int) (items []item, next item, err error) {
	in, ok := sp.query()
	if !ok {
		return nil, nil, nil
	}
	in.TableName, in.ExclusiveStartKey = &s.table, start
	in.Limit = aws.Int32(int32(limit)) //nolint:gosec // at most 1,000
	call, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	out, err := s.client.Query(call, in)
	if err != nil {
		return nil, nil, s.readError(ctx, fmt.Sprintf("read partition %q", sp.part), err)
	}
	for _, it := range out.Items {
		at, err := keyAttr(it, sp.sortAttr())
		if err != nil {
			return nil, nil, fmt.Errorf("read partition %q of table %s: %w", sp.part, s.table, err)
		}
		if sp.covers(at) {
			items = append(items, it)
		}
	}
	return items, out.LastEvaluatedKey, nil
}

// readError gives the error of a read its meaning. Any failure of the service that passes is busy: a read can be
// repeated without harm, so its outcome is never unknown.
func (s *Store) readError(ctx context.Context, op string, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("%s: %w", op, ended)
	}
	if awserr.Of(err).Transient() {
		return fmt.Errorf("%s: %w: %w", op, store.ErrBusy, err)
	}
	return fmt.Errorf("%s, table %s: %w", op, s.table, err)
}
