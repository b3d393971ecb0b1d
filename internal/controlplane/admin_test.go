package controlplane_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestEnsureAdmin_MakesOneAdminTokenHoweverOften(t *testing.T) {
	st := memory.New()
	value := redact.New(strings.Repeat("s3cret-", 6))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := controlplane.New(st, controlplane.Config{}).EnsureAdmin(t.Context(), "default", value); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	p := controlplane.New(st, controlplane.Config{})
	who, err := p.Authenticate(t.Context(), value.Reveal())
	if err != nil || who.Role != api.RoleAdmin || who.Organization != "default" {
		t.Fatalf("%+v, %v", who, err)
	}
	tokens, err := p.Tokens(t.Context(), who, "", 0)
	if err != nil || len(tokens.Items) != 1 {
		t.Errorf("tokens %+v, %v", tokens.Items, err)
	}
	if _, err := p.Pool(t.Context(), who, "default"); err != nil {
		t.Errorf("the built-in pool: %v", err)
	}
	trail, err := p.Audit(t.Context(), who, "", 0)
	if err != nil || len(trail.Items) != 1 || trail.Items[0].Action != "token.deploy" {
		t.Errorf("audit %+v, %v", trail.Items, err)
	}
}

func TestEnsureAdmin_ANewValueEndsTheOldOneAfterAnHour(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		first, second := redact.New(strings.Repeat("a", 40)), redact.New(strings.Repeat("b", 40))
		// A person's token of the same name is nobody's to end.
		own, err := w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "deployment", Role: api.RoleAdmin})
		w.must(err)
		w.must(w.plane.EnsureAdmin(w.ctx(), "default", first))
		w.must(w.plane.EnsureAdmin(w.ctx(), "default", second))
		// A process that read the secret before it changed may be about still.
		w.must(w.plane.EnsureAdmin(w.ctx(), "default", first))
		for _, v := range []string{first.Reveal(), second.Reveal(), own.Value} {
			if _, err := w.plane.Authenticate(w.ctx(), v); err != nil {
				t.Errorf("%.3s within the hour: %v", v, err)
			}
		}
		w.clock.advance(61 * time.Minute)
		_, err = w.plane.Authenticate(w.ctx(), first.Reveal())
		wantErr(t, err, workflow.ErrRevoked)
		wantErr(t, w.plane.EnsureAdmin(w.ctx(), "default", first), workflow.ErrRevoked)
		for _, v := range []string{second.Reveal(), own.Value} {
			if _, err := w.plane.Authenticate(w.ctx(), v); err != nil {
				t.Errorf("%.3s after the hour: %v", v, err)
			}
		}
	})
}

// Whoever revokes a leaked value must not find it valid again after the next cold start.
func TestEnsureAdmin_ARevokedValueStaysRevoked(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		value := redact.New(strings.Repeat("a", 40))
		w.must(w.plane.EnsureAdmin(w.ctx(), "default", value))
		tokens, err := w.plane.Tokens(w.ctx(), w.admin, "", 0)
		w.must(err)
		for _, token := range tokens.Items {
			if token.Name == "deployment" {
				w.must(w.plane.RevokeToken(w.ctx(), w.admin, token.ID))
			}
		}
		wantErr(t, w.plane.EnsureAdmin(w.ctx(), "default", value), workflow.ErrRevoked)
		_, err = w.plane.Authenticate(w.ctx(), value.Reveal())
		wantErr(t, err, workflow.ErrRevoked)
	})
}

func TestEnsureAdmin_RefusesWhatIsNoSecret(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		pool, err := w.plane.EnsurePoolToken(w.ctx(), "default", "default", "other")
		w.must(err)
		for value, kind := range map[string]error{
			"":                               workflow.ErrInvalid,
			"short":                          workflow.ErrInvalid,
			strings.Repeat("a", 201):         workflow.ErrInvalid,
			strings.Repeat("a b", 20):        workflow.ErrInvalid,
			"dfj_" + strings.Repeat("a", 40): workflow.ErrInvalid,
			pool:                             workflow.ErrExists, // it must not become an admin's
		} {
			err := w.plane.EnsureAdmin(w.ctx(), "default", redact.New(value))
			wantErr(t, err, kind)
			if value != "" && strings.Contains(err.Error(), value) {
				t.Errorf("the error shows the value: %v", err)
			}
		}
	})
}
