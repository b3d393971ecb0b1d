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
	trail, err := p.Audit(t.Context(), who, api.AuditFilter{})
	if err != nil || len(trail.Items) != 1 || trail.Items[0].Action != "token.deploy" {
		t.Errorf("audit %+v, %v", trail.Items, err)
	}
}

func TestEnsureAdmin_ANewValueEndsTheOldOneAfterAnHour(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		first, second := redact.New(strings.Repeat("a", 40)), redact.New(strings.Repeat("b", 40))
		// A person's token of the same name must not be ended.
		own, err := w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "deployment", Role: api.RoleAdmin})
		w.must(err)
		w.must(w.plane.EnsureAdmin(w.ctx(), "default", first))
		w.must(w.plane.EnsureAdmin(w.ctx(), "default", second))
		// A process that read the secret before it changed may still be running.
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

// A leaked value that was revoked must not be valid again after the next cold start.
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

func ptr[T any](v T) *T { return &v }

// as makes a principal of a role.
func (w *world) as(role string) controlplane.Principal {
	w.t.Helper()
	return w.another(api.NewToken{Name: role, Principal: w.principal(role).Name, Role: role})
}

// C16: each call requires its role, below HTTP, and a refusal is audited.
func TestRoles_EachCallNeedsItsRole(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	wf := w.submit("net", workflow.Update)
	viewer, operator := w.as(api.RoleViewer), w.as(api.RoleOperator)
	for name, call := range map[string]struct {
		needs string
		do    func(who controlplane.Principal) error
	}{
		"submit": {api.RoleOperator, func(who controlplane.Principal) error {
			_, err := w.plane.Submit(w.ctx(), who, "", api.Submit{Workspace: "net", Operation: workflow.Preview})
			return err
		}},
		"retry": {api.RoleOperator, func(who controlplane.Principal) error {
			_, err := w.plane.Retry(w.ctx(), who, "", wf.ID, api.WithReason{})
			return err
		}},
		"cancel": {api.RoleOperator, func(who controlplane.Principal) error {
			_, err := w.plane.Cancel(w.ctx(), who, wf.ID, api.WithReason{})
			return err
		}},
		"apply": {api.RoleOperator, func(who controlplane.Principal) error {
			_, _, err := w.plane.PutWorkspace(w.ctx(), who, api.Workspace{Name: "x", RunSettings: api.RunSettings{Engine: "command", Commands: map[string]string{"update": "true"}, Source: api.Source{Directory: "/x"}}})
			return err
		}},
		"pool create": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.CreatePool(w.ctx(), who, "", api.PoolSettings{Name: ptr("pool-" + who.Role)})
			return err
		}},
		"pool update": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.UpdatePool(w.ctx(), who, "default", api.PoolSettings{Description: ptr("x")})
			return err
		}},
		"pool delete": {api.RoleAdmin, func(who controlplane.Principal) error { return w.plane.DeletePool(w.ctx(), who, "default") }},
		"rotate": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.RotatePoolToken(w.ctx(), who, "default", api.RotateToken{OverlapSeconds: 60})
			return err
		}},
		"token": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.CreateToken(w.ctx(), who, api.NewToken{Name: "x", Role: api.RoleViewer})
			return err
		}},
		"tokens": {api.RoleAdmin, func(who controlplane.Principal) error { _, err := w.plane.Tokens(w.ctx(), who, "", 0); return err }},
		"revoke": {api.RoleAdmin, func(who controlplane.Principal) error { return w.plane.RevokeToken(w.ctx(), who, "tok_x") }},
		"audit": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.Audit(w.ctx(), who, api.AuditFilter{})
			return err
		}},
		"delete ws": {api.RoleAdmin, func(who controlplane.Principal) error { return w.plane.DeleteWorkspace(w.ctx(), who, "net") }},
		"unlock": {api.RoleAdmin, func(who controlplane.Principal) error {
			_, err := w.plane.Unlock(w.ctx(), who, "net", api.Unlock{Workflow: wf.ID})
			return err
		}},
		"slot": {api.RoleViewer, func(who controlplane.Principal) error { _, err := w.plane.Slot(w.ctx(), who, "net"); return err }},
		"show": {api.RoleViewer, func(who controlplane.Principal) error { _, err := w.plane.Workflow(w.ctx(), who, wf.ID); return err }},
		"logs": {api.RoleViewer, func(who controlplane.Principal) error {
			_, err := w.plane.Logs(w.ctx(), who, wf.ID, 0, 0, 0, 0)
			return err
		}},
		"why": {api.RoleViewer, func(who controlplane.Principal) error { _, err := w.plane.Why(w.ctx(), who, wf.ID); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, who := range []controlplane.Principal{w.pool, viewer, operator} {
				allowed := who.Audience == "user" && (call.needs == api.RoleViewer || call.needs == api.RoleOperator && who.Role == api.RoleOperator)
				err := call.do(who)
				if !allowed {
					wantErr(t, err, workflow.ErrForbidden)
				} else if err != nil && strings.Contains(err.Error(), "needs the role") {
					t.Errorf("%s was refused: %v", who.Role, err)
				}
			}
		})
	}
	page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{})
	w.must(err)
	refused := 0
	for _, e := range page.Items {
		if e.Outcome == "refused" {
			refused++
		}
	}
	if refused == 0 || len(page.Items) == refused {
		t.Errorf("the audit trail has %d refusals among %d events", refused, len(page.Items))
	}
	for _, call := range []func() error{
		func() error { _, err := w.plane.Claim(w.ctx(), w.admin, api.Claim{Instance: "x", Max: 1}); return err },
		func() error { _, err := w.plane.Held(w.ctx(), w.admin, "", ""); return err },
		func() error {
			_, err := w.plane.States(w.ctx(), w.admin, api.StatesQuery{IDs: []string{wf.ID}})
			return err
		},
	} {
		wantErr(t, call(), workflow.ErrForbidden)
	}
	wantErr(t, w.plane.Queued(w.ctx(), w.admin, wf.ID, api.Attempt{Attempt: 1}), workflow.ErrNotFound)
}

