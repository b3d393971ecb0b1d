package setup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// nameOf is the name of the thing that a document describes, or the mistake in it.
func nameOf(doc workspacefile.Document) (name string, err error) {
	switch v := doc.Value.(type) {
	case api.Workspace:
		return v.Name, workflow.CheckWorkspaceName(v.Name)
	case api.PoolSettings:
		if v.Name != nil {
			return *v.Name, workflow.CheckPoolName(*v.Name)
		}
	case api.ProjectSettings:
		if v.Name != nil {
			return *v.Name, workflow.CheckWorkspaceName(*v.Name)
		}
	case api.Setting:
		if name, _ := v.Key(); name != "" {
			return name, nil
		}
	case api.OrganizationSettings:
		return "", nil
	}
	return "", fmt.Errorf("name: give the %s a name", doc.Kind)
}

// planner finds the changes that documents ask for, before anything is changed.
type planner struct {
	a                *cli.App
	cl               *client.Client
	docs             []workspacefile.Document
	workspaces       map[string]api.Workspace // that exist
	organizationName func() (string, error)   // asked for once
}

// plan checks all documents. A project comes behind the one above it.
func (p *planner) plan() ([]Change, error) {
	list := make([]Change, len(p.docs))
	err := cli.Each(p.a.Ctx, len(list), cli.CallsAtOnce, func(ctx context.Context, i int) error {
		return list[i].wrong(p.check(ctx, &list[i], p.docs[i]))
	})
	if err != nil && p.a.Ctx.Err() == nil {
		return nil, &cli.ExitError{Code: cli.ExitCode(err), Err: fmt.Errorf("%s\nnothing was changed", cli.FirstLines(err))}
	}
	p.order(list)
	return list, err
}

// check plans the change of one document.
func (p *planner) check(ctx context.Context, ch *Change, doc workspacefile.Document) error {
	ch.Kind, ch.place = doc.Kind, doc.Place
	if k, ok := kind.Of(doc.Kind); ok {
		ch.stage, ch.hidden = k.Stage, k.Hidden
	}
	ch.Name, _ = nameOf(doc) // it was checked
	switch want := doc.Value.(type) {
	case api.Workspace:
		return p.workspace(ctx, ch, want)
	case api.PoolSettings:
		return p.pool(ctx, ch, want)
	case api.ProjectSettings:
		return p.project(ctx, ch, want)
	case api.OrganizationSettings:
		return p.organization(ctx, ch, want)
	case api.Setting:
		return p.setting(ctx, ch, want)
	}
	return nil
}

// order sets the waves of workspaces, and sorts projects behind those above them.
func (p *planner) order(list []Change) {
	var all []api.Workspace
	for _, doc := range p.docs {
		if w, ok := doc.Value.(api.Workspace); ok {
			all = append(all, w)
		}
	}
	for order, i := waves(all), 0; i < len(list); i++ {
		if list[i].stage == kind.StageWorkspaces {
			list[i].wave = order[list[i].Name]
		}
	}

	above := map[string]string{}
	for _, doc := range p.docs {
		if v, ok := doc.Value.(api.ProjectSettings); ok && v.Parent != nil {
			above[*v.Name] = *v.Parent
		}
	}
	depth := func(ch Change) (n int) {
		for name := ch.Name; ch.Kind == kind.Project && above[name] != "" && n < len(above); n++ {
			name = above[name]
		}
		return n
	}
	slices.SortStableFunc(list, func(x, y Change) int { return depth(x) - depth(y) })
}

// described reports whether a document describes a thing.
func (p *planner) described(of, name string) bool {
	return slices.ContainsFunc(p.docs, func(doc workspacefile.Document) bool {
		has, _ := nameOf(doc)
		return doc.Kind == of && has == name
	})
}

// names are the names of a kind that exist, or will.
func (p *planner) names(ctx context.Context, of string) (names []string) {
	k, _ := kind.Of(of)
	for _, c := range Candidates(ctx, p.cl, k) {
		names = append(names, c.Word)
	}
	for _, doc := range p.docs {
		if name, _ := nameOf(doc); doc.Kind == of {
			names = append(names, name)
		}
	}
	return names
}

