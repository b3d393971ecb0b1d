package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// tofu turns a command workspace into one whose engine keeps state.
func tofu(state *api.State) func(*api.Workspace) {
	return func(ws *api.Workspace) { ws.Engine, ws.Commands, ws.State = api.EngineTofu, nil, state }
}

// specOf runs a workspace up to its spec.
func (w *world) specOf(name string, op workflow.Operation) (api.Job, api.Run, api.Spec) {
	w.t.Helper()
	w.submit(name, op)
	job, r := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	return job, r, spec
}

func (w *world) ended(job api.Job, r api.Run, found *api.StateFound) {
	w.t.Helper()
	_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, State: found}})
	w.must(err)
}

// R15: a workspace's record has its state's place in full, so later defaults do not move it.
func TestState_PlaceOfAWorkspaceIsItsOwnAndIsKept(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		for name, tc := range map[string]struct {
			said *api.State
			want api.State
		}{
			"unsaid":    {nil, api.State{Kind: api.StateSource, Default: api.StateDirectory}},
			"source":    {&api.State{Kind: api.StateSource, Workspace: "prod"}, api.State{Kind: api.StateSource, Workspace: "prod"}},
			"directory": {&api.State{Kind: api.StateDirectory}, api.State{Kind: api.StateDirectory}},
			"bucket":    {&api.State{Kind: api.StateS3, Bucket: "b", Region: "r"}, api.State{Kind: api.StateS3, Bucket: "b", Region: "r"}},
			"config":    {&api.State{BackendConfig: map[string]any{"bucket": "b"}}, api.State{Kind: api.StateSource, Default: api.StateDirectory, BackendConfig: map[string]any{"bucket": "b"}}},
		} {
			w.workspace(name, tofu(tc.said))
			job, r, spec := w.specOf(name, workflow.Preview)
			tc.want.Key = spec.WorkspaceID
			if d := cmp.Diff(tc.want, spec.State); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
			wantDir := ""
			if tc.want.Kind == api.StateDirectory || tc.want.Default == api.StateDirectory {
				wantDir = spec.WorkspaceID
			}
			if job.StateKey != wantDir || job.StateKind != tc.want.Kind {
				t.Errorf("%s: the launcher gets %s %q, want %s %q", name, job.StateKind, job.StateKey, tc.want.Kind, wantDir)
			}
			w.ended(job, r, nil)

			// The shown workspace can be applied, and so can the earlier file: neither changes anything.
			shown, err := w.plane.Workspace(w.ctx(), w.admin, name)
			w.must(err)
			for _, again := range []*api.State{shown.State, tc.said} {
				in := shown
				in.State, in.Version = again, 0
				now, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, in)
				w.must(err)
				if now.Version != shown.Version {
					t.Errorf("%s: applied unchanged as %+v, it is version %d instead of %d", name, again, now.Version, shown.Version)
				}
			}
		}
		// Another place is another setting, under the same key.
		w.workspace("directory", tofu(&api.State{Kind: api.StateS3, Bucket: "b", Region: "r"}))
		job, r, spec := w.specOf("directory", workflow.Preview)
		if spec.State.Kind != api.StateS3 || spec.State.Key != spec.WorkspaceID || !cmp.Equal(job.StateOlds, []string{spec.WorkspaceID}) {
			t.Errorf("after a change: %+v, looks at %v", spec.State, job.StateOlds)
		}
		w.ended(job, r, nil)
	})
}

