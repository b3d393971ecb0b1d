// Package awserr classifies the errors of AWS calls for their callers: whether a call may succeed later, whether the
// call may have been done all the same, whether somebody else was first. It reads codes, statuses and the few texts
// that say more than a code, so that no other package does. It links no service: adapters pass the facts that only
// the types of their service show.
package awserr

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/aws/smithy-go"
)

// Class is the class of an error.
type Class string

// The classes. Only of Lost, and of Conflict, may the call have been done.
const (
	// None is the class of no error.
	None Class = ""
	// Permanent fails in the same way each time.
	Permanent Class = "permanent"
	// Throttled was refused for its rate; it was not done.
	Throttled Class = "throttled"
	// Capacity is missing where it was asked for; elsewhere or later there may be some.
	Capacity Class = "capacity"
	// Quota of the account is used up.
	Quota Class = "quota"
	// Unavailable was not done for a while: it never reached the service, or ECS asks for patience.
	Unavailable Class = "unavailable"
	// Lost means that the call may or may not have been done: a time-out, a broken connection, a status 5xx,
	// an answer that cannot be read. A read may treat it as Unavailable; a change is repeated under the same key.
	Lost Class = "lost"
	// Conflict means that the key of the call was used for another call: adopt the result of that one.
	Conflict Class = "conflict"
	// Busy means that somebody else was changing the same thing at that moment; the call was not done, and it is not
	// known whether the other one was.
	Busy Class = "busy"
	// LostRace means that a condition of the call did not hold: somebody else was first.
	LostRace Class = "lost_race"
	// NotFound names something that does not exist.
	NotFound Class = "not_found"
	// Denied was refused because of the caller: no permission, or credentials that are wrong or have expired.
	Denied Class = "denied"
)

// Transient reports whether the same call may succeed later without anybody changing anything.
func (c Class) Transient() bool {
	switch c {
	case Throttled, Capacity, Quota, Unavailable, Lost, Busy:
		return true
	case None, Permanent, Conflict, LostRace, NotFound, Denied:
		return false
	}
	return false
}

// Code is the service's code for the error without the name spaces that protocols put before it, or "".
func Code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return bare(e.ErrorCode())
	}
	return ""
}

// Message is the service's text about the error, else the error's own text.
func Message(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		if m := strings.TrimSpace(e.ErrorMessage()); m != "" {
			return m
		}
		return e.ErrorCode()
	}
	return err.Error()
}

// bare takes "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue" and
// "ThrottlingException:http://..." apart and returns the name.
func bare(code string) string {
	if _, after, ok := strings.Cut(code, "#"); ok {
		code = after
	}
	code, _, _ = strings.Cut(code, ":")
	if i := strings.LastIndexByte(code, '.'); i >= 0 {
		code = code[i+1:]
	}
	return strings.TrimSpace(code)
}

// Of classifies the error of one AWS call. It does not see the errors of earlier tries within the SDK: where it matters
// that none of them was done, call without retries.
func Of(err error) Class {
	if err == nil {
		return None
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		if class := ofCode(bare(e.ErrorCode()), e.ErrorMessage()); class != None {
			return class
		}
		if class := ofStatus(status(err)); class != None {
			return class
		}
		if e.ErrorFault() == smithy.FaultServer {
			return Lost
		}
		return Permanent
	}
	return ofTransport(err)
}

func ofCode(code, message string) Class {
	class := ofKnown(code)
	if class == Throttled {
		// ECS says so too where vCPUs or capacity are missing: another rate would not help then.
		if said := ofText(message); said == Quota && strings.Contains(strings.ToLower(message), "run concurrently") || said == Capacity {
			return said
		}
	}
	switch {
	case class != None:
		return class
	case code == "TransactionCanceledException":
		return OfReasons(reasonsIn(message)...)
	case wraps(code):
		return ofText(message)
	case strings.HasPrefix(code, "Throttl"):
		return Throttled
	}
	return None
}

func ofStatus(status int) Class {
	switch {
	case status == 429:
		return Throttled
	case status >= 500:
		return Lost
	case status == 401 || status == 403:
		return Denied
	case status == 404:
		return NotFound
	}
	return None
}

