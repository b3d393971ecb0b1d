package controlplane_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A name belongs to one principal for good, and a request for a token must name that principal explicitly.
func TestPrincipal_ANameIsNeverGivenToAnother(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		create := func(name, principal string) (api.TokenValue, error) {
			return w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: name, Principal: principal, Role: api.RoleViewer})
		}
		first, err := create("ada", "")
		w.must(err)
		_, err = create("ada", "")
		if wantErr(t, err, workflow.ErrExists); !strings.Contains(err.Error(), "--principal ada") {
			t.Errorf("it does not say how another token of the same is made: %v", err)
		}
		w.must(w.plane.RevokeToken(w.ctx(), w.admin, first.Token.ID))
		_, err = create("ada", "")
		wantErr(t, err, workflow.ErrExists)
		_, err = w.plane.CreatePrincipal(w.ctx(), w.admin, api.NewPrincipal{Name: "ada"})
		wantErr(t, err, workflow.ErrExists)
		_, err = create("laptop", "eve")
		if wantErr(t, err, workflow.ErrInvalid); err == nil || !strings.HasPrefix(err.Error(), "principal: ") {
			t.Errorf("an unknown principal: %v", err)
		}
		second, err := create("laptop", "ada")
		w.must(err)
		who, err := w.plane.Authenticate(w.ctx(), second.Value)
		w.must(err)
		if who.Ref() != first.Token.Principal || who.Name != "ada" || second.Token.Name != "laptop" {
			t.Errorf("the second token is of %+v, the first of %+v", who.Ref(), first.Token.Principal)
		}
		all, err := w.plane.Principals(w.ctx(), w.admin, "", 200)
		w.must(err)
		if len(all.Items) != 2 || all.Items[0].PrincipalRef != first.Token.Principal || all.Items[1].Name != api.FirstAdmin {
			t.Errorf("the principals are %+v", all.Items)
		}
	})
	w := newWorld(t, memory.New())
	for _, name := range []string{"", "rule", "data-directory", "service/deployer", "prn_1", "a b", "ann\n", strings.Repeat("a", 65)} {
		_, err := w.plane.CreatePrincipal(w.ctx(), w.admin, api.NewPrincipal{Name: name})
		wantErr(t, err, workflow.ErrInvalid)
		_, err = w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: name, Principal: "admin", Role: api.RoleViewer})
		wantErr(t, err, workflow.ErrInvalid)
	}
	_, err := w.plane.CreatePrincipal(w.ctx(), w.person("op"), api.NewPrincipal{Name: "mia"})
	wantErr(t, err, workflow.ErrForbidden)
}

// Two tokens of one person are one person, whatever the tokens are called.
func TestPrincipal_WithTwoTokensIsOneSubmitter(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(&api.Approval{Required: true, NotBySubmitter: true})
	ada := w.person("ada")
	phone := w.another(api.NewToken{Name: "phone", Principal: "ada", Role: api.RoleAdmin})
	made := w.asks(ada, workflow.Update)
	if made.SubmittedBy != "ada" || made.SubmittedByID != ada.ID {
		t.Errorf("it is submitted by %s (%s)", made.SubmittedBy, made.SubmittedByID)
	}
	w.plans(one)
	_, err := w.plane.Approve(w.ctx(), phone, made.ID, seen)
	wantErr(t, err, workflow.ErrForbidden)
	if r := w.reviewOf(made.ID, api.ReviewWaiting); !r.Submitters.Has(ada.ID) || len(r.Votes) != 0 {
		t.Errorf("the review is %+v", r)
	}
	bob := w.person("bob")
	_, err = w.plane.Approve(w.ctx(), bob, made.ID, seen)
	w.must(err)
	if r := w.reviewOf(made.ID, api.ReviewApproved); r.Votes[0].By != "bob" || r.Votes[0].ByID != bob.ID {
		t.Errorf("the vote is %+v", r.Votes)
	}
	for actor, want := range map[string]int{"ada": 2, ada.ID: 2, bob.ID: 1, "prn_none": 0} {
		page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Actor: actor})
		w.must(err)
		if len(page.Items) != want {
			t.Errorf("%s did %d things, want %d: %+v", actor, len(page.Items), want, page.Items)
		}
	}
}

