package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// workspacesData is what the list of workspaces shows.
type workspacesData struct {
	name        string // that it is filtered by
	list        []api.Activity
	first, next string
}

// workspaces lists workspaces by name, with what goes on in them.
func workspaces(r *http.Request, v *view) (templ.Component, error) {
	v.title, v.tab = "Workspaces", "workspaces"
	q := r.URL.Query()
	d := workspacesData{name: strings.TrimSpace(q.Get("name"))}
	cursor := q.Get("cursor")
	if cursor == "" {
		v.every = 5 * time.Second
	} else {
		d.first = query("/workspaces", url.Values{"name": {d.name}})
	}
	page, err := v.plane.Activities(r.Context(), v.who, d.name, cursor, mostRows)
	if err != nil {
		return nil, err
	}
	if d.list = page.Items; page.Next != "" {
		d.next = query("/workspaces", url.Values{"name": {d.name}, "cursor": {page.Next}})
	}
	return workspacesPage(v, d), nil
}