// checkNames refuses a name in a field of a document if nothing of that name exists, or will.
func (p *planner) checkNames(ctx context.Context, field, of string, names ...string) error {
	for _, name := range names {
		var err error
		switch {
		case name == "" || p.described(of, name):
			continue
		case of == kind.Pool:
			_, err = p.cl.Pool(ctx, name)
		case of == kind.Project:
			_, err = p.cl.Project(ctx, name)
		case of == kind.Workspace:
			_, err = p.cl.Workspace(ctx, name)
		default:
			k, _ := kind.Of(of)
			_, err = p.cl.Setting(ctx, k, name)
		}
		if errors.Is(err, workflow.ErrNotFound) {
			advice := "describe it too, or correct the name"
			if meant := cli.Nearest(name, p.names(ctx, of)); meant != "" {
				advice = "did you mean " + meant + "?"
			}
			return cli.Refused(fmt.Errorf("%s: there is no %s %s: %s", field, strings.ReplaceAll(of, "_", " "), name, advice))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) workspace(ctx context.Context, ch *Change, want api.Workspace) error {
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		_, outcome, err := p.cl.PutWorkspace(ctx, want)
		return outcome, err
	}
	have, there := p.workspaces[want.Name]
	would, outcome, err := p.cl.CheckWorkspace(ctx, want)
	refusal, _ := errors.AsType[*workflow.Error](err)
	switch {
	case refusal != nil && (refusal.Field == "pool" && p.described(kind.Pool, want.Pool) || refusal.Field == "project" && p.described(kind.Project, want.Project) || p.dependsOnDescribed(refusal.Field, want)):
		would, outcome = want, api.OutcomeCreated // the things that it names are made before it, and then it is checked again
		if there {
			would.ID, outcome = have.ID, api.OutcomeChanged
		}
	case err != nil:
		return err
	}
	ch.Outcome = outcome
	if outcome == api.OutcomeChanged {
		ch.Changes, err = differences(have, would, false, ch.hidden)
		return err
	}
	return nil
}

// dependsOnDescribed reports whether a refusal is about a workspace that a document describes too: it is made
// before, or stops to depend on others before.
func (p *planner) dependsOnDescribed(field string, want api.Workspace) bool {
	for i, in := range want.Inputs {
		if field == fmt.Sprintf("inputs[%d].workspace", i) {
			return in.Workspace != want.Name && p.described(kind.Workspace, in.Workspace)
		}
	}
	for i, name := range want.After {
		if field == fmt.Sprintf("after[%d]", i) {
			return name != want.Name && p.described(kind.Workspace, name)
		}
	}
	return false
}

// compare sets the outcome by the difference between a document and the existing thing: all of it, or partly, where
// settings that the document does not name stay as they are. do makes the change.
func (ch *Change) compare(have, want any, partly bool, do func(context.Context) error) (err error) {
	outcome := api.OutcomeUnchanged
	if ch.Changes, err = differences(have, want, partly, ch.hidden); len(ch.Changes) > 0 {
		outcome = api.OutcomeChanged
	}
	ch.Outcome = outcome
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		if outcome == api.OutcomeUnchanged {
			return outcome, nil
		}
		return outcome, do(ctx)
	}
	return err
}

func (p *planner) pool(ctx context.Context, ch *Change, want api.PoolSettings) error {
	name := ch.Name // the list is sorted later
	for _, list := range []*[]string{want.Labels, want.AssignedWorkspaces, want.AssignedProjects, want.AssignedStacks, want.AssignedNamespaces} {
		if list != nil {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
	}
	var names [2][]string
	if want.AssignedWorkspaces != nil {
		names[0] = *want.AssignedWorkspaces
	}
	if want.AssignedProjects != nil {
		names[1] = *want.AssignedProjects
	}

	have, err := p.cl.Pool(ctx, name)
	if err == nil {
		ch.stage = kind.StageAssignments
		return ch.compare(asPool(have), want, true, func(ctx context.Context) error {
			_, err := p.cl.UpdatePool(ctx, name, want)
			return err
		})
	}
	if !errors.Is(err, workflow.ErrNotFound) {
		return err
	}
	if err := errors.Join(p.checkNames(ctx, "assigned_workspaces", kind.Workspace, names[0]...), p.checkNames(ctx, "assigned_projects", kind.Project, names[1]...)); err != nil {
		return err
	}

	ch.Outcome = api.OutcomeCreated
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		first := want
		if len(names[0])+len(names[1]) > 0 { // these may not be there yet
			first.AssignedWorkspaces, first.AssignedProjects = nil, nil
			first.AssignedToAll = cmp.Or(want.AssignedToAll, new(bool))
		}
		_, err := p.cl.CreatePool(ctx, first)
		if err == nil {
			p.a.Say("pool %s has a token, which is not printed here: dayfly pool rotate-token %s prints a new one for its agents", name, name)
		}
		return api.OutcomeCreated, err
	}
	if len(names[0])+len(names[1]) > 0 {
		ch.then = func(ctx context.Context) error {
			_, err := p.cl.UpdatePool(ctx, name, api.PoolSettings{AssignedWorkspaces: want.AssignedWorkspaces, AssignedProjects: want.AssignedProjects})
			return err
		}
	}
	return nil
}

func (p *planner) project(ctx context.Context, ch *Change, want api.ProjectSettings) error {
	name := ch.Name
	if err := normal(&want.Approval); err != nil {
		return err
	}
	have, err := p.cl.Project(ctx, name)
	if err == nil {
		return ch.compare(asProject(have), want, true, func(ctx context.Context) error {
			change := want
			change.Name = nil
			_, err := p.cl.UpdateProject(ctx, name, change)
			return err
		})
	}
	if !errors.Is(err, workflow.ErrNotFound) {
		return err
	}
	parent, pool := cmp.Or(want.Parent, new("")), cmp.Or(want.Pool, new(""))
	if err := errors.Join(p.checkNames(ctx, "parent", kind.Project, *parent), p.checkNames(ctx, "pool", kind.Pool, *pool)); err != nil {
		return err
	}
	ch.Outcome = api.OutcomeCreated
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		_, err := p.cl.CreateProject(ctx, want)
		return api.OutcomeCreated, err
	}
	return nil
}

