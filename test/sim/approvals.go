package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// What some world must have met.
const (
	metApplied = "an approved plan is applied"
	metByRule  = "a plan needs no approval"
	metRejects = "a plan is rejected"
	metExpired = "an approval comes too late"
	metStale   = "a plan does not fit any more"
	metUnasked = "a run starts without the approval that is required by now"
)

// review is the review of a plan as the store has it.
type review struct {
	Status string             `json:"status"`
	For    workflow.Operation `json:"for"`
	Plan   struct {
		Attempt int    `json:"attempt"`
		SHA256  string `json:"sha256"`
		Empty   bool   `json:"empty"`
	} `json:"plan"`
	Needed  int        `json:"needed"`
	Votes   []api.Vote `json:"votes"`
	Applies string     `json:"applies"`
}

func (t *truth) review(id string) *review {
	r, _ := stored[review](t.w, store.Key{Part: "wf/" + id, Sort: "review"})
	return &r
}

// reviews are what is known of the plans of previews.
type reviews struct {
	now      map[string]*review
	settings map[string]string // of the workspace, when the preview was submitted
	serials  map[string]int    // of the state of each workspace: it rises with each run that changes it
	decided  map[decision]bool // decisions that were answered with success
	applied  map[string]string // the run that applies a plan
	read     time.Duration     // when the call began whose commit is looked at
	changed  time.Duration     // when a workspace, a project or what they require last changed
}

func newReviews() *reviews {
	return &reviews{now: map[string]*review{}, settings: map[string]string{}, serials: map[string]int{}, decided: map[decision]bool{}, applied: map[string]string{}}
}

// decision is what somebody decided about the plan of a preview.
type decision struct {
	id, by string
	reject bool
}

// requires makes a world in which approvals may be required: its workspaces have an engine that plans, and there are
// operators besides the admin.
func (w *world) requires(r *rand.Rand) {
	p, rules := w.people, w.cp.server().rules
	p.deciders = []controlplane.Principal{p.admin}
	if p.planned = r.IntN(2) == 0; !p.planned {
		return
	}
	for _, name := range []string{"ada", "bob"} {
		token := must(rules.CreateToken(w.ctx, p.admin, api.NewToken{Name: name, Role: api.RoleOperator})).Value
		w.guard.secret(token)
		p.deciders = append(p.deciders, must(rules.Authenticate(w.ctx, token)))
	}
	for i, name := range p.workspaces {
		ws := p.settings[name]
		if i == 0 || r.IntN(4) > 0 {
			ws.Engine, ws.Commands = api.EngineTerraform, nil
		}
		if r.IntN(2) == 0 {
			ws.Approval = requirement(r)
		}
		_, _, err := rules.PutWorkspace(w.ctx, p.admin, ws)
		must(0, err)
		p.settings[name] = ws
	}
	w.require(r)
}

// requirement is what some level requires.
func requirement(r *rand.Rand) *api.Approval {
	return &api.Approval{
		Required: true, NotBySubmitter: r.IntN(3) == 0, Expires: []string{"", "5m", "15m"}[r.IntN(3)],
		Rules: [][]string{nil, nil, {"destroys"}, {"changes > 3"}}[r.IntN(4)],
	}
}

// require changes what a level requires.
func (w *world) require(r *rand.Rand) string {
	p, a := w.people, requirement(r)
	if r.IntN(4) == 0 {
		a = &api.Approval{}
	}
	switch level := r.IntN(4); {
	case !p.planned:
		return "nobody requires approvals here"
	case level == 0:
		p.set("organization", func(ctx context.Context, c *controlplane.Plane) error {
			_, err := c.UpdateOrganization(ctx, p.admin, api.OrganizationSettings{Approval: a})
			return err
		})
		return "the organization requires approvals: " + a.Text()
	case level == 1:
		name := projects[r.IntN(len(projects))]
		w.project(name, api.ProjectSettings{Approval: a})
		return fmt.Sprintf("project %s requires approvals: %s", name, a.Text())
	}
	return p.put(r, "approvals "+a.Text(), func(ws *api.Workspace) { ws.Approval = a })
}

// look lets people look at a plan that waits: some approve it and some reject it, now and then at once, late, or by the
// wrong name.
func (p *people) look(id, sha256 string) {
	r := p.w.roll("look", id)
	at := between(r, time.Second, []time.Duration{time.Minute, 25 * time.Minute}[r.IntN(2)])
	for range 1 + r.IntN(3) {
		who, in, reject := p.deciders[r.IntN(len(p.deciders))], api.Decision{SHA256: sha256}, r.IntN(5) == 0
		if r.IntN(8) == 0 {
			in.SHA256 = strings.Repeat("0", 64)
		}
		p.w.after(at, "decide", func() { p.decide(who, id, in, reject) })
		at += between(r, 0, 20*time.Second)
	}
	if r.IntN(3) == 0 {
		last := between(r, time.Second, 90*time.Second)
		p.w.after(at/2, "decisions meet", func() {
			if !p.w.healed {
				p.w.set(trap{from: plane, to: "store", call: "decide", do: storeStop, last: last})
			}
		})
	}
}

