package triggers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	mostPolicyGroups = 50
	mostWaivers      = 500
	// maxPolicies bounds record.Policies, which each submission and each start reads.
	maxPolicies = 200 << 10
	// longestWaiver is how far away the end of a waiver may be.
	longestWaiver = 400 * record.Day
)

var policyGroups = kind[api.PolicyGroup]{
	noun: "policy_group", prefix: record.PolicyGroupsPrefix, ids: "pgr_",
	name: func(g api.PolicyGroup) string { return g.Name },
	asked: func(g api.PolicyGroup) (api.PolicyGroup, int64) {
		version := g.Version
		g.EditedBy, g.CreatedAt, g.Version = "", nil, 0
		return g, version
	},
	settle: settlePolicyGroup,
	view: func(rec record.Settings[api.PolicyGroup], version int64) api.PolicyGroup {
		g := rec.V
		g.EditedBy, g.CreatedAt, g.Version = rec.By, &rec.Created, version
		return g
	},
	brief: func(g api.PolicyGroup) string {
		said := g.Enforcement
		if len(g.Workspaces) > 0 {
			said += ", workspaces " + text.Some(g.Workspaces, 10)
		}
		if len(g.Projects) > 0 {
			said += ", projects " + text.Some(g.Projects, 10)
		}
		if g.IsDisabled {
			said += ", disabled"
		}
		return said
	},
	kept: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.PolicyGroup]) error {
		g := rec.V
		g.Description = "" // runs do not need it
		return policies(ctx, c, org, func(all *record.Policies) error {
			all.Groups = without(all.Groups, g.Name, policyGroupName)
			if !g.IsDisabled {
				all.Groups = append(all.Groups, g)
			}
			return nil
		})
	},
	gone: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.PolicyGroup]) error {
		return policies(ctx, c, org, func(all *record.Policies) error {
			for _, w := range all.Waivers {
				if w.Group == rec.V.Name { // they would hold for a group that is made under its name later
					return workflow.Refuse(workflow.ErrInUse, "policy_group", "policy group %s has waivers that are in force, such as %s: delete them first", rec.V.Name, w.Name)
				}
			}
			all.Groups = without(all.Groups, rec.V.Name, policyGroupName)
			return nil
		})
	},
}

var waivers = kind[api.Waiver]{
	noun: "waiver", prefix: record.WaiversPrefix, ids: "wvr_",
	name: func(w api.Waiver) string { return w.Name },
	asked: func(w api.Waiver) (api.Waiver, int64) {
		version := w.Version
		w.GivenBy, w.CreatedAt, w.Version = "", nil, 0
		return w, version
	},
	settle: settleWaiver,
	view: func(rec record.Settings[api.Waiver], version int64) api.Waiver {
		w := rec.V
		w.GivenBy, w.CreatedAt, w.Version = rec.By, &rec.Created, version
		return w
	},
	brief: func(w api.Waiver) string {
		at := w.Workspace
		if w.Address != "" {
			at += " at " + w.Address
		}
		return fmt.Sprintf("rule %s of group %s, workspace %s, until %s: %s", w.Rule, w.Group, at, w.Until.UTC().Format(time.RFC3339), w.Reason)
	},
	kept: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.Waiver]) error {
		w := rec.V
		w.GivenBy = rec.By
		return policies(ctx, c, org, func(all *record.Policies) error {
			all.Waivers = append(without(all.Waivers, w.Name, waiverName), w)
			return nil
		})
	},
	gone: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.Waiver]) error {
		return policies(ctx, c, org, func(all *record.Policies) error {
			all.Waivers = without(all.Waivers, rec.V.Name, waiverName)
			return nil
		})
	},
}

func policyGroupName(g api.PolicyGroup) string { return g.Name }
func waiverName(w api.Waiver) string           { return w.Name }

// without is a list without what has a name.
func without[T any](list []T, name string, nameOf func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(list), func(one T) bool { return nameOf(one) == name })
}

