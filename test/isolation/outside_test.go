package isolation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// webhooks: events with another signature, sent again, or without end.
func (w *world) webhooks() {
	f := w.forge()
	number := f.pull("eve", "eve/infra", strings.Repeat("a", 40))
	path := "/v1/webhooks/default/" + f.name
	const event = "pull_request"
	event1 := func() []byte { return f.PullEvent(repository, number, "opened", strings.Repeat("a", 40)) }
	first := event1()
	f.tell(event, first)
	calls, deliveries := f.Calls(), len(w.deliveries(f.name))
	if calls == 0 || deliveries == 0 {
		w.T.Fatalf("a true event leads to %d calls of the host, by %d deliveries", calls, deliveries)
	}
	nothing := func(what string, held bool, status int, why string) {
		w.T.Helper()
		f.settle()
		now, made := f.Calls(), len(w.deliveries(f.name))
		w.tried(what, held && now == calls && made == deliveries, "%d %s; %d more calls of the host, %d more deliveries", status, why, now-calls, made-deliveries)
		calls, deliveries = now, made
	}
	refused := func(what, path, signature string, body []byte, want int) {
		w.T.Helper()
		status, _ := f.send(path, event, signature, body)
		nothing(what, status == want, status, "")
	}
	for what, kind := range map[string]string{"the same event": event, "the same event under the name of another": "issue_comment"} {
		status, taken := f.send(path, kind, githosttest.Sign(f.hook.Secret, first), first)
		nothing("send again "+what, !taken.IsTaken && (kind != event || strings.Contains(taken.Reason, "was taken before")), status, taken.Reason)
	}
	body := event1()
	true1 := githosttest.Sign(f.hook.Secret, body)
	refused("send an event without a signature", path, "", body, http.StatusUnauthorized)
	refused("sign with another secret", path, githosttest.Sign("whsec_another", body), body, http.StatusUnauthorized)
	refused("sign with no secret", path, githosttest.Sign("", body), body, http.StatusUnauthorized)
	refused("sign another body", path, githosttest.Sign(f.hook.Secret, first), body, http.StatusUnauthorized)
	refused("cut the signature", path, true1[:len(true1)-2], body, http.StatusUnauthorized)
	refused("leave the digits out", path, "sha256=", body, http.StatusUnauthorized)
	refused("send it to another git host", "/v1/webhooks/default/another", true1, body, http.StatusUnauthorized)
	refused("send it to another organization", "/v1/webhooks/another/"+f.name, true1, body, http.StatusUnauthorized)

	padded := func(size int) []byte {
		b := event1()
		return append(b, bytes.Repeat([]byte(" "), size-len(b))...)
	}
	over := padded(1<<20 + 1)
	refused("send more than 1 MiB, signed", path, githosttest.Sign(f.hook.Secret, over), over, http.StatusRequestEntityTooLarge)

	old := f.hook.Secret
	f.known(api.GitHost{URL: f.address}) // with a new secret
	refused("sign with the secret before", path, githosttest.Sign(old, body), body, http.StatusUnauthorized)

	// With the true one, the same bodies are taken.
	f.tell(event, body)
	f.tell(event, padded(1<<20))
	if f.Calls() <= calls {
		w.T.Error("true events lead to no call of the host")
	}
}

