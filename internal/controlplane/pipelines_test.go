package controlplane_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

const (
	oneCommit     = "1111111111111111111111111111111111111111"
	anotherCommit = "2222222222222222222222222222222222222222"
	netPreview    = "arn:aws:iam::123456789012:role/dayfly/default/net-preview"
)

// pipelines is a world with a git host's issuer, whose rule gives the role admin to pipelines of one owner.
type pipelines struct {
	*world
	p *provider.Provider
}

func (w *world) pipelines() pipelines {
	w.t.Helper()
	p := pipelines{w, w.issuer()}
	p.apply(&api.Pipelines{Kind: api.PipelinesGitHub, Host: "GitHub.com"})
	return p
}

func (p pipelines) apply(of *api.Pipelines) {
	p.t.Helper()
	_, _, err := p.plane.Issuers.Put(p.ctx(), p.admin, api.Issuer{Name: "hub", URL: p.p.URL, Pipelines: of, Rules: []api.TrustRule{
		{Claims: map[string]string{"repository_owner_id": "65"}, Becomes: api.KindService, Role: api.RoleAdmin},
		{Claims: map[string]string{"repository_owner_id": "66"}, Becomes: api.KindPool, Pool: "default"},
	}})
	p.must(err)
}

// hub are claims of a push to a protected branch.
func hub(change map[string]any) map[string]any {
	out := map[string]any{
		"aud": ourAudience, "sub": "repo:Acme/Infra", "event_name": "push", "ref": "refs/heads/main", "ref_protected": "true", "sha": oneCommit,
		"repository": "Acme/Infra", "repository_id": "74", "repository_owner_id": "65", "actor": "ada", "actor_id": "1001",
	}
	maps.Copy(out, change)
	return out
}

// pull are claims of a pull request.
func pull(number, commit string) map[string]any {
	return hub(map[string]any{"event_name": "pull_request", "ref": "refs/pull/" + number + "/merge", "ref_protected": "false", "sha": commit})
}

// token exchanges the token of a pipeline.
func (p pipelines) token(claims map[string]any) controlplane.Principal {
	p.t.Helper()
	out, err := p.plane.IssueToken(p.ctx(), exchangeOf(p.p.Token("ES256", claims)))
	p.must(err)
	who, err := p.plane.Authenticate(p.ctx(), out.AccessToken)
	p.must(err)
	return who
}

// repository applies a workspace of terraform whose code is in a git repository.
func (w *world) repository(name, url string, change ...func(*api.Workspace)) {
	w.t.Helper()
	w.workspace(name, append([]func(*api.Workspace){func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.Source = api.EngineTerraform, nil, api.Source{Git: &api.GitSource{URL: url, Ref: "main", TokenRef: "file:git"}}
		ws.Role, ws.PreviewRole = netRole, netPreview
		ws.Secrets = []api.Secret{{Env: "A", Ref: "file:a"}, {Env: "B", Ref: "file:b", Preview: true}}
	}}, change...)...)
}

func ofCommit(workspace, commit string) api.Submit {
	return api.Submit{Workspace: workspace, Operation: workflow.Preview, Commit: commit}
}

// startedSpec starts the one run that can be claimed and returns its spec.
func (w *world) startedSpec(wf api.Workflow) api.Spec {
	w.t.Helper()
	job, r := w.started()
	if job.ID != wf.ID {
		w.t.Fatalf("claimed %s, want %s", job.ID, wf.ID)
	}
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	return spec
}

func arn(r *api.Role) string {
	if r == nil {
		return ""
	}
	return r.ARN
}

func names(secrets []api.Secret) (out string) {
	for _, s := range secrets {
		out += s.Env
	}
	return out
}

