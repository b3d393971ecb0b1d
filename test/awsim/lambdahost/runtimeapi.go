package lambdahost

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// runtimeAPI serves https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html to one process.
func (e *environment) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	const base = "/2018-06-01/runtime/"
	mux.HandleFunc("GET "+base+"invocation/next", e.handleNext)
	mux.HandleFunc("POST "+base+"invocation/{id}/response", e.handleResponse)
	mux.HandleFunc("POST "+base+"invocation/{id}/error", e.handleError)
	mux.HandleFunc("POST "+base+"init/error", e.handleInitError)
	return mux
}

// handleNext is the end of an init or of an invocation, and the wait for the next event.
func (e *environment) handleNext(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	e.measure()
	e.mu.Lock()
	if e.current != nil && !e.current.isAnswered() {
		e.mu.Unlock()
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "Transition from Ready to Ready is not allowed.")
		return
	}
	e.current = nil
	if e.firstNext.IsZero() {
		e.firstNext, e.initPeak = now, e.peak
	}
	e.mu.Unlock()
	select {
	case e.asked <- struct{}{}:
	default: // it asked already, and went away
	}
	select {
	case inv := <-e.events:
		e.step(false)
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", inv.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(e.spec.Timeout).UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", inv.arn)
		h.Set("Lambda-Runtime-Trace-Id", inv.trace)
		_, _ = w.Write(inv.payload) // a process that is gone is noticed by its end
	case <-r.Context().Done():
	}
}

func (e *environment) handleResponse(w http.ResponseWriter, r *http.Request) {
	inv := e.running(w, r)
	if inv == nil {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxSyncAnswer))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		text := fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", MaxSyncAnswer)
		e.take(w, inv, http.StatusRequestEntityTooLarge, failure("Function.ResponseSizeTooLarge", inv.id, text), "Unhandled")
		return
	}
	if err != nil {
		return // the process died while it sent: its end is the answer
	}
	if kind := r.Trailer.Get("Lambda-Runtime-Function-Error-Type"); kind != "" {
		e.take(w, inv, http.StatusAccepted, failure(kind, inv.id, "the response could not be read to its end"), "Unhandled")
		return
	}
	e.take(w, inv, http.StatusAccepted, body, "")
}

func (e *environment) handleError(w http.ResponseWriter, r *http.Request) {
	inv := e.running(w, r)
	if inv == nil {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxSyncAnswer))
	if err != nil {
		return
	}
	e.take(w, inv, http.StatusAccepted, body, "Unhandled")
}

// handleInitError keeps what the process says of its init; its end is to follow.
func (e *environment) handleInitError(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxSyncAnswer))
	if err != nil {
		return
	}
	e.mu.Lock()
	e.initError = body
	e.mu.Unlock()
	accept(w, http.StatusAccepted)
}

// running finds the invocation that a call names, or refuses the call.
func (e *environment) running(w http.ResponseWriter, r *http.Request) *invocation {
	e.mu.Lock()
	inv := e.current
	e.mu.Unlock()
	switch {
	case inv == nil || inv.id != r.PathValue("id"):
		refuse(w, http.StatusBadRequest, "InvalidRequestID", "Invalid request ID")
		return nil
	case inv.isAnswered():
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "Transition from InvocationResponse to InvocationResponse is not allowed.")
		return nil
	}
	return inv
}

// take gives the caller its answer, unless the environment is to die first.
func (e *environment) take(w http.ResponseWriter, inv *invocation, status int, payload []byte, functionError string) {
	if inv.fault != nil && inv.fault.Moment == BeforeResponse {
		e.proc.kill()
		return
	}
	e.step(true)
	inv.answer(payload, functionError)
	if inv.fault != nil && inv.fault.Moment == AfterResponse {
		e.proc.kill()
		return
	}
	accept(w, status)
}

func accept(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"status":"OK"}`+"\n")
}

func refuse(w http.ResponseWriter, status int, kind, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errorMessage":%q,"errorType":%q}`+"\n", text, kind)
}
