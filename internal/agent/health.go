package agent

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"
)

// Health is the state of an agent.
type Health struct {
	Status       string    `json:"status"`
	LastActivity time.Time `json:"last_activity"` // the last poll that was answered, or look at the running jobs
	Threshold    string    `json:"threshold"`
}

// Words of Health.Status.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// alive is the last sign of life of an agent's loops. Each of them counts: a control plane that is away is not a
// reason to start the agent again.
type alive struct{ last atomic.Pointer[time.Time] }

func (s *alive) sign(now time.Time) { s.last.Store(&now) }

func (s *alive) health(now time.Time, threshold time.Duration) Health {
	h := Health{Status: Healthy, LastActivity: *s.last.Load(), Threshold: threshold.String()}
	if now.Sub(h.LastActivity) > threshold {
		h.Status = Unhealthy
	}
	return h
}

// Health answers GET /healthz: 200 while the agent is alive, else 503. It shows nothing that is secret.
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
