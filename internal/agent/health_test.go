package agent_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func health(t *testing.T, a *agent.Agent) (status int, h agent.Health) {
	t.Helper()
	w := httptest.NewRecorder()
	a.Health().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, h
}

// D4: a probe hears that an agent stands still, by default after twice the longer of its loops.
func TestHealth_SilenceIsUnhealthy(t *testing.T) {
	for name, tc := range map[string]struct {
		polling, loop, threshold, want time.Duration
	}{
		"twice the poll": {polling: time.Minute, loop: 30 * time.Second, want: 2 * time.Minute},
		"twice the loop": {polling: time.Second, loop: 10 * time.Second, want: 20 * time.Second},
		"as it is said":  {polling: time.Minute, loop: time.Minute, threshold: 7 * time.Second, want: 7 * time.Second},
	} {
		cfg, now := newSite(t, memory.Config{}).config(), time.Now()
		cfg.Now = func() time.Time { return now }
		cfg.PollingInterval, cfg.StatusLoopInterval, cfg.HealthThreshold = tc.polling, tc.loop, tc.threshold
		a, err := agent.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		begun := now
		now = now.Add(tc.want)
		if status, h := health(t, a); status != http.StatusOK || h.Status != agent.Healthy || !h.LastActivity.Equal(begun) || h.Threshold != tc.want.String() {
			t.Errorf("%s: at the threshold: got %d %+v", name, status, h)
		}
		now = now.Add(time.Second)
		if status, h := health(t, a); status != http.StatusServiceUnavailable || h.Status != agent.Unhealthy {
			t.Errorf("%s: behind it: got %d %+v", name, status, h)
		}
	}
}

func TestHealth_EachLoopIsASignOfLife(t *testing.T) {
	for name, change := range map[string]func(*agent.Config){
		"looks at jobs, with a control plane that is away": func(c *agent.Config) {
			c.Upstream = &outage{Upstream: c.Upstream, fails: 1 << 30}
		},
		"polls": func(c *agent.Config) { c.StatusLoopInterval = time.Hour },
	} {
		s := newSite(t, memory.Config{})
		s.workspace("net")
		cfg := s.config()
		change(&cfg)
		a, end := s.run(cfg)
		_, before := health(t, a)
		first := s.submit("net", workflow.Preview)
		until(t, "it "+name, func() bool {
			_, h := health(t, a)
			return h.LastActivity.After(before.LastActivity)
		})
		if err := end(); err != nil {
			t.Errorf("%s: %v (%s)", name, err, first)
		}
	}
}
