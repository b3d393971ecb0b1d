package lambdahost

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Result is what the caller of a synchronous invocation gets.
type Result struct {
	RequestID     string
	Payload       []byte
	FunctionError string // "Unhandled" when Payload describes an error of the function; else empty
}

// Report is one invocation, when its environment is done with it.
type Report struct {
	Function, RequestID string
	Began               time.Time     // on the machine's clock
	Cold                bool          // it began with the start of a process
	Init                time.Duration // from the start of the process to its first request for an event; 0 if warm
	Started             time.Time     // when the process was given the event; zero if it never was
	Duration            time.Duration // from the event to the next request for one, or to the end
	PeakMemory          int64         // of the process so far, in bytes; 0 where it cannot be known
	FunctionError       string        // as in Result
	TimedOut, Died      bool          // how the environment ended, if it did
}

// invocation is one event on its way through one environment.
type invocation struct {
	id, arn, trace string
	payload        []byte
	fault          *Fault // what is to happen to it; nil is nothing
	onAnswer       func() // called before the caller gets the answer

	once     sync.Once
	answered chan struct{} // closed when result and err are set
	result   Result
	err      error // of the service, not of the function
}

func newInvocation(id, arn string, payload []byte) *invocation {
	return &invocation{
		id: id, arn: arn, payload: payload, trace: newTrace(),
		answered: make(chan struct{}), onAnswer: func() {},
	}
}

// answer gives the caller its answer; the first one counts.
func (i *invocation) answer(payload []byte, functionError string) {
	i.settle(Result{RequestID: i.id, Payload: payload, FunctionError: functionError}, nil)
}

func (i *invocation) fail(err error) { i.settle(Result{}, err) }

func (i *invocation) settle(r Result, err error) {
	i.once.Do(func() {
		i.result, i.err = r, err
		i.onAnswer()
		close(i.answered)
	})
}

func (i *invocation) isAnswered() bool {
	select {
	case <-i.answered:
		return true
	default:
		return false
	}
}

// newID makes a request id.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func newTrace() string {
	hex := strings.ReplaceAll(newID()+newID(), "-", "")
	return "Root=1-" + hex[:8] + "-" + hex[8:32] + ";Parent=" + hex[32:48] + ";Sampled=0"
}

// Moment is when in an invocation its environment dies.
type Moment int

// The moments of a Fault.
const (
	// BeforeEvent is after the environment was chosen or made, before the function sees the event.
	BeforeEvent Moment = iota
	// After is Fault.Delay after the event was handed over.
	After
	// BeforeResponse is when the function is done and its response has not been taken: the caller sees an
	// error, and all that the function did is done.
	BeforeResponse
	// AfterResponse is when the caller has its answer and the environment has not asked for more.
	AfterResponse
)

// Fault kills environments (SIGKILL) at a chosen moment of chosen invocations.
type Fault struct {
	Moment Moment
	Delay  time.Duration // with After
	Skip   int           // how many invocations of the function pass unharmed first
	Times  int           // how many it strikes then; 0 means 1
}
