package isolation_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// kept are the artifacts of a run.
func (w *world) kept(id string) []api.Artifact {
	page, err := w.Client.Artifacts(w.T.Context(), id, "", 200)
	if err != nil {
		w.T.Fatal(err)
	}
	return page.Items
}

// file is where the agent keeps an artifact.
func (w *world) file(a api.Artifact) string {
	return filepath.Join(w.Data, embedded.ArtifactsDir, filepath.FromSlash(a.Place.Key))
}

func (w *world) read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.T.Fatal(err)
	}
	return string(b)
}

func (w *world) must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) artifacts() {
	left, _ := w.job("artifacts-other", "report")
	other := w.kept(left.ID)
	if len(other) != 1 || w.read(w.file(other[0])) != secret {
		w.T.Fatalf("the other job left %+v", other)
	}
	precious := filepath.Join(w.precious.dir, "precious")
	wf, log := w.jobSucceeds("artifacts", strings.Join([]string{
		"artifacts", precious, filepath.Join(w.Data, embedded.ArtifactsDir), w.file(other[0]), w.victim, left.ID,
	}, " ")+w.ports(""))
	found := w.kept(wf.ID)
	names, foreign, wrong, plans := map[string]bool{}, 0, 0, 0
	for _, a := range found {
		names[a.Name] = true
		if text := w.read(w.file(a)); text != "of the attack" {
			foreign++
		}
		if api.CheckArtifactName(a.Name) != nil || !strings.HasPrefix(a.Name, api.FilesDir) || a.Kind != api.ArtifactFile {
			wrong++
		}
		if a.Name == "plan/bundle.tar" {
			plans++
		}
	}
	if !names["files/plan/bundle.tar"] || !strings.Contains(log, "left out of the artifacts: ") {
		w.T.Errorf("got %v:\n%s", names, log)
	}
	w.tried("leave a file below plan/", plans == 0, "it is files/plan/bundle.tar")
	w.tried("leave an artifact of another kind or name", wrong == 0, "%d of %d", wrong, len(found))
	w.tried("leave what others wrote", foreign == 0, "%d of %d", foreign, len(found))
	w.tried("leave more than may be", len(found) <= api.MaxArtifacts, "%d are kept", len(found))
	w.tried("replace another job's", w.read(w.file(other[0])) == secret && len(w.kept(left.ID)) == 1, "it is as before")
}

// preview makes a workspace of which each plan must be approved, and a plan of what its source says. Its engine is the
// attack, in a mode that is a secret and so may change from run to run.
func (w *world) preview(name, address, mode string) api.Workflow {
	w.T.Helper()
	id := w.held(name, address, mode)
	uptest.Eventually(w.T, "the preview is over", func() bool { return w.Workflow(id).State.Terminal() })
	return w.Workflow(id)
}

func (w *world) held(name, address, mode string) (id string) {
	w.T.Helper()
	source := filepath.Join(filepath.Dir(w.Data), "plans", name)
	files, state := map[string]string{"address": address}, &api.State{Kind: api.StateDirectory}
	switch w.engine {
	case api.EnginePulumi:
		files["Pulumi.yaml"], state.Workspace = "{name: demo, runtime: yaml}", "dev"
	case api.EngineTerragrunt:
		files, state = map[string]string{"unit/address": address, "unit/terragrunt.hcl": ""}, nil
	}
	w.must(os.WriteFile(filepath.Join(w.Data, embedded.SecretsDir, "mode"), []byte("mode:"+mode), 0o600))
	for file, text := range files {
		at := filepath.Join(source, file)
		w.must(errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)))
	}
	_, _, err := w.Client.PutWorkspace(w.T.Context(), api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: cmp.Or(w.engine, api.EngineTerraform), Source: api.Source{Directory: source},
			Secrets: []api.Secret{{Env: "MODE", Ref: "file:mode"}},
		},
		State:    state,
		Approval: &api.Approval{Required: true},
	})
	w.must(err)
	return w.Update(name)
}

