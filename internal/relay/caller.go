package relay

import (
	"errors"
	"net/http"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Identity is the caller, as the gateway in front of the relay has proven it: a session of an IAM
// role. ECS names the session of a task's role by the task's id.
type Identity struct {
	Account string // twelve digits
	Role    string // name of the role, without its path
	Session string // for the role of an ECS task: the last part of the task's ARN
}

// ParseCaller reads the ARN of an assumed role,
// arn:PARTITION:sts::ACCOUNT:assumed-role/ROLE/SESSION. It is a pure function.
func ParseCaller(arn string) (Identity, error) {
	bad := workflow.Refuse(workflow.ErrInvalid, "", "the caller is not a session of an IAM role: sign the call with the credentials of the task's role")
	part := strings.SplitN(arn, ":", 6)
	if len(part) != 6 || part[0] != "arn" || part[1] == "" || part[2] != "sts" || part[3] != "" || part[4] == "" {
		return Identity{}, bad
	}
	name := strings.Split(part[5], "/")
	if len(name) != 3 || name[0] != "assumed-role" || name[1] == "" || name[2] == "" {
		return Identity{}, bad
	}
	return Identity{Account: part[4], Role: name[1], Session: name[2]}, nil
}

// is reports whether this is the identity of an ECS task, named by its ARN
// arn:PARTITION:ecs:REGION:ACCOUNT:task/CLUSTER/ID (or task/ID, the older form).
func (id Identity) is(task string) bool {
	part := strings.SplitN(task, ":", 6)
	if len(part) != 6 || part[0] != "arn" || part[2] != "ecs" || part[4] != id.Account {
		return false
	}
	name := strings.Split(part[5], "/")
	return len(name) >= 2 && len(name) <= 3 && name[0] == "task" && id.Session != "" && name[len(name)-1] == id.Session
}

// errCaller refuses a call because of its caller. Its status and code are those of a gateway, so that the runner tries
// again. That is on purpose: an honest runner meets this refusal only when the relay is set up wrongly, and an apply
// must not be killed for that. A dishonest one gets nothing, however often it asks.
var errCaller = errors.New("wrong caller")

// codeCaller is the code of errCaller. It must not stand in package api's table, because a code from
// there can end a run.
const codeCaller = "wrong_caller"

// checkCaller refuses a call that does not come from the task that it speaks for.
func (r *Relay) checkCaller(req *http.Request) error {
	if r.cfg.Caller == nil {
		return nil
	}
	task := req.Header.Get(api.HeaderTask)
	refuse := func(why string, id Identity, err error) error {
		r.cfg.Log.Warn("caller refused", "reason", why, "role", id.Role, "session", id.Session, "task", task, "err", err)
		return &workflow.Error{Kind: errCaller, Message: why, RetryAfter: 6 * retryAfter}
	}
	id, err := r.cfg.Caller(req)
	switch {
	case err != nil:
		return refuse("the gateway did not identify the caller", id, err)
	case id.Role != r.cfg.TaskRole:
		return refuse("the caller has another role than the pool's tasks", id, nil)
	case !id.is(task):
		return refuse("the caller is not the task that it speaks for", id, nil)
	}
	return nil
}