// R16: the next run gets the findings of the last one as they are at its start, not at its
// submission.
func TestState_WhatARunFoundIsKnownToTheNext(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", tofu(nil))
		w.submit("net", workflow.Update)
		waiting := w.submit("net", workflow.Update)
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		if spec.Known != nil {
			t.Fatalf("the first run knows %+v", spec.Known)
		}
		found := api.StateFound{Backend: "local", Settings: "a", Workspace: "default", Lineage: "x", Serial: 7, Taken: "terraform.tfstate beside the code"}
		w.ended(job, r, &found)
		if got := w.story(job.ID); !strings.Contains(got, "taken over from terraform.tfstate beside the code (lineage x, serial 7)") {
			t.Errorf("the timeline does not show the takeover:\n%s", got)
		}
		job, r = w.started()
		if spec, err = w.plane.Spec(w.ctx(), job.Token, r); err != nil || job.ID != waiting.ID {
			t.Fatal(err)
		}
		found.Taken = ""
		if d := cmp.Diff(&found, spec.Known); d != "" {
			t.Errorf("known (-want +got):\n%s", d)
		}
		// A slow reader saw an older state of the same lineage; a run that was refused reports nothing.
		slow := found
		slow.Serial = 3
		w.ended(job, r, &slow)
		job, r, spec = w.specOf("net", workflow.Preview)
		if spec.Known == nil || spec.Known.Serial != 7 {
			t.Errorf("known is %+v, want serial 7", spec.Known)
		}
		w.ended(job, r, nil)
		if _, _, spec = w.specOf("net", workflow.Preview); spec.Known == nil || spec.Known.Lineage != "x" {
			t.Errorf("known is %+v after a run that reports nothing", spec.Known)
		}
	})
}

// R16: the state of a deleted workspace is listed, and a namesake does not get its place.
func TestState_OfADeletedWorkspaceIsListedNotReused(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		var ids []string
		for range 2 {
			w.workspace("net", tofu(nil))
			job, r, spec := w.specOf("net", workflow.Update)
			w.ended(job, r, &api.StateFound{Backend: "local", Lineage: "of " + spec.WorkspaceID, Serial: 2})
			ids = append([]string{spec.WorkspaceID}, ids...)
			w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
		}
		w.workspace("other", tofu(nil))
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "other"))
		w.workspace("net", tofu(nil))
		job, r, spec := w.specOf("net", workflow.Update)
		var known []string
		for _, n := range spec.Namesakes {
			known = append(known, n.ID)
		}
		if d := cmp.Diff(ids, known); d != "" || spec.State.Key != spec.WorkspaceID || spec.Known != nil {
			t.Errorf("key %s of %s, known %+v, namesakes (-want +got):\n%s", spec.State.Key, spec.WorkspaceID, spec.Known, d)
		}
		if d := cmp.Diff(ids, job.StateOlds); d != "" {
			t.Errorf("directories that are looked at (-want +got):\n%s", d)
		}
		w.ended(job, r, &api.StateFound{Backend: "local"})
		if _, _, spec = w.specOf("net", workflow.Preview); len(spec.Namesakes) > 0 {
			t.Errorf("a workspace whose state is known still looks at %v", spec.Namesakes)
		}

		page, err := w.plane.DeletedWorkspaces(w.ctx(), w.admin, "", 2)
		w.must(err)
		rest, err := w.plane.DeletedWorkspaces(w.ctx(), w.admin, page.Next, 2)
		w.must(err)
		var listed []string
		for _, d := range append(page.Items, rest.Items...) {
			line := d.Name + " " + d.State.Kind
			if d.Found != nil {
				line += " " + d.Found.Lineage
			}
			listed = append(listed, line)
		}
		if d := cmp.Diff([]string{"net  of " + ids[1], "net  of " + ids[0], "other "}, listed); d != "" {
			t.Errorf("listed (-want +got):\n%s", d)
		}
	})
}