// shown is the plan of a preview, as whoever approves it sees it.
func (w *world) shown(preview api.Workflow) (plan api.Plan, address string) {
	w.T.Helper()
	plan, err := w.Client.WorkflowPlan(w.T.Context(), preview.ID)
	w.must(err)
	if plan.Made == nil || len(plan.Changes.Resources) != 1 {
		w.T.Fatalf("%s left no plan: %s (%s: %s), %+v", preview.ID, preview.State, preview.Reason, preview.Detail, plan)
	}
	return plan, plan.Changes.Resources[0].Address
}

// approve approves the plan of a preview and returns the run that applies it.
func (w *world) approve(preview api.Workflow) (id string) {
	w.T.Helper()
	plan, _ := w.shown(preview)
	wf, err := w.Client.Approve(w.T.Context(), preview.ID, api.Decision{SHA256: plan.Made.SHA256})
	w.must(err)
	return wf.Review.Applies
}

func (w *world) applied(preview api.Workflow) api.Workflow {
	w.T.Helper()
	id := w.approve(preview)
	return w.Over(id)
}

func (w *world) stateFile(workspace string) string {
	return filepath.Join(w.stateDir(workspace), "terraform.tfstate")
}

// principals: carol has two tokens, and dave has left.
func (w *world) principals() {
	ctx := w.T.Context()
	token := func(cl *client.Client, in api.NewToken) (api.TokenValue, error) {
		in.Role = api.RoleOperator
		return cl.CreateToken(ctx, in)
	}
	first, err := token(w.Client, api.NewToken{Name: "caroline"})
	w.must(err)
	second, err := token(w.Client, api.NewToken{Name: "dora", Principal: "caroline"})
	w.must(err)
	dave, err := token(w.Client, api.NewToken{Name: "dave"})
	w.must(err)
	w.must(w.Client.RevokeToken(ctx, dave.Token.ID))
	carol, phone := uptest.Person(w.T, w.URL, first.Value), uptest.Person(w.T, w.URL, second.Value)
	_, err = w.Client.UpdateOrganization(ctx, api.OrganizationSettings{Approval: &api.Approval{Required: true, NotBySubmitter: true}})
	w.must(err)
	defer func() {
		_, err := w.Client.UpdateOrganization(ctx, api.OrganizationSettings{Approval: &api.Approval{}})
		w.must(err)
	}()
	w.preview("principals", "thing.planned", "none")
	wf, err := carol.Submit(ctx, api.Submit{Workspace: "principals", Operation: workflow.Update})
	w.must(err)
	uptest.Eventually(w.T, "the preview is over", func() bool { return w.Workflow(wf.ID).State.Terminal() })
	plan, _ := w.shown(w.Workflow(wf.ID))
	this := api.Decision{SHA256: plan.Made.SHA256}
	for what, as := range map[string]*client.Client{"by the token": carol, "by another token": phone, "by the token of who has left": uptest.Person(w.T, w.URL, dave.Value)} {
		_, err = as.Approve(ctx, wf.ID, this)
		w.tried("approve "+what, errors.Is(err, workflow.ErrForbidden) || errors.Is(err, workflow.ErrRevoked), "%v", err)
	}
	_, err = token(phone, api.NewToken{Name: "mallory"})
	w.tried("make another principal", errors.Is(err, workflow.ErrForbidden), "%v", err)
	_, err = token(w.Client, api.NewToken{Name: "dave"})
	w.tried("have an admin make a token of the name of who has left", errors.Is(err, workflow.ErrExists), "%v", err)
	_, err = w.Client.CreatePrincipal(ctx, api.NewPrincipal{Name: "dave"})
	w.tried("have an admin make a principal of that name", errors.Is(err, workflow.ErrExists), "%v", err)
	r := w.Workflow(wf.ID).Review
	w.tried("count as two", r.Status == api.ReviewWaiting && len(r.Votes) == 0, "%s, %d votes", r.Status, len(r.Votes))
	_, err = w.operator.Approve(ctx, wf.ID, this)
	w.must(err) // another principal may
}

// planswap: whatever the code does, the plan that is applied is the one that was shown, or none is.
func (w *world) planswap() {
	w.swapped(map[string]string{
		"init": "from before it is made", "later": "right after it is made and shown", "show": "while it is shown", "check": "while the run that applies it looks at it",
		"placed": "where it is placed to be applied",
	}, func(name string, _ string) string { return w.read(w.stateFile(name)) })
}