// C15: every refusal is in the audit trail once, with what was refused to whom and why.
func TestAudit_HasEveryRefusal(t *testing.T) {
	w := newWorld(t, memory.New())
	operator := w.as(api.RoleOperator)
	path := "/dayfly/default/"
	_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{RolePath: &path})
	w.must(err)
	_, err = w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("prod"), AssignedToAll: ptr(false)})
	w.must(err)
	w.workspace("net")
	w.workspace("web", func(ws *api.Workspace) { ws.Pool = "prod" })
	net := func(change func(*api.Workspace)) error {
		ws, err := w.plane.Workspace(w.ctx(), operator, "net")
		w.must(err)
		change(&ws)
		_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
		return err
	}
	submit := func(in api.Submit) error { _, err := w.plane.Submit(w.ctx(), operator, "", in); return err }
	for name, tc := range map[string]struct {
		action, target, why string
		do                  func() error
	}{
		"role": {"workspace.apply", "net", "set by an admin", func() error { return net(func(ws *api.Workspace) { ws.Role = netRole }) }},
		"path": {"workspace.apply", "net", "under the path", func() error { return net(func(ws *api.Workspace) { ws.Role = "arn:aws:iam::123456789012:role/other" }) }},
		"pool": {"workspace.apply", "net", "set by an admin", func() error { return net(func(ws *api.Workspace) { ws.Pool = "prod" }) }},
		"refs": {"workspace.apply", "net", "set by an admin", func() error {
			return net(func(ws *api.Workspace) { ws.Secrets = []api.Secret{{Env: "A", Ref: "file:a"}} })
		}},
		"run": {"workflow.submit", "web", "is not assigned", func() error { return submit(api.Submit{Workspace: "web", Operation: workflow.Preview}) }},
		"unlock": {"state.unlock", "net", "needs the role admin", func() error {
			return submit(api.Submit{Workspace: "net", Operation: workflow.StateUnlock, LockID: "x"})
		}},
		"delete": {"workspace.delete", "net", "needs the role admin", func() error { return w.plane.DeleteWorkspace(w.ctx(), operator, "net") }},
		"another audience": {"list-pools", "", "takes a user token", func() error {
			return w.plane.Refuse(w.ctx(), w.pool, "list-pools", workflow.Refuse(workflow.ErrForbidden, "", "this call takes a user token"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{})
			w.must(err)
			w.clock.advance(time.Second)
			wantErr(t, tc.do(), workflow.ErrForbidden)
			after, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{})
			w.must(err)
			if len(after.Items) != len(before.Items)+1 {
				t.Fatalf("%d events were added, want 1", len(after.Items)-len(before.Items))
			}
			e := after.Items[0]
			if e.Outcome != "refused" || e.Action != tc.action || e.Target != tc.target || !strings.Contains(e.Detail, tc.why) {
				t.Errorf("audited as %+v", e)
			}
		})
	}
}

func TestTokens_LiveUntilTheyExpireOrAreRevoked(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		tok, err := w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "ci", Role: api.RoleOperator, ExpiresSeconds: 3600})
		w.must(err)
		if !strings.HasPrefix(tok.Value, "dfu_") || len(tok.Value) != 47 {
			t.Errorf("token value has the form %q...", tok.Value[:4])
		}
		who, err := w.plane.Authenticate(w.ctx(), tok.Value)
		if err != nil || who.Name != "ci" || who.Role != api.RoleOperator {
			t.Errorf("authenticated as %+v, %v", who, err)
		}
		w.clock.advance(time.Hour)
		_, err = w.plane.Authenticate(w.ctx(), tok.Value)
		wantErr(t, err, workflow.ErrRevoked)
		tok, err = w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "second", Principal: "ci", Role: api.RoleOperator})
		w.must(err)
		w.must(w.plane.RevokeToken(w.ctx(), w.admin, tok.Token.ID))
		_, err = w.plane.Authenticate(w.ctx(), tok.Value)
		wantErr(t, err, workflow.ErrRevoked)
		for _, bad := range []string{"", "dfu_", "nonsense", strings.Repeat("x", 10000)} {
			_, err = w.plane.Authenticate(w.ctx(), bad)
			wantErr(t, err, workflow.ErrUnauthenticated)
		}
		// Token values are not stored: the contents of the store do not authenticate anyone.
		page, err := w.plane.Tokens(w.ctx(), w.admin, "", 0)
		w.must(err)
		if len(page.Items) != 3 {
			t.Errorf("%d tokens are listed, want 3: %+v", len(page.Items), page.Items)
		}
	})
}
