package dynamodb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
	"github.com/dayfly-dev/dayfly/internal/store/storetest"
	fake "github.com/dayfly-dev/dayfly/test/awsim/dynamodb"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

func failure(status int, code string) *wire.Error {
	return &wire.Error{Status: status, Code: code, Message: "injected"}
}

// cancelled is a transaction cancelled for these reasons.
func cancelled(codes ...string) *wire.Error {
	e := failure(http.StatusBadRequest, "TransactionCanceledException")
	var reasons []map[string]string
	for _, code := range codes {
		reasons = append(reasons, map[string]string{"Code": code})
	}
	e.Message = "Transaction cancelled, please refer cancellation reasons for specific reasons [" + strings.Join(codes, ", ") + "]"
	e.Fields = map[string]any{"CancellationReasons": reasons}
	return e
}

// The ways of a commit: a lone update, a lone append, and a transaction of two records.
var ways = map[string]struct {
	operation string
	record    string // that it writes
	version   int64  // that it makes
	ops       func(value string) []store.Op
}{
	"update": {"UpdateItem", "a", 2, func(v string) []store.Op { return []store.Op{store.Put(recordOf("a", v), 1)} }},
	"append": {"PutItem", "c", 1, func(v string) []store.Op { return []store.Op{store.Append(recordOf("c", v))} }},
	"transaction": {"TransactWriteItems", "a", 2, func(v string) []store.Op {
		return []store.Op{store.Put(recordOf("a", v), 1), store.Put(recordOf("b", v), 1)}
	}},
}

func recordOf(sort, value string) store.Record {
	return store.Record{Key: store.Key{Part: "p", Sort: sort}, Value: []byte(value)}
}

// begin makes the records that the commits change.
func begin(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Commit(t.Context(), "begin", store.Put(recordOf("a", "one"), store.Absent), store.Put(recordOf("b", "one"), store.Absent)); err != nil {
		t.Fatal(err)
	}
}

func wantRecord(t *testing.T, s store.Store, sort, value string, version int64) {
	t.Helper()
	got, err := s.Get(t.Context(), store.Key{Part: "p", Sort: sort})
	if err != nil || len(got) != 1 || string(got[0].Value) != value || got[0].Version != version {
		t.Errorf("%s is %v (%v), want %q at version %d", sort, got, err, value, version)
	}
}