// oneEngine is why a way is not tried in containers.
const oneEngine = "the image has one engine, and no shell"

// stackplan is planswap with Pulumi.
func (w *world) stackplan() {
	w.engine = api.EnginePulumi
	w.swapped(map[string]string{
		"init": "from before it is made", "later": "right after it is made", "placed": "where it is placed to be applied", "wide": "by the program, for one that allows more",
	}, func(name string, _ string) string {
		_, things, _ := strings.Cut(w.read(filepath.Join(w.stateDir(name), ".pulumi/stacks/demo/dev.json")), `"urn":`)
		return things // a stack that was made and is empty has none
	})
}

// treeplan is planswap with Terragrunt. What a unit does to the plan of a later one, as the same user, is not tried.
func (w *world) treeplan() {
	w.engine = api.EngineTerragrunt
	w.swapped(map[string]string{
		"init": "from before it is made", "later": "right after it is made and shown", "show": "while it is shown", "check": "while the run that applies it looks at it",
	}, func(_ string, log string) string {
		_, applied, _ := strings.Cut(log, "applied {")
		return applied
	})
}

// swapped tries these ways to swap a plan. made is what an apply has left, of a workspace and its log.
func (w *world) swapped(ways map[string]string, made func(name, log string) string) {
	for mode, what := range ways {
		name := w.name + "-" + mode
		wf := w.preview(name, "thing.planned", mode)
		log, shown := w.Log(wf.ID, 0), "nothing"
		if wf.State == workflow.Succeeded {
			_, shown = w.shown(wf)
			wf = w.applied(wf)
			log += w.Log(wf.ID, 0)
		}
		// What show says is not in the log.
		if (mode == "init" || mode == "later") && !strings.Contains(log, "a process that swaps plans is left") {
			w.T.Errorf("no process was left:\n%s", log)
		}
		state := made(name, log)
		held := wf.State == workflow.Failed && state == "" || wf.State == workflow.Succeeded && strings.Contains(state, `"`+strings.TrimPrefix(shown, "unit/")+`"`)
		switch mode {
		case "show", "check":
			held = held && strings.Contains(wf.Detail, "was changed while the engine showed it")
		case "wide":
			held = held && strings.Contains(wf.Detail, "that the preview does not show")
		}
		w.tried("swap it "+what, held, "%s was shown, and then: %s %s", shown, wf.State, cmp.Or(wf.Detail, state))
	}
}

// forged is a bundle with another manifest.
func (w *world) forged(bundle string, change func(manifest map[string]any)) []byte {
	var out bytes.Buffer
	in, to := tar.NewReader(strings.NewReader(bundle)), tar.NewWriter(&out)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		w.must(err)
		data, err := io.ReadAll(in)
		w.must(err)
		if h.Name == "manifest.json" {
			m := map[string]any{}
			w.must(json.Unmarshal(data, &m))
			change(m)
			data, err = json.Marshal(m)
			w.must(err)
		}
		h = &tar.Header{Typeflag: tar.TypeReg, Name: h.Name, Size: int64(len(data)), Mode: 0o600, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		w.must(errors.Join(to.WriteHeader(h), second(to.Write(data))))
	}
	w.must(to.Close())
	return out.Bytes()
}

func second(_ any, err error) error { return err }

// refused applies the plan of a preview, which must not touch the state.
func (w *world) refused(what string, preview api.Workflow, reason workflow.Reason) {
	w.T.Helper()
	path := w.stateFile(preview.Workspace)
	was := w.read(path)
	wf := w.applied(preview)
	w.tried(what, wf.State == workflow.Failed && wf.Reason == reason && w.read(path) == was, "%s: %s", cmp.Or(string(wf.Reason), string(wf.State)), wf.Detail)
}

