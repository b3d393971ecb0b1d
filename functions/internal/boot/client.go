package boot

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/dayfly-dev/dayfly/internal/client"
)

// callTime bounds a call of the control plane with all its repeats, beside the time that the call asks to wait: the
// time that a function waits is paid for.
const callTime = 10 * time.Second

// ControlPlane returns a client of the control plane at a base address that presents a secret as its
// token.
func ControlPlane(address string, token *Secret) (*client.Client, error) {
	cfg := ClientConfig(address)
	cfg.Source = token
	return client.New(cfg)
}

// ClientConfig says how functions call the control plane at a base address. They are less patient than an agent: if
// a call fails now, the next invocation makes it.
func ClientConfig(address string) client.Config {
	return client.Config{
		URL: address, UserAgent: "dayfly-function",
		HTTPClient:     &http.Client{Transport: Transport()},
		RequestTimeout: callTime, CallTimeout: callTime,
		RetryCount: 2, RetryWait: 500 * time.Millisecond, RetryMaxWait: 5 * time.Second,
		BreakerFailures: 2, BreakerTimeout: time.Minute,
	}
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