// receiver is an HTTP server of this machine, and how many connections it got.
func (w *world) receiver(address string, handler http.HandlerFunc) (url string, port string, got *atomic.Int64) {
	w.T.Helper()
	got = &atomic.Int64{}
	l, err := (&net.ListenConfig{}).Listen(w.T.Context(), "tcp", address+":0")
	w.must(err)
	server := &http.Server{Handler: handler, ConnState: func(_ net.Conn, s http.ConnState) { //nolint:gosec // of a test, on the loopback
		if s == http.StateNew {
			got.Add(1)
		}
	}}
	go func() { _ = server.Serve(l) }()
	w.T.Cleanup(func() { _ = server.Close() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	w.must(err)
	return "http://" + l.Addr().String(), port, got
}

// addresses: a notification, or a git host, whose address leads to a private one.
func (w *world) addresses() {
	const setting = "private_deliveries of the agent"
	_, port, got := w.receiver("127.0.0.1", func(http.ResponseWriter, *http.Request) {})
	allowed, listedPort, taken := w.receiver(listed, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(rw, r, "http://127.0.0.1:"+port+"/", http.StatusTemporaryRedirect)
		}
	})
	to := map[string]string{
		"loopback": "https://127.0.0.1:" + port, "mapped": "https://[::ffff:127.0.0.1]:" + port, "name": "https://localhost:" + port,
		"metadata": "https://169.254.169.254/latest/meta-data", "metadata-mapped": "https://[::ffff:169.254.169.254]/",
		"resolved": "https://loopback" + strings.TrimSuffix(zone, ".") + ":" + port, "resolved-mapped": "https://mapped" + strings.TrimSuffix(zone, ".") + ":" + port,
		"resolved-metadata": "https://metadata" + strings.TrimSuffix(zone, ".") + "/", "plain": "http://127.0.0.1:" + port,
		"redirect": allowed + "/redirect", "allowed": allowed + "/", "allowed-name": "https://listed" + strings.TrimSuffix(zone, ".") + ":" + listedPort,
	}
	for name, address := range to {
		w.secret("address-"+name, address)
		w.admin(http.MethodPut, "/v1/notifications/"+name, api.Notification{Name: name, URLRef: "file:address-" + name, Format: api.FormatSlack, Events: []string{api.EventFailed}}, nil)
		if !strings.HasPrefix(name, "allowed") && name != "redirect" {
			w.admin(http.MethodPut, "/v1/notifications/written-"+name, api.Notification{Name: "written-" + name, URL: address, Format: api.FormatSlack, Events: []string{api.EventFailed}}, nil)
		}
	}
	missing := func(in *api.Workspace) { in.Commands = map[string]string{"update": "./no-such-program"} }
	if wf, _ := w.job("fails", "", missing); wf.State != workflow.Failed {
		w.T.Fatalf("it is %s, so nothing is told", wf.State)
	}
	over := func(name string) (d api.Delivery) {
		uptest.Eventually(w.T, "it is tried: "+name, func() bool {
			list := w.deliveries(name)
			if len(list) == 1 {
				d = list[0]
			}
			return len(list) == 1 && d.Detail != ""
		})
		return d
	}
	for name, address := range to {
		for _, n := range []string{name, "written-" + name} {
			switch {
			case strings.HasPrefix(n, "written-allowed") || n == "written-redirect":
				continue
			case n == "allowed":
				if d := over(n); d.State != api.DeliveryDone || taken.Load() == 0 {
					w.T.Errorf("what is listed gets nothing: %+v", d)
				}
			case n == "allowed-name": // it comes to the TLS that nobody speaks there
				if d := over(n); strings.Contains(d.Detail, "private") {
					w.T.Errorf("what is listed is not called by its name: %+v", d)
				}
			case n == "redirect":
				d := over(n)
				w.tried("be redirected to "+to["plain"], strings.Contains(d.Detail, "answered 307: redirects are not followed") && got.Load() == 0, "%s, %d connections", d.Detail, got.Load())
			case n == "plain" || n == "written-plain":
				d := over(n)
				w.tried("call "+address, d.State == api.DeliveryFailed && strings.Contains(d.Detail, setting+" lists") && got.Load() == 0, "%s: %s, %d connections", d.State, d.Detail, got.Load())
			default:
				d := over(n)
				held := d.State == api.DeliveryFailed && strings.Contains(d.Detail, "is private") && strings.Contains(d.Detail, setting) && got.Load() == 0
				w.tried("call "+address, held, "%s: %s, %d connections", d.State, d.Detail, got.Load())
			}
		}
		w.admin(http.MethodDelete, "/v1/notifications/"+name, nil, nil)
	}
	w.privateHosts(to, setting, got)
}