func TestCommit_TellsOutcomesApart(t *testing.T) {
	plain := errors.New("an error that is not an outcome")
	before := func(err error) wire.Fault { return wire.Fault{Before: wire.Fail(err)} }
	after := func(err error) wire.Fault { return wire.Fault{After: wire.Fail(err)} }
	for name, tt := range map[string]struct {
		only  string // the way that it can happen to; empty means each
		fault wire.Fault
		want  error
	}{
		"throttled":              {"", before(failure(400, "ThrottlingException")), store.ErrBusy},
		"throughput exceeded":    {"", before(failure(400, "ProvisionedThroughputExceededException")), store.ErrBusy},
		"account limit":          {"", before(failure(400, "RequestLimitExceeded")), store.ErrBusy},
		"conflict of an update":  {"update", before(failure(400, "TransactionConflictException")), store.ErrBusy},
		"conflict":               {"transaction", before(cancelled("None", "TransactionConflict")), store.ErrBusy},
		"throttled in the midst": {"transaction", before(cancelled("ThrottlingError", "None")), store.ErrBusy},
		"both":                   {"transaction", before(cancelled("TransactionConflict", "ConditionalCheckFailed")), store.ErrConflict},
		"a mistake":              {"transaction", before(cancelled("ValidationError", "TransactionConflict")), plain},
		"in progress":            {"transaction", before(failure(400, "TransactionInProgressException")), store.ErrUnknown},
		"5xx before":             {"", before(failure(500, "InternalServerError")), store.ErrUnknown},
		"503 before":             {"", before(failure(503, "ServiceUnavailable")), store.ErrUnknown},
		"5xx after":              {"", after(failure(500, "InternalServerError")), store.ErrUnknown},
		"broken before":          {"", before(wire.Drop), store.ErrUnknown},
		"broken after":           {"", after(wire.Drop), store.ErrUnknown},
		"silence":                {"", wire.Fault{Delay: time.Hour}, store.ErrUnknown},
		"denied":                 {"", before(failure(400, "AccessDeniedException")), plain},
		"no table":               {"", before(failure(400, "ResourceNotFoundException")), plain},
		"invalid":                {"", before(failure(400, "ValidationException")), plain},
	} {
		for way, w := range ways {
			if tt.only != "" && tt.only != way {
				continue
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				f := serve(t, &fake.Service{})
				name := newName()
				s := named(t, f.config, name)
				begin(t, s)
				tried := s
				if tt.fault.Delay > 0 {
					tried = open(t, f.config, name, dynamodb.Config{Timeout: time.Second})
				}
				f.ForgetCalls()
				fault := tt.fault
				fault.Operation = w.operation
				remove := f.Inject(fault)
				err := tried.Commit(t.Context(), "mine", w.ops("two")...)
				switch {
				case errors.Is(tt.want, plain) && (err == nil || outcomeOf(err) != nil):
					t.Errorf("got %v, want an error that is not an outcome", err)
				case !errors.Is(tt.want, plain) && !errors.Is(outcomeOf(err), tt.want):
					t.Errorf("got %v, want %v", err, tt.want)
				}
				remove()
				most := 1
				if errors.Is(tt.want, store.ErrUnknown) {
					most = 3
				}
				if n := len(f.Calls()); n > most {
					t.Errorf("the commit was sent %d times, want at most %d", n, most)
				}
				if errors.Is(tt.want, store.ErrConflict) {
					return // the fake wrote nothing
				}
				// In each case, a repeat is done, once.
				if err := s.Commit(t.Context(), "mine", w.ops("two")...); err != nil {
					t.Errorf("repeat: %v", err)
				}
				wantRecord(t, s, w.record, "two", w.version)
			})
		}
	}
}

func outcomeOf(err error) error {
	for _, sentinel := range []error{store.ErrConflict, store.ErrBusy, store.ErrUnknown} {
		if errors.Is(err, sentinel) {
			return sentinel
		}
	}
	return nil
}

// One lost answer is nobody's business but the store's.
func TestCommit_ALostAnswerIsAskedForAgain(t *testing.T) {
	for way, w := range ways {
		for name, fault := range map[string]wire.Fault{
			"before": {Before: wire.Fail(wire.Drop)}, "after": {After: wire.Fail(wire.Drop)}, "5xx after": {After: wire.Fail(failure(500, "InternalServerError"))},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				f := serve(t, &fake.Service{})
				s := table(t, f.config, dynamodb.Config{})
				begin(t, s)
				fault.Operation, fault.Times = w.operation, 1
				f.Inject(fault)
				if err := s.Commit(t.Context(), "mine", w.ops("two")...); err != nil {
					t.Errorf("got %v, want it done", err)
				}
				wantRecord(t, s, w.record, "two", w.version)
				// And one that lost its race meanwhile is told so.
				f.Inject(fault)
				if err := s.Commit(t.Context(), "late", w.ops("three")...); !errors.Is(err, store.ErrConflict) {
					t.Errorf("got %v, want ErrConflict", err)
				}
				wantRecord(t, s, w.record, "two", w.version)
			})
		}
	}
}

// A refusal of a repeat says nothing of the first try.
func TestCommit_ARefusedRepeatStaysUnknown(t *testing.T) {
	for way, w := range ways {
		for _, code := range []string{"ThrottlingException", "ExpiredTokenException", "AccessDeniedException", "ValidationException"} {
			t.Run(way+"/"+code, func(t *testing.T) {
				f := serve(t, &fake.Service{})
				s := table(t, f.config, dynamodb.Config{})
				begin(t, s)
				first := f.Inject(wire.Fault{Operation: w.operation, Times: 1, After: wire.Fail(wire.Drop)})
				calls := 0
				later := f.Inject(wire.Fault{Operation: w.operation, Before: func(wire.Call) error {
					if calls++; calls == 1 {
						return nil
					}
					return failure(400, code)
				}})
				if err := s.Commit(t.Context(), "mine", w.ops("two")...); !errors.Is(err, store.ErrUnknown) {
					t.Errorf("got %v, want ErrUnknown", err)
				}
				first()
				later()
				if err := s.Commit(t.Context(), "mine", w.ops("two")...); err != nil {
					t.Errorf("repeat: %v", err)
				}
				wantRecord(t, s, w.record, "two", w.version)
			})
		}
	}
}