// policies changes what the runs of an organization are held to. Waivers that are over are left out.
func policies(ctx context.Context, c *ledger.Change, org string, change func(*record.Policies) error) error {
	k := record.PoliciesKey(org)
	all, _, err := ledger.Load[record.Policies](ctx, c, k)
	if err != nil {
		return err
	}
	all.Waivers = slices.DeleteFunc(slices.Clone(all.Waivers), func(w api.Waiver) bool { return !c.Now.Before(w.Until) })
	if err := change(&all); err != nil {
		return err
	}
	slices.SortFunc(all.Groups, func(a, b api.PolicyGroup) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(all.Waivers, func(a, b api.Waiver) int { return cmp.Compare(a.Name, b.Name) })
	raw, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode policies of %s: %w", org, err)
	}
	if len(raw) > maxPolicies {
		return workflow.Refuse(workflow.ErrTooLarge, "", "the policy groups and waivers of the organization would have %d bytes, the limit is %d: name projects in place of many workspaces, or delete groups and waivers", len(raw), maxPolicies)
	}
	c.Put(k, all)
	return nil
}

// settlePolicyGroup refuses a group that could not be evaluated, or that holds for nothing.
func settlePolicyGroup(ctx context.Context, c *ledger.Change, org string, g api.PolicyGroup) (api.PolicyGroup, error) {
	if err := workflow.CheckText("description", g.Description, 1000); err != nil {
		return g, err
	}
	switch {
	case !slices.Contains([]string{api.PolicyAdvisory, api.PolicyMandatory, api.PolicyWaivable}, g.Enforcement):
		return g, invalid("enforcement", "the enforcement is advisory, mandatory or waivable, not %q", text.Cut(g.Enforcement, 40))
	case len(g.Workspaces)+len(g.Projects) == 0:
		return g, invalid("workspaces", "a policy group names workspaces, projects, or both; project %s has all workspaces", record.GlobalProject)
	}
	if err := catalog.CheckSource(g.Source); err != nil {
		return g, err
	}
	k := record.SettingsKey(org, record.PolicyGroupsPrefix, g.Name)
	old, exists, err := ledger.Load[record.Settings[api.PolicyGroup]](ctx, c, k)
	if err != nil {
		return g, err
	}
	if !exists {
		if err := room(ctx, c, org, record.PolicyGroupsPrefix, mostPolicyGroups, "policy groups: delete one, or put more rules into one of them"); err != nil {
			return g, err
		}
	}
	g.Workspaces, g.Projects, err = named(ctx, c, org, "policy group", names{g.Workspaces, g.Projects}, names{old.V.Workspaces, old.V.Projects})
	return g, err
}

// room refuses one more thing of a kind than an organization can have.
func room(ctx context.Context, c *ledger.Change, org, prefix string, most int, what string) error {
	n := 0
	for _, err := range c.All(ctx, record.Under(record.OrganizationPart(org), prefix, 200)) {
		if err != nil {
			return err
		}
		n++
	}
	if n >= most {
		return invalid("name", "an organization has at most %d %s", most, what)
	}
	return nil
}

