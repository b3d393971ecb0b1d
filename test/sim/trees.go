package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	metTree     = "a tree succeeds"
	metTreeFail = "a tree fails and skips what follows"
	metTreeEnd  = "a tree is cancelled"
	metTreePlan = "a tree follows a plan to the run that applies it"
)

// tree is a tree of runs as the store has it.
type tree struct {
	ID        string             `json:"id"`
	Workspace string             `json:"ws"`
	Op        workflow.Operation `json:"op"`
	State     string             `json:"state"`
	Cancelled *struct{}          `json:"cancelled"`
	Nodes     []treeNode         `json:"nodes"`

	version int64
}

type treeNode struct {
	Workspace string `json:"ws"`
	State     string `json:"state"`
	Run       string `json:"run"`
	Note      string `json:"note"`
	Blocked   string `json:"blocked"`
}

func (n treeNode) done() bool {
	return n.State == api.TreeSucceeded || n.State == api.TreeSkipped && n.Blocked == ""
}

func (t *tree) node(workspace string) *treeNode {
	i := slices.IndexFunc(t.Nodes, func(n treeNode) bool { return n.Workspace == workspace })
	if i < 0 {
		return nil
	}
	return &t.Nodes[i]
}

// trees lets people ask for trees in most worlds, and cancel some of them. Their workspaces depend on one another.
func (w *world) trees(r *rand.Rand) {
	p := w.people
	if !p.planned && r.IntN(2) == 0 {
		return
	}
	for i := range p.workspaces {
		w.depends(r, i)
	}
	for n := range 2 + r.IntN(5) {
		in := api.NewTree{Workspace: p.workspaces[r.IntN(2)], Operation: workflow.Update, Every: r.IntN(2) == 0}
		if r.IntN(4) == 0 {
			in.Operation = workflow.Destroy
		}
		who, at, id := p.deciders[r.IntN(len(p.deciders))], between(r, 0, troubleFor*2/3), ""
		w.after(at, "tree", func() {
			p.call("tree", func(ctx context.Context, c *controlplane.Plane) error {
				made, err := c.SubmitTree(ctx, who, fmt.Sprint("tree-", n), in)
				if id != "" && made.ID != "" && id != made.ID {
					w.fail("a key makes one tree", "%s, and %s", id, made.ID)
				}
				if made.ID != "" {
					id = made.ID
				}
				return err
			})
		})
		if r.IntN(3) == 0 {
			w.after(at+between(r, time.Second, 40*time.Minute), "cancel tree", func() {
				if id != "" {
					p.call("tree", func(ctx context.Context, c *controlplane.Plane) error {
						_, err := c.CancelTree(ctx, p.admin, id, api.WithReason{})
						if errors.Is(err, workflow.ErrConflict) {
							return nil // it has ended
						}
						return err
					})
				}
			})
		}
	}
}

// decideAll withdraws the plans of trees that nobody has decided on, again and again: a plan may wait for days.
func (w *world) decideAll() {
	for _, id := range slices.Sorted(maps.Keys(w.truth.trees)) {
		for _, n := range w.truth.trees[id].Nodes {
			if n.State == api.TreeRunning && n.Note == api.TreeAwaits {
				w.people.cancelID(n.Run)
			}
		}
	}
	w.after(30*time.Minute, "decide on all plans", w.decideAll)
}

// call makes a call of people until it is answered.
func (p *people) call(name string, f func(context.Context, *controlplane.Plane) error) {
	p.again(name, func() error {
		return tells(p.w.ctx, p.w, p.w.other(person), plane, name, func(ctx context.Context) error {
			return p.w.cp.do(name, func(c *controlplane.Plane) error { return f(ctx, c) })
		})
	})
}

// depends lets a workspace run after some of those before it.
func (w *world) depends(r *rand.Rand, i int) string {
	var on []string
	for _, name := range w.people.workspaces[:i] {
		if r.IntN(2) == 0 {
			on = append(on, name)
		}
	}
	name := w.people.workspaces[i]
	w.people.change(name, func(ws *api.Workspace) { ws.After = on })
	return fmt.Sprintf("workspace %s runs after %v", name, on)
}

// on is on what each workspace depends now.
func (w *world) on() map[string][]string {
	g, _ := stored[struct {
		On map[string][]string `json:"on"`
	}](w, store.Key{Part: "org/default", Sort: "graph"})
	return g.On
}

// before are the nodes of a tree that are done before one of it begins.
func (w *world) before(t *tree, name string) (out []treeNode) {
	on := w.on()
	for _, n := range t.Nodes {
		first, then := n.Workspace, name
		if t.Op == workflow.Destroy {
			first, then = then, first
		}
		if first != then && slices.Contains(on[then], first) {
			out = append(out, n)
		}
	}
	return out
}