// The state of a deleted workspace goes to a namesake of the same project, and to a run that an admin of both
// projects submits in person. Any other run learns only that a state exists, and gets no directory.
func TestState_IsWithheldFromOtherProjects(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		admin := func(projects ...string) controlplane.Principal {
			grants := map[string]string{}
			for _, p := range projects {
				grants[p] = api.RoleAdmin
			}
			return w.in(grants)
		}
		cases := map[string]struct {
			project string
			who     controlplane.Principal // nobody: a schedule
			known   []string               // by the project that they were in
		}{
			"operator":        {"shop", w.in(map[string]string{"shop": api.RoleOperator}), []string{"shop"}},
			"admin-of-one":    {"web", admin("web"), nil},
			"operator-of-one": {"web", w.in(map[string]string{"web": api.RoleOperator, "shop": api.RoleAdmin}), nil},
			"admin-of-both":   {"web", admin("web", "shop"), []string{"shop"}},
			"admin-of-name":   {"old", admin("old"), nil}, // of another project that had the name
			"admin-of-all":    {"web", w.admin, []string{"old", "shop"}},
			"schedule":        {"web", controlplane.Principal{}, nil},
		}
		deleted := map[string]string{} // ids by project and name
		for _, project := range []string{"shop", "old", "web"} {
			w.madeProject(project, "global")
			for name := range cases {
				if project == "web" {
					continue
				}
				w.workspace(name, tofu(nil), inProject(project))
				deleted[project+"/"+name] = w.idOf(name)
				w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, name))
			}
		}
		w.must(w.plane.DeleteProject(w.ctx(), w.admin, "old"))
		w.madeProject("old", "global")
		for name, c := range cases {
			w.workspace(name, tofu(nil), inProject(c.project))
			if c.who.Name != "" {
				_, err := w.plane.Submit(w.ctx(), c.who, "", api.Submit{Workspace: name, Operation: workflow.Update})
				w.must(err)
			} else {
				w.schedule(func(in *api.Schedule) {
					in.Projects, in.Workspaces, in.Type, in.Operation = nil, []string{name}, workflow.Deployment, workflow.Update
				})
				w.clock.advance(time.Hour)
				w.pass()
			}
			job, r := w.started()
			spec, err := w.plane.Spec(w.ctx(), job.Token, r)
			w.must(err)
			var want, known []string
			for _, project := range c.known {
				want = append(want, deleted[project+"/"+name])
			}
			for _, n := range spec.Namesakes {
				known = append(known, n.ID)
			}
			if withheld := len(want) < 2; cmp.Diff(want, known) != "" || cmp.Diff(want, job.StateOlds) != "" || spec.Withheld != withheld {
				t.Errorf("%s: known %v, given %v, withheld %v; want %v and %v", name, known, job.StateOlds, spec.Withheld, want, withheld)
			}
			w.ended(job, r, nil)
		}
		// The name of a deleted project does not show what lay in it.
		if _, _, seen := w.seen(admin("old"), 50); len(seen) > 0 {
			t.Errorf("an admin of the new project sees %v", seen)
		}
	})
}

// R15: a runner that would ignore what it does not know gets no spec, and the run says why it ended.
func TestStart_OfARunnerThatIsTooOldEndsTheRun(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", tofu(nil))
		wf, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, BeginAnew: true})
		w.must(err)
		waiting := w.submit("net", workflow.Update)
		job := w.claimOne()
		r := run(job, "task", 'a')
		_, err = w.plane.Start(w.ctx(), job.Token, r, api.Start{})
		wantErr(t, err, workflow.ErrNotReported)
		w.launch(job, "task")
		for range 2 {
			_, err = w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: []string{"take_over"}})
			wantErr(t, err, workflow.ErrOver)
		}
		if got := w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerTooOld); !strings.Contains(got.Detail, "older version") {
			t.Errorf("detail %q", got.Detail)
		}
		_, err = w.plane.Spec(w.ctx(), job.Token, r)
		wantErr(t, err, workflow.ErrOver)
		if next := w.claimOne(); next.ID != waiting.ID {
			t.Errorf("claimed %s, want the one that waited for the slot", next.ID)
		}
	})
}

// A runner that would take the top of a directory for the root module does not get its path.
func TestStart_OfARunnerThatDoesNotKnowPathsEndsTheRun(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", tofu(nil), func(ws *api.Workspace) { ws.Source.Path = "envs/prod" })
	wf := w.submit("net", workflow.Update)
	job := w.claimOne()
	w.launch(job, "task")
	knows := slices.DeleteFunc(api.RunnerKnows(), func(word string) bool { return word == "directory_path" })
	_, err := w.plane.Start(w.ctx(), job.Token, run(job, "task", 'a'), api.Start{Knows: knows})
	wantErr(t, err, workflow.ErrOver)
	w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerTooOld)
}