func (w *world) bundle() {
	const name, one = "bundle", "thing.one"
	ctx := w.T.Context()
	if wf := w.applied(w.preview(name, one, "none")); wf.State != workflow.Succeeded {
		w.T.Fatalf("got %s (%s)", wf.State, wf.Detail)
	}
	a, b := w.preview(name, one, "none"), w.preview(name, "thing.other", "none")
	planB, _ := w.shown(b)
	for what, sum := range map[string]string{"the digest of another": planB.Made.SHA256, "a digest that is made up": strings.Repeat("0", 64), "no digest": ""} {
		_, err := w.Client.Approve(ctx, a.ID, api.Decision{SHA256: sum})
		w.tried("approve a plan with "+what, err != nil && w.Workflow(a.ID).Review.Status == api.ReviewWaiting, "%v", err)
	}
	file := func(wf api.Workflow) string { return w.file(w.kept(wf.ID)[0]) }
	bundle, other := w.read(file(a)), w.read(file(b))
	put := func(what string, data []byte) {
		a = w.preview(name, one, "none")
		w.must(os.WriteFile(file(a), data, 0o600))
		w.refused("put "+what+" in the place of the approved one", a, workflow.ReasonArtifactFailed)
	}
	put("the plan of another preview", []byte(other))
	put("nothing", nil)
	for what, change := range forgeries {
		put("a bundle of "+what, w.forged(bundle, change))
		w.refused("with a stolen ticket, report a bundle of "+what, w.reported(name, one, a, w.forged(bundle, change)), workflow.ReasonPlanStale)
	}
	state := w.stateFile(name)
	was := w.read(state)
	for what, now := range map[string]string{
		"no state": "", "the state of another lineage": strings.Replace(was, `"one"`, `"another"`, 1), "a state that went on": strings.Replace(was, `"serial":1`, `"serial":2`, 1),
	} {
		a = w.preview(name, one, "none")
		w.must(os.WriteFile(state, []byte(now), 0o600))
		if now == "" {
			w.must(os.RemoveAll(filepath.Dir(state)))
		}
		w.refused("apply a plan to "+what, a, workflow.ReasonPlanStale)
		w.must(errors.Join(os.MkdirAll(filepath.Dir(state), 0o700), os.WriteFile(state, []byte(was), 0o600)))
	}
	a = w.preview(name, one, "none")
	w.must(os.WriteFile(filepath.Join(filepath.Dir(w.Data), "plans", name, "address"), []byte("thing.other"), 0o644))
	w.refused("apply a plan of another source", a, workflow.ReasonPlanStale)

	// What was reported is applied, if nothing is forged: the refusals above are of the forgeries.
	a = w.preview(name, one, "none")
	reported := w.reported(name, one, a, []byte(w.read(file(a))))
	if wf := w.applied(reported); wf.State != workflow.Succeeded || !strings.Contains(w.read(state), `"serial":2`) {
		w.T.Errorf("the true bundle: %s (%s: %s)", wf.State, wf.Reason, wf.Detail)
	}
	plan, _ := w.shown(a)
	_, err := w.operator.Approve(ctx, a.ID, api.Decision{SHA256: plan.Made.SHA256})
	w.tried("approve a plan after another one", errors.Is(err, workflow.ErrConflict) && strings.Contains(err.Error(), "plan_stale"), "%v", err)
	plan, _ = w.shown(reported)
	_, err = w.operator.Approve(ctx, reported.ID, api.Decision{SHA256: plan.Made.SHA256})
	w.tried("approve a plan again", errors.Is(err, workflow.ErrConflict) && !strings.Contains(err.Error(), "plan_stale"), "%v", err)
	a = w.preview(name, one, "none")
	ws, err := w.Client.Workspace(ctx, name)
	w.must(err)
	ws.Environment = map[string]string{"OTHER": "setting"}
	w.must(third(w.Client.PutWorkspace(ctx, ws)))
	plan, _ = w.shown(a)
	_, err = w.Client.Approve(ctx, a.ID, api.Decision{SHA256: plan.Made.SHA256})
	w.tried("approve a plan of other settings", errors.Is(err, workflow.ErrConflict) && strings.Contains(err.Error(), "plan_stale"), "%v", err)
}

func third(_, _ any, err error) error { return err }

