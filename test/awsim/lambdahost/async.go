package lambdahost

import (
	"encoding/json"
	"slices"
	"time"
)

// How long an asynchronous event waits before it is tried again.
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
const (
	afterFirstError  = time.Minute
	afterSecondError = 2 * time.Minute
	firstBackOff     = time.Second // after a throttle; doubled each time
	lastBackOff      = 5 * time.Minute
)

// Failure is an asynchronous event that was given up.
type Failure struct {
	RequestID string
	ARN       string // of the function
	Condition string // RetriesExhausted or EventAgeExceeded
	Invokes   int    // how often the function was run with it
	At        time.Time
	Payload   []byte // the event
	Response  []byte // of the last run; nil if there was none
}

// Record is what a failure destination gets.
// https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html
func (f Failure) Record() ([]byte, error) {
	type object = map[string]any
	record := object{
		"version":   "1.0",
		"timestamp": f.At.UTC().Format("2006-01-02T15:04:05.000Z"),
		"requestContext": object{
			"requestId": f.RequestID, "functionArn": f.ARN + ":$LATEST",
			"condition": f.Condition, "approximateInvokeCount": f.Invokes,
		},
		"requestPayload": json.RawMessage(f.Payload),
	}
	if f.Response != nil {
		record["responseContext"] = object{"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"}
		record["responsePayload"] = json.RawMessage(f.Response)
	}
	return json.Marshal(record)
}

// InvokeAsync accepts an event for a function and returns its request id. The event is run at least once, soon, or
// given up according to the function's AsyncConfig. A throttle is not an error here.
func (h *Host) InvokeAsync(name string, payload []byte) (string, error) {
	if len(payload) > MaxAsyncPayload {
		return "", tooLarge(MaxAsyncPayload, "InvokeAsync")
	}
	if !json.Valid(payload) {
		return "", &ServiceError{Status: 400, Code: "InvalidRequestContentException", Message: "Could not parse request body into json"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return "", broken(errClosed.Error())
	}
	f := h.functions[resolve(name)]
	if f == nil {
		return "", notFound(h.ARN(name))
	}
	copies := 1
	if f.duplicates > 0 {
		f.duplicates--
		copies = 2
	}
	ev := event{id: newID(), accepted: h.cfg.Clock.Now(), payload: slices.Clone(payload)}
	for range copies {
		h.work.Go(func() { h.deliver(f, ev) })
	}
	return ev.id, nil
}

// Duplicate makes the host deliver the next n asynchronous events of a function twice, under the same request id.
func (h *Host) Duplicate(name string, n int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.functions[resolve(name)]
	if f == nil {
		return notFound(h.ARN(name))
	}
	f.duplicates += n
	return nil
}

// event is an asynchronous event in the queue. Each has a goroutine until it is done with or the host is closed.
type event struct {
	id       string
	accepted time.Time
	payload  []byte
}

// deliver tries an event until it is run without an error, or given up.
func (h *Host) deliver(f *function, ev event) {
	if sleep(h.ctx, h.cfg.Clock, h.cfg.Latency.Async) != nil {
		return
	}
	lost := Failure{RequestID: ev.id, ARN: f.arn, Payload: ev.payload}
	backOff := firstBackOff
	for {
		h.mu.Lock()
		spec := f.spec
		h.mu.Unlock()
		if h.cfg.Clock.Now().Sub(ev.accepted) > spec.Async.MaximumEventAge {
			h.giveUp(spec, lost, "EventAgeExceeded")
			return
		}
		result, err := h.once(spec.Name, ev)
		var wait time.Duration
		switch {
		case h.ctx.Err() != nil:
			return
		case err != nil: // a throttle or trouble of the service: the event goes back
			wait = backOff
			backOff = min(2*backOff, lastBackOff)
		case result.FunctionError == "":
			return
		default:
			lost.Invokes++
			lost.Response = result.Payload
			if lost.Invokes > spec.retries() {
				h.giveUp(spec, lost, "RetriesExhausted")
				return
			}
			wait = afterFirstError
			if lost.Invokes > 1 {
				wait = afterSecondError
			}
		}
		if sleep(h.ctx, h.cfg.Clock, wait) != nil {
			return
		}
	}
}

// once runs the function with the event and waits for its end.
func (h *Host) once(name string, ev event) (Result, error) {
	inv, err := h.begin(h.ctx, name, ev.id, ev.payload)
	if err != nil {
		return Result{}, err
	}
	<-inv.answered
	return inv.result, inv.err
}

func (h *Host) giveUp(spec Function, lost Failure, condition string) {
	lost.Condition, lost.At = condition, h.cfg.Clock.Now()
	if spec.Async.OnFailure != nil {
		spec.Async.OnFailure(lost)
	}
}
