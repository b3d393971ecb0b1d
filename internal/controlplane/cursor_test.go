package controlplane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A cursor was a raw key of the store: with a NUL in it, and taken for any list.
func TestLists_ACursorIsOpaqueAndGoodForItsListAlone(t *testing.T) {
	w := newWorld(t, memory.New())
	var id string
	for i := range 3 {
		name := fmt.Sprintf("ws-%d", i)
		w.workspace("gone")
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "gone"))
		w.workspace(name)
		for range 3 {
			id = w.submit(name, workflow.Preview).ID
		}
		pool := fmt.Sprintf("pool-%d", i)
		_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: &pool})
		w.must(err)
		_, err = w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "t", Role: api.RoleViewer})
		w.must(err)
	}
	_, err := w.plane.Cancel(w.ctx(), w.admin, id) // a second line of its timeline
	w.must(err)
	type page struct {
		next string
		n    int
	}
	lists := map[string]func(cursor string) (page, error){
		"workflows": func(c string) (page, error) {
			p, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{Cursor: c, Limit: 1})
			return page{p.Next, len(p.Items)}, err
		},
		"workflows of a workspace": func(c string) (page, error) {
			p, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{Workspace: "ws-1", Cursor: c, Limit: 1})
			return page{p.Next, len(p.Items)}, err
		},
		"timeline": func(c string) (page, error) {
			p, err := w.plane.Timeline(w.ctx(), w.admin, id, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"workspaces": func(c string) (page, error) {
			p, err := w.plane.Workspaces(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"deleted workspaces": func(c string) (page, error) {
			p, err := w.plane.DeletedWorkspaces(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"pools": func(c string) (page, error) {
			p, err := w.plane.Pools(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"tokens": func(c string) (page, error) {
			p, err := w.plane.Tokens(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"audit": func(c string) (page, error) {
			p, err := w.plane.Audit(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"held": func(c string) (page, error) {
			p, err := w.plane.Held(w.ctx(), w.pool, "one", c)
			return page{p.Next, len(p.Items)}, err
		},
	}
	cursors := map[string]string{}
	for name, list := range lists {
		seen := 0
		for cursor, pages := "", 0; ; pages++ {
			p, err := list(cursor)
			w.must(err)
			if strings.ContainsFunc(p.next, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Contains(p.next, "/") {
				t.Errorf("%s: the cursor is %q", name, p.next)
			}
			seen += p.n
			if cursor = p.next; cursor == "" {
				break
			}
			cursors[name] = cursor
			if pages > 1000 {
				t.Fatalf("%s: it has no end", name)
			}
		}
		if least := map[string]int{"held": 0, "timeline": 2, "workflows": 9}[name]; seen < least || name != "held" && seen < 2 {
			t.Errorf("%s: %d items were listed", name, seen)
		}
	}
	for name, list := range lists {
		wrong := map[string]string{"a raw key": "wf\x00" + id, "nothing": "AAAA", "no form": "%%", "damaged": "x" + cursors[name]}
		for other, cursor := range cursors {
			if other != name {
				wrong["of "+other] = cursor
			}
		}
		for what, cursor := range wrong {
			_, err := list(cursor)
			if e, ok := errors.AsType[*workflow.Error](err); !ok || !errors.Is(err, workflow.ErrInvalid) || e.Field != "cursor" {
				t.Errorf("%s with a cursor that is %s: got %v, want a refusal that names cursor", name, what, err)
			}
		}
	}
}