func TestPipelines_ATokenSaysOfWhichItIs(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		p := w.pipelines()
		who := p.token(pull("17", oneCommit))
		want := &record.Pipeline{Host: "github.com", Repository: "Acme/Infra", Commit: oneCommit, Ref: "refs/pull/17/merge", Number: 17, ActorID: "1001"}
		if d := cmp.Diff(want, who.Pipeline); d != "" {
			t.Error(d)
		}
		if !who.Has(api.RoleViewer) || who.Has(api.RoleOperator) || who.Has(api.RoleAdmin) {
			t.Error("an unprotected pipeline has another role than viewer")
		}
		protected := p.token(hub(nil))
		if !protected.Has(api.RoleAdmin) || protected.Unprotected() {
			t.Errorf("a protected pipeline: %+v", protected.Pipeline)
		}
		// A pool's token is for a protected pipeline only.
		owner := map[string]any{"repository_owner_id": "66"}
		if p.token(hub(owner)).Audience != "pool" {
			t.Error("a protected pipeline has no pool's token")
		}
		claims := pull("17", oneCommit)
		maps.Copy(claims, owner)
		_, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.p.Token("ES256", claims)))
		wantErr(t, err, workflow.ErrForbidden)
		if err == nil || !strings.Contains(err.Error(), "name an environment in the rule of issuer hub") {
			t.Errorf("got %v, want what to do", err)
		}
		if w.audits("token.exchange", "refused") != 1 {
			t.Error("the refusal is not audited")
		}

		// Tokens end with how their claims were read, and without it they are as before.
		value, err := w.plane.IssueToken(w.ctx(), exchangeOf(p.p.Token("ES256", hub(nil))))
		w.must(err)
		p.apply(nil)
		_, err = w.plane.Authenticate(w.ctx(), value.AccessToken)
		wantErr(t, err, workflow.ErrRevoked)
		if who := p.token(pull("17", oneCommit)); who.Pipeline != nil || !who.Has(api.RoleAdmin) {
			t.Errorf("an issuer without pipelines: %+v", who)
		}
	})
}

func TestPipelines_OfAnIssuerAreChecked(t *testing.T) {
	w := newWorld(t, memory.New())
	for name, c := range map[string]struct {
		url  string
		of   api.Pipelines
		want string
	}{
		"GitHub's own": {"https://token.actions.githubusercontent.com", api.Pipelines{Kind: "github"}, "github.com"},
		"GitLab":       {"https://gitlab.example.com", api.Pipelines{Kind: "gitlab"}, "gitlab.example.com"},
		"named":        {"https://token.ghe.example.com/_services", api.Pipelines{Kind: "github", Host: "GHE.example.com"}, "ghe.example.com"},
		"no kind":      {"https://gitlab.example.com", api.Pipelines{}, ""},
		"other kind":   {"https://gitlab.example.com", api.Pipelines{Kind: "svn"}, ""},
		"no host":      {"https://gitlab.example.com", api.Pipelines{Kind: "gitlab", Host: "a/b"}, ""},
		"with user":    {"https://gitlab.example.com", api.Pipelines{Kind: "gitlab", Host: "u@b"}, ""},
	} {
		in := api.Issuer{Name: "hub", URL: c.url, Pipelines: &c.of}
		out, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, in)
		if c.want == "" {
			wantErr(t, err, workflow.ErrInvalid)
			continue
		}
		if err != nil || out.Pipelines.Host != c.want {
			t.Errorf("%s: got %+v, %v, want the host %s", name, out.Pipelines, err, c.want)
		}
		if again, outcome, err := w.plane.Issuers.Put(w.ctx(), w.admin, in); err != nil || outcome != api.OutcomeUnchanged || c.of.Host == again.Pipelines.Host {
			t.Errorf("%s: the same again is %s, %v; it was given %q", name, outcome, err, c.of.Host)
		}
		w.must(w.plane.Issuers.Delete(w.ctx(), w.admin, "hub"))
	}
}