// The answer of a commit is lost after, or before, it was done; others go on; it is repeated.
func TestCommit_RepeatAfterALostAnswer(t *testing.T) {
	for _, way := range []string{"update", "transaction"} {
		for name, tt := range map[string]struct {
			applied  bool
			by       int  // writes of others since
			deleted  bool // and then the record is deleted
			anew     bool // and made again
			another  bool // the repeat comes from another process
			forgot   bool // it comes after DynamoDB forgot the token
			want     error
			wantTx   error // where a transaction differs
			differs  bool
			versions int64 // of a in the end
		}{
			"applied":                               {applied: true, versions: 2},
			"applied, by another process":           {applied: true, another: true, versions: 2},
			"applied, one went on":                  {applied: true, by: 1, versions: 3},
			"applied, fifteen went on":              {applied: true, by: 15, versions: 17},
			"applied, sixteen went on":              {applied: true, by: 16, want: store.ErrUnknown, differs: true, versions: 18},
			"applied, token forgotten":              {applied: true, by: 3, forgot: true, versions: 5},
			"applied, deleted":                      {applied: true, deleted: true, want: store.ErrUnknown, differs: true},
			"applied, deleted and made again":       {applied: true, deleted: true, anew: true, want: nil, versions: 1, differs: true},
			"not applied":                           {versions: 2},
			"not applied, one went on":              {by: 1, want: store.ErrConflict, wantTx: store.ErrConflict, differs: true, versions: 2},
			"not applied, another process, deleted": {deleted: true, another: true, want: store.ErrConflict, wantTx: store.ErrConflict, differs: true},
		} {
			if way == "update" && tt.anew {
				continue // the version is back: the repeat is a write like any other, see the package's doc
			}
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				now := time.Now()
				var mu sync.Mutex
				f := serve(t, &fake.Service{Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
				config := f.config
				name := "table"
				s := named(t, config, name)
				begin(t, s)
				fault := wire.Fault{Operation: ways[way].operation}
				if fault.Before = wire.Fail(wire.Drop); tt.applied {
					fault.Before, fault.After = nil, wire.Fail(wire.Drop)
				}
				remove := f.Inject(fault)
				ops := ways[way].ops("mine")
				if err := s.Commit(t.Context(), "mine", ops...); !errors.Is(err, store.ErrUnknown) {
					t.Fatalf("got %v, want ErrUnknown", err)
				}
				remove()
				version := int64(1)
				if tt.applied {
					version = 2
				}
				for i := range tt.by {
					must(t, s.Commit(t.Context(), fmt.Sprint("theirs", i), store.Put(recordOf("a", "theirs"), version), store.Check(recordOf("x", "").Key, store.Absent)))
					version++
				}
				if tt.deleted {
					must(t, s.Commit(t.Context(), "away", store.Delete(recordOf("a", "").Key, version)))
				}
				if tt.anew {
					must(t, s.Commit(t.Context(), "anew", store.Put(recordOf("a", "anew"), store.Absent)))
				}
				if tt.forgot {
					mu.Lock()
					now = now.Add(11 * time.Minute)
					mu.Unlock()
				}
				if tt.another {
					s = named(t, config, name)
				}
				want := tt.want
				if way == "transaction" && tt.differs {
					want = tt.wantTx
				}
				if err := s.Commit(t.Context(), "mine", ops...); !errors.Is(outcomeOf(err), want) || want == nil && err != nil {
					t.Errorf("repeat: got %v, want %v", err, want)
				}
				got, err := s.Get(t.Context(), recordOf("a", "").Key)
				if err != nil || tt.versions == 0 && len(got) != 0 || tt.versions > 0 && (len(got) != 1 || got[0].Version != tt.versions) {
					t.Errorf("the record is %v (%v), want version %d", got, err, tt.versions)
				}
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lies makes a share of the calls go wrong in every way that the service has, by seed.
type lies struct {
	mu     sync.Mutex
	rnd    *rand.Rand
	counts map[string]int
}

var lieBefore, lieAfter = []string{"throttled", "conflict", "5xx before", "broken before"}, []string{"5xx after", "broken after"}

func (l *lies) tell(c wire.Call, kinds []string) error {
	if !slices.Contains([]string{"BatchGetItem", "Query", "PutItem", "UpdateItem", "TransactWriteItems"}, c.Operation) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rnd.Float64() >= 0.03*float64(len(kinds)) {
		return nil
	}
	kind := kinds[l.rnd.IntN(len(kinds))]
	l.counts[kind]++
	switch kind {
	case "throttled":
		return failure(400, "ThrottlingException")
	case "conflict":
		if c.Operation == "TransactWriteItems" {
			return cancelled("TransactionConflict")
		}
		return failure(400, "TransactionConflictException")
	case "5xx before", "5xx after":
		return failure(500, "InternalServerError")
	}
	return wire.Drop
}

func (l *lies) unprocessed(keys int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rnd.Float64() >= 0.2 {
		return 0
	}
	l.counts["unprocessed"]++
	return 1 + l.rnd.IntN(keys)
}

// A correct caller sees every promise kept over a service that throttles, conflicts, breaks off, and answers
// nothing of what it did.
func TestStore_ConformanceOverALyingService(t *testing.T) {
	l := &lies{rnd: rand.New(rand.NewPCG(1, 2)), counts: map[string]int{}} //nolint:gosec // a series, not a secret
	f := serve(t, &fake.Service{IndexLag: 20, Unprocessed: l.unprocessed})
	f.Inject(wire.Fault{Before: func(c wire.Call) error { return l.tell(c, lieBefore) }, After: func(c wire.Call) error { return l.tell(c, lieAfter) }})
	f.config.Retryer = func() aws.Retryer { // of reads; at once, for this is not a place to wait
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.RateLimiter = 2, ratelimitNone{}
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
		})
	}
	storetest.RunModest(t, func(t *testing.T) store.Store { return table(t, f.config, dynamodb.Config{}) })
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("faults: %v", l.counts)
	for _, kind := range append(append([]string{"unprocessed"}, lieBefore...), lieAfter...) {
		if l.counts[kind] < 10 {
			t.Errorf("faults were made %v times, want each often", l.counts)
		}
	}
}

type ratelimitNone struct{}

func (ratelimitNone) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (ratelimitNone) AddTokens(uint) error { return nil }

func TestGet_GivesUpOnKeysThatStayUnprocessed(t *testing.T) {
	f := serve(t, &fake.Service{Unprocessed: func(keys int) int { return keys }})
	s := table(t, f.config, dynamodb.Config{})
	begin(t, s)
	if _, err := s.Get(t.Context(), recordOf("a", "").Key); !errors.Is(err, store.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if n := len(f.Calls()); n > 20 {
		t.Errorf("it took %d calls", n)
	}
}

// An answer of BatchGetItem ends at 16 MB, however many keys were requested.
func TestGet_OfMoreThanOneAnswerHolds(t *testing.T) {
	f := serve(t, &fake.Service{})
	s := table(t, f.config, dynamodb.Config{})
	big := bytes.Repeat([]byte("x"), store.MaxValue)
	var keys []store.Key
	for i := range 60 {
		r := store.Record{Key: store.Key{Part: "p", Sort: fmt.Sprint(i)}, Value: big}
		keys = append(keys, r.Key)
		must(t, s.Commit(t.Context(), fmt.Sprint(i), store.Put(r, store.Absent)))
	}
	got, err := s.Get(t.Context(), keys...)
	if err != nil || len(got) != len(keys) {
		t.Fatalf("got %d records (%v), want %d", len(got), err, len(keys))
	}
	for i, r := range got {
		if r.Key != keys[i] {
			t.Errorf("record %d is %s, want %s", i, r.Key, keys[i])
		}
	}
}
