package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// The attributes of an item. All keys are of type S; see encode.
const (
	attrPart    = "pk"   // S: the partition of the key
	attrSort    = "sk"   // S: the sort key
	attrVersion = "ver"  // N
	attrValue   = "val"  // S where it is printable text, else B; left out where it is empty
	attrExpires = "exp"  // N: Unix seconds, the time to live; left out where there is none
	attrPart1   = "i1pk" // S: the partition in the index; left out where the record is not in it
	attrPlace1  = "i1sk" // S: the place in the index
	attrPart2   = "i2pk"
	attrPlace2  = "i2sk"
)

// indexAttrs are the attributes that place a record in an index.
var indexAttrs = map[store.Index][2]string{
	store.Index1: {attrPart1, attrPlace1},
	store.Index2: {attrPart2, attrPlace2},
}

// Schema is what the table of a store looks like, for whoever makes it, and for whoever compares a
// template with it.
type Schema struct {
	PartitionKey, SortKey string // attributes of the primary key; like all key attributes they are of type S
	Indexes               []IndexSchema
	TTL                   string // the attribute of the time to live
	BillingMode           string // on demand: an idle table costs its storage alone
	PointInTimeRecovery   bool   // the table is the only owner of the state of every workflow
}

// IndexSchema is one global secondary index. It carries keys alone (KEYS_ONLY), so that a record that
// changes and stays where it is costs nothing in it.
type IndexSchema struct {
	Name                  string
	PartitionKey, SortKey string
	Projection            string
}

// TableSchema returns the one schema that this package works with.
func TableSchema() Schema {
	s := Schema{
		PartitionKey: attrPart, SortKey: attrSort, TTL: attrExpires,
		BillingMode: string(types.BillingModePayPerRequest), PointInTimeRecovery: true,
	}
	for _, index := range []store.Index{store.Index1, store.Index2} {
		s.Indexes = append(s.Indexes, IndexSchema{
			Name:         string(index),
			PartitionKey: indexAttrs[index][0], SortKey: indexAttrs[index][1],
			Projection: string(types.ProjectionTypeKeysOnly),
		})
	}
	return s
}

// TableInput returns the call that makes the table. The time to live and the point-in-time recovery are
// calls of their own; Create makes them all.
func TableInput(table string) *dynamodb.CreateTableInput {
	s := TableSchema()
	keys := func(part, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: aws.String(part), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(sort), KeyType: types.KeyTypeRange},
		}
	}
	in := &dynamodb.CreateTableInput{
		TableName:   aws.String(table),
		BillingMode: types.BillingMode(s.BillingMode),
		KeySchema:   keys(s.PartitionKey, s.SortKey),
	}
	attrs := []string{s.PartitionKey, s.SortKey}
	for _, index := range s.Indexes {
		in.GlobalSecondaryIndexes = append(in.GlobalSecondaryIndexes, types.GlobalSecondaryIndex{
			IndexName:  aws.String(index.Name),
			KeySchema:  keys(index.PartitionKey, index.SortKey),
			Projection: &types.Projection{ProjectionType: types.ProjectionType(index.Projection)},
		})
		attrs = append(attrs, index.PartitionKey, index.SortKey)
	}
	for _, name := range attrs {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{
			AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS,
		})
	}
	return in
}

// Create makes the table, waits at most for as long as wait says until it can be used, and turns on its
// time to live and its point-in-time recovery. A table of that name that is there already is left as it
// is. It is for tests and for trying things out: an installation makes its table by a template.
func Create(ctx context.Context, client *dynamodb.Client, table string, wait time.Duration) error {
	_, err := client.CreateTable(ctx, TableInput(table))
	if _, exists := errors.AsType[*types.ResourceInUseException](err); exists {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create table %s: %w", table, err)
	}
	err = dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 10*time.Millisecond, 2*time.Second
	}).Wait(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(table)}, wait)
	if err != nil {
		return fmt.Errorf("wait for table %s: %w", table, err)
	}
	s := TableSchema()
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               aws.String(table),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(s.TTL), Enabled: aws.Bool(true)},
	})
	if err != nil {
		return fmt.Errorf("turn on the time to live of table %s: %w", table, err)
	}
	_, err = client.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
		TableName:                        aws.String(table),
		PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(s.PointInTimeRecovery)},
	})
	if err != nil {
		return fmt.Errorf("turn on the point-in-time recovery of table %s: %w", table, err)
	}
	return nil
}