// privateHosts: git hosts at such addresses, whose webhooks are true.
func (w *world) privateHosts(to map[string]string, setting string, got *atomic.Int64) {
	w.T.Helper()
	f := w.forge()
	for _, name := range []string{"loopback", "mapped", "resolved", "resolved-metadata"} {
		f.name = "host-" + name
		f.known(api.GitHost{URL: strings.TrimSuffix(to[name], "/")})
		body := f.PullEvent(repository, 1, "opened", strings.Repeat("a", 40))
		if status, taken := f.send("/v1/webhooks/default/"+f.name, "pull_request", githosttest.Sign(f.hook.Secret, body), body); status != http.StatusOK || !taken.IsTaken {
			w.T.Fatalf("an event of the host: got %d, %+v", status, taken)
		}
		var d api.Delivery
		uptest.Eventually(w.T, "it is tried: "+f.name, func() bool {
			list := w.deliveries(f.name)
			if len(list) == 1 {
				d = list[0]
			}
			return d.Detail != ""
		})
		held := d.State == api.DeliveryFailed && strings.Contains(d.Detail, "is private") && strings.Contains(d.Detail, setting) && got.Load() == 0 && f.Calls() == 0
		w.tried("show git's token to "+to[name], held, "%s: %s, %d connections", d.State, d.Detail, got.Load())
	}
}

// The commits of pipelines, and a role for each kind of run.
const (
	ownCommit   = "1111111111111111111111111111111111111111"
	otherCommit = "2222222222222222222222222222222222222222"
	fullRole    = "arn:aws:iam::123456789012:role/dayfly/default/net"
	previewRole = fullRole + "-preview"
)

// trusting is a control plane of its own, which trusts an issuer whose rule makes every pipeline of an owner an admin.
type trusting struct {
	*world
	issuer *provider.Provider
	url    string
	admin  *client.Client
	pool   *client.Client
}

func (w *world) trusting() *trusting {
	w.T.Helper()
	s, err := embedded.OpenServer(w.T.Context(), embedded.ServerConfig{Data: filepath.Join(filepath.Dir(w.Data), "trusting"), Listen: "127.0.0.1:0", PrivateIssuers: []string{"127.0.0.1"}, DefaultState: api.StateDirectory})
	w.must(err)
	uptest.Running(w.T, "the server", s.Run, s.Close)
	token, err := s.AdminToken()
	w.must(err)
	p := &trusting{world: w, issuer: provider.Start(w.T, "ES256"), url: s.URL(), admin: uptest.Person(w.T, s.URL(), token)}
	ours, err := p.admin.RotatePoolToken(w.T.Context(), "default", api.RotateToken{})
	w.must(err)
	p.pool = uptest.Person(w.T, s.URL(), ours.Token)
	_, _, err = p.admin.PutSetting(w.T.Context(), api.Issuer{
		Name: "hub", URL: p.issuer.URL, Pipelines: &api.Pipelines{Kind: api.PipelinesGitHub, Host: "github.com"},
		Rules: []api.TrustRule{{Claims: map[string]string{"repository_owner_id": "65"}, Becomes: api.KindService, Role: api.RoleAdmin}},
	})
	w.must(err)
	for name, repository := range map[string]string{"net": "acme/infra", "other": "acme/other"} {
		w.must(third(p.admin.PutWorkspace(w.T.Context(), api.Workspace{
			Name: name, RunSettings: api.RunSettings{
				Engine:  api.EngineTerraform,
				Source:  api.Source{Git: &api.GitSource{URL: "https://github.com/" + repository, Ref: "main", TokenRef: "file:git"}},
				Secrets: []api.Secret{{Env: "HIDDEN", Ref: "file:a"}, {Env: "SHOWN", Ref: "file:b", Preview: true}},
			},
			Role: fullRole, PreviewRole: previewRole,
		})))
	}
	return p
}

