package agent

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// signs are the last signs of life of an agent's loops.
type signs struct {
	begun time.Time

	mu         sync.Mutex
	poll, loop time.Time
}

func (s *signs) polled(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poll = now
}

func (s *signs) looped(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loop = now
}

// Health is what an agent says of itself.
type Health struct {
	Status       string     `json:"status"`
	LastActivity time.Time  `json:"last_activity"` // the latest of its start and the two below
	LastPoll     *time.Time `json:"last_poll,omitempty"`
	LastLoop     *time.Time `json:"last_status_loop,omitempty"`
	Threshold    string     `json:"threshold"`
}

// Words of Health.Status.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// health says whether an agent is alive: one of its loops has come round within the threshold. A control plane that is
// away is not a reason to start the agent again, so the other loop counts too; last_poll tells it.
func (s *signs) health(now time.Time, threshold time.Duration) Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := Health{Status: Healthy, LastActivity: s.begun, Threshold: threshold.String()}
	for of, at := range map[**time.Time]time.Time{&h.LastPoll: s.poll, &h.LastLoop: s.loop} {
		if at.IsZero() {
			continue
		}
		*of = &at
		if at.After(h.LastActivity) {
			h.LastActivity = at
		}
	}
	if now.Sub(h.LastActivity) > threshold {
		h.Status = Unhealthy
	}
	return h
}

// Health answers GET /healthz: 200 while the agent is alive, else 503. It tells nothing that is secret.
func (a *Agent) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h := a.alive.health(a.cfg.Now(), a.cfg.HealthThreshold)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if h.Status != Healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h)
	})
	return mux
}