func (p *people) decide(who controlplane.Principal, id string, in api.Decision, reject bool) {
	do := (*controlplane.Plane).Approve
	if reject {
		do = (*controlplane.Plane).Reject
	}
	p.again("decide", func() error {
		err := tells(p.w.ctx, p.w, p.w.other(person), plane, "decide", func(ctx context.Context) error {
			return p.w.cp.do("decide", func(c *controlplane.Plane) error {
				_, err := do(c, ctx, who, id, in)
				return err
			})
		})
		if err == nil {
			p.w.truth.plans.decided[decision{id, who.Name, reject}] = true
			if in.SHA256 != p.w.truth.review(id).Plan.SHA256 {
				p.w.fail("an approval names its plan", "%s decided about %s by another sha256", who.Name, id)
			}
		}
		if err != nil && strings.Contains(err.Error(), "nobody approved") {
			p.w.met[metExpired]++
		}
		if errors.Is(err, workflow.ErrConflict) {
			return nil // it is refused, and stays so
		}
		return err
	})
}

// settingsOf is what counts of the settings of a workspace for a plan, and levels what is required of its runs by now.
func (w *world) settingsOf(r *record) (settings, editor string, levels []api.Approval) {
	ws, ok := stored[struct {
		ID string         `json:"id"`
		W  map[string]any `json:"w"`
		By string         `json:"by"`
	}](w, store.Key{Part: "org/default", Sort: "workspace/" + r.Workspace})
	if !ok || ws.ID != r.WorkspaceID {
		return "", "", nil
	}
	var own api.Workspace
	must(0, json.Unmarshal(must(json.Marshal(ws.W)), &own))
	add := func(name string) {
		if a, _ := stored[api.Approval](w, store.Key{Part: "org/default", Sort: "approval/" + name}); a.Required {
			levels = append(levels, a)
		}
	}
	add("")
	for name := cmp.Or(own.Project, projects[0]); name != ""; {
		add(name)
		above, _ := stored[struct{ Parent string }](w, store.Key{Part: "org/default", Sort: "project/" + name})
		name = above.Parent
	}
	if own.Approval != nil {
		levels = append(levels, *own.Approval)
	}
	for _, name := range []string{"id", "version", "description", "default_priority", "max_active", "approval", "after"} {
		delete(ws.W, name)
	}
	return string(must(json.Marshal(ws.W))), ws.By, levels
}

// changesOf are the changes that a preview plans.
func (w *world) changesOf(id string) (c api.Changes, empty bool) {
	r := w.roll("changes", id)
	if r.IntN(8) == 0 {
		return c, true
	}
	return api.Changes{Add: 1 + r.IntN(4), Destroy: max(0, r.IntN(5)-2)}, false
}

// wants says whether a level wants a plan approved.
func wants(a api.Approval, op workflow.Operation, c api.Changes) bool {
	return op == workflow.StatePush || len(a.Rules) == 0 || slices.Contains(a.Rules, "destroys") && c.Destroy > 0 ||
		slices.Contains(a.Rules, "changes > 3") && c.Add+c.Destroy > 3
}

// reviewed is called with every commit that writes the review of a preview. It ends in one status.
func (w *world) reviewed(id string) {
	p, now := w.truth.plans, w.truth.review(id)
	old, r := p.now[id], run(w, id)
	if now.For == "" {
		return // it was not committed
	}
	if p.now[id] = now; old == nil {
		p.settings[id], _, _ = w.settingsOf(&r)
		return
	}
	final := old.Status != "" && old.Status != api.ReviewWaiting
	if final && (now.Status != old.Status || now.Applies != old.Applies || len(now.Votes) != len(old.Votes)) || old.Status != "" && now.Plan != old.Plan {
		w.fail("a review ends once", "that of %s was %+v and is %+v", id, *old, *now)
	}
	w.listed(id, now)
	if now.Status == old.Status {
		return
	}
	switch now.Status {
	case api.ReviewWaiting:
		w.people.look(id, now.Plan.SHA256)
	case api.ReviewRejected:
		w.met[metRejects]++
	case api.ReviewApproved:
		w.isApproved(&r, now)
	}
}

func run(w *world, id string) record {
	r, _ := stored[record](w, store.Key{Part: "wf/" + id, Sort: "wf"})
	return r
}

