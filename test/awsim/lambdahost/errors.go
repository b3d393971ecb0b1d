package lambdahost

import (
	"encoding/json"
	"fmt"
	"time"
)

// ServiceError is a refusal by the service itself, as the Invoke API words it: the function did not run.
type ServiceError struct {
	Status  int    // of HTTP
	Code    string // such as TooManyRequestsException
	Message string
	Reason  string // of a throttle
}

func (e *ServiceError) Error() string { return e.Code + ": " + e.Message }

func throttled(reason string) error {
	return &ServiceError{Status: 429, Code: "TooManyRequestsException", Message: "Rate Exceeded.", Reason: reason}
}

func notFound(arn string) error {
	return &ServiceError{Status: 404, Code: "ResourceNotFoundException", Message: "Function not found: " + arn}
}

func tooLarge(limit int, operation string) error {
	return &ServiceError{
		Status: 413, Code: "RequestTooLargeException",
		Message: fmt.Sprintf("Request must be smaller than %d bytes for the %s operation", limit, operation),
	}
}

func broken(why string) error {
	return &ServiceError{Status: 500, Code: "ServiceException", Message: why}
}

// failure is the payload of an invocation that ended in an error of the function.
func failure(kind, requestID, text string) []byte {
	payload, err := json.Marshal(struct {
		Type    string `json:"errorType"`
		Message string `json:"errorMessage"`
	}{kind, "RequestId: " + requestID + " Error: " + text})
	if err != nil {
		panic(err) // three strings are always JSON
	}
	return payload
}

func timedOut(requestID string, limit time.Duration) []byte {
	return failure("Sandbox.Timedout", requestID, fmt.Sprintf("Task timed out after %.2f seconds", limit.Seconds()))
}