// A run of a pull request's pipeline gets preview_role, secrets of previews and its commit, and nothing more, until
// its plan is approved.
func TestPullRequest_RunGetsTheRoleOnlyAfterApproval(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		p := w.pipelines()
		w.repository("net", "git@github.com:acme/infra.git", func(ws *api.Workspace) {
			ws.Source.Git.TokenRef, ws.Source.Git.SSHKeyRef, ws.Source.Git.KnownHosts = "", "file:key", "github.com ssh-ed25519 AAAA"
			ws.Source.Git.Ref, ws.Source.Git.Version = "", "~> 1.0"
			ws.Modules = []api.ModuleCredential{{Host: "a.example.com", TokenRef: "file:a"}, {Host: "b.example.com", TokenRef: "file:b", Preview: true}}
		})
		who := p.token(pull("17", oneCommit))
		made, err := w.plane.Submit(w.ctx(), who, "key", ofCommit("net", oneCommit))
		w.must(err)
		again, err := w.plane.Submit(w.ctx(), who, "key", ofCommit("net", oneCommit))
		if w.must(err); again.ID != made.ID {
			t.Errorf("a repeat made %s beside %s", again.ID, made.ID)
		}
		_, err = w.plane.Submit(w.ctx(), p.token(pull("17", anotherCommit)), "key", ofCommit("net", anotherCommit))
		wantErr(t, err, workflow.ErrKeyReused)
		trigger := &api.Trigger{Kind: api.TriggerPullRequest, Name: "hub", Repository: "Acme/Infra", Number: 17, Commit: oneCommit}
		if d := cmp.Diff(trigger, made.Trigger); d != "" {
			t.Error(d)
		}
		if made.For != workflow.Update {
			t.Errorf("its plan is for %q, want update", made.For)
		}
		preview := w.plans(one)
		spec := w.frozen(made.ID)
		if arn(spec.Role) != netPreview || names(spec.Secrets) != "B" || spec.Source.Git.Ref != oneCommit || spec.Source.Git.SSHKeyRef != "file:key" || !spec.PullRequest {
			t.Errorf("a pull request's run gets %s, %s and %+v", arn(spec.Role), names(spec.Secrets), spec.Source.Git)
		}
		if len(spec.Modules) != 1 || spec.Modules[0].Host != "b.example.com" || spec.Source.Git.Version != "" {
			t.Errorf("a pull request's run gets %+v and %+v", spec.Modules, spec.Source.Git)
		}
		review := w.reviewOf(preview.ID, api.ReviewWaiting)
		if !slices.Contains(review.Submitters.Names(), "github.com/1001") || !slices.Contains(review.Submitters.Names(), who.Name) {
			t.Errorf("its submitters are %v", review.Submitters)
		}
		_, err = w.plane.Approve(w.ctx(), who, made.ID, seen)
		wantErr(t, err, workflow.ErrForbidden)

		approved, err := w.plane.Approve(w.ctx(), w.person("bob"), made.ID, seen)
		w.must(err)
		next := w.show(approved.Review.Applies)
		if d := cmp.Diff(trigger, next.Trigger); d != "" {
			t.Error(d)
		}
		spec = w.startedSpec(next)
		if arn(spec.Role) != netRole || names(spec.Secrets) != "AB" || spec.Source.Git.Ref != oneCommit || spec.Plan == nil || spec.PullRequest {
			t.Errorf("the run that applies gets %s, %s, %+v and %v", arn(spec.Role), names(spec.Secrets), spec.Source.Git, spec.Plan)
		}
		if len(spec.Modules) != 2 || spec.Source.Git.Version != "" {
			t.Errorf("the run that applies gets %+v and %+v", spec.Modules, spec.Source.Git)
		}
		_, err = w.plane.Cancel(w.ctx(), who, next.ID, api.WithReason{})
		wantErr(t, err, workflow.ErrForbidden)
	})
}

