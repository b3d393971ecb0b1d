package controlplane_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func leaves(kind, name string) api.NewArtifact {
	return api.NewArtifact{Name: name, Kind: kind, Size: 3, SHA256: strings.Repeat("ab", 32)}
}

func announced(all ...api.NewArtifact) api.NewArtifacts {
	return api.NewArtifacts{Artifacts: all, Place: &api.Place{Kind: api.PlaceDirectory}}
}

// amend changes a record of a run, past the rules.
func amend[T any](w *world, k store.Key, change func(*T)) {
	w.t.Helper()
	got, err := w.store.Get(w.ctx(), k)
	w.must(err)
	v, err := record.Decode[T](got[0])
	w.must(err)
	change(&v)
	if wf, ok := any(&v).(*record.Workflow); ok {
		w.commit(rand.Text(), store.Put(record.EncodeWorkflow(wf), got[0].Version))
		return
	}
	w.commit(rand.Text(), store.Put(record.Encode(k, v), got[0].Version))
}

func TestArtifacts_AreRecordedOnceAndListed(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		id := w.submit("net", workflow.Update).ID
		job, r := w.started()
		say := func(in api.NewArtifacts) (api.ArtifactsTaken, error) {
			return w.plane.Announce(w.ctx(), job.Token, r, in)
		}
		a, b := leaves(api.ArtifactFile, "files/a"), leaves(api.ArtifactFile, "files/dir/b")
		first, err := say(announced(a, b))
		w.must(err)
		key := api.ArtifactKey("default", job.Needs.WorkspaceID, id, 1, "files/a")
		if got := first.Artifacts; len(got) != 2 || got[0].Place != (api.Place{Kind: api.PlaceDirectory, Pool: "default", Instance: "one", Key: key}) {
			t.Errorf("got %+v", got)
		}
		again, err := say(announced(a, b))
		w.must(err)
		if d := cmp.Diff(first.Artifacts, again.Artifacts); d != "" {
			t.Errorf("announced again (-first +again):\n%s", d)
		}
		other := a
		other.Size++
		_, err = say(announced(other))
		wantErr(t, err, workflow.ErrExists)
		_, err = say(api.NewArtifacts{Placed: []string{"files/c"}})
		wantErr(t, err, workflow.ErrInvalid)
		for range 2 {
			_, err = say(api.NewArtifacts{Placed: []string{"files/a"}})
			w.must(err)
		}
		w.must(w.result(job, r, workflow.Succeeded))

		page, err := w.plane.Artifacts(w.ctx(), w.admin, id, "", 1)
		w.must(err)
		rest, err := w.plane.Artifacts(w.ctx(), w.admin, id, page.Next, 10)
		w.must(err)
		all := append(page.Items, rest.Items...)
		if len(page.Items) != 1 || len(all) != 2 || all[0].Name != "files/a" || all[1].Name != "files/dir/b" || all[0].PlacedAt == nil || all[1].PlacedAt != nil {
			t.Errorf("listed %+v", all)
		}
		if want := w.show(id).SubmittedAt.Add(90 * day); !all[0].ExpiresAt.Equal(want) {
			t.Errorf("kept until %s, want %s", all[0].ExpiresAt, want)
		}
	})
}

func TestArtifacts_WhatIsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Preview)
	job, r := w.started()
	with := func(change func(*api.NewArtifact)) api.NewArtifacts {
		a := leaves(api.ArtifactFile, "files/a")
		change(&a)
		return announced(a)
	}
	for name, tc := range map[string]struct {
		in   api.NewArtifacts
		want error
	}{
		"a file among the runner's own":  {announced(leaves(api.ArtifactFile, "plan/bundle.tar")), workflow.ErrInvalid},
		"a plan among files":             {announced(leaves(api.ArtifactPlan, "files/bundle.tar")), workflow.ErrInvalid},
		"a plan that nobody applies":     {announced(leaves(api.ArtifactPlan, "plan/bundle.tar")), workflow.ErrInvalid},
		"a state of a run that pulls no": {announced(leaves(api.ArtifactState, "plan/terraform.tfstate")), workflow.ErrInvalid},
		"another kind":                   {announced(leaves("secret", "plan/a")), workflow.ErrInvalid},
		"a name with dots":               {announced(leaves(api.ArtifactFile, "files/../../other/a")), workflow.ErrInvalid},
		"a digest of other characters":   {with(func(a *api.NewArtifact) { a.SHA256 = strings.Repeat("AB", 32) }), workflow.ErrInvalid},
		"a short digest":                 {with(func(a *api.NewArtifact) { a.SHA256 = "ab" }), workflow.ErrInvalid},
		"a negative size":                {with(func(a *api.NewArtifact) { a.Size = -1 }), workflow.ErrInvalid},
		"too large":                      {with(func(a *api.NewArtifact) { a.Size = api.MaxArtifactSize + 1 }), workflow.ErrTooLarge},
		"no place":                       {api.NewArtifacts{Artifacts: []api.NewArtifact{leaves(api.ArtifactFile, "files/a")}}, workflow.ErrInvalid},
		"a place of another kind":        {api.NewArtifacts{Place: &api.Place{Kind: "ftp"}}, workflow.ErrInvalid},
	} {
		if _, err := w.plane.Announce(w.ctx(), job.Token, r, tc.in); err == nil {
			t.Errorf("%s: taken", name)
		} else {
			wantErr(t, err, tc.want)
		}
	}
	other := r
	other.Boot = strings.Repeat("b", 32)
	_, err := w.plane.Announce(w.ctx(), job.Token, other, announced(leaves(api.ArtifactFile, "files/a")))
	wantErr(t, err, workflow.ErrAlreadyStarted)
	_, err = w.plane.Announce(w.ctx(), "dfj_other", r, announced(leaves(api.ArtifactFile, "files/a")))
	wantErr(t, err, workflow.ErrUnauthenticated)
	w.must(w.result(job, r, workflow.Succeeded))
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactFile, "files/a")))
	wantErr(t, err, workflow.ErrOver)
	if page, err := w.plane.Artifacts(w.ctx(), w.admin, job.ID, "", 0); err != nil || len(page.Items) != 0 {
		t.Errorf("recorded %+v, %v", page.Items, err)
	}
}

