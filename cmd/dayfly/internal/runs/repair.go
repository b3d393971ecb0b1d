package runs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// RepairCommands are the commands of dayfly repair.
type RepairCommands struct {
	Unlock repairUnlock `cmd:"" help:"Free a workspace that a lost run still holds, once you know that its task is gone, or give up a state that a run could not write."`
	Own    repairOwn    `cmd:"" help:"Decide about the states of other workspaces that a run was refused, as an admin of all of them."`
}

type repairUnlock struct {
	Workspace string `arg:"" help:"The workspace."`
	cli.Confirmed
}

// Run shows which workflow holds the workspace, asks, and frees it of that workflow alone.
func (c *repairUnlock) Run(a *cli.App, cl *client.Client) error {
	slot, err := cl.Slot(a.Ctx, c.Workspace)
	if err != nil {
		return err
	}
	if slot.Refusal != "" || slot.Holder == nil {
		return cli.Refused(errors.New(slot.Refusal))
	}
	h := slot.Holder
	if slot.IsUnsaved {
		return c.giveUp(a, cl, h)
	}
	a.Say("%s", heldBy(slot, time.Now()))
	if err := c.Confirm(a, "this unlocks workspace %s, although nothing proves that task %s of workflow %s has ended", slot.Workspace, term.Clean(h.Task), h.ID); err != nil {
		return err
	}
	w, err := cl.Unlock(a.Ctx, c.Workspace, api.Unlock{Workflow: h.ID})
	if err != nil {
		return err
	}
	return a.Done(w, "workspace %s is free; %s", w.Workspace, cmp.Or(runtext.Aftermath(w), "dayfly why "+w.ID+" shows what happened"))
}

// giveUp lets runs change the state again that workflow h could not write.
func (c *repairUnlock) giveUp(a *cli.App, cl *client.Client, h *api.Workflow) error {
	ws, err := cl.Workspace(a.Ctx, h.Workspace)
	if err != nil {
		return err
	}
	get, push := api.PushErrored(h.ID, h.Workspace, ws.Engine)
	a.Say("workflow %s could not write its state, which it has stored as an artifact\nPush it instead, unless its resources are gone: %s, then %s", h.ID, get, push)
	if err := c.Confirm(a, "this gives up the state of workflow %s: the next run of workspace %s creates the same resources again", h.ID, h.Workspace); err != nil {
		return err
	}
	w, err := cl.Unlock(a.Ctx, c.Workspace, api.Unlock{Workflow: h.ID})
	if err != nil {
		return err
	}
	return a.Done(w, "workspace %s is free", w.Workspace)
}

type repairOwn struct {
	ID   string `arg:"" help:"The workflow that failed as state_owned."`
	Copy bool   `help:"The states are copies, or in places that only look the same: let both workspaces change theirs."`
	cli.Confirmed
}

// Run gives the states to the workspace of the workflow, or lets it have copies.
func (c *repairOwn) Run(a *cli.App, cl *client.Client) error {
	w, err := cl.Workflow(a.Ctx, c.ID)
	if err != nil {
		return err
	}
	if w.Reason != workflow.ReasonStateOwned {
		return cli.Refused(fmt.Errorf("workflow %s was refused no state: only one that failed as %s was", w.ID, workflow.ReasonStateOwned))
	}
	a.Say("%s", term.Clean(w.Detail))
	does := "this gives the states to workspace %s: the workspaces that have them now cannot change them any more"
	if c.Copy {
		does = "this lets workspace %s change the states beside the workspaces that have them now: make sure that each has its own"
	}
	if err := c.Confirm(a, does, w.Workspace); err != nil {
		return err
	}
	out, err := cl.Own(a.Ctx, w.ID, api.Own{IsCopy: c.Copy})
	if err != nil {
		return err
	}
	said := "%s of %s belongs to workspace %s now; to go on: dayfly workflow retry %s"
	if c.Copy {
		said = "%s of %s: workspace %s may change its own copy now; to go on: dayfly workflow retry %s"
	}
	return a.Done(out, said, text.Count(len(out.States), "state"), out.States[0].Workspace, w.Workspace, w.ID)
}

// heldBy says which run holds a workspace, and warns about the effects of unlocking it.
func heldBy(slot api.Slot, now time.Time) string {
	var b strings.Builder
	line := cli.Lines(&b, term.Style{}, "  ", 19)
	at := func(t *time.Time) string {
		if t == nil {
			return "never"
		}
		return fmt.Sprintf("%s (%s)", term.Time(*t), cli.Ago(t))
	}
	h := slot.Holder
	fmt.Fprintf(&b, "workspace %s is held by workflow %s\n", slot.Workspace, h.ID)
	line("run", runtext.What(*h)+", "+runtext.Ended(string(h.State), h.Reason))
	line("started", at(h.StartedAt))
	line("ended", at(h.EndedAt))
	line("task", cli.Dash(h.Task)+" of pool "+h.Pool)
	line("last sign of life", at(slot.LastSign))
	if slot.FreeAt != nil {
		line("free by itself", term.Time(*slot.FreeAt)+", or as soon as its task is seen to end")
	}
	if slot.LastSign != nil && now.Sub(*slot.LastSign) < workflow.Silence {
		b.WriteString("ITS RUNNER IS STILL ALIVE. If you unlock, it is told to kill its engine in the middle of its work.\n")
	}
	fmt.Fprintf(&b, "Unlocking gives the workspace to the next run now. If an engine still runs in that task, both change the state at the\n"+
		"same time, and one may undo or lose the work of the other. First make sure that the task is gone: look for its name\n"+
		"where pool %s runs its jobs.", term.Clean(h.Pool))
	return b.String()
}