// Under not_by_submitter the account that caused a pull request's pipeline does not approve its plan through another one.
func TestPullRequest_ActorCannotApproveElsewhere(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.pipelines()
	w.repository("net", "https://github.com/acme/infra", func(ws *api.Workspace) { ws.Approval = &api.Approval{Required: true, NotBySubmitter: true} })
	made, err := w.plane.Submit(w.ctx(), p.token(pull("17", oneCommit)), "", ofCommit("net", oneCommit))
	w.must(err)
	if preview := w.plans(one); preview.Review.Needed != 2 {
		t.Errorf("it needs %d approvals, want 2: nobody knows who the account is", preview.Review.Needed)
	}
	_, err = w.plane.Approve(w.ctx(), p.token(hub(map[string]any{"sub": "repo:Acme/Infra:ref:refs/heads/main"})), made.ID, seen)
	wantErr(t, err, workflow.ErrForbidden)
	_, err = w.plane.Approve(w.ctx(), p.token(hub(map[string]any{"sub": "repo:Acme/Infra:ref:refs/heads/main", "actor_id": "1002"})), made.ID, seen)
	w.must(err)
}

// frozen is the spec of a run as it was made.
func (w *world) frozen(id string) api.Spec {
	w.t.Helper()
	got, err := w.store.Get(w.ctx(), record.SpecKey(id))
	w.must(err)
	spec, err := record.Decode[api.Spec](got[0])
	w.must(err)
	return spec
}

// A retry of a pull request's run is one too, whoever submits it, also of the run that applies its plan.
func TestPullRequest_ARetryStaysOne(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.pipelines()
	w.repository("net", "https://github.com/acme/infra")
	made, err := w.plane.Submit(w.ctx(), p.token(pull("17", oneCommit)), "", ofCommit("net", oneCommit))
	w.must(err)
	check := func(id string) {
		t.Helper()
		again, err := w.plane.Retry(w.ctx(), w.admin, "", id, api.WithReason{})
		w.must(err)
		if again.Operation != workflow.Preview || again.For != workflow.Update || cmp.Diff(made.Trigger, again.Trigger) != "" {
			t.Errorf("the retry is %s for %s of %+v", again.Operation, again.For, again.Trigger)
		}
		if spec := w.frozen(again.ID); arn(spec.Role) != netPreview || names(spec.Secrets) != "B" || spec.Source.Git.Ref != oneCommit {
			t.Errorf("the retry gets %s, %s and %+v", arn(spec.Role), names(spec.Secrets), spec.Source.Git)
		}
		w.plans(one)
		if r := w.reviewOf(again.ID, api.ReviewWaiting); !slices.Contains(r.Submitters.Names(), "github.com/1001") {
			t.Errorf("the submitters of the retry are %v", r.Submitters)
		}
	}
	w.plans(one)
	check(made.ID)

	approved, err := w.plane.Approve(w.ctx(), w.person("bob"), made.ID, seen)
	w.must(err)
	job, r := w.started()
	w.must(w.result(job, r, workflow.Failed))
	w.is(approved.Review.Applies, workflow.Failed, workflow.ReasonStepFailed)
	check(approved.Review.Applies)

	w.repository("net", "https://github.com/acme/other")
	_, err = w.plane.Retry(w.ctx(), w.admin, "", made.ID, api.WithReason{})
	wantErr(t, err, workflow.ErrForbidden)
}

