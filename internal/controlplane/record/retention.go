package record

import (
	"cmp"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Retention has the days for which an organization keeps its records. Those of runs, logs and artifacts count from
// the submission of the run. 0 means the default.
type Retention struct {
	Workflows int `json:"workflows,omitempty"`
	Logs      int `json:"logs,omitempty"`
	Artifacts int `json:"artifacts,omitempty"`
	Audit     int `json:"audit,omitempty"` // 0 means for ever
}

// Days is the retention with its defaults.
func (o Organization) Days() Retention {
	r := o.Retention
	r.Workflows = cmp.Or(r.Workflows, api.DefaultWorkflowRetention)
	r.Logs = cmp.Or(r.Logs, api.DefaultLogRetention)
	for _, days := range api.ArtifactRetentions() {
		if o.Retention.Artifacts == 0 && days <= min(api.DefaultArtifactRetention, r.Workflows) {
			r.Artifacts = days // not longer than their workflows
		}
	}
	return r
}

// Day is the unit of retention.
const Day = 24 * time.Hour

// Before is the time before which records are past a retention of so many days.
func Before(now time.Time, days int) time.Time { return now.Add(-time.Duration(days) * Day) }

// ArtifactsUntil is the end of the retention of a run's artifacts.
func (r Retention) ArtifactsUntil(w *Workflow) time.Time {
	return w.Submitted.Add(time.Duration(r.Artifacts) * Day)
}

// ArtifactUntil is the end of the retention of one of them. A state that could not be written waits for a decision.
func (r Retention) ArtifactUntil(w *Workflow, name string) time.Time {
	if api.IsErrored(name) && !w.Over() {
		return w.Submitted.Add(api.ErroredDays * Day)
	}
	return r.ArtifactsUntil(w)
}

// Over says that a run has ended and that nothing of it counts or is held any more: it may expire.
func (w *Workflow) Over() bool { return w.State.Terminal() && !w.Active && !w.SlotHeld && !w.Unsaved }

// Expires is when the store may delete a record of a run; the zero time means not yet. Logs and artifacts have
// retentions of their own. The run's own record has a time only when the run is over: an active run never expires,
// however long it stands still. All other records of a run are of use only while the run lives, which is at most
// days, or to look at it.
func (r Retention) Expires(w *Workflow, k store.Key) time.Time {
	days := r.Workflows
	switch {
	case k == WorkflowKey(w.ID) && !w.Over():
		return time.Time{}
	case strings.HasPrefix(k.Sort, LogsPrefix):
		days = r.Logs
	case strings.HasPrefix(k.Sort, ArtifactsPrefix):
		_, name := ArtifactOf(k)
		return r.ArtifactUntil(w, name)
	}
	return w.Submitted.Add(time.Duration(days) * Day)
}

// Purged is how far the purge of logs and that of artifacts have come: runs that were submitted before have none.
type Purged struct {
	Logs      time.Time `json:"logs"`
	Artifacts time.Time `json:"artifacts,omitzero"`
}

// Sealed is how far the audit trail of an organization is sealed.
type Sealed struct {
	Number int64  `json:"number"` // of the last seal
	To     string `json:"to"`     // its last entry
	Digest string `json:"digest"`
	Purged int64  `json:"purged,omitempty"` // number of the last seal that is past its retention; it is deleted, or will be
}

// Forwarded is how far the audit trail of an organization is forwarded to a place.
type Forwarded struct {
	To     string    `json:"to"` // a digest of the place: another place gets the trail from its beginning
	Number int64     `json:"number"`
	Failed string    `json:"failed,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}
