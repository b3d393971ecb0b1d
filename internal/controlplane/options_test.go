package controlplane_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const hub17 = "https://github.com/acme/infra.git"

// fromGit makes a workspace's source a git repository.
func fromGit(ws *api.Workspace) {
	ws.Source = api.Source{Git: &api.GitSource{URL: hub17, Version: "~> 1.4"}}
}

func asked(op workflow.Operation, o api.Options) api.Submit {
	return api.Submit{Workspace: "net", Operation: op, Options: &o}
}

// The options of a run are in its spec, are shown and audited, and a retry has the same.
func TestSubmit_OptionsAreFrozenShownAuditedAndRetried(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.guarded(nil, fromGit)
		ada := w.person("ada")
		want := &api.Options{
			Targets: []string{`aws_subnet.a["x, y"]`}, Replace: []string{"aws_instance.web"}, Variables: map[string]any{"word": "planted-value"},
			VarFiles: []string{"big.tfvars"}, Ref: "feature", Imports: []api.Import{{To: "aws_vpc.main", ID: "vpc-1"}},
		}
		in := asked(workflow.Update, *want)
		made, err := w.plane.Submit(w.ctx(), ada, "key", in)
		w.must(err)
		same, err := w.plane.Submit(w.ctx(), ada, "key", in)
		if w.must(err); same.ID != made.ID {
			t.Errorf("a repeat made %s beside %s", same.ID, made.ID)
		}
		_, err = w.plane.Submit(w.ctx(), ada, "key", asked(workflow.Update, api.Options{Targets: want.Targets}))
		wantErr(t, err, workflow.ErrKeyReused)

		check := func(id string) {
			t.Helper()
			if d := cmp.Diff(want, w.show(id).Options); d != "" {
				t.Errorf("shown (-want +got):\n%s", d)
			}
			spec := w.frozen(id)
			if d := cmp.Diff(want, spec.Options); d != "" {
				t.Errorf("in the spec (-want +got):\n%s", d)
			}
			if g := spec.Source.Git; g.Ref != "feature" || g.Version != "" {
				t.Errorf("its source is %+v, want ref feature alone", g)
			}
			trail, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 1})
			w.must(err)
			for what, text := range map[string]string{"audit": trail.Items[0].Detail, "timeline": w.story(id)} {
				if !strings.Contains(text, `targets aws_subnet.a["x, y"]`) || !strings.Contains(text, "variables word;") || !strings.Contains(text, "imports aws_vpc.main=vpc-1") {
					t.Errorf("%s: %s", what, text)
				}
				if strings.Contains(text, "planted-value") {
					t.Errorf("the %s has the value of a variable: %s", what, text)
				}
			}
		}
		check(made.ID)
		_, err = w.plane.Cancel(w.ctx(), ada, made.ID, api.WithReason{})
		w.must(err)
		again, err := w.plane.Retry(w.ctx(), ada, "", made.ID, api.WithReason{})
		w.must(err)
		check(again.ID)

		job := w.claimOne()
		w.launch(job, "task")
		old := []string{api.StateSource, api.StateDirectory, api.StateS3}
		_, err = w.plane.Start(w.ctx(), job.Token, run(job, "task", 'a'), api.Start{Knows: old})
		if wantErr(t, err, workflow.ErrOver); !strings.Contains(err.Error(), "options") {
			t.Errorf("a runner that does not know options gets %v", err)
		}
	})
}