// status is the HTTP status that came with the error, or 0.
func status(err error) int {
	var e interface{ HTTPStatusCode() int }
	if errors.As(err, &e) {
		return e.HTTPStatusCode()
	}
	return 0
}

// ofTransport classifies an error that does not come from a service.
func ofTransport(err error) Class {
	if notSent(err) {
		return Unavailable
	}
	_, undone := errors.AsType[*smithy.SerializationError](err)
	_, invalid := errors.AsType[smithy.InvalidParamsError](err)
	_, invalidP := errors.AsType[*smithy.InvalidParamsError](err)
	if undone || invalid || invalidP {
		return Permanent // the SDK refused to send it
	}
	if class := ofStatus(status(err)); class != None {
		return class // a gateway's answer, or one that could not be read
	}
	if answered(err) {
		return Lost
	}
	if strings.Contains(err.Error(), "get identity:") || strings.Contains(err.Error(), "failed to retrieve credentials") {
		return Denied // no credentials to sign with; it was not sent
	}
	return Permanent
}

// notSent reports whether the request cannot have reached the service.
func notSent(err error) bool {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return true
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// answered reports whether the request may have reached the service, and its answer is missing.
func answered(err error) bool {
	if slices.ContainsFunc([]error{
		context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded, io.EOF, io.ErrUnexpectedEOF,
		io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, syscall.ETIMEDOUT,
	}, func(lost error) bool { return errors.Is(err, lost) }) {
		return true
	}
	var canceled interface{ CanceledError() bool }
	var connection interface{ ConnectionError() bool }
	if errors.As(err, &canceled) && canceled.CanceledError() || errors.As(err, &connection) && connection.ConnectionError() {
		return true
	}
	_, unread := errors.AsType[*smithy.DeserializationError](err)
	_, network := errors.AsType[net.Error](err) // a url.Error is one
	return unread || network
}

// OfReasons classifies a cancelled DynamoDB transaction by the codes of its cancellation reasons, one per item in their
// order, "None" or "" where the item was not the cause. A condition that did not hold is a lost race, also beside
// other reasons; a conflict alone never is.
func OfReasons(reasons ...string) Class {
	worst := None
	for _, code := range reasons {
		class := Permanent
		switch code {
		case "", "None":
			continue
		case "ConditionalCheckFailed":
			return LostRace
		case "TransactionConflict":
			class = Busy
		case "ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded":
			class = Throttled
		case "AccessDenied":
			class = Denied
		}
		if worst == None || worst.Transient() && !class.Transient() {
			worst = class
		}
	}
	if worst == None {
		return Busy // cancelled without a reason; it was not done
	}
	return worst
}

// reasonsIn reads the reasons out of the message of a TransactionCanceledException: "... specific
// reasons [None, ConditionalCheckFailed]".
func reasonsIn(message string) []string {
	_, rest, ok := strings.Cut(message, "[")
	if !ok {
		return nil
	}
	list, _, _ := strings.Cut(rest, "]")
	reasons := strings.Split(list, ",")
	for i, r := range reasons {
		reasons[i] = strings.TrimSpace(r)
	}
	return reasons
}

// OfFailure classifies one entry of the failures that ECS sends with HTTP status 200: its reason and
// its detail. The call was not done for that resource.
func OfFailure(reason, detail string) Class {
	switch {
	case strings.HasPrefix(reason, "RESOURCE"), reason == "LOCATION", strings.HasPrefix(reason, "EMPTY CAPACITY PROVIDER"):
		return Capacity
	case reason == "MISSING":
		return NotFound
	case reason == "ATTRIBUTE", reason == "INACTIVE":
		return Permanent
	}
	for _, text := range []string{reason, detail} {
		if class := ofText(text); class != None {
			return class
		}
	}
	return Unavailable
}

// Credentials reports whether a denial is about the caller's credentials (wrong, expired, signed with a wrong clock, or
// none) and not about the request.
func Credentials(err error) bool {
	return Of(err) == Denied && (Code(err) == "" || slices.Contains(credentialCodes, Code(err)))
}