// A run of a commit is for the workspaces of its repository, and a pipeline's for its own commit.
func TestCommit_MustMatchRepositoryAndPipeline(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.pipelines()
	w.repository("net", "ssh://git@GitHub.com/ACME/infra.git", func(ws *api.Workspace) {
		ws.Source.Git.TokenRef, ws.Source.Git.SSHKeyRef, ws.Source.Git.KnownHosts = "", "file:key", "github.com ssh-ed25519 AAAA"
	})
	w.repository("other", "https://github.com/acme/other")
	w.repository("elsewhere", "https://gitlab.com/acme/infra")
	w.workspace("plain")
	ada, unprotected, protected := w.person("ada"), p.token(pull("17", oneCommit)), p.token(hub(nil))
	nothing := p.token(hub(map[string]any{"event_name": "pull_request", "sha": nil}))
	with := func(in api.Submit, change func(*api.Submit)) api.Submit { change(&in); return in }
	update := func(s *api.Submit) { s.Operation = workflow.Update }
	for name, c := range map[string]struct {
		who  controlplane.Principal
		in   api.Submit
		want error
		kind string // of the trigger
	}{
		"a pull request":                      {unprotected, ofCommit("net", oneCommit), nil, api.TriggerPullRequest},
		"another commit":                      {unprotected, ofCommit("net", anotherCommit), workflow.ErrForbidden, ""},
		"no commit in the token":              {nothing, ofCommit("net", oneCommit), workflow.ErrForbidden, ""},
		"without a commit":                    {unprotected, ofCommit("net", ""), workflow.ErrForbidden, ""},
		"an update":                           {unprotected, with(ofCommit("net", oneCommit), update), workflow.ErrForbidden, ""},
		"a scan":                              {unprotected, api.Submit{Workspace: "net", Type: workflow.InsightsScan, Commit: oneCommit}, workflow.ErrForbidden, ""},
		"registers":                           {unprotected, with(ofCommit("net", oneCommit), func(s *api.Submit) { s.Register = &api.Workspace{Name: "net"} }), workflow.ErrForbidden, ""},
		"takes a state over":                  {unprotected, with(ofCommit("net", oneCommit), func(s *api.Submit) { s.TakeOver = true }), workflow.ErrInvalid, ""},
		"begins anew":                         {unprotected, with(ofCommit("net", oneCommit), func(s *api.Submit) { s.BeginAnew = true }), workflow.ErrInvalid, ""},
		"another repository":                  {unprotected, ofCommit("other", oneCommit), workflow.ErrForbidden, ""},
		"another host":                        {unprotected, ofCommit("elsewhere", oneCommit), workflow.ErrForbidden, ""},
		"no repository":                       {unprotected, ofCommit("plain", oneCommit), workflow.ErrInvalid, ""},
		"no workspace":                        {unprotected, ofCommit("nothing", oneCommit), workflow.ErrNotFound, ""},
		"a short commit":                      {ada, ofCommit("net", oneCommit[:7]), workflow.ErrInvalid, ""},
		"a branch":                            {ada, ofCommit("net", "refs/heads/main"), workflow.ErrInvalid, ""},
		"a commit in capitals":                {ada, ofCommit("net", strings.Repeat("A", 40)), workflow.ErrInvalid, ""},
		"a number alone":                      {ada, api.Submit{Workspace: "net", Operation: workflow.Preview, Number: 1}, workflow.ErrInvalid, ""},
		"a person's":                          {ada, ofCommit("other", oneCommit), nil, api.TriggerPullRequest},
		"a person's update":                   {ada, with(ofCommit("net", oneCommit), update), workflow.ErrInvalid, ""},
		"a person's, no repository":           {ada, ofCommit("plain", oneCommit), workflow.ErrInvalid, ""},
		"a protected preview":                 {protected, ofCommit("net", oneCommit), nil, api.TriggerPush},
		"a protected update":                  {protected, with(ofCommit("net", oneCommit), update), nil, api.TriggerPush},
		"protected, another commit":           {protected, with(ofCommit("net", anotherCommit), update), workflow.ErrForbidden, ""},
		"protected, another repository":       {protected, with(ofCommit("other", oneCommit), update), workflow.ErrForbidden, ""},
		"protected, without a commit":         {protected, with(ofCommit("plain", ""), update), nil, ""},
		"protected, a scan of a commit":       {protected, api.Submit{Workspace: "net", Type: workflow.InsightsScan, Commit: oneCommit}, workflow.ErrInvalid, ""},
		"protected, state_list of one commit": {protected, api.Submit{Workspace: "net", Operation: workflow.StateList, Commit: oneCommit}, workflow.ErrInvalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			refused := w.audits("workflow.submit", "refused")
			out, err := w.plane.Submit(w.ctx(), c.who, "", c.in)
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if now := w.audits("workflow.submit", "refused"); (now > refused) != errors.Is(c.want, workflow.ErrForbidden) {
				t.Errorf("%d refusals are audited, want one more than %d if it is forbidden", now, refused)
			}
			if err != nil {
				return
			}
			kind := ""
			if out.Trigger != nil {
				kind = out.Trigger.Kind
			}
			if kind != c.kind {
				t.Errorf("the trigger is %+v, want %q", out.Trigger, c.kind)
			}
			if spec := w.frozen(out.ID); c.in.Commit != "" && spec.Source.Git.Ref != c.in.Commit {
				t.Errorf("it is of %s, want %s", spec.Source.Git.Ref, c.in.Commit)
			}
		})
	}
}

