package httpapi_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// rule is a row of the table of docs/permissions.md: the least role that a call needs, and where.
type rule struct{ role, scope string }

// rules reads the table.
func rules(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]rule{}
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (none|viewer|operator|admin) \\| (organization|project|any) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = rule{m[2], m[3]}
	}
	if len(out) == 0 {
		t.Fatal("docs/permissions.md has no table of calls")
	}
	return out
}

// said is what the document says of a call of people.
func said(o operation) rule {
	m := regexp.MustCompile(`^Takes a user token with the role (\w+) or a higher one in the organization(.*)\.$`).FindStringSubmatch(o.Description)
	switch {
	case m == nil:
		return rule{"none", "any"}
	case strings.Contains(m[2], "in the project"):
		return rule{m[1], "project"}
	case strings.Contains(m[2], "in any project"):
		return rule{m[1], "any"}
	}
	return rule{m[1], "organization"}
}

// holder is somebody with one role somewhere.
type holder struct{ role, where string }

var ladder = []string{"none", api.RoleViewer, api.RoleOperator, api.RoleAdmin}

// holders are all roles in the organization, in the project of what is called for, above it and beside it.
func holders() []holder {
	out := []holder{{role: "none", where: "nowhere"}}
	for _, role := range ladder[1:] {
		for _, where := range []string{"organization", "payments", "teams", "shop"} {
			out = append(out, holder{role, where})
		}
	}
	return out
}

// may says whether the table lets a holder make a call about something in project payments, which lies below teams, as
// shop does.
func (r rule) may(h holder) bool {
	where := map[string][]string{
		"organization": {"organization"},
		"project":      {"organization", "payments", "teams"},
		"any":          {"organization", "payments", "teams", "shop"},
	}
	return r.role == "none" || slices.Index(ladder, h.role) >= slices.Index(ladder, r.role) && slices.Contains(where[r.scope], h.where)
}

// C16: the table of docs/permissions.md has every call that takes a user token, and each call does what it says: whoever
// the table allows is answered, everybody else is refused, and the refusal is audited.
func TestTable_IsWhatEveryRouteDoes(t *testing.T) {
	table := rules(t)
	for _, o := range operations(t, newWorld(t)) {
		if !strings.Contains(o.audience(), "user") {
			continue
		}
		want, ok := table[o.ID]
		if !ok {
			t.Errorf("%s is not in the table of docs/permissions.md", o.ID)
			continue
		}
		delete(table, o.ID)
		if got := said(o); got != want {
			t.Errorf("%s: the document says %v, docs/permissions.md %v", o.ID, got, want)
		}
		for _, h := range holders() {
			w := newTeam(t)
			in := w.about(o)
			in.token = w.tokenOf(t, h)
			answer := w.send(t, in)
			who := fmt.Sprintf("%s, called by %s in %s", o.ID, h.role, h.where)
			if !want.may(h) {
				if answer.Code != http.StatusForbidden {
					t.Errorf("%s: got %d, want 403: %s", who, answer.Code, answer.Body)
				}
				w.wantAudited(t, who)
				continue
			}
			switch answer.Code {
			case http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError:
				t.Errorf("%s: got %d: %s", who, answer.Code, answer.Body)
			case http.StatusNotFound:
				if want.scope == "project" {
					t.Errorf("%s: got %s: the test has nothing to call it for", who, answer.Body)
				}
			}
		}
	}
	for id := range table {
		t.Errorf("docs/permissions.md has %s, and there is no such call of people", id)
	}
}

// A pipeline that is not protected may make no call but those of viewers, though its rule makes it an admin: what submits
// and cancels is refused for all but the runs of its own commit. It is told why, and the refusal is audited.
func TestTable_AnUnprotectedPipelineOnlyViews(t *testing.T) {
	table := rules(t)
	for _, o := range operations(t, newWorld(t)) {
		if !strings.Contains(o.audience(), "user") {
			continue
		}
		w := newTeam(t)
		in := w.about(o)
		in.token = w.stored(t, map[string]any{"role": api.RoleAdmin, "pipeline": map[string]any{"host": "github.com", "repo": "acme/infra", "ref": "refs/pull/17/merge"}})
		answer := w.send(t, in)
		if role := table[o.ID].role; role == "none" || role == api.RoleViewer {
			if answer.Code == http.StatusForbidden || answer.Code == http.StatusUnauthorized || answer.Code == http.StatusInternalServerError {
				t.Errorf("%s: got %d: %s", o.ID, answer.Code, answer.Body)
			}
			continue
		}
		if answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "Run it on a protected ref, or name an environment") {
			t.Errorf("%s: got %d, want 403 and what to do: %s", o.ID, answer.Code, answer.Body)
		}
		w.wantAudited(t, o.ID+", called by an unprotected pipeline")
	}
}

