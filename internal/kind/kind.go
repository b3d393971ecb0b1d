// Package kind is the table of the kinds of things that an organization consists of. It is data: the API's routes,
// its client, the command line and the documents of dayfly apply loop over it, and only their differences are code.
package kind

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Stages in which the documents of dayfly apply are applied: a thing comes before those that name it. A pool is
// assigned to projects and workspaces when these exist.
const (
	StagePools = iota
	StageProjects
	StageWorkspaces
	StageAssignments
	StageSettings
	StageWaivers
	StagePrune
	Stages
)

// Kind is a row of the table.
type Kind struct {
	Name   string       // in documents, in the audit trail and in addresses, such as git_host
	Type   reflect.Type // of the document's content
	Stage  int          // of dayfly apply
	Hidden []string     // fields whose values are never shown in a difference

	// The rest is set for settings: things that admins keep by name, each an api.Setting.

	Plural  string            // for people, such as git hosts
	Page    reflect.Type      // of one page of a list
	Command string            // of the command line
	Tag     string            // of its operations in the API's document
	Example string            // of a name
	IDs     string            // how ids of its things begin
	Reader  string            // role that may list and show them; changes take an admin
	Max     int               // how many an organization may have; 0: any number
	Refs    map[string]string // fields that hold names, with the kind of the thing they name
	Put     string            // each of the four operations, in a line
	List    string
	Show    string
	Delete  string
	Loss    string // consequence of a deletion, after the name
	About   string // field with the purpose of a thing
	Columns []Column
}

// Column is a column of a list.
type Column struct {
	Head   string
	Fields []string // paths of the fields, by their JSON names; empty ones are left out
	Form   Form
	Else   string // shown for an empty value; empty: -
}

// Form says how the values of a column are printed.
type Form int

// Forms of columns.
const (
	Plain Form = iota
	Count      // of the items of a list
	Off        // active, unless the field is true
	Until      // a time, and over once that is past
)

// Names of kinds.
const (
	Workspace    = "workspace"
	Pool         = "pool"
	Project      = "project"
	Organization = "organization"
	Issuer       = "issuer"
	GitHost      = "git_host"
	Notification = "notification"
	Schedule     = "schedule"
	PolicyGroup  = "policy_group"
	Waiver       = "waiver"
)

// setting is k for an api.Setting of type T.
func setting[T api.Setting](k Kind) Kind {
	k.Type, k.Page = reflect.TypeFor[T](), reflect.TypeFor[api.Page[T]]()
	k.Stage = cmp.Or(k.Stage, StageSettings)
	k.Command, k.About = cmp.Or(k.Command, k.Dashed()), cmp.Or(k.About, "description")
	return k
}

