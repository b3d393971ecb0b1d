package scenario

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// inbox is whom notifications are sent to: a server of this machine, whose address and whose key are secrets.
type inbox struct {
	server *httptest.Server
	path   string
	key    []byte

	mu       sync.Mutex
	messages []message
	wrong    []string
}

// message is a notification, as it was received.
type message struct {
	id, Type, Workflow string
}

func openInbox() *inbox {
	b := &inbox{path: "/" + rand.Text(), key: []byte(rand.Text() + rand.Text())}
	b.server = httptest.NewServer(b)
	return b
}

// secrets are what the deliverer may read, under the names that DeliverySecrets allows.
func (b *inbox) secrets() []secret {
	return []secret{
		{name: "delivery address of a receiver", value: b.server.URL + b.path},
		{name: "delivery key of a receiver", value: "whsec_" + base64.StdEncoding.EncodeToString(b.key)},
	}
}

// mayRead are the ARNs of what deliveries may name.
const mayRead = "arn:aws:secretsmanager:" + wire.Region + ":" + wire.Account + ":secret:dayfly-e2e-delivery-*"

// ServeHTTP fails the first try of each message, and verifies all as Standard Webhooks say.
func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m := message{id: r.Header.Get("webhook-id")}
	err := json.Unmarshal(body, &m)
	mac := hmac.New(sha256.New, b.key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", m.id, r.Header.Get("webhook-timestamp"), body)
	signature := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil || r.URL.Path != b.path || r.Header.Get("webhook-signature") != signature {
		b.wrong = append(b.wrong, fmt.Sprintf("a receiver was sent %q at %q, signed %q: %v", body, r.URL.Path, r.Header.Get("webhook-signature"), err))
	}
	if !slices.ContainsFunc(b.messages, func(of message) bool { return of.id == m.id }) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	b.messages = append(b.messages, m)
}

// of are the ids of the messages about a run, one for each try.
func (b *inbox) of(id string) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.messages {
		if m.Workflow == id {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// notified is a failure of which a receiver is told: the poller hears that a delivery waits and invokes the deliverer,
// which reads the address and the key, and signs.
func notified(ctx context.Context, s *scene) {
	of := api.Notification{
		Name: "on-call", Pool: s.Cloud.Pool, URLRef: s.secrets[2].arn, SecretRef: s.secrets[3].arn, Events: []string{api.EventFailed},
	}
	_, _, err := s.c.Client.PutSetting(ctx, of)
	s.must(err)
	s.workspace(ctx, "notified", "plain", commands("update", "exit 3"))
	w := s.submit(ctx, "notified", "update", "its failure is told by the deliverer, signed, after a 503")
	w = s.ends(ctx, w.ID, workflow.Failed, workflow.ReasonStepFailed, 1)
	var told api.Delivery
	var ticked bool
	s.await(ctx, func() (bool, string) {
		page, err := s.c.Client.Deliveries(ctx, api.DeliveryFilter{For: "on-call"})
		if err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(page.Items, func(d api.Delivery) bool { return d.Workflow == w.ID })
		if i < 0 {
			return false, "no delivery tells of its failure"
		}
		told = page.Items[i]
		if told.NextAt != nil && time.Now().After(*told.NextAt) && told.Attempts == 1 && !ticked {
			ticked = true
			s.must(s.c.Tick(s.c.Pool, "PollerEachMinute")) // whose claim is told of it
		}
		return told.State == api.DeliveryDone, fmt.Sprintf("its delivery is %s after %d tries: %s", told.State, told.Attempts, told.Detail)
	})
	ids := s.inbox.of(w.ID)
	s.check(len(ids) == told.Attempts && len(slices.Compact(ids)) == 1 && ids[0] == told.ID, "the receiver got messages %v of delivery %s, which was tried %d times", ids, told.ID, told.Attempts)
	s.check(told.Attempts == 2, "it was tried %d times", told.Attempts)
	s.inbox.mu.Lock()
	s.row.Wrong = append(s.row.Wrong, s.inbox.wrong...)
	s.inbox.mu.Unlock()
	of.IsDisabled = true
	_, _, err = s.c.Client.PutSetting(ctx, of)
	s.must(err)
}
