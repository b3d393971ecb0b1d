package awsim

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/sigv4"
)

const taskPath = "/v2/credentials/"

// renewBefore is how long before their end the credentials of a task are replaced by new ones.
const renewBefore = 15 * time.Minute

// TaskCredentials is the endpoint from which a task gets the temporary credentials of its role: the
// address that ECS puts into AWS_CONTAINER_CREDENTIALS_RELATIVE_URI (at 169.254.170.2) and that tests
// may also give as AWS_CONTAINER_CREDENTIALS_FULL_URI. The identity is assumed-role/ROLE/TASKID.
// Who knows a task's address gets its credentials, as in ECS.
type TaskCredentials struct {
	table *sigv4.Table
	now   func() time.Time

	mu     sync.Mutex
	grants map[string]*grant // by the last part of the path
}

type grant struct {
	role, task string
	life       time.Duration
	current    sigv4.Credentials
	issued     []string // access key ids
}

func newTaskCredentials(table *sigv4.Table, now func() time.Time) *TaskCredentials {
	return &TaskCredentials{table: table, now: now, grants: map[string]*grant{}}
}

// Grant opens an address for a task, given by its id (the last part of its ARN) and its role's ARN, and
// returns the path of it. Credentials last for life (0 means six hours, as in ECS) and are renewed.
func (t *TaskCredentials) Grant(role, task string, life time.Duration) (path string) {
	if life == 0 {
		life = 6 * time.Hour
	}
	id := rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grants[id] = &grant{role: role, task: task, life: life}
	return taskPath + id
}

// End closes a task's address and ends all credentials that it gave.
func (t *TaskCredentials) End(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := strings.TrimPrefix(path, taskPath)
	if g := t.grants[id]; g != nil {
		for _, key := range g.issued {
			t.table.Revoke(key)
		}
		delete(t.grants, id)
	}
}

// ServeHTTP implements http.Handler. (ECS developer guide, "Task IAM role".)
func (t *TaskCredentials) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, `{"code":"InvalidMethod","message":"only GET is known here"}`, http.StatusMethodNotAllowed)
		return
	}
	g, c := t.renew(strings.TrimPrefix(r.URL.Path, taskPath))
	if g == nil {
		http.Error(w, `{"code":"InvalidIdInRequest","message":"CredentialsV2Request: ID not found"}`, http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{ // it is not an error if the client has gone
		"RoleArn":         g.role,
		"AccessKeyId":     c.AccessKeyID,
		"SecretAccessKey": c.SecretAccessKey,
		"Token":           c.SessionToken,
		"Expiration":      c.Expires.UTC().Format(time.RFC3339),
	})
}

// renew returns a grant with credentials that last for a while. Those that it replaces go on to their end.
func (t *TaskCredentials) renew(id string) (*grant, sigv4.Credentials) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.grants[id]
	if g == nil {
		return nil, sigv4.Credentials{}
	}
	if t.now().Add(min(renewBefore, g.life/4)).After(g.current.Expires) {
		g.current = t.table.Session(g.role, g.task, g.life)
		g.issued = append(g.issued, g.current.AccessKeyID)
	}
	return g, g.current
}