// exchanged is a client with the token that is given for a pipeline's: one of a push to a protected ref, but for these
// claims.
func (p *trusting) exchanged(change map[string]any) *client.Client {
	p.T.Helper()
	claims := map[string]any{
		"aud": "urn:dayfly:org:default", "sub": "repo:acme/infra", "event_name": "push", "ref": "refs/heads/main", "ref_protected": "true", "sha": ownCommit,
		"repository": "acme/infra", "repository_id": "74", "repository_owner_id": "65", "actor": "ada", "actor_id": "1001",
	}
	maps.Copy(claims, change)
	out, err := p.admin.IssueToken(p.T.Context(), api.TokenRequest{GrantType: api.GrantExchange, Audience: "urn:dayfly:org:default", SubjectToken: p.issuer.Token("ES256", claims), SubjectTokenType: api.TokenTypeID})
	p.must(err)
	return uptest.Person(p.T, p.url, out.AccessToken)
}

// told is what the runner of a run is told.
func (p *trusting) told(id string) api.Spec {
	p.T.Helper()
	ctx := p.T.Context()
	out, err := p.pool.Claim(ctx, api.Claim{Instance: "one", Max: 1})
	p.must(err)
	if len(out.Jobs) != 1 || out.Jobs[0].ID != id {
		p.T.Fatalf("claimed %v, want %s", out, id)
	}
	job, task := out.Jobs[0], "task-"+id
	p.must(p.pool.Launch(ctx, id, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: task}))
	r, err := client.NewRunner(client.RunnerConfig{URL: p.url, Credential: redact.New(job.Token), Run: api.Run{Workflow: id, Attempt: job.Attempt, Task: task, Boot: strings.Repeat("a", 32)}})
	p.must(err)
	p.must(second(r.Start(ctx)))
	spec, err := r.Spec(ctx)
	p.must(err)
	p.must(second(r.Result(ctx, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed})))
	exit := 0
	p.must(p.pool.Lost(ctx, id, api.Lost{Attempt: job.Attempt, Task: task, ExitCode: &exit}))
	return spec
}

// unprotected are pipelines that anybody may have written who may open a pull request, or push to a branch.
var unprotected = map[string]map[string]any{
	"a pull request's pipeline":            {"event_name": "pull_request", "ref": "refs/pull/17/merge", "ref_protected": "false"},
	"one of pull_request_target":           {"event_name": "pull_request_target"},
	"one of a comment":                     {"event_name": "issue_comment"},
	"one that follows another":             {"event_name": "workflow_run"},
	"one of a branch":                      {"ref": "refs/heads/feature", "ref_protected": "false"},
	"one of which nobody says":             {"ref_protected": nil},
	"one of a branch, with an environment": {"ref": "refs/heads/feature", "ref_protected": "false", "environment": "production"},
	"one of a branch named main":           {"ref": "refs/pull/17/main", "ref_protected": "true"},
}

