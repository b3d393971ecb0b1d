// Package awssend sends the requests of the AWS SDK in one piece. It changes nothing else of them.
//
// net/http cannot see that the SDK's bodies are in memory. So it sends the header on its own and, after the body, reads
// once more whether there is more of it. The SDK closes the body as soon as the header of the answer has come. If that
// comes before the last read, from a near service or on a busy processor, net/http takes the closed body for a failure to
// write and breaks the connection in the middle of the answer: a call that was done looks like one whose answer was lost.
// A body that net/http knows goes out with its header and is not read again.
package awssend

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Client sends the requests of the SDK.
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
