package boot

import (
	"context"
	"net/url"
	"strings"
)

// emptyEvent is the event of an invoked function: the invocation alone says that there is something to do.
const emptyEvent = "{}"

// Invocation is the call that invokes a Lambda function by its name or ARN, and does not wait for its end (Lambda API
// reference, Invoke).
func (c Caller) Invocation(ctx context.Context, target string) (Call, error) {
	region := regionOf(target)
	endpoint, err := c.Endpoint(ctx, "Lambda", "lambda", region)
	// An ARN's colons are escaped, as the SDK does it: the signature is of the escaped path.
	name := strings.ReplaceAll(url.PathEscape(target), ":", "%3A")
	return Call{
		Service: "lambda", Region: region, Address: endpoint + "/2015-03-31/functions/" + name + "/invocations", Body: []byte(emptyEvent),
		Header: map[string]string{"Content-Type": "application/json", "X-Amz-Invocation-Type": "Event"},
	}, err
}

// regionOf returns the region that an ARN names; a name alone, "", means the function's own.
func regionOf(target string) string {
	if part := strings.SplitN(target, ":", 6); len(part) == 6 && part[0] == "arn" {
		return part[3]
	}
	return ""
}
