package dynamodb

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// write is any write of one item: the members of PutItem, UpdateItem, DeleteItem, and of the four kinds
// of TransactWriteItems.
type write struct {
	placeholders
	TableName                           string
	Item, Key                           item
	ConditionExpression                 string
	UpdateExpression                    string
	ReturnValuesOnConditionCheckFailure string
	ReturnConsumedCapacity              string
}

// prepared is a write whose condition was looked at.
type prepared struct {
	table *table
	key   item
	was   item
	now   item
	check bool // writes nothing
	holds bool
	old   item // what the refusal returns
}

func (p prepared) units() float64 { return writeUnits(max(p.was.size(), p.now.size())) }

func (p prepared) partition() partition {
	return partition{table: p.table.name, key: p.key[p.table.primary.part].text, write: true}
}

// apply writes, and returns what it cost.
func (p prepared) apply(lag int) float64 {
	if p.check {
		return 0
	}
	return p.table.store(p.key, p.now, lag)
}

// prepare looks at a write without doing it.
func (s *Service) prepare(kind string, w write) (prepared, error) {
	t, err := s.table(w.TableName)
	if err != nil {
		return prepared{}, err
	}
	p := prepared{table: t, key: w.Key, check: kind == "ConditionCheck"}
	if kind == "Put" {
		p.key = w.Item.project(t.primary.part, t.primary.sort)
	}
	if err := t.checkKey(p.key); err != nil {
		return prepared{}, err
	}
	sc := w.scope()
	condition, err := parseCondition("ConditionExpression", w.ConditionExpression, sc)
	if err != nil {
		return prepared{}, err
	}
	var change update
	if kind == "Update" {
		if change, err = parseUpdate(w.UpdateExpression, sc); err != nil {
			return prepared{}, err
		}
	}
	if err := sc.rest(); err != nil {
		return prepared{}, err
	}
	p.was = t.get(p.key)
	if p.holds = condition(p.was); !p.holds {
		if w.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
			p.old = p.was
		}
		return p, nil
	}
	switch kind {
	case "ConditionCheck":
		p.now = p.was
		return p, nil
	case "Delete":
		return p, nil
	case "Put":
		p.now = w.Item
	case "Update":
		was := item{}
		maps.Copy(was, p.key)
		maps.Copy(was, p.was)
		if p.now, err = change.apply(was); err != nil {
			return prepared{}, err
		}
		if p.now[t.primary.part] != p.key[t.primary.part] || p.now[t.primary.sort] != p.key[t.primary.sort] {
			return prepared{}, invalid("Cannot update attribute %s or %s. This attribute is part of the key", t.primary.part, t.primary.sort)
		}
	}
	return p, t.checkItem(p.now)
}

func (s *Service) putItem(in write) (any, error)    { return s.one("Put", in) }
func (s *Service) updateItem(in write) (any, error) { return s.one("Update", in) }
func (s *Service) deleteItem(in write) (any, error) { return s.one("Delete", in) }

func (s *Service) one(kind string, in write) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.prepare(kind, in)
	if err != nil {
		return nil, err
	}
	if err := s.charge(p.partition(), p.units()); err != nil {
		return nil, err
	}
	if p.table.locks[p.table.lockName(p.key)] {
		return nil, &wire.Error{Code: "TransactionConflictException", Message: "Transaction is ongoing for the item"}
	}
	if !p.holds {
		e := &wire.Error{Code: "ConditionalCheckFailedException", Message: "The conditional request failed"}
		if p.old != nil {
			e.Fields = map[string]any{"Item": p.old}
		}
		return nil, e
	}
	used, err := s.capacity(in.ReturnConsumedCapacity, p.table.name, 0, p.units()+p.apply(s.IndexLag))
	if used, ok := used.(map[string]any); ok {
		delete(used, "WriteCapacityUnits") // a single write tells the sum alone
	}
	return map[string]any{"ConsumedCapacity": used}, err
}

type transactItem struct{ Put, Update, Delete, ConditionCheck *write }

func (i transactItem) parts() (kind string, w write, err error) {
	n := 0
	for name, one := range map[string]*write{"Put": i.Put, "Update": i.Update, "Delete": i.Delete, "ConditionCheck": i.ConditionCheck} {
		if one != nil {
			kind, w = name, *one
			n++
		}
	}
	if n != 1 {
		return "", write{}, invalid("TransactItems can only contain one of Check, Put, Update or Delete")
	}
	return kind, w, nil
}

type transactWriteItems struct {
	TransactItems          []transactItem
	ClientRequestToken     string
	ReturnConsumedCapacity string
}

// tokenLife is how long a client token is recognised once its transaction is done.
const tokenLife = 10 * time.Minute

type token struct {
	request [sha256.Size]byte
	done    time.Time // zero while the transaction is under way
	read    map[string]float64
}

