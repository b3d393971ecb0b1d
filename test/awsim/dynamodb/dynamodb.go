// Package dynamodb is a fake Amazon DynamoDB with on-demand tables, global secondary indexes that may lag,
// conditional writes, and transactions that conflict where they overlap and recognise their client token.
// It counts capacity units as the service does, and with a Load refuses what is too much. What it does not know (documents and sets, scans, filters,
// reads in transactions) it refuses by name.
//
// Sources: the DynamoDB API reference and developer guide.
package dynamodb

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Service is DynamoDB. Its fields are set before it is used.
type Service struct {
	// Now is the clock by which client tokens are forgotten and partitions recover; nil means time.Now.
	Now func() time.Time
	// IndexLag is how many changes an index may be behind the table. Each query of it brings it closer.
	IndexLag int
	// Unprocessed is asked how many of so many keys a BatchGetItem leaves unprocessed. Nil: none, but for
	// an answer that is full.
	Unprocessed func(keys int) int
	// Load is a model of time and throughput. Nil: transactions take no time, and no partition is too busy.
	Load *Load

	mu      sync.Mutex
	read    float64 // units, in all
	written float64
	spent   map[partition]spent
	tables  map[string]*table
	tokens  map[string]*token
}

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{
		"CreateTable":               handle(s.createTable),
		"DeleteTable":               handle(s.deleteTable),
		"DescribeTable":             handle(s.describeTable),
		"ListTables":                handle(s.listTables),
		"UpdateTimeToLive":          handle(s.updateTimeToLive),
		"DescribeTimeToLive":        handle(s.describeTimeToLive),
		"UpdateContinuousBackups":   handle(s.updateContinuousBackups),
		"DescribeContinuousBackups": handle(s.describeContinuousBackups),
		"GetItem":                   handle(s.getItem),
		"BatchGetItem":              handle(s.batchGetItem),
		"Query":                     handle(s.query),
		"PutItem":                   handle(s.putItem),
		"UpdateItem":                handle(s.updateItem),
		"DeleteItem":                handle(s.deleteItem),
		"TransactWriteItems":        handle(s.transactWriteItems),
	}
}

// handle decodes an input, and refuses a member that it does not know.
func handle[T any](do func(T) (any, error)) wire.Handler {
	return func(_ context.Context, c wire.Call) (any, error) {
		in, err := wire.Decode[T](c)
		if err != nil {
			return nil, err
		}
		return do(in)
	}
}

func invalid(format string, args ...any) error {
	return &wire.Error{Code: "ValidationException", Message: fmt.Sprintf(format, args...)}
}

func (s *Service) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

func (s *Service) table(name string) (*table, error) {
	t, ok := s.tables[name]
	if !ok {
		return nil, &wire.Error{Code: "ResourceNotFoundException", Message: "Requested resource not found: Table: " + name + " not found"}
	}
	return t, nil
}

type (
	keyElement   struct{ AttributeName, KeyType string }
	attribute    struct{ AttributeName, AttributeType string }
	indexRequest struct {
		IndexName  string
		KeySchema  []keyElement
		Projection struct{ ProjectionType string }
	}
	createTable struct {
		TableName              string
		BillingMode            string
		KeySchema              []keyElement
		AttributeDefinitions   []attribute
		GlobalSecondaryIndexes []indexRequest
	}
	named struct{ TableName string }
)

func (t *table) keysOf(schema []keyElement) (keys, error) {
	if len(schema) != 2 || schema[0].KeyType != "HASH" || schema[1].KeyType != "RANGE" {
		return keys{}, invalid("tables and indexes have a HASH and a RANGE key here")
	}
	k := keys{schema[0].AttributeName, schema[1].AttributeName}
	for _, name := range []string{k.part, k.sort} {
		if kind := t.kinds[name]; kind != "S" && kind != "B" {
			return keys{}, invalid("key attribute %s is defined as %q: S and B are known here", name, kind)
		}
	}
	return k, nil
}

