package deliverer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxDetail is the limit of the API, in bytes.
const maxDetail = 500

// Try is the result of one call.
type Try struct {
	Host       string        // that was called; empty: none was named
	Status     int           // of its answer; 0: it gave none
	RetryAfter time.Duration // that the answer asks for; 0: it asks for nothing
	Err        error         // why there was no answer
}

// Outcome decides whether a try is done, failed or given up, and says why, in words that hold no secret: the host,
// the status, or the kind of error. It is a pure function.
//
// Standard Webhooks 1.0.0 ("Delivery success and failure") take any 2xx for a success and 410 for the end of it. Other
// statuses from 400 to 499 are given up too: they say that this request is wrong, and it is the same each time. 408, 409,
// 425 and 429 speak of this moment alone.
func Outcome(t Try) api.DeliveryResult {
	said := fmt.Sprintf("%s answered %d", t.Host, t.Status)
	switch {
	case t.Status == 0:
		permanent, why := failure(t.Err)
		if t.Host != "" {
			why = t.Host + ": " + why
		}
		return api.DeliveryResult{IsPermanent: permanent, Detail: text.Middle(why, maxDetail)}
	case t.Status >= 200 && t.Status < 300:
		return api.DeliveryResult{IsDone: true, Detail: text.Middle(said, maxDetail)}
	case t.Status >= 300 && t.Status < 400:
		said += ": redirects are not followed"
	case t.Status == http.StatusRequestTimeout, t.Status == http.StatusConflict, t.Status == http.StatusTooEarly, t.Status == http.StatusTooManyRequests:
	case t.Status >= 400 && t.Status < 500:
		return api.DeliveryResult{IsPermanent: true, Detail: text.Middle(said+": another try would get the same answer", maxDetail)}
	}
	if t.RetryAfter > 0 {
		said += ", and asks to wait for " + text.Duration(t.RetryAfter)
	}
	return api.DeliveryResult{Detail: text.Middle(said, maxDetail), RetryAfterSeconds: t.RetryAfter.Seconds()}
}

// ownError is why a call was not made: our side lacks something, or people have to put something right.
type ownError struct {
	text      string
	permanent bool // another try would fail alike
}

func (e *ownError) Error() string { return e.text }

// mistake is an error that another try would meet again.
func mistake(text string) error { return &ownError{text, true} }

// unresolved is an error of a reference. Its secret may exist at the next try, or in another instance of the pool.
func unresolved(field string, err error) error {
	return &ownError{field + ": " + api.Said(err), errors.Is(err, workflow.ErrInvalid)}
}

// failure says why there was no answer, and whether there will be none. It repeats no text of the other side but names
// in its certificate, and of the HTTP client's errors no address but a private one.
func failure(err error) (permanent bool, why string) {
	if own, ok := errors.AsType[*ownError](err); ok {
		return own.permanent, own.text
	}
	dial, dialed := errors.AsType[*net.OpError](err)
	name, unnamed := errors.AsType[*net.DNSError](err)
	certificate, mistrusted := errors.AsType[*tls.CertificateVerificationError](err)
	errno, refused := errors.AsType[syscall.Errno](err)
	slow, timed := errors.AsType[net.Error](err)
	switch {
	case dialed && errors.Is(dial.Err, outbound.ErrRefused):
		return true, dial.Err.Error() // the address, and the setting that would list it
	case unnamed && name.IsNotFound:
		return false, "there is no host of that name"
	case unnamed:
		return false, "its name could not be looked up"
	case mistrusted:
		return false, "its certificate is not trusted: " + text.Quote(certificate.Err.Error(), 200)
	case errors.Is(err, context.DeadlineExceeded), timed && slow.Timeout():
		return false, "it did not answer in time"
	case refused:
		return false, errno.Error()
	}
	return false, "it did not answer as HTTP says"
}
