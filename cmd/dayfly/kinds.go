package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The stages in which things are made: what others name comes before them. A pool is assigned to projects and
// workspaces when these are there.
const (
	stagePools = iota
	stageProjects
	stageWorkspaces
	stageAssignments
	stageOthers
	stageWaivers
	stagePrune
	stages
)

// nameOf is the name of what a document describes, or what is wrong with it.
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
	case api.Issuer:
		if v.Name != "" {
			return v.Name, nil
		}
	case api.GitHost:
		if v.Name != "" {
			return v.Name, nil
		}
	case api.Notification:
		if v.Name != "" {
			return v.Name, nil
		}
	case api.Schedule:
		if v.Name != "" {
			return v.Name, nil
		}
	case api.PolicyGroup:
		if v.Name != "" {
			return v.Name, nil
		}
	case api.Waiver:
		if v.Name != "" {
			return v.Name, nil
		}
	case api.OrganizationSettings:
		return "", nil
	}
	return "", fmt.Errorf("name: give the %s a name", doc.Kind)
}

// planner finds out what would become of documents, before anything is changed.
type planner struct {
	a          *app
	cl         *client.Client
	dryRun     bool
	docs       []workspacefile.Document
	workspaces map[string]api.Workspace // that there are
}

// plan checks all documents. A project comes behind the one above it.
func (p *planner) plan() ([]change, error) {
	list := make([]change, len(p.docs))
	err := each(p.a.ctx, len(list), callsAtOnce, func(ctx context.Context, i int) error {
		doc := p.docs[i]
		ch := &list[i]
		ch.Kind, ch.place = doc.Kind, doc.Place
		ch.Name, _ = nameOf(doc) // it was checked
		var err error
		switch want := doc.Value.(type) {
		case api.Workspace:
			err = p.workspace(ctx, ch, want)
		case api.PoolSettings:
			err = p.pool(ctx, ch, want)
		case api.ProjectSettings:
			err = p.project(ctx, ch, want)
		case api.OrganizationSettings:
			err = p.organization(ctx, ch, want)
		case api.Issuer:
			err = p.issuer(ctx, ch, want)
		case api.Notification:
			err = p.notification(ctx, ch, want)
		case api.GitHost:
			err = p.gitHost(ctx, ch, want)
		case api.Schedule:
			err = p.schedule(ctx, ch, want)
		case api.PolicyGroup:
			err = p.policyGroup(ctx, ch, want)
		case api.Waiver:
			err = p.waiver(ctx, ch, want)
		}
		return ch.wrong(err)
	})
	if err != nil && p.a.ctx.Err() == nil {
		return nil, &exitError{code: exitCode(err), err: fmt.Errorf("%s\nnothing was changed", firstLines(err))}
	}
	var all []api.Workspace
	for _, doc := range p.docs {
		if w, ok := doc.Value.(api.Workspace); ok {
			all = append(all, w)
		}
	}
	for order, i := waves(all), 0; i < len(list); i++ {
		if list[i].stage == stageWorkspaces {
			list[i].wave = order[list[i].Name]
		}
	}
	above := map[string]string{}
	for _, doc := range p.docs {
		if v, ok := doc.Value.(api.ProjectSettings); ok && v.Parent != nil {
			above[*v.Name] = *v.Parent
		}
	}
	depth := func(ch change) (n int) {
		for name := ch.Name; ch.Kind == workspacefile.Project && above[name] != "" && n < len(above); n++ {
			name = above[name]
		}
		return n
	}
	slices.SortStableFunc(list, func(x, y change) int { return depth(x) - depth(y) })
	return list, err
}

// described reports whether a document describes a thing.
func (p *planner) described(kind, name string) bool {
	return slices.ContainsFunc(p.docs, func(doc workspacefile.Document) bool {
		has, _ := nameOf(doc)
		return doc.Kind == kind && has == name
	})
}

