package console

import (
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// logData is the part of a run's log that a page shows.
type logData struct{}

// readLog reads the part of a run's log that the address of a page asks for.
func (c *Console) readLog(_ *http.Request, _ *view, _ api.Workflow) (logData, error) {
	return logData{}, nil
}