// transactWriteItems works in two steps, between which other calls have a turn: it locks the items, then writes
// them. Another call for one of them conflicts meanwhile.
func (s *Service) transactWriteItems(in transactWriteItems) (any, error) {
	if n := len(in.TransactItems); n == 0 || n > maxTransact {
		return nil, invalid("Member must have length less than or equal to %d and greater than or equal to 1", maxTransact)
	}
	if len(in.ClientRequestToken) > 36 {
		return nil, invalid("Member must have length less than or equal to 36: clientRequestToken")
	}
	request, err := json.Marshal(in) // of maps in the order of their keys
	if err != nil {
		return nil, err
	}
	mine := &token{request: sha256.Sum256(request), read: map[string]float64{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if out, done, err := s.repeat(in, mine); done || err != nil {
		return out, err
	}
	all, err := s.prepareAll(in.TransactItems)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		p.table.locks[p.table.lockName(p.key)] = true
	}
	if in.ClientRequestToken != "" {
		s.tokens[in.ClientRequestToken] = mine
	}
	s.mu.Unlock()
	s.Load.linger()
	s.mu.Lock()
	used := map[string]float64{}
	for _, p := range all {
		delete(p.table.locks, p.table.lockName(p.key))
		used[p.table.name] += 2*p.units() + p.apply(s.IndexLag)
		mine.read[p.table.name] += 2 * readUnits(p.now.size(), true)
	}
	mine.done = s.now()
	return s.consumedBy(in.ReturnConsumedCapacity, nil, used)
}

// repeat answers a transaction whose token is known.
func (s *Service) repeat(in transactWriteItems, mine *token) (out any, done bool, err error) {
	if in.ClientRequestToken == "" {
		return nil, false, nil
	}
	if s.tokens == nil {
		s.tokens = map[string]*token{}
	}
	now := s.now()
	before, known := s.tokens[in.ClientRequestToken]
	switch {
	case !known:
		return nil, false, nil
	case before.request != mine.request && (before.done.IsZero() || now.Sub(before.done) < tokenLife):
		return nil, false, &wire.Error{Code: "IdempotentParameterMismatchException", Message: "The client request token was used with other parameters"}
	case before.done.IsZero():
		return nil, false, &wire.Error{Code: "TransactionInProgressException", Message: "The transaction with the given request token is already in progress."}
	case now.Sub(before.done) >= tokenLife:
		delete(s.tokens, in.ClientRequestToken)
		return nil, false, nil
	}
	out, err = s.consumedBy(in.ReturnConsumedCapacity, before.read, nil)
	return out, true, err
}

func (s *Service) consumedBy(asked string, read, write map[string]float64) (any, error) {
	all := []any{}
	for _, units := range []map[string]float64{read, write} {
		for name := range units {
			used, err := s.capacity(asked, name, read[name], write[name])
			if err != nil {
				return nil, err
			}
			if used != nil {
				all = append(all, used)
			}
		}
	}
	return map[string]any{"ConsumedCapacity": all}, nil
}

// prepareAll looks at all items of a transaction; an error cancels it.
func (s *Service) prepareAll(items []transactItem) ([]prepared, error) {
	all := make([]prepared, len(items))
	reasons := make([]map[string]any, len(items))
	seen, size, failed := map[string]bool{}, 0, false
	message := "Transaction cancelled, please refer cancellation reasons for specific reasons ["
	for i, one := range items {
		kind, w, err := one.parts()
		if err != nil {
			return nil, err
		}
		p, err := s.prepare(kind, w)
		if err != nil {
			return nil, err
		}
		name := p.table.name + " " + p.table.lockName(p.key)
		if seen[name] {
			return nil, invalid("Transaction request cannot include multiple operations on one item")
		}
		seen[name] = true
		if size += p.now.size(); size > maxTransacted {
			return nil, invalid("Collection size of items in the transaction exceeded 4 MB")
		}
		reason := map[string]any{"Code": "None"}
		throttled := s.charge(p.partition(), 2*p.units())
		switch {
		case throttled != nil:
			reason = map[string]any{"Code": "ThrottlingError", "Message": overloaded}
		case p.table.locks[p.table.lockName(p.key)]:
			reason = map[string]any{"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
		case !p.holds:
			reason = map[string]any{"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
			if p.old != nil {
				reason["Item"] = p.old
			}
		}
		failed = failed || reason["Code"] != "None"
		if i > 0 {
			message += ", "
		}
		message += reason["Code"].(string)
		all[i], reasons[i] = p, reason
	}
	if failed {
		return nil, &wire.Error{
			Code: "TransactionCanceledException", Message: message + "]",
			Fields: map[string]any{"CancellationReasons": reasons},
		}
	}
	return all, nil
}
