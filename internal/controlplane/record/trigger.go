package record

import (
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Trigger is the cause of a workflow that no person submitted. It never changes.
type Trigger struct {
	Kind       string `json:"kind"` // api.Trigger*
	Name       string `json:"name"`
	Repository string `json:"repo,omitempty"`
	Number     int    `json:"number,omitempty"`
	Commit     string `json:"commit,omitempty"`
}

// Pull says that the code of the run is that of a pull request: it may be a stranger's.
func (t *Trigger) Pull() bool { return t != nil && t.Kind == api.TriggerPullRequest }

// Followed says that a pull request or a tree goes on when the run has ended or its plan is decided on.
func (t *Trigger) Followed() bool { return t != nil && (t.Number != 0 || t.Kind == api.TriggerTree) }

// View is the trigger as people see it; nil where a person submitted the run.
func (t *Trigger) View() *api.Trigger {
	if t == nil {
		return nil
	}
	return &api.Trigger{Kind: t.Kind, Name: t.Name, Repository: t.Repository, Number: t.Number, Commit: t.Commit}
}

// Settings is an object that an admin of an organization keeps under a name, such as a schedule. V has its settings;
// the control plane adds the other fields when it is shown.
type Settings[T any] struct {
	ID      string    `json:"id"` // one that was made again under the same name is another
	Created time.Time `json:"created"`
	By      string    `json:"by"` // who last changed it
	ByID    string    `json:"by_id"`
	V       T         `json:"v"`
}

// SettingsPrefix begins the sort keys of the objects of a kind, by the name of the kind.
func SettingsPrefix(kind string) string { return strings.ReplaceAll(kind, "_", "") + "/" }

// SettingsKey is the key of the object of a kind and a name.
func SettingsKey(org, kind, name string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: SettingsPrefix(kind) + name}
}

// SettingsOf scans the objects of a kind, by name.
func SettingsOf(org, kind string, limit int) store.Scan {
	return Under(OrganizationPart(org), SettingsPrefix(kind), limit)
}

// Planned is the progress of a schedule in one workspace.
type Planned struct {
	At     time.Time `json:"at,omitzero"` // the latest time of the schedule that was processed
	Run    string    `json:"run,omitempty"`
	Missed int       `json:"missed,omitempty"` // times before At without a submission
	Note   string    `json:"note,omitempty"`   // why nothing was submitted at At, or why a later time waits
	Waits  bool      `json:"waits,omitempty"`  // a time after At waits
}

// Cycle is the latest time of a schedule that was processed in all of its workspaces.
type Cycle struct {
	At time.Time `json:"at"`
}

// SchedulePlace is the schedule at which the last round over an organization's schedules was cut short.
type SchedulePlace struct {
	Name string `json:"name,omitempty"`
}

// PlannedKept is how long a Planned is kept in a store that deletes expired records: longer than the year of a
// schedule that has one time a year.
const PlannedKept = 400 * Day

// PlannedPart has the Planned of a schedule, by its id.
func PlannedPart(schedule string) string { return "planned/" + schedule }

// PlannedKey is the key of the Planned of a workspace.
func PlannedKey(schedule, wsid string) store.Key {
	return store.Key{Part: PlannedPart(schedule), Sort: wsid}
}

// CycleKey is the key of the Cycle of a schedule.
func CycleKey(schedule string) store.Key {
	return store.Key{Part: PlannedPart(schedule), Sort: "cycle"}
}

// GoneSchedulesPrefix begins the sort keys of the ids of deleted schedules, which are kept until their Planned
// records are deleted too. It comes right before the keys of schedules, so that one range has both.
const GoneSchedulesPrefix = "schedule-gone/"

// GoneScheduleKey is the key of a deleted schedule's id.
func GoneScheduleKey(org, id string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: GoneSchedulesPrefix + id}
}

// SchedulePlaceKey is the key of SchedulePlace.
func SchedulePlaceKey(org string) store.Key { return store.Key{Part: "pass", Sort: "schedules/" + org} }