// pipeline: the token of a pipeline without a protected ref, whose rule would make it an admin.
func (w *world) pipeline() {
	p := w.trusting()
	ctx := w.T.Context()
	preview := func(workspace, commit string) api.Submit {
		return api.Submit{Workspace: workspace, Operation: workflow.Preview, Commit: commit}
	}
	const confined = "is not for this pipeline of github.com/acme/infra"
	submit := func(in api.Submit) func(*client.Client) error {
		return func(cl *client.Client) error { return second(cl.Submit(ctx, in)) }
	}
	waiting, err := p.admin.Submit(ctx, api.Submit{Workspace: "other", Operation: workflow.Preview})
	w.must(err)
	ways := []struct {
		what, why string
		do        func(cl *client.Client) error
		works     bool // for a protected pipeline, beyond that it is not refused so
	}{
		{"update", confined, submit(api.Submit{Workspace: "net", Operation: workflow.Update, Commit: ownCommit}), true},
		{"update without a commit", confined, submit(api.Submit{Workspace: "net", Operation: workflow.Update}), true},
		{"destroy", confined, submit(api.Submit{Workspace: "net", Operation: workflow.Destroy}), false},
		{"preview the branch, with its role", confined, submit(api.Submit{Workspace: "net", Operation: workflow.Preview}), true},
		{"preview another commit", "submits runs of that one only", submit(preview("net", otherCommit)), false},
		{"preview another repository", "a run of a commit is for the workspaces of its repository", submit(preview("other", ownCommit)), false},
		{"approve", confined, func(cl *client.Client) error {
			return second(cl.Approve(ctx, waiting.ID, api.Decision{SHA256: strings.Repeat("0", 64)}))
		}, false},
		{"cancel another's run", confined, func(cl *client.Client) error { return second(cl.Cancel(ctx, waiting.ID, "")) }, false},
		{"change a workspace", confined, func(cl *client.Client) error {
			ws, err := p.admin.Workspace(ctx, "net")
			w.must(err)
			ws.Secrets[0].Preview = true
			return third(cl.PutWorkspace(ctx, ws))
		}, true},
		{"delete a workspace", confined, func(cl *client.Client) error { return cl.DeleteWorkspace(ctx, "other") }, true},
		{"make a token", confined, func(cl *client.Client) error {
			return second(cl.CreateToken(ctx, api.NewToken{Name: "more", Role: api.RoleAdmin}))
		}, true},
		{"change who is trusted", confined, func(cl *client.Client) error {
			return third(cl.PutSetting(ctx, api.Issuer{Name: "hub", URL: p.issuer.URL}))
		}, true},
	}
	for what, claims := range unprotected {
		cl := p.exchanged(claims)
		for _, way := range ways {
			err := way.do(cl)
			w.tried(way.what+" with the token of "+what, errors.Is(err, workflow.ErrForbidden) && strings.Contains(err.Error(), way.why), "%v", err)
		}
	}
	w.must(second(p.admin.Cancel(ctx, waiting.ID, "")))
	w.secretsOf(p, preview)
	// A protected pipeline may do what the rule says.
	cl := p.exchanged(nil)
	for _, way := range ways {
		if err := way.do(cl); err != nil && (way.works || strings.Contains(err.Error(), confined)) {
			w.T.Errorf("a protected pipeline cannot %s: %v", way.what, err)
		}
	}
}

// secretsOf looks at what the runs of pipelines are told.
func (w *world) secretsOf(p *trusting, preview func(workspace, commit string) api.Submit) {
	w.T.Helper()
	ctx := w.T.Context()
	has := func(spec api.Spec, name string) bool {
		return slices.ContainsFunc(spec.Secrets, func(s api.Secret) bool { return s.Env == name })
	}
	for what, claims := range unprotected {
		wf, err := p.exchanged(claims).Submit(ctx, preview("net", ownCommit)) // this they may
		w.must(err)
		spec := p.told(wf.ID)
		text, err := json.Marshal(spec)
		w.must(err)
		w.tried("get a secret that is not for previews into the preview of "+what, !has(spec, "HIDDEN") && has(spec, "SHOWN") && !bytes.Contains(text, []byte("file:a")), "%+v", spec.Secrets)
		w.tried("get the full role into the preview of "+what, spec.Role != nil && spec.Role.ARN == previewRole && spec.PullRequest, "%+v", spec.Role)
		w.tried("have another commit run in the preview of "+what, spec.Source.Git.Ref == ownCommit, "%s", spec.Source.Git.Ref)
	}
	wf, err := p.exchanged(nil).Submit(ctx, api.Submit{Workspace: "net", Operation: workflow.Update, Commit: ownCommit})
	w.must(err)
	if spec := p.told(wf.ID); spec.Role == nil || spec.Role.ARN != fullRole || !has(spec, "HIDDEN") {
		w.T.Errorf("the update of a protected pipeline is told %+v and %+v", spec.Role, spec.Secrets)
	}
}