// forgeries are what a manifest may lie about.
var forgeries = map[string]func(m map[string]any){
	"another workspace": func(m map[string]any) { m["workspace_id"] = "ws_another" },
	"another operation": func(m map[string]any) { m["for"] = "destroy" },
	"another source":    func(m map[string]any) { m["source"] = strings.Repeat("0", 64) },
	"another serial":    func(m map[string]any) { m["state"].(map[string]any)["serial"] = 7 },
	"another lineage":   func(m map[string]any) { m["state"].(map[string]any)["lineage"] = "two" },
	"another plan":      func(m map[string]any) { m["entries"].(map[string]any)["plan"] = strings.Repeat("0", 64) },
}

// thief speaks for a run that goes on, with its ticket and all that only its runner knows. change makes another ticket.
func (w *world) thief(id string, change func(*ticket.Claims)) *client.Runner {
	w.T.Helper()
	env := map[string]string{}
	uptest.Eventually(w.T, "its runner is there", func() bool {
		all, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range all {
			if text, _ := os.ReadFile(path); bytes.Contains(text, []byte("DAYFLY_JOB="+id+"\x00")) {
				for v := range strings.SplitSeq(string(text), "\x00") {
					key, value, _ := strings.Cut(v, "=")
					env[key] = value
				}
				return true
			}
		}
		return false
	})
	if strings.HasPrefix(env["DAYFLY_RELAY"], "unix:") {
		env["DAYFLY_RELAY"] = "unix://" + filepath.Join(w.Data, embedded.RelayDir, id+"-1", "relay.sock")
	}
	keys, err := ticket.EnsureFile(filepath.Join(w.Data, embedded.TicketKeysFile))
	w.must(err)
	claims, err := keys.Open(env["DAYFLY_TICKET"], time.Now())
	w.must(err)
	var holder record.Holder
	uptest.Eventually(w.T, "it has begun", func() bool { holder = w.holder(id); return holder.Boot != "" })
	if change != nil {
		change(&claims)
	}
	sealed, err := keys.Seal(claims)
	w.must(err)
	r, err := client.NewRunner(client.RunnerConfig{
		URL: env["DAYFLY_RELAY"], Credential: redact.New(sealed), Run: api.Run{Workflow: claims.Job, Attempt: 1, Task: holder.Task, Boot: holder.Boot},
	})
	w.must(err)
	return r
}

// holder is who the control plane knows as the runner of a run.
func (w *world) holder(id string) record.Holder {
	db, err := sqlite.Open(w.T.Context(), filepath.Join(w.Data, embedded.DatabaseFile), sqlite.Config{})
	w.must(err)
	defer func() { w.must(db.Close()) }()
	found, err := db.Get(w.T.Context(), record.WorkflowKey(id))
	w.must(err)
	var run record.Workflow
	w.must(json.Unmarshal(found[0].Value, &run))
	return run.Holder
}

// reported is a preview that a thief has reported, with a bundle of its own.
func (w *world) reported(name, address string, like api.Workflow, bundle []byte) api.Workflow {
	w.T.Helper()
	ctx := w.T.Context()
	id := w.held(name, address, "hold-plan")
	r := w.thief(id, nil)
	plan, _ := w.shown(like)
	made := *plan.Made
	made.Size, made.SHA256 = int64(len(bundle)), sum(bundle)
	plain := api.NewArtifact{Name: made.Artifact, Kind: api.ArtifactPlan, Size: made.Size, SHA256: made.SHA256}
	taken, err := r.Artifacts(ctx, api.NewArtifacts{Artifacts: []api.NewArtifact{plain}})
	w.must(err)
	w.must(r.Upload(ctx, taken.Uploads[0], plain.Name, plain.Size, bytes.NewReader(bundle)))
	w.must(second(r.Artifacts(ctx, api.NewArtifacts{Placed: []string{plain.Name}})))
	w.must(second(r.Result(ctx, api.Result{Outcome: workflow.Succeeded, Changes: &plan.Changes, Plan: &made})))
	return w.Workflow(id)
}