// R16: which instructions about a state a user may give, and with which runs.
func TestSubmit_InstructionsAboutTheState(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", tofu(nil))
	w.workspace("script")
	for name, in := range map[string]api.Submit{
		"both":                     {Operation: workflow.Update, TakeOver: true, BeginAnew: true},
		"from without taking over": {Operation: workflow.Update, TakeOverFrom: "prod"},
		"with a list":              {Operation: workflow.StateList, TakeOver: true},
		"unlock of nothing":        {Operation: workflow.StateUnlock},
		"a lock elsewhere":         {Operation: workflow.Update, LockID: "x"},
		"a lock that is a flag":    {Operation: workflow.StateUnlock, LockID: "-force"},
		"of a script":              {Workspace: "script", Operation: workflow.Update, BeginAnew: true},
		"list of a script":         {Workspace: "script", Operation: workflow.StateList},
	} {
		if in.Workspace == "" {
			in.Workspace = "net"
		}
		if _, err := w.plane.Submit(w.ctx(), w.admin, "", in); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
	wf, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update, TakeOver: true, TakeOverFrom: "prod"})
	w.must(err)
	job, r := w.started()
	w.must(w.result(job, r, workflow.Failed))
	again, err := w.plane.Retry(w.ctx(), w.admin, "", wf.ID, api.WithReason{})
	w.must(err)
	job, r = w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	if job.ID != again.ID || !spec.TakeOver || spec.TakeOverFrom != "prod" || spec.BeginAnew {
		t.Errorf("a retry says %+v", spec)
	}
}

// R16, R7: an admin can release a lock that a lost run left, without waiting for that run's slot. The lock of a run
// that has not ended cannot be released.
func TestUnlock_OfALostRunDoesNotWaitForItsSlot(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", tofu(nil))
		lost := w.submit("net", workflow.Update)
		w.started()
		unlock := api.Submit{Workspace: "net", Operation: workflow.StateUnlock, LockID: "0a1b"}
		_, err := w.plane.Submit(w.ctx(), w.admin, "", unlock)
		wantErr(t, err, workflow.ErrInUse)
		w.live(12 * time.Minute)
		if got := w.is(lost.ID, workflow.Failed, workflow.ReasonRunnerLost); !got.SlotHeld {
			t.Fatal("the lost run holds no slot")
		}
		operator := w.admin
		operator.Role = api.RoleOperator
		_, err = w.plane.Submit(w.ctx(), operator, "", unlock)
		wantErr(t, err, workflow.ErrForbidden)
		wf, err := w.plane.Submit(w.ctx(), w.admin, "", unlock)
		w.must(err)
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		w.must(err)
		if job.ID != wf.ID || spec.LockID != "0a1b" || spec.Operation != workflow.StateUnlock {
			t.Errorf("got %+v of %s", spec, job.ID)
		}
		w.ended(job, r, nil)
		w.is(wf.ID, workflow.Succeeded, "")
	})
}

// R16: if the control plane can read a directory source, a run gets the files that were there at its submission.
func TestSubmit_NotesWhatADirectorySourceIs(t *testing.T) {
	st := memory.New()
	w := newWorld(t, st)
	asked := ""
	var refusal error
	w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, Digest: func(_ context.Context, dir, path string) (string, error) {
		asked = dir + path
		return "digest of " + dir, refusal
	}})
	w.workspace("net")
	if _, _, spec := w.specOf("net", workflow.Update); spec.SourceDigest != "digest of /src" || asked != "/src" {
		t.Errorf("digest %q", spec.SourceDigest)
	}
	refusal = workflow.Refuse(workflow.ErrForbidden, "source.directory", "it does not lie below the source_roots")
	_, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Update})
	wantErr(t, err, workflow.ErrForbidden)

	// The sources of another pool are on other machines.
	made, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("second")})
	w.must(err)
	w.workspace("far", func(ws *api.Workspace) { ws.Pool = "second" })
	wf := w.submit("far", workflow.Update)
	w.pool, err = w.plane.Authenticate(w.ctx(), made.Token)
	w.must(err)
	job, r := w.started()
	spec, err := w.plane.Spec(w.ctx(), job.Token, r)
	w.must(err)
	if job.ID != wf.ID || spec.SourceDigest != "" {
		t.Errorf("digest %q of a source on another machine", spec.SourceDigest)
	}
}