// preview_role is for what only looks, and role for the rest; a pull request's run has preview_role or none.
// A pull request's file could else put its runs before those of everybody, or hold a slot for a day.
func TestPullRequest_ChoosesNeitherPriorityNorTime(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		p := w.pipelines()
		w.repository("net", "https://github.com/acme/infra.git", func(ws *api.Workspace) { ws.DefaultPriority, ws.MaxRuntime = -5, "10m" })
		high := 100
		for field, change := range map[string]func(*api.Submit){
			"priority":    func(in *api.Submit) { in.Priority = &high },
			"max_runtime": func(in *api.Submit) { in.MaxRuntime = "5m" },
		} {
			in := ofCommit("net", oneCommit)
			change(&in)
			_, err := w.plane.Submit(w.ctx(), p.token(pull("17", oneCommit)), "", in)
			wantErr(t, err, workflow.ErrForbidden)
			if err == nil || !strings.Contains(err.Error(), "a "+field+" of its own") {
				t.Errorf("%s: got %v, want that it is the workspace's", field, err)
			}
			_, err = w.plane.Submit(w.ctx(), p.token(hub(nil)), "", in)
			w.must(err)
		}
		got, err := w.plane.Submit(w.ctx(), p.token(pull("17", oneCommit)), "", ofCommit("net", oneCommit))
		w.must(err)
		if got.Priority != -5 || got.MaxRuntime != "10m0s" && got.MaxRuntime != "10m" {
			t.Errorf("got priority %d and %s, want the workspace's", got.Priority, got.MaxRuntime)
		}
	})
}

func TestPreviewRole_IsForWhatOnlyLooks(t *testing.T) {
	for name, c := range map[string]struct {
		role, preview string
		in            api.Submit
		want, secrets string
	}{
		"a preview":                            {netRole, netPreview, api.Submit{Operation: workflow.Preview}, netPreview, "AB"},
		"a preview without preview_role":       {netRole, "", api.Submit{Operation: workflow.Preview}, netRole, "AB"},
		"a scan":                               {netRole, netPreview, api.Submit{Type: workflow.InsightsScan}, netPreview, "AB"},
		"an update":                            {netRole, netPreview, api.Submit{Operation: workflow.Update}, netRole, "AB"},
		"an update with preview_role only":     {"", netPreview, api.Submit{Operation: workflow.Update}, "", "AB"},
		"state_pull":                           {netRole, netPreview, api.Submit{Operation: workflow.StatePull}, netRole, "AB"},
		"a pull request":                       {netRole, netPreview, ofCommit("", oneCommit), netPreview, "B"},
		"a pull request without preview_role":  {netRole, "", ofCommit("", oneCommit), "", "B"},
		"a pull request without role but with": {"", netPreview, ofCommit("", oneCommit), netPreview, "B"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.repository("net", "https://github.com/acme/infra", func(ws *api.Workspace) { ws.Role, ws.PreviewRole = c.role, c.preview })
			c.in.Workspace = "net"
			made, err := w.plane.Submit(w.ctx(), w.admin, "", c.in)
			w.must(err)
			if spec := w.startedSpec(made); arn(spec.Role) != c.want || names(spec.Secrets) != c.secrets {
				t.Errorf("it gets %q and %s, want %q and %s", arn(spec.Role), names(spec.Secrets), c.want, c.secrets)
			}
		})
	}
}

