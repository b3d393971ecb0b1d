package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const maxPools = 10 // of one page: each costs some reads

// poolsData is the content of the page of pools.
type poolsData struct {
	pools       []poolData
	first, next string
	explain     string // the workspace that is asked about
	wrong       string
	verdicts    []api.PoolVerdict
}

// poolData is one pool with its runners.
type poolData struct {
	api.Pool
	runners []api.Runner
}

// pools shows the pools, and which of them would run a workspace.
func pools(r *http.Request, v *view) (templ.Component, error) {
	v.title, v.tab, v.every = "Pools", "pools", 5*time.Second
	q, ctx := r.URL.Query(), r.Context()
	d := poolsData{explain: strings.TrimSpace(q.Get("explain"))}
	page, err := v.plane.Pools(ctx, v.who, q.Get("cursor"), maxPools)
	if err != nil {
		return nil, err
	}
	for _, p := range page.Items {
		one := poolData{Pool: p}
		if v.who.Has(api.RoleViewer) { // others see only the fields that they need to choose a pool
			if one.Pool, err = v.plane.Pool(ctx, v.who, p.Name); errors.Is(err, workflow.ErrNotFound) {
				continue // it has just gone
			} else if err != nil {
				return nil, err
			}
			runners, err := v.plane.Runners(ctx, v.who, p.Name)
			if err != nil && !errors.Is(err, workflow.ErrNotFound) {
				return nil, err
			}
			one.runners = runners.Items
		}
		d.pools = append(d.pools, one)
	}
	if q.Get("cursor") != "" {
		d.first, v.every = "/pools", 0
	}
	if page.Next != "" {
		d.next = query("/pools", url.Values{"cursor": {page.Next}})
	}
	if d.explain != "" {
		verdicts, err := v.plane.ExplainPools(ctx, v.who, api.ExplainPools{Workspace: d.explain})
		if err != nil {
			d.wrong = api.ProblemFor(err).Detail
		}
		d.verdicts = verdicts.Items
	}
	return poolsPage(v, d), nil
}

// poolMark is the state of a pool, in words.
func poolMark(p api.Pool) mark {
	switch {
	case p.Status == "closed":
		return mark{"soft", "⊘", "deleted; ends its runs"}
	case p.IsDisabled:
		return mark{"warn", "◍", "paused; claims nothing"}
	case p.Status == "healthy":
		return mark{"good", "●", "healthy"}
	case p.Status == "offline":
		return mark{"bad", "✗", "offline"}
	}
	return mark{"soft", "○", "no runner has come yet"}
}

// servesWhom says which workspaces a pool serves.
func servesWhom(p api.Pool) string {
	if p.AssignedToAll {
		return "all workspaces"
	}
	var out []string
	for _, list := range []struct {
		what  string
		names []string
	}{{"workspaces", p.AssignedWorkspaces}, {"projects", p.AssignedProjects}, {"stacks", p.AssignedStacks}, {"namespaces", p.AssignedNamespaces}} {
		if len(list.names) > 0 {
			out = append(out, list.what+" "+strings.Join(list.names, ", "))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, "; ")
}