// OpenID Connect tells people apart by issuer and subject. A claim such as email may be another's tomorrow.
func TestPrincipal_OfAnIssuerIsItsSubject(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(&api.Approval{Required: true, NotBySubmitter: true})
	rule := api.TrustRule{Claims: map[string]string{"sub": "*"}, Becomes: api.KindUser, Role: api.RoleOperator, NameClaim: "email"}
	p := w.issuer()
	w.trust(p, rule)
	speaks := func(sub, email string) controlplane.Principal {
		t.Helper()
		out, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("ES256", p.Claims(map[string]any{"aud": ourAudience, "sub": sub, "email": email}))))
		w.must(err)
		who, err := w.plane.Authenticate(w.ctx(), out.AccessToken)
		w.must(err)
		return who
	}
	ada, renamed, namesake := speaks("u1", "ada@example.com"), speaks("u1", "ada@new.example"), speaks("u2", "ada@example.com")
	if ada.Name != "idp/ada@example.com" || namesake.Name != ada.Name || renamed.Name == ada.Name {
		t.Errorf("they are shown as %s, %s and %s", ada.Name, renamed.Name, namesake.Name)
	}
	if ada.ID != renamed.ID || ada.ID == namesake.ID || !strings.HasPrefix(ada.ID, "prn_") {
		t.Errorf("their ids are %s, %s and %s", ada.ID, renamed.ID, namesake.ID)
	}
	phone := w.another(api.NewToken{Name: "phone", Principal: "idp/u1", Role: api.RoleOperator})
	made := w.asks(ada, workflow.Update)
	w.plans(one)
	for what, who := range map[string]controlplane.Principal{"under a new address": renamed, "by a token of theirs": phone} {
		if _, err := w.plane.Approve(w.ctx(), who, made.ID, seen); !errors.Is(err, workflow.ErrForbidden) {
			t.Errorf("who submitted it approves it %s: %v", what, err)
		}
	}
	_, err := w.plane.Approve(w.ctx(), namesake, made.ID, seen)
	w.must(err)

	// Another issuer that is registered under the name of the former has other subjects.
	w.must(w.plane.Issuers.Delete(w.ctx(), w.admin, "idp"))
	_, err = w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "gone", Principal: "idp/u1", Role: api.RoleOperator})
	wantErr(t, err, workflow.ErrInvalid)
	p = w.issuer()
	w.trust(p, rule)
	if other := speaks("u1", "ada@example.com"); other.ID == ada.ID || other.Name != ada.Name {
		t.Errorf("the same subject of another issuer is %+v", other.Ref())
	}
	_, err = w.plane.IssueToken(w.ctx(), exchangeOf(p.Token("ES256", p.Claims(map[string]any{"aud": ourAudience, "sub": "", "email": "eve@example.com"}))))
	wantErr(t, err, workflow.ErrUnauthenticated)
	for _, name := range []string{"service", "schedule", "pull-request"} {
		_, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, api.Issuer{Name: name, URL: "https://idp.example.com", Rules: []api.TrustRule{rule}})
		wantErr(t, err, workflow.ErrInvalid)
	}
}

// The author of a pull request is the principal in the git host's map, also when they sign in by an issuer.
func TestPrincipal_OfAGitHostsMember(t *testing.T) {
	for name, tc := range map[string]struct {
		principal string
		err       error
	}{
		"by the token of the principal": {"anna", workflow.ErrForbidden},
		"by the issuer's subject":       {"idp/u1", workflow.ErrForbidden},
		"who is somebody else here":     {"bert", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			p := w.issuer()
			w.trust(p, api.TrustRule{Claims: map[string]string{"sub": "u1"}, Becomes: api.KindUser, Role: api.RoleOperator})
			w.refs("anna", "bert")
			f := pullsOf(w, &api.Approval{Required: true, NotBySubmitter: true}, api.Member{ID: annaID, Principal: tc.principal, PrincipalID: "prn_forged", Role: api.RoleOperator})
			f.event("pull_request-opened")
			wf := f.only()
			f.plans(one)
			f.works()
			who := f.person("anna")
			if strings.HasPrefix(tc.principal, "idp/") {
				out, err := f.plane.IssueToken(f.ctx(), exchangeOf(p.Token("ES256", p.Claims(map[string]any{"aud": ourAudience, "sub": "u1"}))))
				f.must(err)
				who, err = f.plane.Authenticate(f.ctx(), out.AccessToken)
				f.must(err)
			}
			_, err := f.plane.Approve(f.ctx(), who, wf.ID, seen)
			if !errors.Is(err, tc.err) || tc.err == nil && err != nil {
				t.Errorf("approved by %s where the member is %s: %v", who.Name, tc.principal, err)
			}
			host, err := f.plane.GitHosts.Show(f.ctx(), f.admin, "forge")
			f.must(err)
			if got := host.Members[0]; got.Principal != tc.principal || !strings.HasPrefix(got.PrincipalID, "prn_") || got.PrincipalID == "prn_forged" {
				t.Errorf("the member is %+v", got)
			}
		})
	}
}