func (s *Service) createTable(in createTable) (any, error) {
	if in.TableName == "" || in.BillingMode != "PAY_PER_REQUEST" {
		return nil, invalid("a table has a name and the billing mode PAY_PER_REQUEST here")
	}
	t := &table{name: in.TableName, spec: in, kinds: map[string]string{}, rows: map[string]*rows{}, indexes: map[string]*index{}, locks: map[string]bool{}}
	for _, a := range in.AttributeDefinitions {
		t.kinds[a.AttributeName] = a.AttributeType
	}
	var err error
	if t.primary, err = t.keysOf(in.KeySchema); err != nil {
		return nil, err
	}
	named := map[string]bool{t.primary.part: true, t.primary.sort: true}
	for _, x := range in.GlobalSecondaryIndexes {
		k, err := t.keysOf(x.KeySchema)
		if err != nil {
			return nil, err
		}
		if p := x.Projection.ProjectionType; p != "ALL" && p != "KEYS_ONLY" {
			return nil, invalid("index %s: the projection %q is not known here", x.IndexName, p)
		}
		t.indexes[x.IndexName] = &index{keys: k, all: x.Projection.ProjectionType == "ALL", rows: map[string]*rows{}}
		named[k.part], named[k.sort] = true, true
	}
	if len(named) != len(t.kinds) {
		return nil, invalid("Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.tables[in.TableName]; exists {
		return nil, &wire.Error{Code: "ResourceInUseException", Message: "Table already exists: " + in.TableName}
	}
	if s.tables == nil {
		s.tables = map[string]*table{}
	}
	s.tables[in.TableName] = t
	return map[string]any{"TableDescription": t.describe()}, nil
}

func tableARN(name string) string {
	return "arn:aws:dynamodb:" + wire.Region + ":" + wire.Account + ":table/" + name
}

func (t *table) describe() any {
	count := 0
	for _, r := range t.rows {
		count += len(r.list)
	}
	var indexes []any
	for _, x := range t.spec.GlobalSecondaryIndexes {
		indexes = append(indexes, map[string]any{
			"IndexName": x.IndexName, "IndexStatus": "ACTIVE", "KeySchema": x.KeySchema, "Projection": x.Projection,
		})
	}
	return map[string]any{
		"TableName": t.name, "TableStatus": "ACTIVE", "ItemCount": count,
		"TableArn":  tableARN(t.name),
		"KeySchema": t.spec.KeySchema, "AttributeDefinitions": t.spec.AttributeDefinitions,
		"GlobalSecondaryIndexes": indexes, "BillingModeSummary": map[string]string{"BillingMode": t.spec.BillingMode},
	}
}

func (s *Service) describeTable(in named) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	return map[string]any{"Table": t.describe()}, nil
}

func (s *Service) deleteTable(in named) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	delete(s.tables, in.TableName)
	return map[string]any{"TableDescription": t.describe()}, nil
}

func (s *Service) listTables(struct{}) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := []string{}
	for name := range s.tables {
		names = append(names, name)
	}
	slices.Sort(names)
	return map[string]any{"TableNames": names}, nil
}

type timeToLive struct {
	TableName               string
	TimeToLiveSpecification struct {
		AttributeName string
		Enabled       bool
	}
}

func (s *Service) updateTimeToLive(in timeToLive) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	if t.ttl = ""; in.TimeToLiveSpecification.Enabled {
		t.ttl = in.TimeToLiveSpecification.AttributeName
	}
	return map[string]any{"TimeToLiveSpecification": in.TimeToLiveSpecification}, nil
}

func (s *Service) describeTimeToLive(in named) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	out := map[string]string{"TimeToLiveStatus": "DISABLED"}
	if t.ttl != "" {
		out = map[string]string{"TimeToLiveStatus": "ENABLED", "AttributeName": t.ttl}
	}
	return map[string]any{"TimeToLiveDescription": out}, nil
}

type continuousBackups struct {
	TableName                        string
	PointInTimeRecoverySpecification struct{ PointInTimeRecoveryEnabled bool }
}

func (s *Service) updateContinuousBackups(in continuousBackups) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	t.backups = in.PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled
	return t.describeBackups(), nil
}

func (s *Service) describeContinuousBackups(in named) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	return t.describeBackups(), nil
}

func (t *table) describeBackups() any {
	status := "DISABLED"
	if t.backups {
		status = "ENABLED"
	}
	return map[string]any{"ContinuousBackupsDescription": map[string]any{
		"ContinuousBackupsStatus":        "ENABLED",
		"PointInTimeRecoveryDescription": map[string]string{"PointInTimeRecoveryStatus": status},
	}}
}