// grew is called with every commit that writes a tree, also with one that did not take place.
func (w *world) grew(id string) {
	found, version := versioned[tree](w, store.Key{Part: "tree/default", Sort: id})
	now, old := &found, w.truth.trees[id]
	if version == 0 || old != nil && old.version == version {
		return
	}
	now.version = version
	w.truth.trees[id] = now
	if old == nil {
		return
	}
	if old.State != api.TreeRunning {
		w.fail("a tree ends once", "%s was %s and is written again: %s", id, old.State, now.State)
	}
	for i, n := range now.Nodes {
		was := old.Nodes[i]
		switch {
		case was == n:
		case was.State != api.TreeWaiting && was.State != api.TreeRunning:
			w.fail("a node ends once", "%s of %s was %+v and is %+v", n.Workspace, id, was, n)
		case was.Run == "" && n.Run != "":
			w.begins(now, n)
		case was.Run != n.Run:
			if w.truth.review(was.Run).Applies != n.Run {
				w.fail("a node has one run", "%s of %s has %s after %s", n.Workspace, id, n.Run, was.Run)
			}
			w.met[metTreePlan]++
		}
	}
	if now.State != api.TreeRunning {
		w.treeEnded(now)
	}
}

// begins: the run of a node is submitted when all nodes before it are done, by what depends on what at that moment, and
// never after the tree was cancelled.
func (w *world) begins(t *tree, n treeNode) {
	for _, b := range w.before(t, n.Workspace) {
		if !b.done() {
			w.fail("a node begins after those before it", "%s of %s begins with %s while %s is %s", n.Workspace, t.ID, n.Run, b.Workspace, b.State)
		}
	}
	if t.Cancelled != nil {
		w.fail("nothing of a cancelled tree begins", "%s of %s begins with %s", n.Workspace, t.ID, n.Run)
	}
	if r := w.truth.of(n.Run); r.Workspace != n.Workspace || r.Trigger == nil || r.Trigger.Name != t.ID {
		w.fail("a node has its own run", "%s of %s begins with %+v", n.Workspace, t.ID, *r)
	}
}

// treeEnded: each node stands as its run ended, and what is skipped is so for a reason.
func (w *world) treeEnded(t *tree) {
	failed := false
	for _, n := range t.Nodes {
		r, review := w.truth.of(n.Run), w.truth.review(n.Run)
		ok := false
		switch n.State {
		case api.TreeSucceeded:
			ok = r.State == workflow.Succeeded
		case api.TreeFailed:
			failed = true
			ok = n.Run == "" || r.State == workflow.Failed || r.For != "" && review.Status != api.ReviewApproved
		case api.TreeCancelled:
			ok = n.Run == "" && t.Cancelled != nil || r.State == workflow.Cancelled || review.Status == api.ReviewRejected
		case api.TreeSkipped:
			ok = n.Run == "" && n.Blocked == ""
			if b := t.node(n.Blocked); b != nil {
				w.met[metTreeFail]++
				ok = n.Run == "" && (b.State == api.TreeFailed || b.State == api.TreeCancelled) && strings.HasPrefix(n.Note, b.Workspace)
			}
		}
		if !ok {
			w.fail("a node ends as its run", "%s: %+v, and its run is %s, its plan %q", t.ID, n, r.State, review.Status)
		}
	}
	switch {
	case failed && t.State == api.TreeSucceeded:
		w.fail("a tree ends as its nodes", "%+v", *t)
	case t.State == api.TreeSucceeded:
		w.met[metTree]++
	case t.State == api.TreeCancelled:
		w.met[metTreeEnd]++
	}
}

// notHeldBack is called after a pass that had no error and in which nothing else happened: no node waits but for nodes
// that are not done.
func (w *world) notHeldBack() {
	for _, id := range slices.Sorted(maps.Keys(w.truth.trees)) {
		t := w.truth.trees[id]
		for _, n := range t.Nodes {
			waits := n.State != api.TreeWaiting
			for _, b := range w.before(t, n.Workspace) {
				waits = waits || !b.done()
			}
			if !waits {
				w.fail("branches are not held back", "%s of %s waits for nothing after a pass: %+v", n.Workspace, id, *t)
			}
		}
	}
}

// treeRun says which node of a tree has made a run.
func (w *world) treeRun(r *record) string {
	return fmt.Sprintf("workspace %s of tree %s", r.Workspace, r.Trigger.Name)
}

// treesEnd checks that every tree has ended.
func (w *world) treesEnd() {
	for _, id := range slices.Sorted(maps.Keys(w.truth.trees)) {
		if t := w.truth.trees[id]; t.State == api.TreeRunning {
			w.fail("every tree ends", "%s is still running: %+v", id, *t)
		}
	}
	w.empty("tree-open/default")
}