func TestArtifacts_BoundsOfAnAttempt(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	for n := range api.MaxArtifacts {
		_, err := w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactFile, fmt.Sprintf("files/%d", n))))
		w.must(err)
	}
	_, err := w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactFile, "files/one-more")))
	wantErr(t, err, workflow.ErrTooLarge)
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactFile, "files/7")))
	w.must(err)
	w.must(w.result(job, r, workflow.Succeeded))

	w.submit("net", workflow.Update)
	job, r = w.started()
	var large []api.NewArtifact
	for n := range 5 {
		a := leaves(api.ArtifactFile, fmt.Sprintf("files/%d", n))
		a.Size = api.MaxArtifactSize
		large = append(large, a)
	}
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(large...))
	wantErr(t, err, workflow.ErrTooLarge)
	_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(large[:4]...))
	w.must(err)
}

func TestInput_IsWhatTheSpecNames(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	preview := w.submit("net", workflow.Preview).ID
	amend(w, record.WorkflowKey(preview), func(wf *record.Workflow) { wf.For = workflow.Update })
	job, r := w.started()
	bundle := leaves(api.ArtifactPlan, "plan/bundle.tar")
	_, err := w.plane.Announce(w.ctx(), job.Token, r, announced(bundle))
	w.must(err)
	_, err = w.plane.Input(w.ctx(), job.Token, r)
	wantErr(t, err, workflow.ErrInvalid) // it uses none
	key := record.ArtifactKey(preview, 1, bundle.Name)
	w.must(w.result(job, r, workflow.Succeeded))

	plan := api.PlanRef{Workflow: preview, Attempt: 1, PlanMade: api.PlanMade{Artifact: bundle.Name, Size: bundle.Size, SHA256: bundle.SHA256}}
	update := w.submit("net", workflow.Update).ID
	amend(w, record.SpecKey(update), func(s *api.Spec) { s.Plan = &plan })
	job, r = w.started()
	input := func() (api.Input, error) { return w.plane.Input(w.ctx(), job.Token, r) }
	_, err = input()
	wantErr(t, err, workflow.ErrConflict) // its bytes never arrived
	amend(w, key, func(a *record.Artifact) { a.Placed = w.clock.now() })
	in, err := input()
	w.must(err)
	if in.Artifact.Name != bundle.Name || in.Artifact.SHA256 != bundle.SHA256 || in.Artifact.Place.Key != api.ArtifactKey("default", job.Needs.WorkspaceID, preview, 1, bundle.Name) ||
		in.Artifact.Place.Instance != "one" || in.HeartbeatSeconds == 0 {
		t.Errorf("got %+v", in)
	}
	other := r
	other.Boot = strings.Repeat("b", 32)
	_, err = w.plane.Input(w.ctx(), job.Token, other)
	wantErr(t, err, workflow.ErrAlreadyStarted)
	w.must(w.result(job, r, workflow.Succeeded))
	_, err = input()
	wantErr(t, err, workflow.ErrOver)
}

