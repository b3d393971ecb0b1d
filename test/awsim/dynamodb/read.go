package dynamodb

import (
	"slices"
	"strings"
)

// Used are the capacity units of all operations so far that were done, and how many bytes of
// storage the items of all tables count, without indexes.
func (s *Service) Used() (read, write float64, stored int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		stored += t.stored()
	}
	return s.read, s.written, stored
}

// capacity adds up what an operation consumed, and returns the sum where it was asked for. The lock is held.
func (s *Service) capacity(asked, tableName string, read, write float64) (any, error) {
	s.read, s.written = s.read+read, s.written+write
	switch asked {
	case "", "NONE":
		return nil, nil
	case "TOTAL":
		out := map[string]any{"TableName": tableName, "CapacityUnits": read + write}
		if read > 0 {
			out["ReadCapacityUnits"] = read
		}
		if write > 0 {
			out["WriteCapacityUnits"] = write
		}
		return out, nil
	}
	return nil, invalid("ReturnConsumedCapacity %q is not known here", asked)
}

type getItem struct {
	TableName              string
	Key                    item
	ConsistentRead         bool
	ReturnConsumedCapacity string
}

func (s *Service) getItem(in getItem) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	if err := t.checkKey(in.Key); err != nil {
		return nil, err
	}
	it := t.get(in.Key)
	units := readUnits(it.size(), in.ConsistentRead)
	if err := s.charge(partition{table: t.name, key: in.Key[t.primary.part].text}, units); err != nil {
		return nil, err
	}
	used, err := s.capacity(in.ReturnConsumedCapacity, t.name, units, 0)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"ConsumedCapacity": used}
	if it != nil {
		out["Item"] = it
	}
	return out, nil
}

type keysAndAttributes struct {
	Keys           []item
	ConsistentRead bool
}

type batchGetItem struct {
	RequestItems           map[string]keysAndAttributes
	ReturnConsumedCapacity string
}

func (s *Service) batchGetItem(in batchGetItem) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	responses, unprocessed, consumed := map[string][]item{}, map[string]keysAndAttributes{}, []any{}
	total, size, all, throttled := 0, 0, 0, error(nil)
	for name, ask := range in.RequestItems {
		t, err := s.table(name)
		if err != nil {
			return nil, err
		}
		if total += len(ask.Keys); len(ask.Keys) == 0 || total > maxBatchKeys {
			return nil, invalid("Too many items requested for the BatchGetItem call, or none")
		}
		seen := map[string]bool{}
		for _, key := range ask.Keys {
			if err := t.checkKey(key); err != nil {
				return nil, err
			}
			if seen[key.spell()] {
				return nil, invalid("Provided list of item keys contains duplicates")
			}
			seen[key.spell()] = true
		}
		process := ask.Keys
		if s.Unprocessed != nil {
			process = process[:len(process)-min(len(process), s.Unprocessed(len(process)))]
		}
		responses[name] = []item{}
		read, done := 0.0, 0
		for _, key := range process {
			it := t.get(key)
			units := readUnits(it.size(), ask.ConsistentRead)
			if size+it.size() > maxBatch {
				break
			}
			if throttled = s.charge(partition{table: name, key: key[t.primary.part].text}, units); throttled != nil {
				break
			}
			size += it.size()
			done++
			all++
			read += units
			if it != nil {
				responses[name] = append(responses[name], it)
			}
		}
		slices.Reverse(responses[name]) // in no order that a caller may rely on
		if done < len(ask.Keys) {
			unprocessed[name] = keysAndAttributes{Keys: ask.Keys[done:], ConsistentRead: ask.ConsistentRead}
		}
		used, err := s.capacity(in.ReturnConsumedCapacity, name, read, 0)
		if err != nil {
			return nil, err
		}
		if used != nil {
			consumed = append(consumed, used)
		}
	}
	if total == 0 {
		return nil, invalid("The batch get request list cannot be empty")
	}
	if throttled != nil && all == 0 {
		return nil, throttled // some of a batch is left unprocessed, but not all of it
	}
	return map[string]any{"Responses": responses, "UnprocessedKeys": unprocessed, "ConsumedCapacity": consumed}, nil
}

type query struct {
	placeholders
	TableName, IndexName   string
	KeyConditionExpression string
	ConsistentRead         bool
	ScanIndexForward       *bool
	Limit                  *int
	ExclusiveStartKey      item
	ReturnConsumedCapacity string
}

