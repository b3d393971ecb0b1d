package dynamodb

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// span is a part of a partition, of the table or of an index: from low, inclusive, to high, exclusive. An empty bound
// means no bound.
type span struct {
	index     store.Index // empty: the table
	part      string
	low, high string
	reverse   bool
}

func (sp *span) partAttr() string {
	if sp.index != "" {
		return indexAttrs[sp.index][0]
	}
	return attrPart
}

func (sp *span) sortAttr() string {
	if sp.index != "" {
		return indexAttrs[sp.index][1]
	}
	return attrSort
}

func (sp *span) covers(at string) bool { return at >= sp.low && (sp.high == "" || at < sp.high) }

// query is the call that reads the span; ok is false if nothing can lie in it. DynamoDB has only inclusive bounds
// (BETWEEN), no longer than a sort key, and one condition on the sort key. So the call may read a few items that the
// span does not cover; some drops them.
func (sp *span) query() (in *dynamodb.QueryInput, ok bool) {
	low, high := lowest(sp.low), ""
	if sp.high != "" {
		if high = highest(sp.high); high == "" || high < low {
			return nil, false
		}
	}
	in = &dynamodb.QueryInput{
		ScanIndexForward:          aws.Bool(!sp.reverse),
		ExpressionAttributeNames:  map[string]string{"#p": sp.partAttr()},
		ExpressionAttributeValues: item{":p": text(encode(sp.part))},
	}
	if sp.index != "" {
		in.IndexName = aws.String(string(sp.index))
	} else {
		in.ConsistentRead = aws.Bool(true)
	}
	condition := "#p = :p"
	switch {
	case low != "" && high != "":
		condition += " AND #s BETWEEN :low AND :high"
	case low != "":
		condition += " AND #s >= :low"
	case high != "":
		condition += " AND #s <= :high"
	}
	if low != "" || high != "" {
		in.ExpressionAttributeNames["#s"] = sp.sortAttr()
	}
	if low != "" {
		in.ExpressionAttributeValues[":low"] = text(encode(low))
	}
	if high != "" {
		in.ExpressionAttributeValues[":high"] = text(encode(high))
	}
	in.KeyConditionExpression = aws.String(condition)
	return in, true
}

// lowest returns an inclusive lower bound that is no longer than a sort key and not above low.
func lowest(low string) string { return fitting(low) }

// highest returns an inclusive upper bound that is no longer than a sort key and covers all sort keys
// below high; it is empty if there are none.
func highest(high string) string {
	high = strings.TrimSuffix(high, "\x00") // the key right below
	cut := fitting(high)
	if cut != high && store.SortSize(cut) < maxSort {
		cut += "\x7f" // one byte of room is left, and the next byte of high needs two
	}
	return cut
}

// fitting cuts a bound to the size of a sort key.
func fitting(bound string) string {
	n := 0
	for i := range len(bound) {
		if n += store.SortSize(bound[i : i+1]); n > maxSort {
			return bound[:i]
		}
	}
	return bound
}

// keyAttr reads the text of a key out of an item.
func keyAttr(it item, name string) (string, error) {
	t, ok := textOf(it, name)
	if !ok {
		return "", fmt.Errorf("attribute %s: %w", name, errNotKey)
	}
	key, err := decode(t)
	if err != nil {
		return "", fmt.Errorf("attribute %s: %w", name, err)
	}
	return key, nil
}