func TestSubmit_OptionsThatARunCannotHaveAreRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(nil, fromGit)
	w.workspace("own")
	files := func(n int) []string { return strings.Fields(strings.Repeat("a.tfvars ", n)) }
	const update, destroy = workflow.Update, workflow.Destroy
	for title, tc := range map[string]struct {
		in    api.Submit
		field string
	}{
		"only an empty target":  {asked(update, api.Options{Targets: []string{""}}), "options.targets[0]"},
		"only an empty file":    {asked(update, api.Options{VarFiles: []string{""}}), "options.var_files[0]"},
		"empty target":          {asked(update, api.Options{Targets: []string{"a.b", " "}}), "options.targets[1]"},
		"no text":               {asked(update, api.Options{Replace: []string{"a\n.b"}}), "options.replace[0]"},
		"import of nothing":     {asked(update, api.Options{Imports: []api.Import{{To: "a.b"}}}), "options.imports[0].id"},
		"too many":              {asked(update, api.Options{Targets: make([]string, 101), Ref: "x"}), "options"},
		"too large":             {asked(update, api.Options{Variables: map[string]any{"a": strings.Repeat("x", 40<<10)}}), "options"},
		"no variable":           {asked(update, api.Options{Variables: map[string]any{"a b": 1}}), "options.variables"},
		"file outside":          {asked(update, api.Options{VarFiles: []string{"a.tfvars", "../b.tfvars"}}), "options.var_files[1]"},
		"absolute file":         {asked(update, api.Options{VarFiles: []string{"/etc/b.tfvars"}}), "options.var_files[0]"},
		"other file":            {asked(update, api.Options{VarFiles: []string{"main.tf"}}), "options.var_files[0]"},
		"too many files":        {asked(update, api.Options{VarFiles: files(21)}), "options.var_files"},
		"ref that is a flag":    {asked(update, api.Options{Ref: "--upload-pack=x"}), "options.ref"},
		"refresh twice":         {asked(workflow.Refresh, api.Options{RefreshOnly: true}), "options.refresh_only"},
		"replace and destroy":   {asked(destroy, api.Options{Replace: []string{"a.b"}}), "options.replace"},
		"replace and refresh":   {asked(update, api.Options{Replace: []string{"a.b"}, RefreshOnly: true}), "options.replace"},
		"import and destroy":    {asked(destroy, api.Options{Imports: []api.Import{{To: "a.b", ID: "c"}}}), "options.imports"},
		"list of the state":     {asked(workflow.StateList, api.Options{Targets: []string{"a.b"}}), "options"},
		"scan":                  {api.Submit{Workspace: "net", Type: workflow.InsightsScan, Options: &api.Options{Targets: []string{"a.b"}}}, "options"},
		"commit":                {api.Submit{Workspace: "net", Operation: workflow.Preview, Commit: oneCommit, Options: &api.Options{Targets: []string{"a.b"}}}, "options"},
		"target of a command":   {api.Submit{Workspace: "own", Operation: update, Options: &api.Options{Targets: []string{"a.b"}}}, "options.targets"},
		"ref without git":       {api.Submit{Workspace: "own", Operation: update, Options: &api.Options{Ref: "main"}}, "options.ref"},
		"variable of a command": {api.Submit{Workspace: "own", Operation: update, Options: &api.Options{Variables: map[string]any{"a": 1}}}, "options.variables"},
	} {
		_, err := w.plane.Submit(w.ctx(), w.admin, "", tc.in)
		refusal, ok := errors.AsType[*workflow.Error](err)
		if !ok || refusal.Field != tc.field {
			t.Errorf("%s: got %v, want a refusal of %s", title, err, tc.field)
		}
	}
	made, err := w.plane.Submit(w.ctx(), w.admin, "", asked(destroy, api.Options{}))
	if w.must(err); w.show(made.ID).Options != nil || w.frozen(made.ID).Options != nil {
		t.Error("options that ask for nothing are kept")
	}
}

// A pipeline is bound to its code, whichever rule trusts it.
func TestSubmit_APipelineChoosesNoRef(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(nil, fromGit)
	who := w.as(api.RoleOperator)
	who.Pipeline = &record.Pipeline{Host: "github.com", Repository: "acme/infra", Commit: oneCommit, Protected: true}
	_, err := w.plane.Submit(w.ctx(), who, "", asked(workflow.Update, api.Options{Ref: "feature"}))
	wantErr(t, err, workflow.ErrForbidden)
	_, err = w.plane.Submit(w.ctx(), who, "", asked(workflow.Update, api.Options{Targets: []string{"a.b"}}))
	w.must(err)
}

