package dynamodb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// tries is how often a commit is sent whose answer is lost, before its caller gets the error.
const tries = 3

// Commit implements store.Store. A commit whose answer was lost is sent again at once under the same id, as its caller
// would do: the sooner, the less has happened to its records.
func (s *Store) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if err := store.CheckCommit(id, ops); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	mark := markOf(id, ops)
	call, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var err error
	unknown := false
	for range tries {
		if alone(ops) {
			err = s.write(call, id, mark, ops[0])
		} else {
			err = s.transact(call, id, mark, ops)
		}
		// A repeat that was refused, because the table is busy or the credentials have just expired, says
		// nothing about the first try: the outcome stays unknown. A conflict or a reused id is about both.
		final := err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, errReused)
		unknown = errors.Is(err, store.ErrUnknown) || unknown && !final
		if !unknown || call.Err() != nil {
			break
		}
	}
	if unknown && !errors.Is(err, store.ErrUnknown) {
		err = fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	if ended := ctx.Err(); ended != nil && unknown {
		return fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

// alone reports whether a commit is one update of an existing record, or makes one that no commit deletes. Only that
// needs no transaction: once the record is gone, the repeat of a lone create or delete could not be told from a lost
// race.
func alone(ops []store.Op) bool {
	return len(ops) == 1 && ops[0].IsPut() && (ops[0].Expect() != store.Absent || ops[0].Stays())
}

// once turns the retries of the SDK off, for every write: its retry would meet the effect of its own first try and
// report a conflict.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// write makes or changes one record, for half the cost of a transaction. Neither call has a client token, so a
// repeat is recognised by the mark that the first try left.
func (s *Store) write(ctx context.Context, id string, mark string, put store.Op) error {
	var err error
	if put.Expect() == store.Absent {
		_, err = s.client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &s.table, Item: made(put, mark),
			ConditionExpression: aws.String(isAbsent), ExpressionAttributeNames: absentNames,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}, once)
	} else {
		u := updateOf(put, mark)
		_, err = s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &s.table, Key: keyOf(put.Key()),
			UpdateExpression: &u.update, ConditionExpression: &u.condition,
			ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}, once)
	}
	if err == nil {
		s.unsure.forget(id)
		return nil
	}
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		err = s.outcome(err)
		if errors.Is(err, store.ErrUnknown) {
			s.unsure.remember(id, s.now())
		}
		return err
	}
	switch judge(failed.Item, put, mark) {
	case ours:
		s.unsure.forget(id)
		return nil
	case reused:
		return reusedError(id)
	case silent:
		if s.unsure.holds(id) {
			return fmt.Errorf("%s no longer shows whether it was written: %w", put.Key(), store.ErrUnknown)
		}
	case others:
	}
	s.unsure.forget(id)
	return conflict(put)
}

// transact commits any operations. The client token makes DynamoDB recognise a repeat for ten minutes. After that
// the marks do, as long as a record of the commit exists and was not written sixteen times since.
func (s *Store) transact(ctx context.Context, id string, mark string, ops []store.Op) error {
	in := &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: aws.String(token(s.table, id)),
		TransactItems:      make([]types.TransactWriteItem, len(ops)),
	}
	for i, op := range ops {
		in.TransactItems[i] = s.part(op, mark)
	}
	_, err := s.client.TransactWriteItems(ctx, in, once)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*types.IdempotentParameterMismatchException](err); ok {
		return reusedError(id)
	}
	if _, ok := errors.AsType[*types.TransactionInProgressException](err); ok {
		// An earlier try of this very commit is under way, and may yet be applied.
		return fmt.Errorf("an earlier try is under way: %w", store.ErrUnknown)
	}
	cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return s.outcome(err)
	}
	return s.cancelled(id, mark, ops, cancelled)
}

// cancelled gives the cancellation of a transaction its meaning. This try wrote nothing, but an earlier try of the
// same commit may have: then the conditions of this one fail because of its own effect, and a mark shows it.
func (s *Store) cancelled(id string, mark string, ops []store.Op, e *types.TransactionCanceledException) error {
	codes := make([]string, len(e.CancellationReasons))
	var lost []store.Op
	for i, reason := range e.CancellationReasons {
		codes[i] = aws.ToString(reason.Code)
		if codes[i] != "ConditionalCheckFailed" || i >= len(ops) {
			continue
		}
		lost = append(lost, ops[i])
		if !ops[i].IsPut() {
			continue
		}
		switch judge(reason.Item, ops[i], mark) {
		case ours:
			return nil // one record of the commit was written, so all were
		case reused:
			return reusedError(id)
		case others, silent:
		}
	}
	switch class := awserr.OfReasons(codes...); {
	case len(codes) == 0: // the SDK could not read the reasons; the message has their codes
		return s.outcome(e)
	case class == awserr.LostRace && len(lost) > 0:
		return conflict(lost...)
	case class.Transient():
		return fmt.Errorf("%w: transaction cancelled: %s", store.ErrBusy, strings.Join(codes, ", "))
	}
	return fmt.Errorf("commit %d operations to table %s: transaction cancelled: %s", len(ops), s.table, reasons(e))
}

