package catalog

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// CheckPool refuses an unknown pool. The commit fails if it is deleted meanwhile.
func CheckPool(ctx context.Context, c *ledger.Change, org, name string) error {
	pool, err := Named(ctx, c, org, name)
	if err != nil {
		return err
	}
	if pool.Closed {
		return workflow.Invalid("pool", "pool %s is closed: name another one", pool.Name)
	}
	c.Check(record.PoolKey(org, pool.ID))
	return nil
}

// How many workspaces and projects a thing may name.
const (
	maxTargetWorkspaces = 1000
	maxTargetProjects   = 100
)

// Targets are the workspaces and projects that a thing is for.
type Targets struct{ Workspaces, Projects []string }

// CheckTargets refuses unknown workspaces and projects. The commit fails if one that is named anew is deleted
// meanwhile. Names that the thing had before are not checked: they may be those of deleted ones.
func CheckTargets(ctx context.Context, c *ledger.Change, org, noun string, in, old Targets) error {
	for _, list := range []struct {
		field, kind   string
		limit         int
		key           func(org, name string) store.Key
		names, before []string
	}{
		{"workspaces", "workspace", maxTargetWorkspaces, record.WorkspaceKey, in.Workspaces, old.Workspaces},
		{"projects", "project", maxTargetProjects, record.ProjectKey, in.Projects, old.Projects},
	} {
		if len(list.names) > list.limit {
			return workflow.Invalid(list.field, "a %s names at most %s", noun, text.Count(list.limit, list.kind))
		}
		var keys []store.Key
		for _, name := range list.names {
			if workflow.CheckWorkspaceName(name) != nil {
				return workflow.Invalid(list.field, "%q is not the name of a %s", text.Cut(name, 64), list.kind)
			}
			if !slices.Contains(list.before, name) && (list.kind == "workspace" || name != record.GlobalProject) {
				keys = append(keys, list.key(org, name))
			}
		}
		k, missing, err := c.Missing(ctx, org, keys...)
		if err != nil {
			return err
		}
		if missing {
			return workflow.Invalid(list.field, "there is no %s %s: make it first, or correct the name", list.kind, strings.TrimPrefix(k.Sort, list.kind+"/"))
		}
	}
	return nil
}

// CheckURL refuses an address that must not be called. The caller of the address checks whether it is private. An
// address may hold a secret that was put there by mistake, so it is never repeated.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || len(address) > 2000 || u.Hostname() == "" || u.Opaque != "" || u.Fragment != "" {
		return workflow.Invalid("url", "want an address such as https://hooks.example.com/dayfly, in at most 2000 bytes")
	}
	if u.User != nil {
		return workflow.Invalid("url", "the address has no user and no password: requests of format dayfly are signed; for an address that is a secret set url_ref")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !outbound.Loopback(u.Hostname())) {
		return workflow.Invalid("url", "the address begins with https://; http:// is only for one on the same machine")
	}
	return nil
}
