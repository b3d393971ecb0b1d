package upgrade_test

import (
	"net/http/httptest"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

const (
	commit     = "1111111111111111111111111111111111111111"
	repository = "https://git.example.com/example/infra.git"
	roles      = "arn:aws:iam::123456789012:role/dayfly/wide/"
)

var sum = strings.Repeat("a", 64)

// settings makes one thing of every kind that admins keep, with all that can be set of it.
func (r *recorder) settings() {
	ctx, admin := r.ctx, r.admin()
	ok(admin.UpdateOrganization(ctx, api.OrganizationSettings{
		WorkflowRetention: new(365), LogRetention: new(7), ArtifactRetention: new(7), AuditRetention: new(3650), Limit: new(200),
	}))
	for _, name := range []string{"shop", "payments"} {
		ok(admin.CreateProject(ctx, api.ProjectSettings{Name: &name, Description: new("of " + name)}))
	}
	r.workspace("wide-one")
	made := ok(admin.CreatePool(ctx, api.PoolSettings{
		Name: new("wide"), Description: new("with every setting"), AllowMultipleInstances: new(true), AssignedToAll: new(false),
		AssignedWorkspaces: &[]string{"wide-one"}, AssignedProjects: &[]string{"shop", "payments"}, AssignedStacks: &[]string{"prod"},
		AssignedNamespaces: &[]string{"team"}, Labels: &[]string{"arm", "gpu"}, Concurrency: new(100), RolePath: new("/dayfly/wide/"),
		EnabledTypes: &[]workflow.Type{workflow.Deployment, workflow.InsightsScan}, WakeTarget: new("dayfly-wake-wide"),
	}))
	r.scene.Tokens["wide"] = made.Token
	ok(admin.UpdateProject(ctx, "payments", api.ProjectSettings{Pool: new("wide"), Approval: &api.Approval{
		Required: true, NotBySubmitter: true, Expires: "48h", AfterMerge: true, Rules: []string{"changes > 0", "destroys"},
	}}))
	for _, name := range []string{"anna", "bob", "carol"} {
		ok(admin.CreatePrincipal(ctx, api.NewPrincipal{Name: name}))
		got := ok(admin.CreateToken(ctx, api.NewToken{Name: name, Principal: name, Role: api.RoleViewer, Grants: map[string]string{"global": api.RoleOperator}}))
		r.scene.Tokens[name] = got.Value
	}
	r.everyWorkspace()
	r.triggers()
}

func (r *recorder) put(in api.Setting) {
	_, _, err := r.admin().PutSetting(r.ctx, in)
	must(err)
}

// everyWorkspace makes workspaces that have every setting between them.
func (r *recorder) everyWorkspace() {
	r.workspace("every", func(w *api.Workspace) {
		w.Project, w.Stack, w.Namespace, w.Description, w.Labels = "shop", "prod", "team", "with every setting", []string{"gpu"}
		w.RunSettings = api.RunSettings{
			Engine: api.EngineTerraform, EngineVersion: "~> 1.10", VarFiles: []string{"prod.tfvars"}, Image: "large", Spot: "reads", DiskGiB: 50,
			Source:      api.Source{Git: &api.GitSource{URL: repository, Ref: "main", Path: "every", TokenRef: "file:git", Username: "git", Submodules: true}},
			Variables:   map[string]any{"region": "eu-central-1", "zones": []any{"a", "b"}},
			Environment: map[string]string{"TF_LOG": "info"},
			Secrets:     []api.Secret{{Env: "TOKEN", Ref: "vault:secret/data/app#token", Steps: []string{"apply"}}, {File: "key.pem", Ref: "env:KEY", Preview: true}},
			Flags:       map[string][]string{"plan": {"-parallelism=20"}},
			Files:       []api.File{{Path: "backend.tf", Content: "# none"}},
			Hooks:       []api.Hook{{Name: "lint", Before: "plan", Run: "true"}, {After: "apply", Run: "true"}},
			Modules: []api.ModuleCredential{
				{Host: "modules.example.com", TokenRef: "file:modules", Username: "ci", Preview: true},
				{Host: "git.example.com", SSHKeyRef: "file:ssh", KnownHosts: "git.example.com ssh-ed25519 AAAA"},
			},
		}
		w.State = &api.State{
			Kind: api.StateS3, Bucket: "states", Region: "eu-central-1", Endpoint: "https://s3.example.com", Workspace: "blue",
			KMSKeyARN: "arn:aws:kms:eu-central-1:123456789012:key/0e9f1c1a-0000-4000-8000-000000000000",
		}
		w.Role, w.PreviewRole, w.Size, w.MaxRuntime, w.MaxActive, w.DefaultPriority = roles+"every", roles+"every-preview", "2048/8192", "2h", 3, 5
		w.Approval = &api.Approval{Required: true, NotBySubmitter: true, Expires: "24h", Rules: []string{"replaces"}}
		w.PullRequests = &api.PullRequests{Paths: []string{"modules/**", "!modules/old/**"}, IsDisabled: true, OnMerge: workflow.Preview}
		w.Inputs = []api.WorkspaceInput{{Workspace: "wide-one", Output: "id", Variable: "wide", Sensitive: true, Preview: true}}
		w.After = []string{"tight"}
	})
	r.workspace("pinned", func(w *api.Workspace) {
		w.Engine, w.Commands, w.Pool, w.Project, w.Runner = api.EngineTofu, nil, "wide", "shop", "one"
		w.MaxActive = 1
		w.Source = api.Source{Archive: &api.ArchiveSource{URL: "https://files.example.com/code.tar.gz", SHA256: sum, Path: "net", TokenRef: "file:archive"}}
		w.State = &api.State{Kind: api.StateSource, BackendConfig: map[string]any{"key": "net"}}
	})
	r.workspace("stack", func(w *api.Workspace) {
		w.Engine, w.Commands, w.State = api.EnginePulumi, nil, &api.State{Kind: api.StateDirectory, Workspace: "dev", SecretsProvider: "passphrase"}
		w.Source = api.Source{Git: &api.GitSource{URL: "git@git.example.com:example/infra.git", Version: "~> 1.4", SSHKeyRef: "file:ssh", KnownHosts: "git.example.com ssh-ed25519 AAAA"}}
	})
	r.workspace("nested", func(w *api.Workspace) {
		w.Engine, w.Commands, w.Source = api.EngineTerragrunt, nil, api.Source{Archive: &api.ArchiveSource{URL: "s3://code/units.zip", SHA256: sum, Region: "eu-west-1"}}
	})
}

// triggers makes the settings of all that acts by itself.
func (r *recorder) triggers() {
	members := []api.Member{{ID: 7, Principal: "anna", Role: api.RoleViewer, Grants: map[string]string{"payments": api.RoleOperator}}}
	for _, host := range []string{api.HostGitHub, api.HostGitLab} {
		r.put(api.GitHost{Name: host, Description: "of " + host, Kind: host, URL: "https://git.example.com", TokenRef: "file:git", Pool: "wide", Members: members})
		got := ok(r.admin().RotateWebhookSecret(r.ctx, host))
		r.scene.Tokens[host] = got.Secret
	}
	r.put(api.Notification{
		Name: "on-call", Description: "signed", URL: "https://hooks.example.com/dayfly", Format: api.FormatDayfly, SecretRef: "file:signing",
		Events: []string{api.EventFailed, api.EventApproval}, Projects: []string{"shop"}, Pool: "wide",
	})
	r.put(api.Notification{Name: "chat", URLRef: "file:chat", Format: api.FormatSlack, Events: []string{api.EventDrift, api.EventStuck}})
	r.put(api.Schedule{
		Name: "weekly", Description: "looks for drift", Cron: "0 3 * * 1", TimeZone: "Europe/Berlin", Spread: "5m", Workspaces: []string{"every"},
		Projects: []string{"payments"}, Type: workflow.InsightsScan, IsPaused: true,
	})
	r.put(api.PolicyGroup{
		Name: "rules", Description: "of the network", Source: api.Source{Git: &api.GitSource{URL: repository, Path: "rules"}},
		Enforcement: api.PolicyWaivable, Workspaces: []string{"wide-one"}, Projects: []string{"shop"},
	})
	r.put(api.PolicyGroup{Name: "off", Source: api.Source{Directory: "/srv/rules"}, Enforcement: api.PolicyAdvisory, Projects: []string{"global"}, IsDisabled: true})
	r.put(api.Waiver{
		Name: "legacy", Group: "rules", Rule: "main.deny", Workspace: "wide-one", Address: "null_resource.a", Reason: "is moved in May",
		Until: r.clock.last().Add(300 * 24 * time.Hour),
	})
}

// callers makes an issuer and a service principal, with a token of each kind that ends by itself, and a session.
func (r *recorder) callers() {
	ctx, admin := r.ctx, r.admin()
	p := provider.New("ES256")
	p.Now = r.clock.last
	server := httptest.NewServer(p)
	defer server.Close()
	p.URL = server.URL
	const ours = "urn:dayfly:org:default"
	r.put(api.Issuer{
		Name: "hub", URL: p.URL, Audiences: []string{ours}, Shared: true, OwnerClaim: "repository_owner_id", Algorithms: []string{"ES256"},
		Login:     &api.IssuerLogin{ClientID: "dayfly-cli", Scopes: []string{"openid"}},
		Pipelines: &api.Pipelines{Kind: api.PipelinesGitHub, Host: "git.example.com"},
		Rules: []api.TrustRule{
			{Description: "pools", Claims: map[string]string{"repository_owner_id": "66"}, Becomes: api.KindPool, Pool: "wide"},
			{
				Description: "pipelines", Claims: map[string]string{"repository_owner_id": "65"}, Becomes: api.KindService, NameClaim: "repository",
				Role: api.RoleOperator, Grants: map[string]string{"shop": api.RoleAdmin}, MaxLifetimeSeconds: 43200,
				GroupsClaim: "groups", Groups: map[string]api.GroupRole{"leads": {Role: api.RoleViewer, Grants: map[string]string{"shop": api.RoleAdmin}}},
			},
		},
	})
	ok(admin.CreateService(ctx, api.NewServicePrincipal{Name: "nightly", ServicePrincipalSettings: api.ServicePrincipalSettings{
		Role: new(api.RoleViewer), Grants: &map[string]string{"shop": api.RoleOperator}, MaxLifetimeSeconds: new(43200),
	}}))
	made := ok(admin.RotateSecret(ctx, "nightly", api.RotateSecret{OverlapSeconds: 604800}))
	r.scene.Tokens["nightly-id"], r.scene.Tokens["nightly-secret"] = made.ServicePrincipal.ClientID, made.Secret
	owners := map[string]string{"pipeline": "65", "wide-short": "66"}
	for _, name := range names(owners) {
		got := ok(admin.IssueToken(ctx, api.TokenRequest{
			GrantType: api.GrantExchange, Audience: ours, SubjectTokenType: api.TokenTypeID, Expiration: 43200, SubjectToken: p.Token("ES256", map[string]any{
				"aud": ours, "sub": "repo:Example/Infra", "event_name": "push", "ref": "refs/heads/main", "ref_protected": "true", "sha": commit,
				"repository": "Example/Infra", "repository_owner_id": owners[name], "actor_id": "1001",
			}),
		}))
		r.scene.Tokens[name] = got.AccessToken
	}
	r.logIn("service")
	session := ok(r.plane.SignIn(ctx, r.scene.Tokens["admin"]))
	r.scene.Tokens["session"] = session
}

// logIn gets a token for the secret of the service principal.
func (r *recorder) logIn(as string) {
	got := ok(r.admin().IssueToken(r.ctx, api.TokenRequest{
		GrantType: api.GrantClientCredentials, Expiration: 43200, ClientID: r.scene.Tokens["nightly-id"], ClientSecret: r.scene.Tokens["nightly-secret"],
	}))
	r.scene.Tokens[as] = got.AccessToken
}

// lookAtSettings reads all that admins keep.
func (r *recorder) lookAtSettings() {
	ctx, admin := r.ctx, r.admin()
	for _, k := range kind.Settings() {
		got := ok(admin.Settings(ctx, k, "", 100))
		for _, one := range got.Items {
			name, _ := one.Key()
			ok(admin.Setting(ctx, k, name))
		}
	}
	ok(admin.Organization(ctx))
	ok(admin.Projects(ctx, "", 100))
	ok(admin.Project(ctx, "payments"))
	ok(admin.Pool(ctx, "wide"))
	ok(admin.ExplainPools(ctx, api.ExplainPools{Workspace: "every"}))
	ok(admin.Principals(ctx, "", 100))
	ok(admin.Services(ctx, "", 100))
	ok(admin.Service(ctx, "nightly"))
	ok(admin.LoginOptions(ctx, "default"))
	for _, who := range []string{"anna", "pipeline", "wide-short", "service", "wide"} {
		ok(r.client(who).Whoami(ctx))
	}
	for _, name := range []string{"every", "pinned", "stack", "nested", "wide-one", "pulled"} {
		ok(admin.Workspace(ctx, name))
		ok(admin.WorkspaceActivity(ctx, name))
	}
	ok(admin.Graph(ctx))
}
