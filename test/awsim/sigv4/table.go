// Package sigv4 knows who may call the fake AWS: a table of credentials, fixed and temporary, and a
// verifier of Signature Version 4 that recomputes each request's signature from the specification, not
// with the SDK that made it.
package sigv4

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Credentials are what a caller signs with.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string    // of temporary credentials; "" for those of a user
	Expires         time.Time // zero means never
	Identity        wire.Identity
}

// Table holds the credentials that count. Its methods may be called concurrently.
type Table struct {
	clock func() time.Time

	mu    sync.Mutex
	all   map[string]Credentials // by access key id
	roles map[string]string      // ids by ARN
}

// NewTable makes an empty table. A nil clock is time.Now.
func NewTable(clock func() time.Time) *Table {
	if clock == nil {
		clock = time.Now
	}
	return &Table{clock: clock, all: map[string]Credentials{}, roles: map[string]string{}}
}

func (t *Table) now() time.Time { return t.clock() }

// User makes lasting credentials of an IAM user.
func (t *Table) User(name string) Credentials {
	return t.Add(Credentials{
		AccessKeyID:     "AKIA" + text(16),
		SecretAccessKey: text(40),
		Identity:        wire.Identity{Account: wire.Account, ARN: "arn:aws:iam::" + wire.Account + ":user/" + name},
	})
}

// Session makes temporary credentials of a role, as STS, a Lambda function or an ECS task has them. role is
// an ARN or a name; its session is named session (of a task: the last part of the task's ARN).
func (t *Table) Session(role, session string, life time.Duration) Credentials {
	if !strings.HasPrefix(role, "arn:") {
		role = "arn:aws:iam::" + wire.Account + ":role/" + role
	}
	account := strings.SplitN(role, ":", 6)[4]
	return t.Add(Credentials{
		AccessKeyID:     "ASIA" + text(16),
		SecretAccessKey: text(40),
		SessionToken:    "FwoGZXIvYXdz" + text(48),
		Expires:         t.now().Add(life),
		Identity: wire.Identity{
			Account: account,
			ARN:     "arn:aws:sts::" + account + ":assumed-role/" + role[strings.LastIndex(role, "/")+1:] + "/" + session,
			Role:    role, RoleID: t.RoleID(role),
		},
	})
}

// RoleID is the id that IAM gave a role, given by its ARN.
func (t *Table) RoleID(role string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.roles[role] == "" {
		t.roles[role] = "AROA" + text(17)
	}
	return t.roles[role]
}

// Replace makes a role anew under the same ARN: it has another id from now on.
func (t *Table) Replace(role string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.roles, role)
}

// Add makes credentials count as they are, such as those that a test wrote into a file beforehand.
func (t *Table) Add(c Credentials) Credentials {
	c.Identity.AccessKeyID = c.AccessKeyID
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[c.AccessKeyID] = c
	return c
}

// Revoke ends credentials at once; who uses them is unknown from then on.
func (t *Table) Revoke(accessKeyID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, accessKeyID)
}

func (t *Table) find(accessKeyID, token string, now time.Time) (Credentials, error) {
	t.mu.Lock()
	c, ok := t.all[accessKeyID]
	t.mu.Unlock()
	// A right key with a wrong token is as unknown as a wrong key.
	if !ok || subtle.ConstantTimeCompare([]byte(c.SessionToken), []byte(token)) != 1 {
		return Credentials{}, &wire.Error{Status: http.StatusForbidden, Code: "UnrecognizedClientException", QueryCode: "InvalidClientTokenId", Message: "The security token included in the request is invalid."}
	}
	if !c.Expires.IsZero() && !now.Before(c.Expires) {
		return Credentials{}, &wire.Error{Status: http.StatusForbidden, Code: "ExpiredTokenException", QueryCode: "ExpiredToken", Message: "The security token included in the request is expired"}
	}
	return c, nil
}

func text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	return b.String()[:n]
}
