package catalog

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
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	// maxPolicies bounds record.Policies, which each submission and each start reads.
	maxPolicies = 200 << 10
	// maxWaiver is how far away the end of a waiver may be.
	maxWaiver = 400 * record.Day
)

func policyGroups(l *ledger.Ledger) *identity.Settings[api.PolicyGroup, api.PolicyGroup] {
	return identity.SettingsFor(l, kind.PolicyGroup, identity.SettingsRules[api.PolicyGroup, api.PolicyGroup]{
		Prepare: preparePolicyGroup,
		View: func(rec record.Settings[api.PolicyGroup], version int64) api.PolicyGroup {
			g := rec.V
			g.EditedBy, g.CreatedAt, g.Version = rec.By, &rec.Created, version
			return g
		},
		Brief: briefPolicyGroup,
		OnPut: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.PolicyGroup]) error {
			g := rec.V
			g.Description = "" // runs do not need it
			return changePolicies(ctx, c, org, func(all *record.Policies) error {
				all.Groups = without(all.Groups, g.Name)
				if !g.IsDisabled {
					all.Groups = append(all.Groups, g)
				}
				return nil
			})
		},
		OnDelete: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.PolicyGroup]) error {
			return changePolicies(ctx, c, org, func(all *record.Policies) error {
				for _, w := range all.Waivers {
					if w.Group == rec.V.Name { // they would hold for a group that is made under its name later
						return workflow.Refuse(workflow.ErrInUse, "policy_group", "policy group %s has waivers that are in force, such as %s: delete them first", rec.V.Name, w.Name)
					}
				}
				all.Groups = without(all.Groups, rec.V.Name)
				return nil
			})
		},
	})
}

func briefPolicyGroup(g api.PolicyGroup) string {
	out := g.Enforcement
	if len(g.Workspaces) > 0 {
		out += ", workspaces " + text.Some(g.Workspaces, 10)
	}
	if len(g.Projects) > 0 {
		out += ", projects " + text.Some(g.Projects, 10)
	}
	if g.IsDisabled {
		out += ", disabled"
	}
	return out
}

func waivers(l *ledger.Ledger) *identity.Settings[api.Waiver, api.Waiver] {
	return identity.SettingsFor(l, kind.Waiver, identity.SettingsRules[api.Waiver, api.Waiver]{
		Prepare: prepareWaiver,
		View: func(rec record.Settings[api.Waiver], version int64) api.Waiver {
			w := rec.V
			w.GivenBy, w.CreatedAt, w.Version = rec.By, &rec.Created, version
			return w
		},
		Brief: func(w api.Waiver) string {
			at := w.Workspace
			if w.Address != "" {
				at += " at " + w.Address
			}
			return fmt.Sprintf("rule %s of group %s, workspace %s, until %s: %s", w.Rule, w.Group, at, w.Until.UTC().Format(time.RFC3339), w.Reason)
		},
		OnPut: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.Waiver]) error {
			w := rec.V
			w.GivenBy = rec.By
			return changePolicies(ctx, c, org, func(all *record.Policies) error {
				all.Waivers = append(without(all.Waivers, w.Name), w)
				return nil
			})
		},
		OnDelete: func(ctx context.Context, c *ledger.Change, org string, rec record.Settings[api.Waiver]) error {
			return changePolicies(ctx, c, org, func(all *record.Policies) error {
				all.Waivers = without(all.Waivers, rec.V.Name)
				return nil
			})
		},
	})
}

// without is a list without the setting of a name.
func without[T api.Setting](list []T, name string) []T {
	return slices.DeleteFunc(slices.Clone(list), func(one T) bool {
		has, _ := one.Key()
		return has == name
	})
}

