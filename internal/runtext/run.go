// Package runtext describes runs in plain words, so that the console, the commands, comments in pull requests and
// notifications use the same words for the same fact. Its functions are pure. They know no colour, HTML or Markdown,
// and return foreign text as it is: the caller escapes it for its medium.
package runtext

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Words for states of a run that are not names of states.
const (
	Cancelling = "cancelling"
	ToApprove  = "to approve"
)

// What names the operation of a run: "preview for update", "scan".
func What(w api.Workflow) string {
	name, detail := operation(w)
	return name + detail
}

// Title names the operation of a run with its workspace: "preview of net for update".
func Title(w api.Workflow) string {
	name, detail := operation(w)
	return name + " of " + w.Workspace + detail
}

func operation(w api.Workflow) (name, detail string) {
	switch name = strings.ReplaceAll(string(cmp.Or(w.Operation, workflow.Operation(w.Type))), "_", " "); {
	case w.Type == workflow.InsightsScan:
		return "scan", ""
	case w.Applies != "":
		return name, " as approved"
	case w.For != "":
		return name, " for " + string(w.For)
	}
	return name, ""
}

// State is where a run stands, by the name of its state or a word that says more.
func State(w api.Workflow) string {
	switch {
	case w.CancelRequested && !w.State.Terminal():
		return Cancelling
	case w.ToApprove && w.State == workflow.Succeeded:
		return ToApprove
	}
	return string(w.State)
}

// Ended adds the name of its reason to how a run ended: "failed (step_failed)".
func Ended(how string, r workflow.Reason) string {
	if r == workflow.ReasonNone || r == workflow.ReasonCancelled {
		return how
	}
	return how + " (" + string(r) + ")"
}

// Took is how long a run has run, or ran in all; empty before its start.
func Took(w api.Workflow, now time.Time) string {
	if w.StartedAt == nil {
		return ""
	}
	if w.EndedAt != nil {
		now = *w.EndedAt
	}
	return Long(now.Sub(*w.StartedAt))
}

// Long is how long something took.
func Long(d time.Duration) string {
	if d < 50*time.Millisecond {
		return "<0.1s"
	}
	return text.Duration(d)
}

// Step is a step in a line: its name, its duration and its text.
func Step(s api.Step) string {
	said := s.Name
	if s.Status != workflow.StepRunning && s.Status != workflow.StepSkipped {
		said += " " + Long(api.Seconds(s.Seconds))
	}
	if s.Text != "" {
		said += ": " + s.Text
	}
	return said
}

// Output is the value of an output in one line.
func Output(o api.Output) string {
	if o.Sensitive {
		return "(sensitive)"
	}
	if s, ok := o.Value.(string); ok && strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s) // each of its lines can be told apart
	}
	return text.Value(o.Value)
}

// Options are the options of a run, each with its name in words.
func Options(o *api.Options) []api.Asked {
	all := o.Asked()
	for i := range all {
		all[i].Name = strings.ReplaceAll(all[i].Name, "_", " ")
	}
	return all
}

// Slot says why a workspace is held by a run that has ended; empty if it is not.
func Slot(w api.Workflow) string {
	if !w.SlotHeld || !w.State.Terminal() {
		return ""
	}
	return fmt.Sprintf("workspace %s is still held: nothing proves yet that the task has ended", w.Workspace)
}

// Lock says who holds the lock of the state, and for which operation.
func Lock(l api.Lock) string {
	said := "held by " + cmp.Or(l.Who, "somebody")
	if l.Operation != "" {
		said += " (" + l.Operation + ")"
	}
	return said
}

// Unlock is the command that releases the lock of a workspace's state.
func Unlock(workspace string, l api.Lock) string {
	return "dayfly state unlock " + workspace + " " + l.ID
}

// Tree names the operation of a tree: "update of net and all that depend on it".
func Tree(t api.Tree) string {
	return fmt.Sprintf("%s of %s and all that depend on it", t.Operation, t.Workspace)
}

// TreeState is where a tree stands.
func TreeState(t api.Tree) string {
	if t.CancelRequested && t.EndedAt == nil {
		return Cancelling
	}
	return t.State
}

// Nodes are the nodes of a tree in the order of their runs: a destroy goes from the last to the first.
func Nodes(t api.Tree) []api.TreeNode {
	nodes := slices.Clone(t.Nodes)
	if t.Operation == workflow.Destroy {
		slices.Reverse(nodes)
	}
	return nodes
}

// Node is the state of a node of a tree, with a note why, or which other nodes it waits for.
func Node(n api.TreeNode) (state, note string) {
	switch {
	case n.Note == api.TreeAwaits:
		return ToApprove, n.Note
	case n.Note == "" && len(n.WaitsFor) > 0:
		return n.State, "waits for " + strings.Join(n.WaitsFor, ", ")
	}
	return n.State, n.Note
}