// knows refuses a name in a field of a document if it names nothing that there is, or will be.
func (p *planner) knows(ctx context.Context, field, kind string, names ...string) error {
	for _, name := range names {
		var err error
		switch {
		case name == "" || p.described(kind, name):
			continue
		case kind == workspacefile.Pool:
			_, err = p.cl.Pool(ctx, name)
		case kind == workspacefile.Project:
			_, err = p.cl.Project(ctx, name)
		case kind == workspacefile.PolicyGroup:
			_, err = p.cl.PolicyGroup(ctx, name)
		default:
			_, err = p.cl.Workspace(ctx, name)
		}
		if errors.Is(err, workflow.ErrNotFound) {
			return refused(fmt.Errorf("%s: there is no %s %s: describe it too, or correct the name", field, kind, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) workspace(ctx context.Context, ch *change, want api.Workspace) error {
	ch.stage = stageWorkspaces
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		_, outcome, err := p.cl.PutWorkspace(ctx, want)
		return outcome, err
	}
	have, there := p.workspaces[want.Name]
	would, outcome, err := p.cl.CheckWorkspace(ctx, want)
	refusal, _ := errors.AsType[*workflow.Error](err)
	switch {
	case refusal != nil && (refusal.Field == "pool" && p.described(workspacefile.Pool, want.Pool) || refusal.Field == "project" && p.described(workspacefile.Project, want.Project) || p.dependsOnDescribed(refusal.Field, want)):
		would, outcome = want, api.OutcomeCreated // what it names is made before it, and then it is checked again
		if there {
			would.ID, outcome = have.ID, api.OutcomeChanged
		}
	case err != nil:
		return err
	}
	ch.Outcome = outcome
	if outcome == api.OutcomeChanged {
		ch.Changes, err = differences(have, would, false)
		return err
	}
	return nil
}

// dependsOnDescribed reports whether a refusal is about a workspace that a document describes too: it is made before, or
// stops to depend on others before.
func (p *planner) dependsOnDescribed(field string, want api.Workspace) bool {
	for i, in := range want.Inputs {
		if field == fmt.Sprintf("inputs[%d].workspace", i) {
			return in.Workspace != want.Name && p.described(workspacefile.Workspace, in.Workspace)
		}
	}
	for i, name := range want.After {
		if field == fmt.Sprintf("after[%d]", i) {
			return name != want.Name && p.described(workspacefile.Workspace, name)
		}
	}
	return false
}

// settled compares what a document says with what there is: all of it, or partly, where settings that the document does
// not name stay as they are. do makes it so.
func (ch *change) settled(have, want any, partly bool, do func(context.Context) error) (err error) {
	outcome := api.OutcomeUnchanged
	if ch.Changes, err = differences(have, want, partly); len(ch.Changes) > 0 {
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

func (p *planner) pool(ctx context.Context, ch *change, want api.PoolSettings) error {
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
		ch.stage = stageAssignments
		return ch.settled(asPool(have), want, true, func(ctx context.Context) error {
			_, err := p.cl.UpdatePool(ctx, name, want)
			return err
		})
	}
	if !errors.Is(err, workflow.ErrNotFound) {
		return err
	}
	if err := errors.Join(p.knows(ctx, "assigned_workspaces", workspacefile.Workspace, names[0]...), p.knows(ctx, "assigned_projects", workspacefile.Project, names[1]...)); err != nil {
		return err
	}
	ch.stage, ch.Outcome = stagePools, api.OutcomeCreated
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		first := want
		if len(names[0])+len(names[1]) > 0 { // these may not be there yet
			first.AssignedWorkspaces, first.AssignedProjects = nil, nil
			first.AssignedToAll = cmp.Or(want.AssignedToAll, new(bool))
		}
		_, err := p.cl.CreatePool(ctx, first)
		if err == nil {
			p.a.say("pool %s has a token, which is not printed here: dayfly pool rotate-token %s prints a new one for its agents", name, name)
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

func (p *planner) project(ctx context.Context, ch *change, want api.ProjectSettings) error {
	name := ch.Name
	ch.stage = stageProjects
	if err := normal(&want.Approval); err != nil {
		return err
	}
	have, err := p.cl.Project(ctx, name)
	if err == nil {
		return ch.settled(asProject(have), want, true, func(ctx context.Context) error {
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
	if err := errors.Join(p.knows(ctx, "parent", workspacefile.Project, *parent), p.knows(ctx, "pool", workspacefile.Pool, *pool)); err != nil {
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

func (p *planner) organization(ctx context.Context, ch *change, want api.OrganizationSettings) error {
	ch.stage = stageOthers
	if err := normal(&want.Approval); err != nil {
		return err
	}
	have, err := p.cl.Organization(ctx)
	if err == nil && want.DefaultPool != nil {
		err = p.knows(ctx, "default_pool", workspacefile.Pool, *want.DefaultPool)
	}
	if err != nil {
		return err
	}
	err = ch.settled(asOrganization(have), want, true, func(ctx context.Context) error {
		_, err := p.cl.UpdateOrganization(ctx, want)
		return err
	})
	if strings.Contains(strings.Join(ch.Changes, "\n"), "_retention_days: ") {
		ch.ask = "what is older than the days that the organization is given is deleted within minutes, and cannot be brought back"
	}
	return err
}

func (p *planner) issuer(ctx context.Context, ch *change, want api.Issuer) error {
	return putWhole(ctx, ch, want, p.cl.Issuer, p.cl.PutIssuer, asIssuer, func(have api.Issuer) (api.Issuer, error) {
		if have.Name == "" {
			return want, nil
		}
		org, err := p.cl.Organization(ctx)
		if err != nil {
			return want, err
		}
		would := want
		if len(would.Audiences) == 0 {
			would.Audiences = []string{api.OrganizationPrefix + org.Name}
		}
		if len(would.Algorithms) == 0 {
			would.Algorithms = oidc.DefaultAlgorithms()
		}
		if want.Pipelines != nil {
			would.Pipelines = new(want.Pipelines.Settled(want.URL))
		}
		would.Shared = would.Shared || have.Shared && have.OwnerClaim == "" // only that of a known host needs no claim
		return would, nil
	})
}

func (p *planner) notification(ctx context.Context, ch *change, want api.Notification) error {
	return putWhole(ctx, ch, want, p.cl.Notification, p.cl.PutNotification, asNotification, func(api.Notification) (api.Notification, error) {
		would := want
		would.Format, would.Events, would.Projects = cmp.Or(want.Format, api.FormatDayfly), sorted(want.Events), sorted(want.Projects)
		return would, errors.Join(p.knows(ctx, "pool", workspacefile.Pool, want.Pool), p.knows(ctx, "projects", workspacefile.Project, want.Projects...))
	})
}

func (p *planner) gitHost(ctx context.Context, ch *change, want api.GitHost) error {
	return putWhole(ctx, ch, want, p.cl.GitHost, p.cl.PutGitHost, asGitHost, func(api.GitHost) (api.GitHost, error) {
		would := want
		would.URL = cmp.Or(strings.TrimRight(want.URL, "/"), api.HostAddress(want.Kind))
		return would, p.knows(ctx, "pool", workspacefile.Pool, want.Pool)
	})
}

func (p *planner) schedule(ctx context.Context, ch *change, want api.Schedule) error {
	return putWhole(ctx, ch, want, p.cl.Schedule, p.cl.PutSchedule, asSchedule, func(have api.Schedule) (api.Schedule, error) {
		would := asSchedule(want)
		would.Cron = strings.Join(strings.Fields(would.Cron), " ")
		would.Workspaces, would.Projects = sorted(want.Workspaces), sorted(want.Projects)
		would.Type = cmp.Or(would.Type, workflow.InsightsScan)
		return would, p.knowsAll(ctx, want.Workspaces, have.Workspaces, want.Projects, have.Projects)
	})
}

// knowsAll refuses names of workspaces and projects that there are not. What a thing names already may be of what was
// deleted since.
func (p *planner) knowsAll(ctx context.Context, workspaces, knownWorkspaces, projects, knownProjects []string) error {
	without := func(names, known []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(known, name) })
	}
	return errors.Join(p.knows(ctx, "workspaces", workspacefile.Workspace, without(workspaces, knownWorkspaces)...),
		p.knows(ctx, "projects", workspacefile.Project, without(projects, knownProjects)...))
}

func (p *planner) policyGroup(ctx context.Context, ch *change, want api.PolicyGroup) error {
	return putWhole(ctx, ch, want, p.cl.PolicyGroup, p.cl.PutPolicyGroup, asPolicyGroup, func(have api.PolicyGroup) (api.PolicyGroup, error) {
		would := asPolicyGroup(want)
		would.Workspaces, would.Projects = sorted(want.Workspaces), sorted(want.Projects)
		return would, p.knowsAll(ctx, want.Workspaces, have.Workspaces, want.Projects, have.Projects)
	})
}

func (p *planner) waiver(ctx context.Context, ch *change, want api.Waiver) error {
	defer func() { ch.stage = stageWaivers }() // after its group
	return putWhole(ctx, ch, want, p.cl.Waiver, p.cl.PutWaiver, asWaiver, func(api.Waiver) (api.Waiver, error) {
		would := asWaiver(want)
		would.Reason, would.Until = strings.TrimSpace(want.Reason), want.Until.UTC().Truncate(time.Second)
		return would, errors.Join(p.knows(ctx, "group", workspacefile.PolicyGroup, want.Group), p.knows(ctx, "workspace", workspacefile.Workspace, want.Workspace))
	})
}

// sorted is a list without what is in it twice.
func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// putWhole plans a thing that a document describes whole. would says what the control plane makes of the document, and
// refuses what names nothing; have is the zero value where there is no such thing.
func putWhole[T any](ctx context.Context, ch *change, want T, get func(context.Context, string) (T, error), put func(context.Context, T) (T, api.Outcome, error), as func(T) T, would func(have T) (T, error)) error {
	ch.stage, ch.Outcome = stageOthers, api.OutcomeCreated
	ch.do = func(ctx context.Context) (api.Outcome, error) {
		_, outcome, err := put(ctx, want)
		return outcome, err
	}
	have, missing := get(ctx, ch.Name)
	if missing != nil && !errors.Is(missing, workflow.ErrNotFound) {
		return missing
	}
	settled, err := would(have)
	if err != nil || missing != nil {
		return err
	}
	return ch.settled(as(have), settled, false, func(ctx context.Context) error {
		_, _, err := put(ctx, want)
		return err
	})
}

// The functions below are the settings of a thing that there is, as a document describes them: what the control plane
// says of it is left out.

func asWorkspace(w api.Workspace) api.Workspace {
	w.ID, w.Version, w.Applied = "", 0, nil
	if w.State != nil {
		place := *w.State
		place.Key, place.Default = "", ""
		if w.State = &place; reflect.ValueOf(place).IsZero() {
			w.State = nil
		}
	}
	return w
}

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

func asIssuer(i api.Issuer) api.Issuer {
	i.CreatedAt, i.Version = nil, 0
	return i
}

func asNotification(n api.Notification) api.Notification {
	n.CreatedAt, n.Version = nil, 0
	return n
}

func asSchedule(s api.Schedule) api.Schedule {
	s.SpreadOver, s.EditedBy, s.NextAt, s.Since, s.ResumedAt, s.CreatedAt, s.Version = "", "", nil, nil, nil, nil, 0
	return s
}

func asPolicyGroup(g api.PolicyGroup) api.PolicyGroup {
	g.EditedBy, g.CreatedAt, g.Version = "", nil, 0
	return g
}

func asWaiver(w api.Waiver) api.Waiver {
	w.GivenBy, w.CreatedAt, w.Version = "", nil, 0
	return w
}

func asGitHost(g api.GitHost) api.GitHost { return g.Asked() }

// shown prints a thing: as a document that dayfly apply takes where YAML is wanted, else as done does.
func (a *app) shown(kind string, settings, v any, format string, args ...any) error {
	if a.output != "yaml" {
		return a.done(v, format, args...)
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return a.encode(json.RawMessage(fmt.Sprintf(`{"kind":%q,%s`, kind, data[1:])))
}
