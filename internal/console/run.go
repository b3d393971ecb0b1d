package console

import (
	"net/http"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// runData is what the page of a run shows.
type runData struct {
	w   api.Workflow
	log logData
}

// run shows one run.
func (c *Console) run(r *http.Request, v *view) (templ.Component, error) {
	d, err := c.readRun(r, v)
	if err != nil {
		return nil, err
	}
	if d.log, err = c.readLog(r, v, d.w); err != nil {
		return nil, err
	}
	v.title, v.tab = d.w.Workspace, "runs"
	return runPage(v, d), nil
}

// readRun reads all of a run but its log.
func (c *Console) readRun(r *http.Request, v *view) (d runData, err error) {
	d.w, err = c.plane.Workflow(r.Context(), v.who, r.PathValue("id"))
	return d, err
}