func TestInput_RefusesAnotherPlan(t *testing.T) {
	for name, change := range map[string]func(w *world, preview string, p *api.PlanRef){
		"of another digest":  func(_ *world, _ string, p *api.PlanRef) { p.SHA256 = strings.Repeat("cd", 32) },
		"of another size":    func(_ *world, _ string, p *api.PlanRef) { p.Size++ },
		"of another attempt": func(_ *world, _ string, p *api.PlanRef) { p.Attempt++ },
		"that is past its retention": func(w *world, preview string, _ *api.PlanRef) {
			amend(w, record.WorkflowKey(preview), func(wf *record.Workflow) { wf.Submitted = wf.Submitted.Add(-91 * day) })
		},
		"of another workspace": func(w *world, preview string, _ *api.PlanRef) {
			amend(w, record.WorkflowKey(preview), func(wf *record.Workflow) { wf.WorkspaceID = "ws_other" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.workspace("net")
			preview := w.submit("net", workflow.Preview).ID
			amend(w, record.WorkflowKey(preview), func(wf *record.Workflow) { wf.For = workflow.Update })
			job, r := w.started()
			bundle := leaves(api.ArtifactPlan, "plan/bundle.tar")
			in := announced(bundle)
			in.Placed = []string{bundle.Name}
			_, err := w.plane.Announce(w.ctx(), job.Token, r, in)
			w.must(err)
			w.must(w.result(job, r, workflow.Succeeded))
			plan := api.PlanRef{Workflow: preview, Attempt: 1, PlanMade: api.PlanMade{Artifact: bundle.Name, Size: bundle.Size, SHA256: bundle.SHA256}}
			change(w, preview, &plan)
			update := w.submit("net", workflow.Update).ID
			amend(w, record.SpecKey(update), func(s *api.Spec) { s.Plan = &plan })
			job, r = w.started()
			_, err = w.plane.Input(w.ctx(), job.Token, r)
			wantErr(t, err, workflow.ErrConflict)
		})
	}
}

func TestInput_OfAPushedState(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	id := w.submit("net", workflow.Update).ID
	sum := strings.Repeat("ab", 32)
	amend(w, record.SpecKey(id), func(s *api.Spec) { s.Push = &api.PushedState{SHA256: sum, Size: 9} })
	job, r := w.started()
	in, err := w.plane.Input(w.ctx(), job.Token, r)
	w.must(err)
	if a := in.Artifact; a.Size != 9 || a.SHA256 != sum || a.Place.Key != api.PushedKey("default", job.Needs.WorkspaceID, sum) {
		t.Errorf("got %+v", a)
	}
}

func TestRetention_ArtifactsGoByTheirOwn(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		days := 30
		o, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{ArtifactRetention: &days})
		w.must(err)
		if o.ArtifactRetention != 30 || o.LogRetention != 90 {
			t.Errorf("got %+v", o)
		}
		w.workspace("net")
		id := w.submit("net", workflow.Update).ID
		job, r := w.started()
		_, err = w.plane.Announce(w.ctx(), job.Token, r, announced(leaves(api.ArtifactFile, "files/a")))
		w.must(err)
		w.must(w.result(job, r, workflow.Succeeded))
		isArtifact := func(r store.Record) bool { return strings.HasPrefix(r.Key.Sort, record.ArtifactsPrefix) }

		w.clock.advance(29 * day)
		w.passes()
		if page, err := w.plane.Artifacts(w.ctx(), w.admin, id, "", 0); err != nil || len(page.Items) != 1 {
			t.Errorf("after 29 days: %+v, %v", page.Items, err)
		}
		w.clock.advance(2 * day)
		_, err = w.plane.Artifacts(w.ctx(), w.admin, id, "", 0) // before any pass
		wantErr(t, err, workflow.ErrExpired)
		for range 50 { // the list of runs may lag
			w.passes()
		}
		if slices.ContainsFunc(w.records(id), isArtifact) {
			t.Error("artifacts are left after 31 days")
		}
		if !w.lists(id) {
			t.Error("the workflow is gone")
		}
	})
}

func TestRetention_OfArtifactsIsOneOfAFew(t *testing.T) {
	w := newWorld(t, memory.New())
	set := func(in api.OrganizationSettings) (api.Organization, error) {
		return w.plane.UpdateOrganization(w.ctx(), w.admin, in)
	}
	day := func(n int) *int { return &n }
	_, err := set(api.OrganizationSettings{ArtifactRetention: day(8)})
	wantErr(t, err, workflow.ErrInvalid)
	// Code that shortens the other two need not know of this one.
	o, err := set(api.OrganizationSettings{WorkflowRetention: day(60), LogRetention: day(30)})
	w.must(err)
	if o.ArtifactRetention != 30 {
		t.Errorf("artifacts are kept %d days, and workflows %d", o.ArtifactRetention, o.WorkflowRetention)
	}
	_, err = set(api.OrganizationSettings{ArtifactRetention: day(90)})
	wantErr(t, err, workflow.ErrInvalid)
	if time.Duration(slices.Min(api.ArtifactRetentions()))*24*time.Hour < api.MaxApprovalExpires {
		t.Error("a plan may be deleted before it can no longer be approved")
	}
}
