package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Kinds of triggers, which submit runs without a person at the keyboard.
const (
	TriggerSchedule    = "schedule"     // the clock, at the times of a schedule
	TriggerPullRequest = "pull_request" // a pull request (GitLab: a merge request), or a pipeline of one
	TriggerPush        = "push"         // a commit on a protected branch, or a pipeline of one
	TriggerTree        = "tree"         // a tree, which runs the dependents of a workspace
)

// Trigger is the origin of a run that no person submitted.
type Trigger struct {
	Kind       string `json:"kind" enum:"schedule,pull_request,push,tree" doc:"Its kind" example:"pull_request"`
	Name       string `json:"name" doc:"Name of the schedule, of the git host, or of the issuer of the pipeline's token; id of the tree" example:"nightly"`
	Repository string `json:"repository,omitempty" doc:"Path of the repository at its host" example:"example/infra"`
	Number     int    `json:"number,omitempty" doc:"Number of the pull request" example:"17"`
	Commit     string `json:"commit,omitempty" doc:"The commit that the run is of" example:"6dcb09b5b57875f334f61aebed695e2e4193db5e"`
}

// Schedule submits runs of workspaces at the times of a cron expression.
type Schedule struct {
	Name        string             `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"nightly"`
	Description string             `json:"description,omitempty" maxLength:"1000" doc:"Its purpose"`
	Cron        string             `json:"cron" minLength:"1" maxLength:"100" doc:"Five fields (minute, hour, day of month, month, day of week), or @hourly, @daily, @weekly or @monthly" example:"0 3 * * *"`
	TimeZone    string             `json:"time_zone,omitempty" maxLength:"64" doc:"IANA name of the time zone of cron; default UTC" example:"Europe/Berlin"`
	Spread      string             `json:"spread,omitempty" maxLength:"40" doc:"Go duration over which the runs of its workspaces are spread, each always at the same moment; at most half of the time between two times; default 10m, or that half where it is less" example:"10m"`
	SpreadOver  string             `json:"spread_over,omitempty" doc:"Time over which its runs are spread: spread, or its default; not taken" example:"10m0s"`
	Workspaces  []string           `json:"workspaces,omitempty" maxItems:"1000" doc:"Names of workspaces"`
	Projects    []string           `json:"projects,omitempty" maxItems:"100" doc:"Names of projects: all workspaces in them and below them" example:"[\"global\"]"`
	Type        workflow.Type      `json:"type,omitempty" enum:"deployment,insights_scan,policy_evaluation" doc:"Type of the runs; default insights_scan, which looks for drift" example:"insights_scan"`
	Operation   workflow.Operation `json:"operation,omitempty" enum:"preview,update,refresh,destroy" doc:"Operation of a deployment; required for one"`
	IsPaused    bool               `json:"is_paused,omitempty" doc:"Whether it submits nothing. Runs that it would have submitted meanwhile count as missed"`
	EditedBy    string             `json:"edited_by,omitempty" doc:"Principal that last changed it: a submitter of its runs where a plan may not be approved by one; not taken" example:"anna"`
	NextAt      *time.Time         `json:"next_at,omitempty" doc:"Its next time; none while it is paused; not taken"`
	Since       *time.Time         `json:"since,omitempty" doc:"Its times count from then on: when it was made or got other times; not taken"`
	ResumedAt   *time.Time         `json:"resumed_at,omitempty" doc:"When its last pause ended; not taken"`
	CreatedAt   *time.Time         `json:"created_at,omitempty" doc:"When it was made; not taken"`
	Version     int64              `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Key implements Setting.
func (s Schedule) Key() (name string, version int64) { return s.Name, s.Version }

// Normal implements Setting.
func (s Schedule) Normal(string) Setting {
	s.SpreadOver, s.EditedBy, s.NextAt, s.Since, s.ResumedAt, s.CreatedAt, s.Version = "", "", nil, nil, nil, nil, 0
	s.Cron = strings.Join(strings.Fields(s.Cron), " ")
	s.Type = cmp.Or(s.Type, workflow.InsightsScan)
	s.Workspaces, s.Projects = text.Sorted(s.Workspaces), text.Sorted(s.Projects)
	return s
}

// MaxMissed is how many missed times are counted: there may be more.
const MaxMissed = 1000

// ScheduledRun is the state of a schedule for one workspace.
type ScheduledRun struct {
	Schedule  string         `json:"schedule" doc:"Name of the schedule" example:"nightly"`
	Workspace string         `json:"workspace" doc:"Name of the workspace" example:"network"`
	NextAt    *time.Time     `json:"next_at,omitempty" doc:"When it is submitted next, spread included; none while the schedule is paused"`
	LastAt    *time.Time     `json:"last_at,omitempty" doc:"The time of the schedule that was dealt with last"`
	Workflow  string         `json:"workflow,omitempty" doc:"Id of the run that was submitted last" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	State     workflow.State `json:"state,omitempty" doc:"Where that run stands" example:"succeeded"`
	Missed    int            `json:"missed,omitempty" doc:"How many times before that one were missed: they are not made up for one by one"`
	Note      string         `json:"note,omitempty" doc:"Why nothing was submitted at that time, or what it waits for" example:"pool production is disabled"`
}