// reasons lists the reasons that DynamoDB gives, each once.
func reasons(e *types.TransactionCanceledException) string {
	var all []string
	for _, r := range e.CancellationReasons {
		if code := aws.ToString(r.Code); code != "" && code != "None" {
			if text := code + ": " + aws.ToString(r.Message); !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return strings.Join(all, "; ")
}

func conflict(lost ...store.Op) error {
	return fmt.Errorf("%s is not at version %d: %w", lost[0].Key(), lost[0].Expect(), store.ErrConflict)
}

var errReused = errors.New("was used for other operations")

func reusedError(id string) error { return fmt.Errorf("store: commit id %q %w", id, errReused) }

// outcome gives the error of a write its meaning.
func (s *Store) outcome(err error) error {
	switch class := awserr.Of(err); class {
	case awserr.Throttled, awserr.Busy, awserr.Unavailable, awserr.Quota, awserr.Capacity:
		return fmt.Errorf("%w: %w", store.ErrBusy, err)
	case awserr.LostRace:
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case awserr.Lost:
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	case awserr.None, awserr.Permanent, awserr.Conflict, awserr.NotFound, awserr.Denied:
		if class == awserr.Permanent && !refused(err) {
			return fmt.Errorf("%w: %w", store.ErrUnknown, err)
		}
	}
	return fmt.Errorf("write to table %s: %w", s.table, err)
}

// refused reports whether an error proves that the call was not done: the service answered with it, or the SDK
// made it before it sent anything.
func refused(err error) bool {
	if _, ok := errors.AsType[smithy.APIError](err); ok {
		return true
	}
	_, undone := errors.AsType[*smithy.SerializationError](err)
	_, invalid := errors.AsType[smithy.InvalidParamsError](err)
	return undone || invalid
}

// token is the client token of a commit: 36 characters, DynamoDB's maximum.
func token(table, id string) string {
	sum := sha256.Sum256([]byte(table + "\x00" + id))
	return base64.RawURLEncoding.EncodeToString(sum[:27])
}

// made is the item that a Put makes.
func made(put store.Op, mark string) item {
	r := put.Record()
	it := content(r)
	maps.Copy(it, keyOf(r.Key))
	it[attrMark(r.Version)] = text(mark)
	return it
}

// part is one operation of a transaction.
func (s *Store) part(op store.Op, mark string) types.TransactWriteItem {
	switch {
	case op.IsPut() && op.Expect() == store.Absent:
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &s.table, Item: made(op, mark),
			ConditionExpression: aws.String(isAbsent), ExpressionAttributeNames: absentNames,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}
	case op.IsPut():
		u := updateOf(op, mark)
		return types.TransactWriteItem{Update: &types.Update{
			TableName: &s.table, Key: keyOf(op.Key()),
			UpdateExpression: &u.update, ConditionExpression: &u.condition,
			ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.values,
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}
	case op.IsDelete():
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &s.table, Key: keyOf(op.Key()),
			ConditionExpression: aws.String(isVersion), ExpressionAttributeNames: versionNames,
			ExpressionAttributeValues: item{":was": number(op.Expect())},
		}}
	case op.Expect() == store.Absent:
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &s.table, Key: keyOf(op.Key()),
			ConditionExpression: aws.String(isAbsent), ExpressionAttributeNames: absentNames,
		}}
	}
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &s.table, Key: keyOf(op.Key()),
		ConditionExpression: aws.String(isVersion), ExpressionAttributeNames: versionNames,
		ExpressionAttributeValues: item{":was": number(op.Expect())},
	}}
}

// Every attribute name goes through a placeholder, because DynamoDB reserves many words and adds more.
const (
	isAbsent  = "attribute_not_exists(#pk)"
	isVersion = "#ver = :was"
)

var (
	absentNames  = map[string]string{"#pk": attrPart}
	versionNames = map[string]string{"#ver": attrVersion}
)

// expressions are those of an update.
type expressions struct {
	update, condition string
	names             map[string]string
	values            item
}

// updateOf replaces all attributes that content sets and removes those that it leaves out. An UpdateItem keeps the
// marks of earlier writes, which a PutItem would erase.
func updateOf(put store.Op, mark string) expressions {
	r := put.Record()
	e := expressions{
		// The second condition refuses a caller that uses one id for two successive writes of a record. Without it
		// the mistake would pass, because the version is the expected one.
		condition: isVersion + " AND NOT begins_with(#had, :id)",
		names:     map[string]string{"#ver": attrVersion, "#had": attrMark(put.Expect()), "#mark": attrMark(r.Version)},
		values:    item{":was": number(put.Expect()), ":ver": number(r.Version), ":id": text(mark[:markID]), ":mark": text(mark)},
	}
	set, remove := []string{"#ver = :ver", "#mark = :mark"}, []string(nil)
	has := content(r)
	for _, name := range optional {
		e.names["#"+name] = name
		if v, ok := has[name]; ok {
			set = append(set, "#"+name+" = :"+name)
			e.values[":"+name] = v
		} else {
			remove = append(remove, "#"+name)
		}
	}
	e.update = "SET " + strings.Join(set, ", ")
	if len(remove) > 0 {
		e.update += " REMOVE " + strings.Join(remove, ", ")
	}
	return e
}
