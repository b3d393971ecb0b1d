package engine_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// refusedOwned is the refusal that a run must have ended with, before anything was changed.
func refusedOwned(t *testing.T, h *host, err error, says string) {
	t.Helper()
	if f := failure(t, err); f.Reason != workflow.ReasonStateOwned || !strings.Contains(f.Detail, says) {
		t.Fatalf("got %s %q, want it refused, with %q in it\n%s", f.Reason, f.Detail, says, h.text())
	}
}

func ofAnother(s ...api.OthersState) *host {
	h := newHost()
	h.others = s
	return h
}

// R15: a run asks before it takes a state over, and before it changes one; a preview says that it would be refused.
func TestRun_AsksWhoseAStateIs(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": thing}
		dir := ranBefore(t, name, files)
		lineage, _ := held(t, filepath.Join(dir, "terraform.tfstate"))
		ref := api.StateRef{Lineage: lineage}
		first := fetched(t, job(t, name, workflow.Update, files), dir)
		first.StateStore, first.Spec.TakeOver = "machine", true

		h := ofAnother(api.OthersState{StateRef: ref, Workspace: "web"})
		_, err := engine.Run(t.Context(), h, first)
		refusedOwned(t, h, err, "the state (lineage "+lineage+") is that of workspace web; nothing was changed")
		refusedOwned(t, h, err, "dayfly repair own wf")
		if slices.Contains(h.ran(), "plan") {
			t.Errorf("it was planned: %v", h.ran())
		}
		if left, _ := os.ReadDir(first.StateDir); len(left) > 0 {
			t.Errorf("taken over: %v", left)
		}

		preview := fetched(t, again(t, first, workflow.Preview, files), dir)
		preview.StateStore, preview.Spec.TakeOver = first.StateStore, true
		h = ofAnother(api.OthersState{StateRef: ref})
		if _, err := engine.Run(t.Context(), h, preview); err != nil || !strings.Contains(h.text(), "WARNING: the state (lineage "+lineage+") is that of another workspace") {
			t.Errorf("preview: %v\n%s", err, h.text())
		}

		h = newHost()
		out, err := engine.Run(t.Context(), h, first)
		if err != nil || len(h.asked) != 1 || h.asked[0].Lineage != lineage || out.State == nil || h.asked[0].Place != out.State.Place {
			t.Fatalf("%v, found %+v, asked %+v", err, out.State, h.asked)
		}
		for _, op := range []workflow.Operation{workflow.Update, workflow.Destroy} {
			next := again(t, first, op, files)
			next.StateStore, next.Spec.Known = first.StateStore, out.State
			h = ofAnother(api.OthersState{StateRef: ref})
			_, err = engine.Run(t.Context(), h, next)
			refusedOwned(t, h, err, "is that of another workspace")
			if slices.Contains(h.ran(), "plan") || h.asked[0].Place != out.State.Place {
				t.Errorf("%s: asked %+v; ran %v", op, h.asked, h.ran())
			}
		}
	})
}

func TestRun_AsksForAPlaceWithoutAState(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		_, url := newHTTPState(t)
		places := map[string]string{}
		for _, at := range []string{"/a", "/b"} {
			j := job(t, name, workflow.Update, withBackend(url+at))
			j.Spec.State = api.State{Kind: api.StateSource, Key: "ws_1"}
			h := ofAnother(api.OthersState{Workspace: "web"})
			_, err := engine.Run(t.Context(), h, j)
			refusedOwned(t, h, err, "the place of the state is that of workspace web")
			h = newHost()
			if _, err := engine.Run(t.Context(), h, again(t, j, workflow.Update, withBackend(url+at))); err != nil {
				t.Fatal(err)
			}
			if h.asked[0].Lineage != "" {
				t.Errorf("asked for %+v", h.asked)
			}
			places[h.asked[0].Place] = at
		}
		if len(places) != 2 {
			t.Errorf("the two places are %v", places)
		}
	})
}

func TestRun_PushesNoStateOfAnotherWorkspace(t *testing.T) {
	statePlaces(t, func(t *testing.T, name string, files map[string]string, place api.State) {
		first := job(t, name, workflow.Update, files)
		first.Spec.State = place
		out, err := engine.Run(t.Context(), newHost(), first)
		if err != nil {
			t.Fatal(err)
		}
		pulled := newHost()
		if _, err := engine.Run(t.Context(), pulled, again(t, first, workflow.StatePull, files)); err != nil {
			t.Fatal(err)
		}
		j := again(t, first, workflow.StatePush, files)
		j.Spec.Push = &api.PushedState{Force: true}
		h := ofAnother(api.OthersState{StateRef: api.StateRef{Lineage: out.State.Lineage}})
		h.input = pulled.kept[stateKey]
		_, err = engine.Run(t.Context(), h, j)
		refusedOwned(t, h, err, "is that of another workspace")
		if slices.ContainsFunc(h.args, func(a []string) bool { return slices.Contains(a, "push") }) || h.asked[0].Place != out.State.Place {
			t.Errorf("asked %+v, ran %v", h.asked, h.args)
		}
	})
}

