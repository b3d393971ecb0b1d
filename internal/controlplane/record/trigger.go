package record

import (
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Trigger is what submitted a workflow in place of a person. It is never changed.
type Trigger struct {
	Kind       string `json:"kind"` // api.Trigger*
	Name       string `json:"name"`
	Repository string `json:"repo,omitempty"`
	Number     int    `json:"number,omitempty"`
	Commit     string `json:"commit,omitempty"`
}

// Pull says that the code of the run is that of a pull request: whoever opened it may have written it.
func (t *Trigger) Pull() bool { return t != nil && t.Kind == api.TriggerPullRequest }

// Followed says that somebody goes on with what depends on the run when it has ended or its plan is decided on: its pull
// request, or its tree.
func (t *Trigger) Followed() bool { return t != nil && (t.Number != 0 || t.Kind == api.TriggerTree) }

// View is the trigger as people see it; nil where a person submitted the run.
func (t *Trigger) View() *api.Trigger {
	if t == nil {
		return nil
	}
	return &api.Trigger{Kind: t.Kind, Name: t.Name, Repository: t.Repository, Number: t.Number, Commit: t.Commit}
}

// Settings is a thing that an admin of an organization keeps under a name, such as a schedule. Of what V has the control
// plane fills in the rest when it is shown.
type Settings[T any] struct {
	ID      string    `json:"id"` // one that was made again under the same name is another
	Created time.Time `json:"created"`
	By      string    `json:"by"` // who last changed it
	ByID    string    `json:"by_id"`
	V       T         `json:"v"`
}

// SettingsPrefix is how the keys of the things of a kind begin, by the name of the kind.
func SettingsPrefix(kind string) string { return strings.ReplaceAll(kind, "_", "") + "/" }

// SettingsKey is where the thing of a kind and a name lies.
func SettingsKey(org, kind, name string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: SettingsPrefix(kind) + name}
}

// SettingsOf scans the things of a kind, by name.
func SettingsOf(org, kind string, limit int) store.Scan {
	return Under(OrganizationPart(org), SettingsPrefix(kind), limit)
}

// Planned is what a schedule has done about one workspace.
type Planned struct {
	At     time.Time `json:"at,omitzero"` // the latest time of the schedule that was dealt with
	Run    string    `json:"run,omitempty"`
	Missed int       `json:"missed,omitempty"` // times before At that nothing was submitted for
	Note   string    `json:"note,omitempty"`   // why nothing was submitted at At, or what a later time waits for
	Waits  bool      `json:"waits,omitempty"`  // a time after At waits
}

// Cycle is the latest time of a schedule that was dealt with in all of its workspaces.
type Cycle struct {
	At time.Time `json:"at"`
}

// SchedulePlace is the schedule at which the last turn over an organization's schedules was cut short.
type SchedulePlace struct {
	Name string `json:"name,omitempty"`
}

// PlannedKept is how long a Planned is kept in a store that deletes what has expired: longer than the year of a schedule
// that has one time a year.
const PlannedKept = 400 * Day

// PlannedPart has what a schedule has done, by its id.
func PlannedPart(schedule string) string { return "planned/" + schedule }

// PlannedKey is where it lies for a workspace.
func PlannedKey(schedule, wsid string) store.Key {
	return store.Key{Part: PlannedPart(schedule), Sort: wsid}
}

// CycleKey is where the Cycle of a schedule lies.
func CycleKey(schedule string) store.Key {
	return store.Key{Part: PlannedPart(schedule), Sort: "cycle"}
}

// GoneSchedulesPrefix is where the ids of schedules are that were deleted, until what they have done is deleted too. It
// comes right before the keys of schedules, so that one range has both.
const GoneSchedulesPrefix = "schedule-gone/"

// GoneScheduleKey is where a deleted schedule is noted.
func GoneScheduleKey(org, id string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: GoneSchedulesPrefix + id}
}

// SchedulePlaceKey is where SchedulePlace lies.
func SchedulePlaceKey(org string) store.Key { return store.Key{Part: "pass", Sort: "schedules/" + org} }
