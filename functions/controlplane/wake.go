package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
)

// wakeEvent is what a woken function gets: a wake carries nothing.
const wakeEvent = "{}"

// waker wakes a pool by invoking its function (Lambda API reference, Invoke).
type waker struct{ caller boot.Caller }

func newWaker(cfg aws.Config) waker { return waker{boot.NewCaller(cfg)} }

// Wake implements controlplane.Waker: one try, because a wake may be lost and must not be waited for.
func (w waker) Wake(ctx context.Context, target string) error {
	region := regionOf(target)
	endpoint, err := w.caller.Endpoint(ctx, "Lambda", "lambda", region)
	if err != nil {
		return fmt.Errorf("invoke %s: %w", target, err)
	}
	// An ARN's colons are escaped, as the SDK does it: the signature counts what is sent.
	name := strings.ReplaceAll(url.PathEscape(target), ":", "%3A")
	_, err = w.caller.Do(ctx, boot.Call{
		Service: "lambda", Region: region, Address: endpoint + "/2015-03-31/functions/" + name + "/invocations", Body: []byte(wakeEvent),
		Header: map[string]string{"Content-Type": "application/json", "X-Amz-Invocation-Type": "Event"},
	})
	if err != nil {
		return fmt.Errorf("invoke %s: %w", target, err)
	}
	return nil
}

// regionOf returns the region that an ARN names; a name alone, "", means the function's own.
func regionOf(target string) string {
	if part := strings.SplitN(target, ":", 6); len(part) == 6 && part[0] == "arn" {
		return part[3]
	}
	return ""
}
