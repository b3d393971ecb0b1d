package agent_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// delivering is a configuration whose agent tells a receiver of failures. Its interval is so long that only an answer of
// the control plane can make it deliver.
func (s *site) delivering(receiver http.Handler) agent.Config {
	s.t.Helper()
	server := httptest.NewServer(receiver)
	s.t.Cleanup(server.Close)
	store := local.New(filepath.Join(s.t.TempDir(), "secrets"))
	listed, err := outbound.ReadPrivate([]string{"127.0.0.1"})
	_, _, put := s.plane.Notifications.Put(s.t.Context(), s.admin, api.Notification{Name: "on-call", URLRef: "file:url", Format: api.FormatSlack, Events: []string{api.EventFailed}})
	if err := errors.Join(err, put, store.Set(s.t.Context(), "url", redact.New(server.URL+"/path"))); err != nil {
		s.t.Fatal(err)
	}
	s.theatre.engine = func(context.Context, *actor) error { return errors.New("exit status 1") }
	cfg := s.config()
	cfg.Secrets, cfg.PrivateDeliveries, cfg.PollingInterval = store, listed, time.Hour
	return cfg
}

func (s *site) deliveries() []api.Delivery {
	s.t.Helper()
	page, err := s.plane.Deliveries(s.t.Context(), s.admin, api.DeliveryFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	return page.Items
}

func TestRun_DeliversWhileItWaitsForWork(t *testing.T) {
	s := newSite(t, memory.Config{})
	got := make(chan string, 10)
	_, end := s.run(s.delivering(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("webhook-id") + string(body)
	})))
	s.workspace("one")
	id := s.submit("one", workflow.Update)
	s.awaitState(id, workflow.Failed)
	select {
	case said := <-got:
		if !strings.HasPrefix(said, "dlv_") || !strings.Contains(said, "one") {
			t.Errorf("it was told %s", said)
		}
	case <-time.After(4 * time.Minute):
		t.Fatal("nothing was delivered")
	}
	until(t, "the delivery is reported", func() bool { return s.deliveries()[0].State == api.DeliveryDone })
	if err := end(); err != nil {
		t.Error(err)
	}
	if list := s.deliveries(); len(list) != 1 || list[0].Attempts != 1 || list[0].Workflow != id || len(got) != 0 {
		t.Errorf("%d more were received of %+v", len(got), list)
	}
	if strings.Contains(s.log.String(), "/path") {
		t.Error("the log shows the address of the receiver")
	}
}

// An agent that drains, or is told to end, finishes what it delivers.
func TestRun_ItsEndLetsADeliveryFinish(t *testing.T) {
	s := newSite(t, memory.Config{})
	begun, release := make(chan struct{}), make(chan struct{})
	a, err := agent.New(s.delivering(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-release
	})))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(context.WithoutCancel(t.Context())) }()
	s.workspace("one")
	s.submit("one", workflow.Update)
	<-begun
	a.Drain()
	until(t, "the agent drains", func() bool { return strings.Contains(s.log.String(), "agent stopping") })
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if list := s.deliveries(); len(list) != 1 || list[0].State != api.DeliveryDone {
		t.Errorf("got %+v, want it done", list)
	}
}