// normal checks a requirement, and writes it as the control plane keeps it.
func normal(approval **api.Approval) error {
	if *approval == nil {
		return nil
	}
	kept, err := rules.CheckApproval("approval", *approval)
	*approval = cmp.Or(kept, &api.Approval{})
	return err
}

func (p *planner) organization(ctx context.Context, ch *Change, want api.OrganizationSettings) error {
	if err := normal(&want.Approval); err != nil {
		return err
	}
	have, err := p.cl.Organization(ctx)
	if err == nil && want.DefaultPool != nil {
		err = p.checkNames(ctx, "default_pool", kind.Pool, *want.DefaultPool)
	}
	if err != nil {
		return err
	}
	err = ch.compare(asOrganization(have), want, true, func(ctx context.Context) error {
		_, err := p.cl.UpdateOrganization(ctx, want)
		return err
	})
	if strings.Contains(strings.Join(ch.Changes, "\n"), "_retention_days: ") {
		ch.ask = "data older than the days that the files name is deleted within minutes, and cannot be restored"
	}
	return err
}

// setting plans a setting, which a document describes whole.
func (p *planner) setting(ctx context.Context, ch *Change, want api.Setting) error {
	k := kind.For(want)
	org, err := p.organizationName()
	if err != nil {
		return err
	}
	ch.Outcome = api.OutcomeCreated
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		_, outcome, err := p.cl.PutSetting(ctx, want)
		return outcome, err
	}
	have, missing := p.cl.Setting(ctx, k, ch.Name)
	if missing != nil && !errors.Is(missing, workflow.ErrNotFound) {
		return missing
	}
	if err := p.checkReferences(ctx, k, want, have); err != nil || missing != nil {
		return err
	}
	return ch.compare(have.Normal(org), want.Normal(org), false, func(ctx context.Context) error {
		_, _, err := p.cl.PutSetting(ctx, want)
		return err
	})
}

// checkReferences refuses unknown names in a setting. Names that it has already may be of things that were deleted
// since.
func (p *planner) checkReferences(ctx context.Context, k kind.Kind, want, have api.Setting) (err error) {
	for _, field := range slices.Sorted(maps.Keys(k.Refs)) {
		var known []string
		if have != nil {
			known = namesAt(have, field)
		}
		unknown := slices.DeleteFunc(namesAt(want, field), func(name string) bool { return slices.Contains(known, name) })
		err = errors.Join(err, p.checkNames(ctx, field, k.Refs[field], unknown...))
	}
	return err
}

// namesAt are the names in a field, which has one or a list of them.
func namesAt(s api.Setting, field string) []string {
	if list, ok := fieldAt(reflect.ValueOf(s), field).Interface().([]string); ok {
		return slices.Clone(list)
	}
	return []string{fieldAt(reflect.ValueOf(s), field).String()}
}

// The functions below are the settings of an existing thing, as a document describes them: without the fields that
// the control plane sets.

func asPool(p api.Pool) api.PoolSettings {
	types := append([]workflow.Type{}, p.EnabledTypes...)
	return api.PoolSettings{
		Name: &p.Name, Description: &p.Description, IsDisabled: &p.IsDisabled, AllowMultipleInstances: &p.AllowMultipleInstances,
		AssignedToAll: &p.AssignedToAll, AssignedWorkspaces: given(p.AssignedWorkspaces), AssignedProjects: given(p.AssignedProjects),
		AssignedStacks: given(p.AssignedStacks), AssignedNamespaces: given(p.AssignedNamespaces), Labels: given(p.Labels),
		EnabledTypes: &types, Concurrency: &p.Concurrency, RolePath: &p.RolePath, WakeTarget: &p.WakeTarget,
	}
}

func asProject(p api.Project) api.ProjectSettings {
	s := api.ProjectSettings{Name: &p.Name, Parent: &p.Parent, Description: &p.Description, Pool: &p.Pool, Approval: cmp.Or(p.Approval, &api.Approval{})}
	if p.Parent == "" { // the root has none, and takes none
		s.Parent = nil
	}
	return s
}

func asOrganization(o api.Organization) api.OrganizationSettings {
	return api.OrganizationSettings{
		WorkflowRetention: &o.WorkflowRetention, LogRetention: &o.LogRetention, ArtifactRetention: &o.ArtifactRetention, AuditRetention: &o.AuditRetention,
		Approval: cmp.Or(o.Approval, &api.Approval{}), Limit: &o.Limit, DefaultPool: &o.DefaultPool,
	}
}

// shown prints a thing: as a document that dayfly apply takes where YAML is wanted, else as Done does.
func shown(a *cli.App, of string, settings, v any, format string, args ...any) error {
	if a.Output != "yaml" {
		return a.Done(v, format, args...)
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return a.Encode(json.RawMessage(fmt.Sprintf(`{"kind":%q,%s`, of, data[1:])))
}