// input speaks for the run that applies a plan, and for the victim. The first may get its plan, and nothing else.
func (w *world) input() {
	ctx := w.T.Context()
	preview := w.preview("input", "thing.input", "hold-apply")
	id := w.approve(preview)
	uptest.Eventually(w.T, "the plan is being applied", func() bool { return strings.Contains(w.Log(id, 0), "applied ") || w.Workflow(id).State.Terminal() })
	defer func() {
		w.must(second(w.Client.Cancel(ctx, id, "")))
		w.Over(id)
	}()
	own, err := w.Client.Workspace(ctx, "input")
	w.must(err)
	other, err := w.Client.Workspace(ctx, "victim")
	w.must(err)
	fetch := func(r *client.Runner) (string, error) {
		var out bytes.Buffer
		in, err := r.Input(ctx)
		if err == nil && in.Download != nil {
			err = r.Download(ctx, *in.Download, &out, 1<<20)
		}
		return out.String(), err
	}
	if got, err := fetch(w.thief(id, nil)); err != nil || !strings.Contains(got, "thing.input") {
		w.T.Fatalf("its own plan: %v: %q", err, got)
	}
	const text = "another plan"
	plan := api.NewArtifact{Name: "plan/bundle.tar", Kind: api.ArtifactPlan, Size: int64(len(text)), SHA256: sum([]byte(text))}
	file := plan
	file.Name, file.Kind = "files/left", api.ArtifactFile
	try := func(what, id string, change func(*ticket.Claims)) {
		r := w.thief(id, change)
		got, err := fetch(r)
		w.tried("get the plan with "+what, err != nil && got == "", "%v", err)
		for _, a := range []api.NewArtifact{plan, file} {
			_, err = r.Artifacts(ctx, api.NewArtifacts{Artifacts: []api.NewArtifact{a}})
			w.tried("leave "+a.Name+" with "+what, err != nil, "%v", err)
		}
	}
	try("the run's ticket for another workspace", id, func(c *ticket.Claims) { c.WorkspaceID = other.ID })
	try("the run's ticket for another organization", id, func(c *ticket.Claims) { c.Organization = "another" })
	try("the run's token for another job", id, func(c *ticket.Claims) { c.Job = w.victim })
	try("the run's token for its preview", id, func(c *ticket.Claims) { c.Job = preview.ID })
	try("another job's token for the run", w.victim, func(c *ticket.Claims) { c.Job = id })
	try("another job's token for the preview", w.victim, func(c *ticket.Claims) { c.Job = preview.ID })
	try("another job's ticket for the workspace", w.victim, func(c *ticket.Claims) { c.WorkspaceID = own.ID })
	r := w.thief(w.victim, nil)
	_, err = r.Input(ctx)
	w.tried("get an input that the job does not have", err != nil, "%v", err)
	for _, job := range []string{id, preview.ID, w.victim} {
		at := "/v1/jobs/" + job + "/bytes"
		var out bytes.Buffer
		err = r.Download(ctx, api.Transfer{Method: "GET", URL: at}, &out, 1<<20)
		w.tried("get "+at+" with a third job's ticket", err != nil && out.Len() == 0, "%v", err)
		err = r.Upload(ctx, api.Transfer{Method: "PUT", URL: at}, plan.Name, plan.Size, strings.NewReader(text))
		w.tried("put "+at+" with a third job's ticket", err != nil, "%v", err)
	}
	if kept := w.kept(preview.ID); len(kept) != 1 || strings.Contains(w.read(w.file(kept[0])), text) {
		w.tried("change what the preview left", false, "%+v", kept)
	}
	in := map[string]any{"workspace": "victim", "operation": workflow.Update, "plan": w.kept(preview.ID)[0]}
	w.tried("submit a run that names a plan", w.post("/v1/workflows", in) >= 400, "as an operator")
}

// post makes a call that no client makes.
func (w *world) post(path string, in any) (status int) {
	raw, err := json.Marshal(in)
	w.must(err)
	req, err := http.NewRequestWithContext(w.T.Context(), http.MethodPost, w.URL+path, bytes.NewReader(raw))
	w.must(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+w.operatorToken)
	resp, err := http.DefaultClient.Do(req)
	w.must(err)
	w.must(resp.Body.Close())
	return resp.StatusCode
}

func sum(b []byte) string {
	digest := sha256.Sum256(b)
	return hex.EncodeToString(digest[:])
}
