// Package dynamodbtest makes the table of a DynamoDB store for tests, and computes the cost of a store's calls in it.
// An installation makes its table by a template, which a test compares with Schema.
package dynamodbtest

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

// Schema is the schema of the table of a store, for programs that create it, and for a test that compares a
// template with it.
type Schema struct {
	PartitionKey, SortKey string // attributes of the primary key; like all key attributes they are of type S
	Indexes               []IndexSchema
	TTL                   string // the attribute of the time to live
	BillingMode           string // on demand: an idle table costs its storage alone
	PointInTimeRecovery   bool   // the table is the only owner of the state of every workflow
}

// IndexSchema is one global secondary index. It holds keys alone (KEYS_ONLY), so that a record that
// changes and stays where it is costs nothing in it.
type IndexSchema struct {
	Name                  string
	PartitionKey, SortKey string
	Projection            string
}

// TableSchema returns the one schema that package dynamodb works with.
func TableSchema() Schema {
	keysOnly := string(types.ProjectionTypeKeysOnly)
	return Schema{
		PartitionKey: "pk", SortKey: "sk", TTL: "exp",
		BillingMode: string(types.BillingModePayPerRequest), PointInTimeRecovery: true,
		Indexes: []IndexSchema{
			{string(store.Index1), "i1pk", "i1sk", keysOnly},
			{string(store.Index2), "i2pk", "i2sk", keysOnly},
		},
	}
}

// tableInput is the call that makes the table. The time to live and the point-in-time recovery are calls of their own.
func tableInput(table string) *dynamodb.CreateTableInput {
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
// is.
func Create(ctx context.Context, client *dynamodb.Client, table string, wait time.Duration) error {
	_, err := client.CreateTable(ctx, tableInput(table))
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