var all = []Kind{
	{Name: Pool, Type: reflect.TypeFor[api.PoolSettings](), Stage: StagePools},
	{Name: Project, Type: reflect.TypeFor[api.ProjectSettings](), Stage: StageProjects},
	{Name: Workspace, Type: reflect.TypeFor[api.Workspace](), Stage: StageWorkspaces, Hidden: []string{"variables", "environment", "commands"}},
	{Name: Organization, Type: reflect.TypeFor[api.OrganizationSettings](), Stage: StageSettings},
	setting[api.Issuer](Kind{
		Name: Issuer, Plural: "issuers", About: "url", Tag: "tokens", Example: "github", IDs: "iss_", Reader: api.RoleAdmin,
		Put: "Create or change an issuer and its trust rules", List: "List issuers", Show: "Show an issuer",
		Delete: "Delete an issuer; the tokens that it gave end", Loss: " and ends the tokens that it gave",
		Columns: []Column{
			{Head: "ISSUER", Fields: []string{"name"}}, {Head: "URL", Fields: []string{"url"}}, {Head: "RULES", Fields: []string{"rules"}, Form: Count},
			{Head: "LOGIN", Fields: []string{"login.client_id"}}, {Head: "STATE", Fields: []string{"is_disabled"}, Form: Off, Else: "disabled"},
		},
	}),
	setting[api.GitHost](Kind{
		Name: GitHost, Plural: "git hosts", Tag: "git hosts", Example: "github", IDs: "gh_", Reader: api.RoleAdmin,
		Refs: map[string]string{"pool": Pool},
		Put:  "Create or change a git host", List: "List git hosts", Show: "Show a git host",
		Delete: "Delete a git host; its webhooks are refused, and its pull requests are not answered", Loss: ", whose webhooks are refused then",
		Columns: []Column{
			{Head: "GIT HOST", Fields: []string{"name"}}, {Head: "KIND", Fields: []string{"host"}}, {Head: "URL", Fields: []string{"url"}},
			{Head: "MEMBERS", Fields: []string{"members"}, Form: Count}, {Head: "STATE", Fields: []string{"is_disabled"}, Form: Off, Else: "disabled"},
		},
	}),
	setting[api.Notification](Kind{
		Name: Notification, Plural: "notifications", Tag: "notifications", Example: "on-call", IDs: "ntf_", Reader: api.RoleAdmin, Max: 50,
		Refs: map[string]string{"pool": Pool, "projects": Project},
		Put:  "Create or change a notification", List: "List notifications", Show: "Show a notification",
		Delete: "Delete a notification; its unsent messages are dropped", Loss: " and drops its unsent messages",
		Columns: []Column{
			{Head: "NOTIFICATION", Fields: []string{"name"}}, {Head: "EVENTS", Fields: []string{"events"}, Else: "all"}, {Head: "PROJECTS", Fields: []string{"projects"}, Else: "all"},
			{Head: "TO", Fields: []string{"url", "url_ref"}}, {Head: "FORMAT", Fields: []string{"format"}}, {Head: "STATE", Fields: []string{"is_disabled"}, Form: Off, Else: "disabled"},
		},
	}),
	setting[api.Schedule](Kind{
		Name: Schedule, Plural: "schedules", Tag: "schedules", Example: "nightly", IDs: "sch_", Reader: api.RoleViewer,
		Refs: map[string]string{"workspaces": Workspace, "projects": Project},
		Put:  "Create or change a schedule", List: "List schedules", Show: "Show a schedule",
		Delete: "Delete a schedule; its runs stay", Loss: ", and leaves the runs that it has submitted",
		Columns: []Column{
			{Head: "SCHEDULE", Fields: []string{"name"}}, {Head: "CRON", Fields: []string{"cron", "time_zone"}}, {Head: "RUNS", Fields: []string{"type", "operation"}},
			{Head: "NEXT", Fields: []string{"next_at"}}, {Head: "OF", Fields: []string{"workspaces", "projects"}}, {Head: "STATE", Fields: []string{"is_paused"}, Form: Off, Else: "paused"},
		},
	}),
	setting[api.PolicyGroup](Kind{
		Name: PolicyGroup, Plural: "policy groups", Command: "policy", Tag: "policies", Example: "network-rules", IDs: "pgr_", Reader: api.RoleViewer, Max: 50,
		Refs: map[string]string{"workspaces": Workspace, "projects": Project},
		Put:  "Create or change a policy group", List: "List policy groups", Show: "Show a policy group",
		Delete: "Delete a policy group that has no waivers in force", Loss: ": no run that starts from now on is held to it",
		Columns: []Column{
			{Head: "GROUP", Fields: []string{"name"}}, {Head: "ENFORCEMENT", Fields: []string{"enforcement"}}, {Head: "HOLDS FOR", Fields: []string{"workspaces", "projects"}},
			{Head: "SOURCE", Fields: []string{"source.git.url", "source.archive.url", "source.directory"}}, {Head: "STATE", Fields: []string{"is_disabled"}, Form: Off, Else: "disabled"},
		},
	}),
	setting[api.Waiver](Kind{
		Name: Waiver, Plural: "waivers", Tag: "policies", Example: "legacy-bucket", IDs: "wvr_", Reader: api.RoleViewer, Max: 500, Stage: StageWaivers, About: "reason",
		Refs: map[string]string{"group": PolicyGroup, "workspace": Workspace},
		Put:  "Give or change a waiver", List: "List waivers, also those that are over", Show: "Show a waiver",
		Delete: "Take a waiver back: runs that start from now on do not pass by it", Loss: ": runs that start from now on do not pass by it",
		Columns: []Column{
			{Head: "WAIVER", Fields: []string{"name"}}, {Head: "GROUP", Fields: []string{"group"}}, {Head: "RULE", Fields: []string{"rule"}}, {Head: "WORKSPACE", Fields: []string{"workspace"}},
			{Head: "ADDRESS", Fields: []string{"address"}}, {Head: "UNTIL", Fields: []string{"until"}, Form: Until}, {Head: "BY", Fields: []string{"given_by"}}, {Head: "WHY", Fields: []string{"reason"}},
		},
	}),
}

// All are the kinds of documents, in the order of their stages.
func All() []Kind { return slices.Clone(all) }

// Settings are the kinds of settings.
func Settings() []Kind {
	return slices.DeleteFunc(All(), func(k Kind) bool { return k.Page == nil })
}

// Of is the kind with a name; ok is false for an unknown one.
func Of(name string) (k Kind, ok bool) {
	if i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return all[i], true
	}
	return k, false
}

// For is the kind of a setting.
func For(v api.Setting) Kind {
	return all[slices.IndexFunc(all, func(k Kind) bool { return k.Type == reflect.TypeOf(v) })]
}

// Noun is what people call one of its things, such as git host.
func (k Kind) Noun() string { return strings.ReplaceAll(k.Name, "_", " ") }

// Dashed is its name with dashes, as a command and an operation of the API have it.
func (k Kind) Dashed() string { return strings.ReplaceAll(k.Name, "_", "-") }

// Path is the last part of the address of its list, such as git-hosts.
func (k Kind) Path() string { return strings.ReplaceAll(k.Plural, " ", "-") }
