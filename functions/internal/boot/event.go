package boot

import (
	"encoding/json"
	"fmt"
)

// Scheduled is the kind of a schedule's event.
const Scheduled = "Scheduled Event"

// Shape returns what a function distinguishes its events by: the members of an event, none in one that Invocation
// makes, and the kind ("detail-type") of one of EventBridge. An event that is not a JSON object is an error.
func Shape(event []byte) (members map[string]json.RawMessage, kind string, err error) {
	if err := json.Unmarshal(event, &members); err != nil || members == nil {
		return nil, "", WrongTrigger("the event is not a JSON object")
	}
	_ = json.Unmarshal(members["detail-type"], &kind)
	return members, kind, nil
}

// WrongTrigger is the error of an event that the function does not take: an answer without an error would have the
// trigger drop it.
func WrongTrigger(format string, args ...any) error {
	return fmt.Errorf(format+": the function's trigger is set up wrongly", args...)
}
