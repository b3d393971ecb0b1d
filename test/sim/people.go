package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// people submit and cancel, and repeat until they get an answer.
type people struct {
	w          *world
	admin      controlplane.Principal
	planned    bool                     // approvals may be required
	deciders   []controlplane.Principal // who submits and decides
	workspaces []string
	settings   map[string]api.Workspace // as they were registered
	ids        map[int]string           // of workflows, by the entry that submitted them
	asked      []asked
	retried    map[string]int // keys under which a retry of a workflow was asked for
	asking     int
}

// asked is what an entry of the schedule asked for.
type asked struct {
	index int
	in    api.Submit
}

func (p *people) idle() bool { return p.asking == 0 }

// again repeats something until it is answered.
func (p *people) again(what string, f func() error) {
	p.asking++
	var try func(n int)
	try = func(n int) {
		err := f()
		if err != nil && transient(err) && n < 300 {
			p.w.after(5*time.Second, what, func() { try(n + 1) })
			return
		}
		p.asking--
	}
	try(0)
}

// kinds of workflow, the more frequent ones several times.
var kinds = []struct {
	t  workflow.Type
	op workflow.Operation
}{
	{workflow.Deployment, workflow.Update}, {workflow.Deployment, workflow.Update}, {workflow.Deployment, workflow.Update},
	{workflow.Deployment, workflow.Destroy}, {workflow.Deployment, workflow.Refresh}, {workflow.Deployment, workflow.Preview},
	{workflow.InsightsScan, ""},
}

func (p *people) submit(index int, r *rand.Rand) string {
	k := kinds[r.IntN(len(kinds))]
	in := api.Submit{Workspace: p.workspaces[r.IntN(len(p.workspaces))], Type: k.t, Operation: k.op, Priority: new(r.IntN(3) - 1), Message: strconv.Itoa(index)}
	if x := p.w.roll("push", index).IntN(8); x == 0 && p.planned && k.t == workflow.Deployment {
		in.Operation, in.Push = workflow.StatePush, &api.PushedState{SHA256: strings.Repeat("5", 64), Size: 5}
	}
	p.asked = append(p.asked, asked{index, in})
	p.again("submit", func() error { return p.ask(index, in) })
	return fmt.Sprintf("submit %s %s of %s", k.t, in.Operation, in.Workspace)
}

// ask submits what an entry of the schedule asks for, under the key of that entry.
func (p *people) ask(index int, in api.Submit) error {
	out, err := p.send(index, in)
	if err == nil {
		if before := p.ids[index]; before != "" && before != out.ID {
			p.w.fail("a key makes one workflow", "entry %d was answered with %s, and with %s", index, before, out.ID)
		}
		p.ids[index] = out.ID
		p.w.tell("entry %d is workflow %s", index, out.ID)
	}
	return err
}

func (p *people) send(index int, in api.Submit) (api.Workflow, error) {
	return ask(p.w.ctx, p.w, p.w.other(person), plane, "submit", func(ctx context.Context) (out api.Workflow, err error) {
		lost := p.w.cp.do("submit", func(c *controlplane.Plane) error {
			out, err = c.Submit(ctx, p.deciders[index%len(p.deciders)], fmt.Sprintf("entry-%d", index), in)
			return err
		})
		return out, lost
	})
}

func (p *people) cancel(of int) {
	if id := p.ids[of]; id != "" {
		p.cancelID(id)
	}
}

func (p *people) cancelID(id string) {
	p.again("cancel", func() error {
		return tells(p.w.ctx, p.w, p.w.other(person), plane, "cancel", func(ctx context.Context) error {
			return p.w.cp.do("cancel", func(c *controlplane.Plane) error {
				_, err := c.Cancel(ctx, p.admin, id, api.WithReason{})
				return err
			})
		})
	})
}

// set changes a setting.
func (p *people) set(what string, f func(context.Context, *controlplane.Plane) error) {
	p.again(what, func() error {
		return tells(p.w.ctx, p.w, p.w.other(person), plane, "set "+what, func(ctx context.Context) error {
			return p.w.cp.do("set", func(c *controlplane.Plane) error { return f(ctx, c) })
		})
	})
}

// put changes a workspace.
func (p *people) put(r *rand.Rand, what string, change func(*api.Workspace)) string {
	name := p.workspaces[r.IntN(len(p.workspaces))]
	p.change(name, change)
	return fmt.Sprintf("workspace %s: %s", name, what)
}

// change changes one workspace.
func (p *people) change(name string, change func(*api.Workspace)) {
	p.set("workspace "+name, func(ctx context.Context, c *controlplane.Plane) error {
		ws, err := c.Workspace(ctx, p.admin, name)
		if err != nil {
			return err
		}
		change(&ws)
		_, _, err = c.PutWorkspace(ctx, p.admin, ws)
		return err
	})
}

// retry submits a workflow that has ended once more.
func (p *people) retry(r *rand.Rand) string {
	var over []string
	for _, id := range p.w.truth.order {
		if p.w.truth.records[id].State.Terminal() {
			over = append(over, id)
		}
	}
	if len(over) == 0 {
		return "nothing to retry"
	}
	id, key := over[r.IntN(len(over))], fmt.Sprintf("retry-%d", p.w.steps)
	p.retried[id]++
	p.again("retry", func() error {
		return tells(p.w.ctx, p.w, p.w.other(person), plane, "retry", func(ctx context.Context) error {
			return p.w.cp.do("retry", func(c *controlplane.Plane) error {
				_, err := c.Retry(ctx, p.admin, key, id, api.WithReason{})
				return err
			})
		})
	})
	return "retry " + id
}
