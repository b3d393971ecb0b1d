package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/controlplane"
)

// view has the values that every page needs. Templates get it as their first argument.
type view struct {
	plane   *controlplane.Plane
	who     controlplane.Principal
	now     time.Time
	base    string // the prefix of each address of the console: empty, or the stage of a private API
	url     string // of the page, with its query, without the base
	version string

	title  string        // of the page, without the name of the product
	tab    string        // which of the tabs it belongs to: home, runs, workspaces, pools
	every  time.Duration // after which it is worth a fresh look; 0 means never
	notice string        // the outcome of an action
	wrong  string        // why an action was refused
}

// blank is a view of nobody.
func (c *Console) blank(r *http.Request) *view {
	return &view{plane: c.plane, now: c.cfg.Now(), base: c.cfg.Base, url: r.URL.RequestURI(), version: c.cfg.Version}
}

// to returns the address of a page of the console, such as /runs.
func (v *view) to(path string) templ.SafeURL { return templ.SafeURL(v.base + path) }

// still is the address of the page where it is not loaded again by itself.
func (v *view) still() templ.SafeURL {
	join := "?"
	if strings.Contains(v.url, "?") {
		join = "&"
	}
	return v.to(v.url + join + "still=1")
}

func (v *view) toRun(id string) templ.SafeURL         { return v.to(runPath(id)) }
func (v *view) toWorkspace(name string) templ.SafeURL { return v.to(workspacePath(name)) }

// The paths of pages; view.to makes addresses of them.
func runPath(id string) string         { return "/runs/" + url.PathEscape(id) }
func workspacePath(name string) string { return "/workspaces/" + url.PathEscape(name) }

// query is an address with those of its fields that are not empty.
func query(path string, fields url.Values) string {
	q := url.Values{}
	for name, values := range fields {
		if len(values) > 0 && values[0] != "" {
			q.Set(name, values[0])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// has says whether a button is worth showing: whether the signed-in person has a role in the organization, or in any
// project. The rules decide.
func (v *view) has(role string) bool {
	return v.who.Has(role, slices.Collect(maps.Keys(v.who.Grants))...)
}