// Otherwise describes deviations from the schedule: its note, and how many times were missed; "" if there are none.
func (s ScheduledRun) Otherwise() string {
	missed := text.Count(s.Missed, "time") + " before the last one missed"
	switch {
	case s.Missed == 0:
		return s.Note
	case s.Missed >= MaxMissed:
		missed = fmt.Sprintf("%d times or more before the last one missed", s.Missed)
	}
	return strings.TrimPrefix(s.Note+"; "+missed, "; ")
}

// The formats of a notification.
const (
	FormatDayfly = "dayfly" // JSON, signed as Standard Webhooks say
	FormatSlack  = "slack"  // for incoming webhooks of Slack, and of others in the same format
)

// Events of a notification.
const (
	EventFailed   = "failed"   // a run has failed
	EventApproval = "approval" // a plan waits for an approval
	EventDrift    = "drift"    // a scan has found drift
	EventStuck    = "stuck"    // a run waits for longer than half an hour, for something that is not another run
)

// Notification sends events to an address, as an HTTP POST that a pool makes.
type Notification struct {
	Name        string     `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"on-call"`
	Description string     `json:"description,omitempty" maxLength:"1000" doc:"Its purpose"`
	URL         string     `json:"url,omitempty" maxLength:"2000" doc:"https:// address, without credentials. Either url or url_ref" example:"https://hooks.example.com/dayfly"`
	URLRef      string     `json:"url_ref,omitempty" maxLength:"2048" doc:"Reference of the secret that holds the address, where the address itself is one, as Slack's are"`
	Format      string     `json:"format,omitempty" enum:"dayfly,slack" doc:"Form of the body: dayfly (the default), signed, or slack"`
	SecretRef   string     `json:"secret_ref,omitempty" maxLength:"2048" doc:"With format dayfly, required: reference of the secret that the body is signed with, whsec_ and base64 of 24 to 64 bytes" example:"file:webhook-secret"`
	Events      []string   `json:"events,omitempty" maxItems:"4" enum:"failed,approval,drift,stuck" doc:"Events to send; default all" example:"[\"failed\",\"drift\"]"`
	Projects    []string   `json:"projects,omitempty" maxItems:"100" doc:"Only of workspaces in these projects and below them; default of all"`
	Pool        string     `json:"pool,omitempty" maxLength:"64" doc:"Name of the pool whose side sends it; default the pool that every organization starts with" example:"default"`
	IsDisabled  bool       `json:"is_disabled,omitempty" doc:"Whether nothing is sent"`
	CreatedAt   *time.Time `json:"created_at,omitempty" doc:"When it was made; not taken"`
	Version     int64      `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Key implements Setting.
func (n Notification) Key() (name string, version int64) { return n.Name, n.Version }

// Normal implements Setting.
func (n Notification) Normal(string) Setting {
	n.CreatedAt, n.Version = nil, 0
	n.Format = cmp.Or(n.Format, FormatDayfly)
	n.Events, n.Projects = text.Sorted(n.Events), text.Sorted(n.Projects)
	return n
}

// The states of a delivery.
const (
	DeliveryWaiting = "waiting" // also for its next try
	DeliveryClaimed = "claimed"
	DeliveryDone    = "done"
	DeliveryFailed  = "failed" // given up: only a replay tries it again
)

// The kinds of deliveries.
const (
	DeliverNotification = "notification"
)

// Delivery is something that the control plane wants done elsewhere, and that a pool's side does.
type Delivery struct {
	ID         string     `json:"id" doc:"Id of the delivery" example:"dlv_01k1xz4m2p7q9r3s5t8v"`
	Kind       string     `json:"kind" enum:"notification,pull_read,pull_show" doc:"Its kind: a notification is sent, a pull request is read, or its status and comment are written" example:"notification"`
	For        string     `json:"for" doc:"Name of the notification or the git host that wants it" example:"on-call"`
	Event      string     `json:"event,omitempty" doc:"Event that it reports" example:"failed"`
	Workflow   string     `json:"workflow,omitempty" doc:"Id of the run that it is about" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	Workspace  string     `json:"workspace,omitempty" doc:"Name of the workspace that it is about" example:"network"`
	Repository string     `json:"repository,omitempty" doc:"Path of the repository of the pull request that it is about" example:"example/infra"`
	Number     int        `json:"number,omitempty" doc:"Number of that pull request" example:"17"`
	Pool       string     `json:"pool" doc:"Name of the pool whose side does it" example:"default"`
	State      string     `json:"state" enum:"waiting,claimed,done,failed" doc:"Where it stands" example:"done"`
	Attempts   int        `json:"attempts" doc:"How often it was tried" example:"1"`
	Detail     string     `json:"detail,omitempty" doc:"Outcome of the last try" example:"hooks.example.com answered 503"`
	NextAt     *time.Time `json:"next_at,omitempty" doc:"When it is tried next"`
	CreatedAt  time.Time  `json:"created_at" doc:"When it was made"`
	EndedAt    *time.Time `json:"ended_at,omitempty" doc:"When it was done or given up"`
}

