package workspacefile

import (
	"reflect"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Of is a workspace as its file describes it: without the fields that the control plane sets.
func Of(w api.Workspace) api.Workspace {
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

// Origin is where the code of a workspace comes from.
func Origin(s api.Source) string {
	if s.Git != nil {
		return s.Git.URL
	}
	if s.Archive != nil {
		return s.Archive.URL
	}
	return s.Directory
}