func (s *Service) query(in query) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	k, all, key := t.primary, t.rows, []string{t.primary.part, t.primary.sort}
	if in.IndexName != "" {
		x, ok := t.indexes[in.IndexName]
		switch {
		case !ok:
			return nil, invalid("The table does not have the specified index: %s", in.IndexName)
		case in.ConsistentRead:
			return nil, invalid("Consistent reads are not supported on global secondary indexes")
		}
		x.catchUp(min(s.IndexLag, len(x.waiting)/2))
		k, all, key = x.keys, x.rows, append(key, x.part, x.sort)
	}
	if in.Limit != nil && *in.Limit < 1 {
		return nil, invalid("Limit must be greater than or equal to 1")
	}
	sc := in.scope()
	part, low, high, holds, err := t.keyCondition(in.KeyConditionExpression, k, sc)
	if err != nil {
		return nil, err
	}
	if err := sc.rest(); err != nil {
		return nil, err
	}
	forward := in.ScanIndexForward == nil || *in.ScanIndexForward
	start, err := t.start(in, k, key, part, holds)
	if err != nil {
		return nil, err
	}
	if in.IndexName != "" {
		low, high = escapeZero(low), escapeZero(high)+indexHigh
	}
	list := all[part].within(low, high, start, forward)
	items, size, last := []item{}, 0, item(nil)
	for i := range list {
		one := list[i]
		if !forward {
			one = list[len(list)-1-i]
		}
		if !holds(one.it) {
			continue
		}
		if len(items) > 0 && size+one.it.size() > maxPage || in.Limit != nil && len(items) == *in.Limit {
			last = items[len(items)-1].project(key...)
			break
		}
		size += one.it.size()
		items = append(items, one.it)
	}
	if last == nil && in.Limit != nil && len(items) == *in.Limit {
		last = items[len(items)-1].project(key...) // it has not looked whether there is more
	}
	units := readUnits(size, in.ConsistentRead)
	if err := s.charge(partition{table: t.name, index: in.IndexName, key: part}, units); err != nil {
		return nil, err
	}
	used, err := s.capacity(in.ReturnConsumedCapacity, t.name, units, 0)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"Items": items, "Count": len(items), "ScannedCount": len(items), "ConsumedCapacity": used}
	if last != nil {
		out["LastEvaluatedKey"] = last
	}
	return out, nil
}

// start is the place behind which a query goes on.
func (t *table) start(in query, k keys, key []string, part string, holds condition) (string, error) {
	from := in.ExclusiveStartKey
	if from == nil {
		return "", nil
	}
	if len(from) != len(key) || len(from.project(key...)) != len(key) {
		return "", invalid("The provided starting key is invalid")
	}
	if from[k.part].text != part || !holds(from) {
		return "", invalid("The provided starting key is outside query boundaries based on provided conditions")
	}
	if in.IndexName != "" {
		return t.place(k, from), nil
	}
	return from[k.sort].text, nil
}

// keyCondition reads "#part = :value", alone or with AND and one condition on the sort key.
// All that it can be true for is between low and high, both inclusive; an empty high means no bound.
func (t *table) keyCondition(text string, k keys, s *scope) (part, low, high string, holds condition, err error) {
	p := newParser("KeyConditionExpression", text, s)
	name, err := p.name()
	if err != nil {
		return "", "", "", nil, err
	}
	if name != k.part {
		return "", "", "", nil, invalid("Query condition missed key schema element: %s", k.part)
	}
	if err := p.want("="); err != nil {
		return "", "", "", nil, err
	}
	v, err := p.value()
	if err != nil {
		return "", "", "", nil, err
	}
	if err := t.checkAttr(item{k.part: v}, k.part, maxPartKey, true); err != nil {
		return "", "", "", nil, err
	}
	if len(p.tokens) == 0 {
		return v.text, "", "", func(item) bool { return true }, nil
	}
	if err := p.want("AND"); err != nil {
		return "", "", "", nil, err
	}
	ops := p.tokens
	if len(ops) > 1 && ops[0] == "begins_with" {
		ops = ops[1:]
	}
	if s.names[ops[0]] != k.sort && (len(ops) < 2 || s.names[ops[1]] != k.sort) {
		return "", "", "", nil, invalid("Query key condition not supported")
	}
	for i, token := range p.tokens {
		if token == "<>" {
			return "", "", "", nil, invalid("Unsupported operator on KeyCondition: operator: <>")
		}
		bound, ok := s.values[token]
		if !ok {
			continue
		}
		if err := t.checkAttr(item{k.sort: bound}, k.sort, maxSortKey, true); err != nil {
			return "", "", "", nil, err
		}
		switch strings.ToUpper(p.tokens[i-1]) {
		case "BETWEEN", ">=", ">":
			low = bound.text
		case "AND", "<=", "<":
			high = bound.text
		case "=":
			low, high = bound.text, bound.text
		}
	}
	holds, err = p.test()
	if err == nil && len(p.tokens) > 0 {
		err = invalid("Query key condition not supported")
	}
	return v.text, low, high, holds, err
}

// indexHigh stands behind an escaped sort key above all places in an index that begin with it.
const indexHigh = "\x00\x02"

// within returns the rows between low and high, and on the far side of start.
func (r *rows) within(low, high, start string, forward bool) []row {
	if r == nil {
		return nil
	}
	from, to := 0, len(r.list)
	if low != "" {
		from, _ = r.find(low)
	}
	if high != "" && high != indexHigh {
		var there bool
		if to, there = r.find(high); there {
			to++
		}
	}
	if i, there := r.find(start); start != "" && forward {
		if there {
			i++
		}
		from = max(from, i)
	} else if start != "" {
		to = min(to, i)
	}
	return r.list[from:max(from, to)]
}