// settleWaiver refuses a waiver that nothing could use, and one that says too little of itself. The commit fails if its
// group or its workspace is changed meanwhile.
func settleWaiver(ctx context.Context, c *ledger.Change, org string, w api.Waiver) (api.Waiver, error) {
	w.Reason = strings.TrimSpace(w.Reason)
	if err := workflow.CheckText("reason", w.Reason, 500); err != nil {
		return w, err
	}
	printable := func(s string) bool { return !strings.ContainsFunc(s, unicode.IsControl) }
	switch {
	case w.Rule == "" || len(w.Rule) > 255 || !printable(w.Rule) || strings.ContainsAny(w.Rule, " \t"):
		return w, invalid("rule", "name the rule as its results do, such as main.deny_public_bucket, in at most 255 bytes")
	case len(w.Address) > 1000 || !printable(w.Address):
		return w, invalid("address", "an address has at most 1000 bytes, all printable")
	case w.Reason == "":
		return w, invalid("reason", "say in at most 500 bytes why the rule is waived: it is shown wherever the waiver is used")
	case !w.Until.After(c.Now):
		return w, invalid("until", "until is a time to come; %s is past", w.Until.UTC().Format(time.RFC3339))
	case w.Until.After(c.Now.Add(longestWaiver)):
		return w, invalid("until", "a waiver ends at most 400 days from now, at %s", c.Now.Add(longestWaiver).UTC().Format(time.RFC3339))
	case workflow.CheckWorkspaceName(w.Workspace) != nil:
		return w, invalid("workspace", "%q is not the name of a workspace", text.Cut(w.Workspace, 64))
	case identity.CheckName(w.Group) != nil:
		return w, invalid("group", "%q is not the name of a policy group", text.Cut(w.Group, 64))
	}
	w.Until = w.Until.UTC().Truncate(time.Second)
	group, ws, k := record.SettingsKey(org, record.PolicyGroupsPrefix, w.Group), record.WorkspaceKey(org, w.Workspace), record.SettingsKey(org, record.WaiversPrefix, w.Name)
	if err := c.Load(ctx, group, ws, k); err != nil {
		return w, err
	}
	g, ok, err := ledger.Get[record.Settings[api.PolicyGroup]](c.Read, group)
	switch {
	case err != nil:
		return w, err
	case !ok:
		return w, workflow.Refuse(workflow.ErrNotFound, "group", "there is no policy group %s: make it first, or correct the name", w.Group)
	case g.V.Enforcement != api.PolicyWaivable:
		return w, invalid("group", "policy group %s is %s: only one that is waivable has waivers", w.Group, g.V.Enforcement)
	case c.Version(ws) == store.Absent:
		return w, workflow.Refuse(workflow.ErrNotFound, "workspace", "there is no workspace %s: make it first, or correct the name", w.Workspace)
	}
	c.Check(group)
	c.Check(ws)
	if c.Version(k) == store.Absent {
		return w, room(ctx, c, org, record.WaiversPrefix, mostWaivers, "waivers: delete those that are over")
	}
	return w, nil
}

// PutPolicyGroup creates or changes a policy group.
func (p *Calls) PutPolicyGroup(ctx context.Context, who identity.Principal, in api.PolicyGroup) (api.PolicyGroup, api.Outcome, error) {
	return put(ctx, p, policyGroups, who, in)
}

// PolicyGroups lists the policy groups by name.
func (p *Calls) PolicyGroups(ctx context.Context, who identity.Principal, cursor string, limit int) (api.Page[api.PolicyGroup], error) {
	return list(ctx, p, policyGroups, who, api.RoleViewer, cursor, limit)
}

// PolicyGroup shows a policy group.
func (p *Calls) PolicyGroup(ctx context.Context, who identity.Principal, name string) (api.PolicyGroup, error) {
	return show(ctx, p, policyGroups, who, api.RoleViewer, name)
}

// DeletePolicyGroup deletes a policy group that has no waivers in force.
func (p *Calls) DeletePolicyGroup(ctx context.Context, who identity.Principal, name string) error {
	return remove(ctx, p, policyGroups, who, name)
}

// PutWaiver gives or changes a waiver.
func (p *Calls) PutWaiver(ctx context.Context, who identity.Principal, in api.Waiver) (api.Waiver, api.Outcome, error) {
	return put(ctx, p, waivers, who, in)
}

// Waivers lists the waivers by name, also those that are over.
func (p *Calls) Waivers(ctx context.Context, who identity.Principal, cursor string, limit int) (api.Page[api.Waiver], error) {
	return list(ctx, p, waivers, who, api.RoleViewer, cursor, limit)
}

// Waiver shows a waiver.
func (p *Calls) Waiver(ctx context.Context, who identity.Principal, name string) (api.Waiver, error) {
	return show(ctx, p, waivers, who, api.RoleViewer, name)
}

// DeleteWaiver takes a waiver back: runs that start from now on do not pass by it.
func (p *Calls) DeleteWaiver(ctx context.Context, who identity.Principal, name string) error {
	return remove(ctx, p, waivers, who, name)
}