// The places of units are asked for before the first of them is applied; of those that could not be planned, afterwards.
func TestTerragrunt_AsksWhoseTheStatesOfItsUnitsAre(t *testing.T) {
	backend := remote(t)
	tree := map[string]string{
		"net/main.tf": backend("net") + netUnit, "net/terragrunt.hcl": "",
		"app/main.tf": backend("app") + appUnit, "app/terragrunt.hcl": needsNet,
	}
	others := api.OthersState{StateRef: api.StateRef{Unit: "net"}, Workspace: "live"}
	h := ofAnother(others)
	_, err := engine.Run(t.Context(), h, treeJob(t, workflow.Update, tree))
	refusedOwned(t, h, err, "the state of unit net is that of workspace live")
	h = ofAnother(others, others)
	if _, err := engine.Run(t.Context(), h, treeJob(t, workflow.Preview, tree)); err == nil || !strings.Contains(h.text(), "need outputs") && !strings.Contains(err.Error(), "app") {
		t.Errorf("preview: %v\n%s", err, h.text())
	}
	h = newHost()
	if _, err := engine.Run(t.Context(), h, treeJob(t, workflow.Update, tree)); err != nil {
		t.Fatalf("%v\n%s", err, h.text())
	}
	if len(h.asked) != 2 || h.asked[0].Unit != "net" || h.asked[1].Unit != "app" || h.asked[0].Place == h.asked[1].Place {
		t.Errorf("asked for %+v", h.asked)
	}
	h = ofAnother(others, others)
	if _, err := engine.Run(t.Context(), h, treeJob(t, workflow.Preview, tree)); err != nil || !strings.Contains(h.text(), "WARNING: the state of unit net is that of workspace live, and those of 1 more units") {
		t.Errorf("preview: %v\n%s", err, h.text())
	}
}

func TestPulumi_AsksWhoseAStackIs(t *testing.T) {
	h := withStandIn(t)
	j := pulumiJob(t, h, workflow.Update, withResources("s", "x"))
	asks := func(op workflow.Operation, others ...api.OthersState) (*host, error) {
		t.Helper()
		one := &host{path: h.path, env: h.env, others: others}
		next := pulumiJob(t, h, op, withResources("s", "x"))
		next.StateDir = j.StateDir
		_, err := engine.Run(t.Context(), one, next)
		return one, err
	}
	one, err := asks(workflow.Update, api.OthersState{Workspace: "web"})
	refusedOwned(t, one, err, "the place of the state is that of workspace web")
	if left := filesBelow(t, j.StateDir); left["/.pulumi/stacks/demo/dev.json"] != "" {
		t.Errorf("it left %v", left)
	}
	if one, err = asks(workflow.Preview, api.OthersState{}); err != nil || !strings.Contains(one.text(), "WARNING: the place of the state is that of another workspace") {
		t.Errorf("preview: %v\n%s", err, one.text())
	}
	if one, err = asks(workflow.Update); err != nil || len(one.asked) != 1 || one.asked[0].Lineage != "" {
		t.Errorf("%v; asked for %+v", err, one.asked)
	}
}

// A place is told from others by its server too, and by nothing that is secret.
func TestPlaceID(t *testing.T) {
	env := func(name, value string) func(string) string {
		return func(asked string) string { return map[string]string{name: value}[asked] }
	}
	pg := func(conn string) string { return engine.PlaceID("pg", map[string]any{"conn_str": conn}, nil) }
	for name, pair := range map[string]struct {
		a, b string
		same bool
	}{
		"another password":              {pg("postgres://ann:one@db.example.com/tf"), pg("postgres://bob:two@db.example.com/tf"), true},
		"another database":              {pg("postgres://ann:one@db.example.com/tf"), pg("postgres://ann:one@db.example.com/other"), false},
		"a connection string":           {pg("host=db password=one dbname=tf"), pg("host=db user=x password=two dbname=tf"), true},
		"another host":                  {pg("host=db password=one dbname=tf"), pg("host=db2 password=one dbname=tf"), false},
		"nothing but a password":        {pg("user=x password=one"), pg("user=x password=two"), true},
		"a setting or its variable":     {pg("postgres://db/tf"), engine.PlaceID("pg", nil, env("PG_CONN_STR", "postgres://db/tf")), true},
		"another cluster":               {engine.PlaceID("kubernetes", nil, env("KUBE_CTX", "a")), engine.PlaceID("kubernetes", nil, env("KUBE_CTX", "b")), false},
		"another address":               {engine.PlaceID("http", nil, env("TF_HTTP_ADDRESS", "https://a/x")), engine.PlaceID("http", nil, env("TF_HTTP_ADDRESS", "https://a/y")), false},
		"another endpoint":              {engine.PlaceID("s3", map[string]any{"bucket": "b"}, nil), engine.PlaceID("s3", map[string]any{"bucket": "b"}, env("AWS_ENDPOINT_URL_S3", "http://minio")), false},
		"a region":                      {engine.PlaceID("s3", map[string]any{"bucket": "b", "region": "x"}, nil), engine.PlaceID("s3", map[string]any{"bucket": "b", "region": "y"}, nil), true},
		"another bucket":                {engine.PlaceID("s3", map[string]any{"bucket": "b"}, nil), engine.PlaceID("s3", map[string]any{"bucket": "c"}, nil), false},
		"another backend":               {engine.PlaceID("gcs", map[string]any{"bucket": "b"}, nil), engine.PlaceID("s3", map[string]any{"bucket": "b"}, nil), false},
		"another organization of cloud": {engine.PlaceID("cloud", nil, env("TF_CLOUD_ORGANIZATION", "a")), engine.PlaceID("cloud", nil, env("TF_CLOUD_ORGANIZATION", "b")), false},
	} {
		if (pair.a == pair.b) != pair.same {
			t.Errorf("%s: the same place is %t, want %t", name, pair.a == pair.b, pair.same)
		}
	}
}
