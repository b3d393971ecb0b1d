// Package awssend sends the requests of the AWS SDK in one piece. It changes nothing else of them.
//
// The SDK gives net/http a body of which net/http cannot see that it lies in memory. So net/http sends the
// header on its own and, after the body, looks once more whether there is more of it; the SDK closes the
// body as soon as the header of the answer has come. Where the answer is sooner than that look, with a
// service that is near or a processor that is shared with many, the closed body passes for a failure to
// write, and net/http breaks the connection in the middle of the answer: what was done looks like an answer
// that was lost. A body that net/http knows goes out with its header and is not looked at again.
package awssend

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Client is what the SDK sends a request with.
type Client interface {
	Do(r *http.Request) (*http.Response, error)
}

// Whole returns a client that hands requests to next with their body in memory. It is as safe for
// concurrent use as next is.
func Whole(next Client) Client { return whole{next} }

type whole struct{ next Client }

// Do implements Client. The body of r stays the caller's to close.
func (w whole) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.ContentLength <= 0 {
		return w.next.Do(r) //nolint:wrapcheck // the SDK reads the error
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fmt.Errorf("read the request's body: %w", err)
	}
	out := r.WithContext(r.Context())
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, _ = out.GetBody()
	return w.next.Do(out) //nolint:wrapcheck // as above
}