// About returns its event or kind, and the pull request or the workspace that it is about, "" if there is none.
func (d Delivery) About() (subject, of string) {
	subject, of = cmp.Or(d.Event, d.Kind), d.Workspace
	if d.Repository != "" {
		of = fmt.Sprintf("%s#%d", d.Repository, d.Number)
	}
	return subject, of
}

// DeliveryClaim asks for deliveries of a pool.
type DeliveryClaim struct {
	Max      int    `json:"max" minimum:"1" maximum:"20" doc:"Maximum number of deliveries to claim" example:"10"`
	Instance string `json:"instance" minLength:"1" maxLength:"128" doc:"Name of the instance that claims" example:"build-01"`
}

// DeliveriesClaimed has the deliveries that a claim hands out.
type DeliveriesClaimed struct {
	Tasks []DeliveryTask `json:"tasks" doc:"Tries to make now, each within its lease"`
	Short bool           `json:"short,omitempty" doc:"Whether there is no more"`
}

// DeliveryTask is one try of a delivery. It holds references of secrets, never their values.
type DeliveryTask struct {
	ID           string            `json:"id" doc:"Id of the delivery" example:"dlv_01k1xz4m2p7q9r3s5t8v"`
	Attempt      int               `json:"attempt" doc:"Number of the try, which its result names" example:"1"`
	LeaseSeconds float64           `json:"lease_seconds" doc:"After which another may try it" example:"120"`
	Send         *SendNotification `json:"send,omitempty" doc:"Of a notification: its request"`
	Host         *HostCall         `json:"host,omitempty" doc:"Of a call to a git host"`
}

// SendNotification is an HTTP POST of a JSON body.
type SendNotification struct {
	URL       string `json:"url,omitempty" doc:"Where it is sent"`
	URLRef    string `json:"url_ref,omitempty" doc:"Or the reference of the secret that holds that"`
	SecretRef string `json:"secret_ref,omitempty" doc:"Reference of the secret that it is signed with; none: it is not signed"`
	Body      string `json:"body" doc:"The body, as it is signed and sent"`
}

// DeliveryResult is the outcome of one try.
type DeliveryResult struct {
	Attempt           int           `json:"attempt" minimum:"1" doc:"Number of the try" example:"1"`
	IsDone            bool          `json:"is_done,omitempty" doc:"Whether it is done"`
	IsPermanent       bool          `json:"is_permanent,omitempty" doc:"Where it is not done: whether another try would do no better"`
	Detail            string        `json:"detail,omitempty" maxLength:"500" doc:"The outcome, for people; no secret" example:"hooks.example.com answered 503"`
	RetryAfterSeconds float64       `json:"retry_after_seconds,omitempty" minimum:"0" maximum:"86400" doc:"Minimum wait before the next try"`
	Pull              *PullFacts    `json:"pull,omitempty" doc:"Of a pull request that was read: its facts"`
	Comment           *CommentShown `json:"comment,omitempty" doc:"Of a comment that was written"`
}

// DeliveryFilter narrows a list of deliveries.
type DeliveryFilter struct {
	State  string // empty means all
	For    string // name of their notification or git host; empty means all
	Cursor string
	Limit  int
}
