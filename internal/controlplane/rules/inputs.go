package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Fed has the inputs of a workspace at some moment.
type Fed struct {
	Variables map[string]any      // of outputs that are not sensitive
	Sensitive []record.GivenInput // those whose values lie in an artifact
	Missing   string              // names the missing output and its workspace, and the remedy; empty if none is missing
	// Digest covers the names and values of all inputs. For a sensitive one the revision of its workspace stands for
	// its value. It is empty if there are no inputs, or if one is missing.
	Digest string
}

// Source is a workspace whose outputs others take, as it is now.
type Source struct {
	ID       string // of the workspace; empty: there is none
	Ran      bool   // Produced exists
	Produced record.Produced
	Expires  time.Time // of the artifact of its sensitive outputs
}

// Feed returns the inputs of a run. from has each workspace that they name. A variable that the run itself sets is
// not taken from another workspace, unless the input is sensitive: so a run is possible although its input is
// missing. It is a pure function.
func Feed(inputs []api.WorkspaceInput, from map[string]Source, own map[string]any, now time.Time) (out Fed) {
	type part struct {
		Variable  string `json:"variable"`
		Value     any    `json:"value,omitempty"`
		Workspace string `json:"workspace,omitempty"` // the rest of a sensitive one
		Output    string `json:"output,omitempty"`
		Revision  int64  `json:"revision,omitempty"`
	}
	var parts []part
	for _, in := range inputs {
		name := cmp.Or(in.Variable, in.Output)
		if _, set := own[name]; set && !in.Sensitive {
			parts = append(parts, part{Variable: name, Value: own[name]})
			continue
		}
		src := from[in.Workspace]
		value, sensitive, missing := findOutput(in, src, now)
		if missing != "" {
			return Fed{Missing: missing}
		}
		if !sensitive {
			if out.Variables == nil {
				out.Variables = map[string]any{}
			}
			out.Variables[name] = value
			parts = append(parts, part{Variable: name, Value: value})
			continue
		}
		p := src.Produced
		out.Sensitive = append(out.Sensitive, record.GivenInput{
			Input: in, Workflow: p.Workflow, Attempt: p.Attempt, Artifact: *p.Sensitive, Expires: src.Expires,
		})
		parts = append(parts, part{Variable: name, Workspace: src.ID, Output: in.Output, Revision: p.Revision})
	}
	if len(inputs) == 0 {
		return out
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.Variable, b.Variable) })
	data, err := json.Marshal(parts) // maps are sorted
	if err != nil {
		panic(fmt.Sprintf("controlplane: encode inputs: %v", err)) // they were decoded from JSON
	}
	sum := sha256.Sum256(data)
	out.Digest = hex.EncodeToString(sum[:])
	return out
}

// findOutput is the output that an input takes, or why it is missing.
func findOutput(in api.WorkspaceInput, src Source, now time.Time) (value any, sensitive bool, missing string) {
	p := src.Produced
	lacks := func(format string, args ...any) (any, bool, string) {
		return nil, false, fmt.Sprintf("output %s of workspace %s is missing: ", in.Output, in.Workspace) + fmt.Sprintf(format, args...)
	}
	again := fmt.Sprintf("run an update of %s once", in.Workspace)
	switch {
	case src.ID == "":
		return lacks("there is no such workspace any more; correct inputs")
	case !src.Ran:
		return lacks("no run has produced outputs yet; %s", again)
	case p.Op == workflow.Destroy:
		return lacks("%s destroyed it; %s", p.Workflow, again)
	case p.Op == workflow.StatePush:
		return lacks("%s put another state in its place; %s", p.Workflow, again)
	}
	i := slices.IndexFunc(p.Outputs, func(o api.Output) bool { return o.Name == in.Output })
	switch {
	case i < 0 && p.Truncated:
		return lacks("%s produced more outputs than are kept; make them smaller, and %s", p.Workflow, again)
	case i < 0 && len(p.Outputs) == 0:
		return lacks("%s produced no outputs; add it to the code, and %s", p.Workflow, again)
	case i < 0:
		var names []string
		for _, o := range p.Outputs {
			names = append(names, o.Name)
		}
		return lacks("%s produced %s; correct the name, or add it to the code and %s", p.Workflow, text.Some(names, 10), again)
	case p.Outputs[i].Masked:
		return lacks("a secret of %s hides a part of it; mark it as sensitive in the code and at this input, and %s", p.Workflow, again)
	case !p.Outputs[i].Sensitive:
		return p.Outputs[i].Value, false, ""
	case !in.Sensitive:
		return lacks("it is sensitive; an admin of both sets sensitive: true at this input")
	case p.Sensitive == nil:
		return lacks("%s did not upload the values of its sensitive outputs; %s", p.Workflow, again)
	case !now.Before(src.Expires):
		return lacks("the sensitive outputs of %s are past their retention; %s", p.Workflow, again)
	}
	return nil, true, ""
}