// listed: the list of the plans that wait has those that do, and no others.
func (w *world) listed(id string, now *review) {
	_, is := stored[struct{}](w, store.Key{Part: "review/default", Sort: id})
	if is != (now.Status == api.ReviewWaiting) {
		w.fail("the list of what waits is true", "the plan of %s is %q, in the list: %t", id, now.Status, is)
	}
}

// isApproved: a plan is approved in time, as it was made, by as many others as are wanted at the commit.
func (w *world) isApproved(r *record, now *review) {
	settings, editor, levels := w.settingsOf(r)
	changes, empty := w.changesOf(r.ID)
	wanted, other, expires, last := false, false, 72*time.Hour, time.Time{}
	for _, a := range levels {
		d, _ := time.ParseDuration(cmp.Or(a.Expires, "72h"))
		expires = min(expires, d)
		wants := wants(a, r.For, changes) && (!empty || r.For == workflow.StatePush)
		wanted, other = wanted || wants, other || wants && a.NotBySubmitter
	}
	by := map[string]bool{}
	for _, v := range now.Votes {
		last = v.At
		if v.Reject {
			w.fail("one decision wins", "the plan of %s was rejected by %s, and is approved", r.ID, v.By)
		}
		if !other || v.By != r.By && v.By != editor {
			by[v.By] = true
		}
	}
	switch {
	case settings == "", settings != w.truth.plans.settings[r.ID], !last.Before(r.Ended.Add(expires)):
		w.fail("a plan is approved as it was made, and in time", "that of %s, which ended %s, was approved at %s, within %s; its settings were %s and are %s",
			r.ID, r.Ended, last, expires, w.truth.plans.settings[r.ID], settings)
	case len(by) < max(now.Needed, 1), wanted && by["rule"]:
		w.fail("who is to approve does", "the plan of %s needs %d, not by the submitter %t, wanted %t, and has %v", r.ID, now.Needed, other, wanted, now.Votes)
	}
	if by["rule"] {
		w.met[metByRule]++
	}
}

// applies: a plan is applied by one run, which is made when it is approved.
func (w *world) applies(r *record) {
	p, of := w.truth.plans, w.truth.review(r.PlanOf)
	if before := p.applied[r.PlanOf]; before != "" || of.Status != api.ReviewApproved || of.Applies != r.ID {
		w.fail("a plan is applied once, if it was approved", "%s applies that of %s, before it %q; its review is %+v", r.ID, r.PlanOf, before, *of)
	}
	p.applied[r.PlanOf] = r.ID
}

// permitted: nothing that changes a state starts without the approval that its workspace required when it was looked at.
// What is approved starts as it was approved, at the commit.
func (w *world) permitted(r *record) {
	settings, _, levels := w.settingsOf(r)
	of := w.truth.review(r.PlanOf)
	switch {
	case r.PlanOf == "" && len(levels) > 0 && w.truth.plans.changed < w.truth.plans.read:
		w.fail("what is to be approved does not start without", "%s %s starts, and %d levels require approvals", r.Op, r.ID, len(levels))
	case r.PlanOf != "" && (of.Status != api.ReviewApproved || of.Applies != r.ID || settings != w.truth.plans.settings[r.PlanOf]):
		w.fail("a plan starts as it was approved", "%s applies that of %s, with the review %+v and the settings %s; they were %s",
			r.ID, r.PlanOf, *of, settings, w.truth.plans.settings[r.PlanOf])
	}
}

// hasPlan: only who has a plan claims the run that applies it.
func (w *world) hasPlan(r *record) {
	of := w.truth.review(r.PlanOf)
	key := api.ArtifactKey("default", r.WorkspaceID, r.PlanOf, of.Plan.Attempt, bundleName)
	for _, s := range w.stacks {
		if s.who.PoolID == r.PoolID && "stack-"+s.name == r.Instance && s.place.has[key] == nil {
			w.fail("who has a plan claims its run", "%s was claimed by %s, which has no %s", r.ID, s.name, key)
		}
	}
}

// decisionsAreKept: what was answered with success is on record, and everything that waits is in the list.
func (w *world) decisionsAreKept() {
	for d := range w.truth.plans.decided {
		if !slices.ContainsFunc(w.truth.review(d.id).Votes, func(v api.Vote) bool { return v.By == d.by && v.Reject == d.reject }) {
			w.fail("a decision that was taken is on record", "%+v", d)
		}
	}
	list := w.truth.partition("review/default")
	for id, r := range w.truth.plans.now {
		w.listed(id, r)
		delete(list, id)
	}
	if len(list) > 0 {
		w.fail("the list of what waits is true", "there are no reviews of %v", list)
	}
}