// preview_role and preview of a secret are an admin's, as role and secrets are.
func TestPreviewRole_IsSetByAnAdmin(t *testing.T) {
	w := newWorld(t, memory.New())
	w.repository("net", "https://github.com/acme/infra", func(ws *api.Workspace) { ws.PreviewRole = "" })
	ws, err := w.plane.Workspace(w.ctx(), w.admin, "net")
	w.must(err)
	for name, change := range map[string]func(*api.Workspace){
		"preview_role": func(ws *api.Workspace) { ws.PreviewRole = netPreview },
		"secrets":      func(ws *api.Workspace) { ws.Secrets[0].Preview = true },
	} {
		in := ws
		in.Version, in.Secrets = 0, slices.Clone(ws.Secrets)
		change(&in)
		if _, _, err := w.plane.PutWorkspace(w.ctx(), w.as(api.RoleOperator), in); !errors.Is(err, workflow.ErrForbidden) {
			t.Errorf("%s, by an operator: %v", name, err)
		}
		if _, outcome, err := w.plane.PutWorkspace(w.ctx(), w.admin, in); err != nil || outcome != api.OutcomeChanged {
			t.Errorf("%s, by an admin: %s, %v", name, outcome, err)
		}
	}
	for name, c := range map[string]struct {
		role, preview string
		want          error
	}{
		"not an ARN":      {"", "preview", workflow.ErrInvalid},
		"another path":    {netRole, "arn:aws:iam::123456789012:role/dayfly/other/net", workflow.ErrInvalid},
		"not of the pool": {"", "arn:aws:iam::123456789012:role/other/net", workflow.ErrForbidden},
		"of the pool":     {"", netPreview, nil},
	} {
		_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{RolePath: new("/dayfly/default/")})
		w.must(err)
		in := ws
		in.Version, in.Role, in.PreviewRole = 0, c.role, c.preview
		if _, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, in); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// A pipeline cancels what its pull request submitted, and nothing else.
func TestPullRequest_CancelsItsOwnRunsOnly(t *testing.T) {
	w := newWorld(t, memory.New())
	p := w.pipelines()
	w.repository("net", "https://github.com/acme/infra")
	w.repository("two", "https://github.com/acme/infra")
	first, later, other := p.token(pull("17", oneCommit)), p.token(pull("17", anotherCommit)), p.token(pull("18", anotherCommit))
	by := func(who controlplane.Principal, in api.Submit) string {
		t.Helper()
		made, err := w.plane.Submit(w.ctx(), who, "", in)
		w.must(err)
		return made.ID
	}
	cancel := func(who controlplane.Principal, id string) error {
		_, err := w.plane.Cancel(w.ctx(), who, id, api.WithReason{})
		return err
	}
	mine, older := by(first, ofCommit("net", oneCommit)), by(first, ofCommit("net", oneCommit))
	for name, id := range map[string]string{
		"a person's":                    by(w.admin, api.Submit{Workspace: "net", Operation: workflow.Update}),
		"a person's of the same commit": by(w.admin, ofCommit("net", oneCommit)),
		"another pull request's":        by(other, ofCommit("net", anotherCommit)),
		"a protected one's":             by(p.token(hub(nil)), ofCommit("two", oneCommit)),
	} {
		if err := cancel(first, id); !errors.Is(err, workflow.ErrForbidden) {
			t.Errorf("%s: got %v, want forbidden", name, err)
		}
		w.is(id, workflow.Pending, "")
	}
	if n := w.audits("workflow.cancel", "refused"); n != 4 {
		t.Errorf("%d refusals are audited, want 4", n)
	}
	w.must(cancel(first, mine))
	w.must(cancel(later, older))
	wantErr(t, cancel(first, "wf_nothing"), workflow.ErrNotFound)
}