// Reached returns the inputs of a claimed run: the files of an agent are available to its own runs only. It is a pure
// function.
func Reached(w *record.Workflow, in Fed) Fed {
	for _, one := range in.Sensitive {
		if at := one.Artifact.Place; at.Kind == api.PlaceDirectory && (at.Pool != w.PoolID || at.Instance != w.Instance) {
			return Fed{Missing: fmt.Sprintf("output %s of workspace %s is missing: its value is with agent %s, and this run is on %s; both workspaces need one agent, or a pool with a bucket", one.Input.Output, one.Input.Workspace, at.Instance, w.Instance)}
		}
	}
	return in
}

// Produce returns the outputs of a successful run for other workspaces. It is a pure function.
func Produce(before record.Produced, w *record.Workflow, used string, in api.Result, sensitive *record.SensitiveOutputs) record.Produced {
	out := record.Produced{
		Workflow: w.ID, Attempt: w.Attempt, Op: w.Op, Submitted: w.Submitted, At: w.Ended,
		Outputs: in.Outputs, Truncated: in.Truncated, Used: used, Revision: before.Revision, Sensitive: sensitive,
	}
	if changed(before, out, in.Changes) {
		out.Revision++
	}
	return out
}

// changed says whether a run changed something. An unknown counts as a change.
func changed(before, after record.Produced, c *api.Changes) bool {
	return before.Revision == 0 || c == nil || after.Truncated || after.Op == workflow.StatePush || before.Op != after.Op && before.Op == workflow.Destroy ||
		c.Any() || c.Drift > 0 || len(c.Resources)+len(c.Outputs) > 0 ||
		!slices.EqualFunc(before.Outputs, after.Outputs, func(a, b api.Output) bool { return reflect.DeepEqual(a, b) })
}

// Stale says why the plan of a preview must not be applied with the present inputs: which of them has changed since.
// It is empty if none has.
func Stale(inputs []api.WorkspaceInput, planned record.Given, plannedDigest string, now Fed) string {
	if plannedDigest == now.Digest {
		return ""
	}
	for _, in := range inputs {
		name := cmp.Or(in.Variable, in.Output)
		was, had := planned.Variables[name]
		is, has := now.Variables[name]
		if had != has || !reflect.DeepEqual(was, is) {
			return fmt.Sprintf("output %s of workspace %s has changed since the plan was made; make a new preview", in.Output, in.Workspace)
		}
	}
	var from []string
	for _, one := range now.Sensitive {
		if !slices.Contains(from, one.Input.Workspace) {
			from = append(from, one.Input.Workspace)
		}
	}
	if len(from) == 0 {
		return "the inputs of the workspace have changed since the plan was made; make a new preview"
	}
	return fmt.Sprintf("workspace %s has changed since the plan was made, and so may its sensitive outputs; make a new preview", strings.Join(from, " or "))
}

// Merged are the variables of a run with those that it gets from other workspaces.
func Merged(variables, fed map[string]any) map[string]any {
	if len(fed) == 0 {
		return variables
	}
	out := maps.Clone(variables)
	if out == nil {
		out = map[string]any{}
	}
	maps.Copy(out, fed)
	return out
}
