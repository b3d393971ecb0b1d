package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// signedIn makes a user token and a session of it.
func (w *world) signedIn(in api.NewToken) (token api.TokenValue, session string) {
	w.t.Helper()
	token, err := w.plane.CreateToken(w.ctx(), w.admin, in)
	w.must(err)
	session, err = w.plane.SignIn(w.ctx(), token.Value)
	w.must(err)
	return token, session
}

func TestSession_SpeaksForItsTokenAndIsNoTokenItself(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		token, session := w.signedIn(api.NewToken{Name: "ann", Role: api.RoleOperator})
		who, err := w.plane.Session(w.ctx(), session, true)
		w.must(err)
		if who.Name != "ann" || who.Role != api.RoleOperator || who.TokenID != token.Token.ID || who.Organization != "default" {
			t.Errorf("got %+v", who)
		}
		for _, try := range []func() error{
			func() error { _, err := w.plane.Authenticate(w.ctx(), session); return err },
			func() error { _, err := w.plane.SignIn(w.ctx(), session); return err },
			func() error { _, err := w.plane.Session(w.ctx(), token.Value, true); return err },
			func() error { _, err := w.plane.Session(w.ctx(), "", true); return err },
			func() error { _, err := w.plane.Session(w.ctx(), session[:len(session)-1], true); return err },
		} {
			wantErr(t, try(), workflow.ErrUnauthenticated)
		}
		w.must(w.plane.SignOut(w.ctx(), session))
		w.must(w.plane.SignOut(w.ctx(), session))
		w.must(w.plane.SignOut(w.ctx(), token.Value))
		_, err = w.plane.Session(w.ctx(), session, true)
		wantErr(t, err, workflow.ErrUnauthenticated)
		if began, ended := w.audits("session.begin", "done"), w.audits("session.end", "done"); began != 1 || ended != 1 {
			t.Errorf("audited %d begins and %d ends", began, ended)
		}
	})
}

func TestSession_EndsAfterTwelveHoursOrTwoWithoutUse(t *testing.T) {
	w := newWorld(t, memory.New())
	began := w.clock.now()
	at := func(d time.Duration) { w.clock.advance(began.Add(d).Sub(w.clock.now())) }
	live := func(session string, active bool) {
		t.Helper()
		_, err := w.plane.Session(w.ctx(), session, active)
		w.must(err)
	}
	ended := func(session string) {
		t.Helper()
		_, err := w.plane.Session(w.ctx(), session, true)
		wantErr(t, err, workflow.ErrUnauthenticated)
	}
	_, busy := w.signedIn(api.NewToken{Name: "ann", Role: api.RoleViewer})
	_, idle := w.signedIn(api.NewToken{Name: "bob", Role: api.RoleViewer})
	_, short := w.signedIn(api.NewToken{Name: "eve", Role: api.RoleViewer, ExpiresSeconds: 3600})
	at(59 * time.Minute)
	live(busy, true)
	live(short, true)
	live(idle, false) // a page that polls is not a use of the session
	at(61 * time.Minute)
	ended(short)
	at(119 * time.Minute)
	live(busy, true)
	live(idle, false)
	at(121 * time.Minute)
	ended(idle)
	for h := 3; h < 12; h++ {
		at(time.Duration(h) * time.Hour)
		live(busy, true)
	}
	at(12*time.Hour - time.Minute)
	live(busy, true)
	at(12*time.Hour + time.Minute)
	ended(busy)
}

func TestSession_TimeOfLastUseIsWrittenEveryFiveMinutes(t *testing.T) {
	w := newWorld(t, memory.New())
	_, session := w.signedIn(api.NewToken{Name: "ann", Role: api.RoleViewer})
	use := func(after time.Duration) {
		t.Helper()
		w.clock.advance(after)
		_, err := w.plane.Session(w.ctx(), session, true)
		w.must(err)
	}
	use(4 * time.Minute) // not written
	use(2*time.Hour - 5*time.Minute)
	use(2*time.Hour - 5*time.Minute) // the use before was written
	w.clock.advance(2 * time.Hour)
	_, err := w.plane.Session(w.ctx(), session, true)
	wantErr(t, err, workflow.ErrUnauthenticated)
}

func TestSession_IsWorthWhatItsSourceIsWorthNow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		token, session := w.signedIn(api.NewToken{Name: "ann", Role: api.RoleAdmin})
		w.must(w.plane.RevokeToken(w.ctx(), w.admin, token.Token.ID))
		_, err := w.plane.Session(w.ctx(), session, true)
		wantErr(t, err, workflow.ErrRevoked)
		_, err = w.plane.SignIn(w.ctx(), token.Value)
		wantErr(t, err, workflow.ErrRevoked)

		made, err := w.plane.CreateService(w.ctx(), w.admin, api.NewServicePrincipal{Name: "robot", ServicePrincipalSettings: api.ServicePrincipalSettings{Role: new(api.RoleOperator)}})
		w.must(err)
		issued, err := w.plane.IssueToken(w.ctx(), api.TokenRequest{GrantType: api.GrantClientCredentials, ClientID: made.ServicePrincipal.ClientID, ClientSecret: made.Secret})
		w.must(err)
		session, err = w.plane.SignIn(w.ctx(), issued.AccessToken)
		w.must(err)
		_, err = w.plane.UpdateService(w.ctx(), w.admin, "robot", api.ServicePrincipalSettings{Role: new(api.RoleViewer)})
		w.must(err)
		who, err := w.plane.Session(w.ctx(), session, true)
		w.must(err)
		if who.Role != api.RoleViewer {
			t.Errorf("the role is %s after the change", who.Role)
		}
		w.must(w.plane.DeleteService(w.ctx(), w.admin, "robot"))
		_, err = w.plane.Session(w.ctx(), session, true)
		wantErr(t, err, workflow.ErrRevoked)
	})
}

func TestSession_EndsWithTheIssuersRule(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.issuer()
	rule := api.TrustRule{Claims: map[string]string{"sub": "alice"}, Becomes: api.KindUser, Role: api.RoleViewer}
	w.trust(p, rule)
	issued, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("ES256", map[string]any{"aud": ourAudience})))
	w.must(err)
	session, err := w.plane.SignIn(w.ctx(), issued.AccessToken)
	w.must(err)
	who, err := w.plane.Session(w.ctx(), session, true)
	w.must(err)
	if left := who.Expires.Sub(w.clock.now()); who.Name != "idp/alice" || left < 59*time.Minute || left > time.Hour {
		t.Errorf("got %+v", who)
	}
	rule.Role = api.RoleOperator
	w.trust(p, rule)
	_, err = w.plane.Session(w.ctx(), session, true)
	wantErr(t, err, workflow.ErrRevoked)
}

func TestSignIn_RefusesATokenOfAPool(t *testing.T) {
	w := newWorld(t, memory.New())
	token, err := w.plane.EnsurePoolToken(w.ctx(), "default", "default", "other")
	w.must(err)
	_, err = w.plane.SignIn(w.ctx(), token)
	wantErr(t, err, workflow.ErrForbidden)
	if !strings.Contains(err.Error(), "this is the token of pool default") || w.audits("session.begin", "refused") != 1 {
		t.Errorf("got %v", err)
	}
}
