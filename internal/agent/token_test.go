package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestTokenStands_OnlyRefusalsInARowEndTheAgent(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		since   time.Time
		refused bool
		first   time.Time
		over    bool
	}{
		"accepted":                    {time.Time{}, false, time.Time{}, false},
		"refused for the first time":  {time.Time{}, true, now, false},
		"refused again":               {now.Add(-5*time.Minute + 1), true, now.Add(-5*time.Minute + 1), false},
		"refused for too long":        {now.Add(-5 * time.Minute), true, now.Add(-5 * time.Minute), true},
		"accepted or away after that": {now.Add(-time.Hour), false, time.Time{}, false},
	} {
		if first, over := agent.TokenStands(tt.since, tt.refused, now); !first.Equal(tt.first) || over != tt.over {
			t.Errorf("%s: got %s, %t", name, first, over)
		}
	}
}

// What the control plane says of a token is told in words that fit an agent; what a gateway says is nothing about it.
func TestTokenRefused_SaysWhatIsWrongWithTheToken(t *testing.T) {
	s := newSite(t, memory.Config{})
	user, err := s.plane.CreateToken(t.Context(), s.admin, api.NewToken{Name: "ci", Role: api.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	name := "gone"
	made, err := s.plane.CreatePool(t.Context(), s.admin, "", api.PoolSettings{Name: &name})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.plane.DeletePool(t.Context(), s.admin, name); err != nil {
		t.Fatal(err)
	}
	gateway := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you?", http.StatusUnauthorized) })
	for _, tt := range []struct {
		handler http.Handler
		token   string
		says    string
	}{
		{s.handler, "dfp_wrong", "it is not known there"},
		{s.handler, made.Token, "the pool of this token was deleted"},
		{s.handler, user.Value, "yours is a user token"},
		{gateway, "dfp_wrong", ""},
	} {
		server := httptest.NewServer(tt.handler)
		t.Cleanup(server.Close)
		cl, err := client.New(client.Config{URL: server.URL, Token: func() redact.String { return redact.New(tt.token) }, RetryCount: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cl.Claim(t.Context(), api.Claim{Instance: "agent-1", Max: 1})
		got := agent.TokenRefused(err, server.URL, "")
		switch {
		case tt.says == "":
			if got != nil {
				t.Errorf("of a gateway's %v: %v", err, got)
			}
		case got == nil || errors.Is(got, workflow.ErrUnauthenticated) || strings.Contains(got.Error(), "log in"):
			t.Errorf("of %v: %v", err, got)
		default:
			for _, want := range []string{"the control plane at " + server.URL + " does not accept the pool token: ", tt.says, "rotate-token", "DAYFLY_TOKEN"} {
				if !strings.Contains(got.Error(), want) {
					t.Errorf("of %v: %v, want it to say %q", err, got, want)
				}
			}
		}
	}
}

// A token that is revoked is said at once, and ends the agent after a while; what runs goes on to its end.
func TestRun_RefusedTokenEndsTheAgentAfterItsRuns(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	release := make(chan struct{})
	s.theatre.engine = func(ctx context.Context, _ *actor) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return errCrash
		}
	}
	id := s.submit("net", workflow.Update)
	var ahead atomic.Int64
	cfg := s.config()
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	s.awaitState(id, workflow.Running)
	if _, err := s.plane.RotatePoolToken(t.Context(), s.admin, "default", api.RotateToken{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the refusal is said", func() bool {
		return strings.Contains(s.log.String(), "does not accept the pool token: the token was revoked or has expired")
	})
	if strings.Contains(s.log.String(), "for too long") {
		t.Error("it gave up at once")
	}
	ahead.Store(int64(5 * time.Minute))
	until(t, "it gives up", func() bool { return strings.Contains(s.log.String(), "for too long") })
	until(t, "it waits for its run", func() bool { return strings.Contains(s.log.String(), "agent draining") })
	select {
	case err := <-ended:
		t.Fatalf("it ended with %v while its run went on", err)
	default:
	}
	close(release)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "does not accept the pool token") {
		t.Errorf("it ended with %v, want the reason", err)
	}
	if got := s.get(id); got.State != workflow.Succeeded {
		t.Errorf("its run is %s (%s), want its own result", got.State, got.Reason)
	}
}

// moods is a control plane that answers one question after another as it is told to, and then as it is.
type moods struct {
	agent.Upstream
	mu    sync.Mutex
	moods []func() error
}

func (m *moods) Held(ctx context.Context, instance, cursor string) (api.Page[api.JobState], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.moods) > 0 {
		next := m.moods[0]
		m.moods = m.moods[1:]
		return api.Page[api.JobState]{}, next()
	}
	return m.Upstream.Held(ctx, instance, cursor)
}

// A control plane that is away, for however long, says nothing about a token, also when it refused it before.
func TestRun_AControlPlaneThatIsAwayEndsNoAgent(t *testing.T) {
	s := newSite(t, memory.Config{})
	s.workspace("net")
	id := s.submit("net", workflow.Preview)
	var ahead atomic.Int64
	refused := func() error { return workflow.Refuse(workflow.ErrUnauthenticated, "", "who are you?") }
	away := func() error {
		ahead.Add(int64(time.Hour))
		return fmt.Errorf("list claims: %w", client.ErrUnreachable)
	}
	cfg := s.config()
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	cfg.Upstream = &moods{Upstream: s.client, moods: []func() error{refused, away, refused, away}}
	_, end := s.run(cfg)
	s.awaitState(id, workflow.Succeeded)
	if err := end(); err != nil {
		t.Error(err)
	}
	if log := s.log.String(); !strings.Contains(log, "pool token refused") || strings.Contains(log, "for too long") {
		t.Error("want the refusals to be said, and no end")
	}
}