// Approvers of a plan see its options, and the run that applies it has the same. With options, a run may apply only a
// part of its commit: so the commit's authors count for the next plan as well.
func TestApproval_APlanShowsItsOptions(t *testing.T) {
	w := newWorld(t, memory.New())
	w.guarded(&api.Approval{Required: true, NotBySubmitter: true}, fromGit)
	ada, bob, eve := w.person("ada"), w.person("bob"), w.person("eve")
	want := &api.Options{Targets: []string{"aws_subnet.a"}}
	for range 2 {
		made, err := w.plane.Submit(w.ctx(), ada, "", asked(workflow.Update, *want))
		w.must(err)
		w.plans(one)
		if r := w.reviewOf(made.ID, api.ReviewWaiting); r.Needed != 2 {
			t.Errorf("it needs %d approvals, want 2", r.Needed)
		}
		plan, err := w.plane.Plan(w.ctx(), bob, made.ID)
		if w.must(err); cmp.Diff(want, plan.Options) != "" {
			t.Errorf("the plan shows %+v", plan.Options)
		}
		w.approves(bob, made.ID)
		w.approves(eve, made.ID)
		job, r := w.started()
		spec, err := w.plane.Spec(w.ctx(), job.Token, r)
		if w.must(err); spec.Plan == nil || cmp.Diff(want, spec.Options) != "" || cmp.Diff(want, w.show(job.ID).Options) != "" {
			t.Errorf("the run that applies it has %+v and shows %+v", spec.Options, w.show(job.ID).Options)
		}
		w.must(w.result(job, r, workflow.Succeeded))
	}
}

func TestWorkspace_FlagsAndFilesOfVariablesAreChecked(t *testing.T) {
	w := newWorld(t, memory.New())
	put := func(engine string, flags map[string][]string, files ...string) error {
		ws := api.Workspace{Name: "net", RunSettings: api.RunSettings{Engine: engine, Source: api.Source{Directory: "/src"}, Flags: flags, VarFiles: files}}
		if engine == api.EngineCommand {
			ws.Commands = map[string]string{"update": "true"}
		}
		_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		return err
	}
	w.must(put(api.EngineTofu, map[string][]string{"plan": {"-parallelism=20", "-exclude=a.b[\"c\"]"}, "init": {"-upgrade"}}, "envs/prod.tfvars"))
	_, _, err := w.plane.PutWorkspace(w.ctx(), w.admin, api.Workspace{Name: "above", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/srv", Path: "live/net"}, VarFiles: []string{"../../config/prod.tfvars"}}})
	w.must(err)
	plan := func(flags ...string) map[string][]string { return map[string][]string{"plan": flags} }
	for title, tc := range map[string]struct {
		engine string
		flags  map[string][]string
		files  []string
		field  string
	}{
		"no lock":              {api.EngineTofu, plan("-parallelism=2", "-lock=false"), nil, "flags.plan[1]"},
		"state":                {api.EngineTerraform, plan("-state=x"), nil, "flags.plan[0]"},
		"output":               {api.EngineTerraform, plan("-out=x"), nil, "flags.plan[0]"},
		"variable":             {api.EngineTerraform, plan("-var=a=b"), nil, "flags.plan[0]"},
		"target":               {api.EngineTerraform, plan("-target=a.b"), nil, "flags.plan[0]"},
		"destroy":              {api.EngineTerraform, map[string][]string{"apply": {"-destroy"}}, nil, "flags.apply[0]"},
		"backend":              {api.EngineTerraform, map[string][]string{"init": {"-backend-config=x"}}, nil, "flags.init[0]"},
		"two in one":           {api.EngineTerraform, plan("-compact-warnings -lock=false"), nil, "flags.plan[0]"},
		"no number":            {api.EngineTerraform, plan("-parallelism=0"), nil, "flags.plan[0]"},
		"of the other":         {api.EngineTerraform, plan("-exclude=a.b"), nil, "flags.plan[0]"},
		"shown secrets":        {api.EngineTofu, plan("-show-sensitive"), nil, "flags.plan[0]"},
		"too many":             {api.EngineTofu, plan(strings.Fields(strings.Repeat("-concise ", 21))...), nil, "flags.plan"},
		"no step":              {api.EngineTofu, map[string][]string{"output": {"-json"}}, nil, "flags"},
		"command":              {api.EngineCommand, plan("-x"), nil, "flags"},
		"file outside":         {api.EngineTofu, nil, []string{"../a.tfvars"}, "var_files[0]"},
		"file of a command":    {api.EngineCommand, nil, []string{"a.tfvars"}, "var_files"},
		"file that is a flag?": {api.EngineTofu, nil, []string{"a.tfvars -lock=false"}, "var_files[0]"},
	} {
		err := put(tc.engine, tc.flags, tc.files...)
		refusal, ok := errors.AsType[*workflow.Error](err)
		if !ok || refusal.Field != tc.field {
			t.Errorf("%s: got %v, want a refusal of %s", title, err, tc.field)
		}
	}
}