// team is a world with projects, and with a workspace of project payments that has workflows.
type team struct {
	*world
	waits, ended string // ids of workflows
	tree         string // id of one that has not ended
}

func newTeam(t *testing.T) *team {
	t.Helper()
	w := &team{world: newWorld(t)}
	for _, p := range [][2]string{{"teams", "global"}, {"payments", "teams"}, {"shop", "teams"}} {
		w.keep(t, store.Key{Part: "org/default", Sort: "project/" + p[0]}, map[string]any{"name": p[0], "parent": p[1]})
	}
	admin := w.client(t, w.admin)
	_, _, err := admin.PutWorkspace(t.Context(), network("payments"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []*string{&w.ended, &w.waits} {
		made, err := admin.Submit(t.Context(), api.Submit{Workspace: "network", Operation: workflow.Preview})
		if err != nil {
			t.Fatal(err)
		}
		*id = made.ID
	}
	if _, err := admin.Cancel(t.Context(), w.ended, ""); err != nil {
		t.Fatal(err)
	}
	tree, err := admin.SubmitTree(t.Context(), api.NewTree{Workspace: "network", Operation: workflow.Update})
	if err != nil {
		t.Fatal(err)
	}
	w.tree = tree.ID
	return w
}

// network is the workspace that the document's examples name.
func network(project string) api.Workspace {
	return api.Workspace{
		Name: "network", Project: project, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
			Commands: map[string]string{"preview": "true", "update": "true"},
		},
	}
}

// about makes a request for an operation that is about something in project payments.
func (w *team) about(o operation) request {
	changed := network("payments")
	changed.Description = "changed"
	bodies := map[string]any{
		"put-workspace":    changed,
		"check-workspace":  changed,
		"submit-workflow":  api.Submit{Workspace: "network", Operation: workflow.Preview},
		"unlock-workspace": api.Unlock{Workflow: w.waits},
	}
	in := o.request()
	if body, ok := bodies[o.ID]; ok {
		text, _ := json.Marshal(body)
		in.body = string(text)
	}
	if in.body != "" {
		in.header["Content-Type"] = "application/json"
	}
	id := w.waits
	if o.ID == "retry-workflow" {
		id = w.ended
	}
	in.path = strings.ReplaceAll(in.path, "wf_01k1xz4m2p7q9r3s5t8v", id)
	in.path = strings.ReplaceAll(in.path, "tree_01k1xz4m2p7q9r3s5t8v", w.tree)
	return in
}

// tokenOf makes a token of somebody. One without any role is what is left when its project is gone.
func (w *team) tokenOf(t *testing.T, h holder) string {
	t.Helper()
	if _, err := w.client(t, w.admin).CreatePrincipal(t.Context(), api.NewPrincipal{Name: "somebody"}); err != nil && !errors.Is(err, workflow.ErrExists) {
		t.Fatal(err)
	}
	in := api.NewToken{Name: "somebody", Principal: "somebody"}
	switch h.where {
	case "nowhere":
		return w.stored(t, nil)
	case "organization":
		in.Role = h.role
	default:
		in.Grants = map[string]string{h.where: h.role}
	}
	made, err := w.client(t, w.admin).CreateToken(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return made.Value
}

// stored makes a token of somebody with the fields of its record as they are.
func (w *team) stored(t *testing.T, fields map[string]any) string {
	t.Helper()
	value := "dfu_" + strings.Repeat("n", 43)
	sum := sha256.Sum256([]byte(value))
	hash := hex.EncodeToString(sum[:])
	rec := map[string]any{"id": "tok_none", "org": "default", "aud": "user", "name": "somebody", "hash": hash, "principal": api.PrincipalRef{ID: "prn_none", Name: "somebody"}}
	maps.Copy(rec, fields)
	w.keep(t, store.Key{Part: "token/" + hash, Sort: "token"}, rec)
	return value
}

// keep stores a record as it is.
func (w *team) keep(t *testing.T, k store.Key, rec map[string]any) {
	t.Helper()
	data, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Commit(t.Context(), rand.Text(), store.Put(store.Record{Key: k, Value: data}, store.Absent)); err != nil {
		t.Fatal(err)
	}
}

// wantAudited checks that the last line of the audit trail is a refusal of somebody.
func (w *team) wantAudited(t *testing.T, who string) {
	t.Helper()
	trail, err := w.client(t, w.admin).Audit(t.Context(), api.AuditFilter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(trail.Items) != 1 || trail.Items[0].Outcome != "refused" || trail.Items[0].Actor != "somebody" || trail.Items[0].Action == "" {
		t.Errorf("%s: the refusal is not in the audit trail: %+v", who, trail.Items)
	}
}
