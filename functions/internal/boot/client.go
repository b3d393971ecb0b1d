package boot

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
)

// ControlPlane returns a client of the control plane at a base address that presents a secret as its
// token. It is less patient than an agent's: if a call fails now, the next invocation makes it.
func ControlPlane(address string, token *Secret) (*client.Client, error) {
	return client.New(client.Config{
		URL: address, UserAgent: "dayfly-function",
		HTTPClient:     &http.Client{Transport: &bearer{token, Transport()}},
		RequestTimeout: 10 * time.Second,
		RetryCount:     2, RetryWait: 500 * time.Millisecond, RetryMaxWait: 5 * time.Second,
		BreakerFailures: 2, BreakerTimeout: time.Minute,
	})
}

// Transport returns a transport with the time-outs of this package. It remembers TLS sessions: a process that was
// frozen makes a new connection for most of its calls, and with a session it need not check certificates again.
func Transport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		TLSHandshakeTimeout:   dialTime,
		ResponseHeaderTimeout: answerTime,
		IdleConnTimeout:       idleTime,
		MaxIdleConnsPerHost:   16,
		ForceAttemptHTTP2:     true,
	}
}

// bearer presents a secret as each request's token. A request that is answered 401 is repeated once if the
// secret has changed meanwhile: a rotated token costs one answer and no failed call.
type bearer struct {
	token *Secret
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	used, err := b.token.Get(ctx)
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	response, err := b.next.RoundTrip(with(ctx, request, used.Reveal()))
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	if request.Body != nil && request.GetBody == nil {
		return response, nil // it cannot be sent twice
	}
	if again, _ := b.token.Refused(); !again {
		return response, nil
	}
	newer, err := b.token.Get(ctx)
	if err != nil || newer == used {
		return response, nil //nolint:nilerr // the caller gets the refusal
	}
	repeat := with(ctx, request, newer.Reveal())
	if request.GetBody != nil {
		if repeat.Body, err = request.GetBody(); err != nil {
			return response, nil //nolint:nilerr // as above
		}
	}
	_ = response.Body.Close()
	return b.next.RoundTrip(repeat)
}

func with(ctx context.Context, request *http.Request, token string) *http.Request {
	out := request.Clone(ctx)
	out.Header.Set("Authorization", fmt.Sprintf("Bearer %s", token))
	return out
}
