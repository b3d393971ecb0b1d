package dynamodb

import (
	"cmp"
	"runtime"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// What one partition serves in a second. (Developer guide, "Designing partition keys to distribute your workload".)
const (
	partitionWrite = 1000
	partitionRead  = 3000
)

// Load is a model of what the service refuses under load. It is for measurements and for tests of retries. The
// caller gives its times, because AWS promises none.
//
// Each partition key of a table or of an index counts as a partition of its own. It refuses calls while a second's
// units or more are still to be served. The model leaves out: units saved up in quiet minutes, partitions that are
// split where they are hot, and writes that wait for the partition of an index.
type Load struct {
	// Transaction is how long a TransactWriteItems takes. It holds its items meanwhile, and conflicts with whatever
	// else writes one of them.
	Transaction time.Duration
	// Write and Read are the units that a partition serves in a second; 0 means 1,000 and 3,000.
	Write, Read float64
	// Wait lets a duration pass; nil means a timer.
	Wait func(time.Duration)
}

// linger lets the time of a transaction pass, or at least lets others have a turn.
func (l *Load) linger() {
	switch {
	case l == nil || l.Transaction <= 0:
		runtime.Gosched()
	case l.Wait != nil:
		l.Wait(l.Transaction)
	default:
		<-time.After(l.Transaction)
	}
}

// partition is where units are counted.
type partition struct {
	table, index, key string
	write             bool
}

// spent is what a partition has not served yet, at a time.
type spent struct {
	units float64
	at    time.Time
}

// overloaded is the message of a refusal, alone and in a transaction.
const overloaded = "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or index so please try again shortly."

// charge takes units from a partition of the model, or refuses a call.
func (s *Service) charge(p partition, units float64) error {
	if s.Load == nil {
		return nil
	}
	limit, reason := cmp.Or(s.Load.Read, partitionRead), "ReadKeyRangeThroughputExceeded"
	if p.write {
		limit, reason = cmp.Or(s.Load.Write, partitionWrite), "WriteKeyRangeThroughputExceeded"
	}
	now, was := s.now(), s.spent[p]
	left := max(0, was.units-limit*now.Sub(was.at).Seconds())
	if left >= limit {
		resource, kind := tableARN(p.table), "Table"
		if p.index != "" {
			resource, kind = resource+"/index/"+p.index, "Index"
		}
		return &wire.Error{
			Code: "ThrottlingException", Message: overloaded,
			Fields: map[string]any{"throttlingReasons": []map[string]string{{"reason": kind + reason, "resource": resource}}},
		}
	}
	if s.spent == nil {
		s.spent = map[partition]spent{}
	}
	s.spent[p] = spent{left + units, now}
	return nil
}