// changePolicies changes the policies of an organization's runs. It drops expired waivers.
func changePolicies(ctx context.Context, c *ledger.Change, org string, change func(*record.Policies) error) error {
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

// preparePolicyGroup refuses a group that could not be evaluated, or that holds for nothing.
func preparePolicyGroup(ctx context.Context, c *ledger.Change, org string, g api.PolicyGroup, old *record.Settings[api.PolicyGroup]) (api.PolicyGroup, error) {
	if err := workflow.CheckText("description", g.Description, 1000); err != nil {
		return g, err
	}
	switch {
	case !slices.Contains([]string{api.PolicyAdvisory, api.PolicyMandatory, api.PolicyWaivable}, g.Enforcement):
		return g, workflow.Invalid("enforcement", "the enforcement is advisory, mandatory or waivable, not %q", text.Cut(g.Enforcement, 40))
	case len(g.Workspaces)+len(g.Projects) == 0:
		return g, workflow.Invalid("workspaces", "a policy group names workspaces, projects, or both; project %s has all workspaces", record.GlobalProject)
	}
	if err := checkSource(g.Source); err != nil {
		return g, err
	}
	var before Targets
	if old != nil {
		before = Targets{old.V.Workspaces, old.V.Projects}
	}
	return g, CheckTargets(ctx, c, org, "policy group", Targets{g.Workspaces, g.Projects}, before)
}

// prepareWaiver refuses a waiver that no run could use, and one without a reason. The commit fails if its group or
// its workspace is changed meanwhile.
func prepareWaiver(ctx context.Context, c *ledger.Change, org string, w api.Waiver, _ *record.Settings[api.Waiver]) (api.Waiver, error) {
	if err := checkWaiver(w, c.Now); err != nil {
		return w, err
	}
	group, ws := record.SettingsKey(org, kind.PolicyGroup, w.Group), record.WorkspaceKey(org, w.Workspace)
	if err := c.Load(ctx, group, ws); err != nil {
		return w, err
	}
	g, ok, err := ledger.Get[record.Settings[api.PolicyGroup]](c.Read, group)
	switch {
	case err != nil:
		return w, err
	case !ok:
		return w, workflow.Refuse(workflow.ErrNotFound, "group", "there is no policy group %s: make it first, or correct the name", w.Group)
	case g.V.Enforcement != api.PolicyWaivable:
		return w, workflow.Invalid("group", "policy group %s is %s: only one that is waivable has waivers", w.Group, g.V.Enforcement)
	case c.Version(ws) == store.Absent:
		return w, workflow.Refuse(workflow.ErrNotFound, "workspace", "there is no workspace %s: make it first, or correct the name", w.Workspace)
	}
	c.Check(group)
	c.Check(ws)
	return w, nil
}

// checkWaiver refuses a waiver that is invalid by itself, without other records. It is a pure function.
func checkWaiver(w api.Waiver, now time.Time) error {
	if err := workflow.CheckText("reason", w.Reason, 500); err != nil {
		return err
	}
	printable := func(s string) bool { return !strings.ContainsFunc(s, unicode.IsControl) }
	switch {
	case w.Rule == "" || len(w.Rule) > 255 || !printable(w.Rule) || strings.ContainsAny(w.Rule, " \t"):
		return workflow.Invalid("rule", "name the rule as its results do, such as main.deny_public_bucket, in at most 255 bytes")
	case len(w.Address) > 1000 || !printable(w.Address):
		return workflow.Invalid("address", "an address has at most 1000 bytes, all printable")
	case w.Reason == "":
		return workflow.Invalid("reason", "say in at most 500 bytes why the rule is waived: it is shown wherever the waiver is used")
	case !w.Until.After(now):
		return workflow.Invalid("until", "until is a time to come; %s is past", w.Until.UTC().Format(time.RFC3339))
	case w.Until.After(now.Add(maxWaiver)):
		return workflow.Invalid("until", "a waiver ends at most 400 days from now, at %s", now.Add(maxWaiver).UTC().Format(time.RFC3339))
	case workflow.CheckWorkspaceName(w.Workspace) != nil:
		return workflow.Invalid("workspace", "%q is not the name of a workspace", text.Cut(w.Workspace, 64))
	case identity.CheckName(w.Group) != nil:
		return workflow.Invalid("group", "%q is not the name of a policy group", text.Cut(w.Group, 64))
	}
	return nil
}