func TestWorkspace_RefusesContradictoryStates(t *testing.T) {
	w := newWorld(t, memory.New())
	for text, says := range map[string]string{
		`{"kind":"elsewhere"}`:                                            "source, directory or s3",
		`{"kind":"own-directory"}`:                                        "source, directory or s3",
		`{"kind":"s3","bucket":"b"}`:                                      "a bucket and a region",
		`{"kind":"directory","bucket":"b"}`:                               "go with kind s3",
		`{"kind":"directory","backend_config":{"path":"x"}}`:              "goes with kind source",
		`{"workspace":"../prod"}`:                                         "workspace",
		`{"workspace":".."}`:                                              "workspace",
		`{"key":"ws_of_another"}`:                                         "set by the control plane",
		`{"default":"s3"}`:                                                "set by the control plane",
		`{"backend_config":{"a b":1}}`:                                    "not the name of a setting",
		`{"backend_config":{"secret_key":"x"}}`:                           "never contains the value of a secret",
		`{"kind":"s3","bucket":"b","region":"r","endpoint":"ftp://host"}`: "http or https",
	} {
		var state api.State
		w.must(json.Unmarshal([]byte(text), &state))
		ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, State: &state}
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want it refused with %q", text, err, says)
		}
	}
	for _, text := range []string{`{"backend_config":{"skip_credentials_validation":true}}`, `{"kind":"source","workspace":"prod-1.2"}`, `{}`} {
		var state api.State
		w.must(json.Unmarshal([]byte(text), &state))
		ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, State: &state}
		if _, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A runner that would install something does not get a run without that.
func TestStart_NoInstallNeedsARunnerThatKnowsIt(t *testing.T) {
	for _, installs := range []bool{false, true} {
		w := newWorld(t, memory.New())
		w.workspace("net", tofu(nil), func(ws *api.Workspace) {
			ws.Engine, ws.State, ws.Install = api.EnginePulumi, &api.State{Kind: api.StateDirectory, Workspace: "dev"}, &installs
		})
		wf := w.submit("net", workflow.Preview)
		job := w.claimOne()
		w.launch(job, "task")
		knows := slices.DeleteFunc(api.RunnerKnows(), func(known string) bool { return known == "no_install" })
		_, err := w.plane.Start(w.ctx(), job.Token, run(job, "task", 'a'), api.Start{Knows: knows})
		if installs {
			w.must(err)
			continue
		}
		wantErr(t, err, workflow.ErrOver)
		w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerTooOld)
	}
}

// R1: a stack of pulumi is named, and what goes with one engine only is refused for another.
func TestWorkspace_ChecksStacksOfPulumi(t *testing.T) {
	w := newWorld(t, memory.New())
	put := func(engine, state string, variables map[string]any) error {
		ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: engine, Source: api.Source{Directory: "/src"}, Variables: variables}}
		if state != "" {
			w.must(json.Unmarshal([]byte(state), &ws.State))
		}
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		return err
	}
	for _, tc := range []struct{ engine, state, says string }{
		{api.EnginePulumi, ``, "needs the name of its stack"},
		{api.EnginePulumi, `{"kind":"directory"}`, "needs the name of its stack"},
		{api.EnginePulumi, `{"workspace":"a/b"}`, "ORGANIZATION/PROJECT/STACK"},
		{api.EnginePulumi, `{"workspace":"dev","backend_config":{"x":1}}`, "PULUMI_BACKEND_URL"},
		{api.EnginePulumi, `{"workspace":"dev","secrets_provider":"--help"}`, "awskms://"},
		{api.EnginePulumi, `{"workspace":"dev","secrets_provider":"hashivault://user:word@host"}`, "without credentials"},
		{api.EngineTofu, `{"secrets_provider":"passphrase"}`, "goes with engine pulumi"},
		{api.EngineTofu, `{"workspace":"acme/net/dev"}`, "an engine's workspace"},
	} {
		if err := put(tc.engine, tc.state, nil); !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s %s: got %v, want it refused with %q", tc.engine, tc.state, err, tc.says)
		}
	}
	for _, engine := range []string{api.EngineTerraform, api.EngineTofu, api.EngineTerragrunt} {
		ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: engine, Source: api.Source{Directory: "/src"}, Install: new(bool)}}
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		refusal, ok := errors.AsType[*workflow.Error](err)
		if !ok || refusal.Field != "install" || !strings.Contains(err.Error(), "install goes with engine pulumi") {
			t.Errorf("install with %s: got %v", engine, err)
		}
	}
	setting := map[string]any{"aws:region": "eu-west-1"}
	if err := put(api.EngineTofu, ``, setting); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("a variable of a provider, for tofu: got %v, want it refused", err)
	}
	for _, state := range []string{`{"workspace":"dev","secrets_provider":"awskms://alias/key?region=eu-west-1"}`, `{"kind":"source","workspace":"acme/net/dev"}`} {
		if err := put(api.EnginePulumi, state, setting); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
}
