package api

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// How strictly the policies of a group hold.
const (
	PolicyAdvisory  = "advisory"  // denied findings are reported, and stop nothing
	PolicyMandatory = "mandatory" // denied findings stop the run before anything is applied
	PolicyWaivable  = "waivable"  // as mandatory, but an admin may give a waiver
)

// PolicyGroup is a package of policies in Rego with the workspaces that it holds for.
type PolicyGroup struct {
	Name        string     `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"network-rules"`
	Description string     `json:"description,omitempty" maxLength:"1000" doc:"Its purpose"`
	Source      Source     `json:"source" doc:"Where the package comes from, as the code of a workspace does"`
	Enforcement string     `json:"enforcement" enum:"advisory,mandatory,waivable" doc:"advisory: denied findings are reported; mandatory: they stop the run before anything is applied; waivable: as mandatory, but an admin may give a waiver" example:"mandatory"`
	Workspaces  []string   `json:"workspaces,omitempty" maxItems:"1000" doc:"Names of workspaces that it holds for"`
	Projects    []string   `json:"projects,omitempty" maxItems:"100" doc:"Names of projects: it holds for all workspaces in them and below them" example:"[\"global\"]"`
	IsDisabled  bool       `json:"is_disabled,omitempty" doc:"Whether it holds for none"`
	EditedBy    string     `json:"edited_by,omitempty" doc:"Principal that last changed it; not taken" example:"anna"`
	CreatedAt   *time.Time `json:"created_at,omitempty" doc:"When it was made; not taken"`
	Version     int64      `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Key implements Setting.
func (g PolicyGroup) Key() (name string, version int64) { return g.Name, g.Version }

// Normal implements Setting.
func (g PolicyGroup) Normal(string) Setting {
	g.EditedBy, g.CreatedAt, g.Version = "", nil, 0
	g.Workspaces, g.Projects = text.Sorted(g.Workspaces), text.Sorted(g.Projects)
	return g
}

// Waiver lets a workspace pass one rule of a waivable policy group for a time.
type Waiver struct {
	Name      string     `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"legacy-bucket"`
	Group     string     `json:"group" doc:"Name of the policy group" example:"network-rules"`
	Rule      string     `json:"rule" minLength:"1" maxLength:"255" doc:"The rule that is waived, as its results name it: package and rule" example:"main.deny_public_bucket"`
	Workspace string     `json:"workspace" doc:"Name of the workspace that may pass" example:"network"`
	Address   string     `json:"address,omitempty" maxLength:"1000" doc:"Only for this resource; default all that the rule denies there" example:"aws_s3_bucket.legacy"`
	Reason    string     `json:"reason" minLength:"1" maxLength:"500" doc:"Why; it is shown wherever the waiver is used, and in the audit trail" example:"is moved in March, see OPS-117"`
	Until     time.Time  `json:"until" doc:"Runs that start before this time may pass; at most 400 days from now" example:"2027-03-31T00:00:00Z"`
	GivenBy   string     `json:"given_by,omitempty" doc:"Principal that gave it, or changed it last; not taken" example:"anna"`
	CreatedAt *time.Time `json:"created_at,omitempty" doc:"When it was made; not taken"`
	Version   int64      `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Key implements Setting.
func (w Waiver) Key() (name string, version int64) { return w.Name, w.Version }

// Normal implements Setting.
func (w Waiver) Normal(string) Setting {
	w.GivenBy, w.CreatedAt, w.Version = "", nil, 0
	w.Reason, w.Until = strings.TrimSpace(w.Reason), w.Until.UTC().Truncate(time.Second)
	return w
}

// Policy is a policy group as a run is held to it.
type Policy struct {
	Group       string         `json:"group" doc:"Name of the policy group" example:"network-rules"`
	Enforcement string         `json:"enforcement" enum:"advisory,mandatory,waivable" doc:"How strictly it holds" example:"mandatory"`
	Source      Source         `json:"source" doc:"Where its package comes from"`
	Waivers     []PolicyWaiver `json:"waivers,omitempty" doc:"Waivers that this run may use"`
}

// PolicyWaiver is the part of a waiver that a run needs.
type PolicyWaiver struct {
	Name    string `json:"name" maxLength:"64" doc:"Name of the waiver" example:"legacy-bucket"`
	Rule    string `json:"rule" maxLength:"255" doc:"The rule that is waived" example:"main.deny_public_bucket"`
	Address string `json:"address,omitempty" maxLength:"1000" doc:"Only for this resource"`

	Reason  string    `json:"reason,omitempty" maxLength:"500" doc:"Why it was given" example:"is moved in March, see OPS-117"`
	GivenBy string    `json:"given_by,omitempty" maxLength:"255" doc:"Principal that gave it" example:"anna"`
	Until   time.Time `json:"until,omitzero" doc:"Runs that start before this time may pass" example:"2027-03-31T00:00:00Z"`
}

// Outcomes of a rule.
const (
	FindingDenied = "denied" // it stops the run, unless the group is advisory
	FindingWarned = "warned" // the rule only warns
	FindingWaived = "waived" // it would stop the run, but there is a waiver
)

// PolicyResult is the result of a policy group for a run.
type PolicyResult struct {
	Group       string          `json:"group" maxLength:"64" doc:"Name of the policy group" example:"network-rules"`
	Enforcement string          `json:"enforcement" enum:"advisory,mandatory,waivable" doc:"How strictly it held" example:"mandatory"`
	Rules       int             `json:"rules" doc:"How many rules were evaluated" example:"12"`
	Denied      int             `json:"denied,omitempty" doc:"How many findings are denied" example:"1"`
	Warned      int             `json:"warned,omitempty" doc:"How many are warnings"`
	Waived      int             `json:"waived,omitempty" doc:"How many would be denied, but there is a waiver"`
	Findings    []PolicyFinding `json:"findings,omitempty" maxItems:"500" doc:"Findings, the denied ones first; none: the group passed. Some may be omitted; the counts include all"`
	Waivers     []PolicyWaiver  `json:"waivers,omitempty" maxItems:"500" doc:"Waivers that let something pass"`
	Error       string          `json:"error,omitempty" maxLength:"1000" doc:"Why the group could not be evaluated; a mandatory or waivable one stops the run then"`
}

// Passed says that the group has nothing to say of a run.
func (r PolicyResult) Passed() bool { return r.Denied+r.Warned+r.Waived == 0 && r.Error == "" }

// Unlisted is how many findings are not listed, because there was no room.
func (r PolicyResult) Unlisted() int { return max(0, r.Denied+r.Warned+r.Waived-len(r.Findings)) }

// PolicyFinding is one thing that a rule denies or warns of.
type PolicyFinding struct {
	Rule    string `json:"rule" maxLength:"255" doc:"Package and name of the rule" example:"main.deny_public_bucket"`
	Address string `json:"address,omitempty" maxLength:"1000" doc:"The resource that it is about, where the rule names one" example:"aws_s3_bucket.logs"`
	Message string `json:"message" maxLength:"1000" doc:"Message of the rule" example:"bucket logs is readable by everybody"`
	Outcome string `json:"outcome" enum:"denied,warned,waived" doc:"Outcome of the rule" example:"denied"`
	Waiver  string `json:"waiver,omitempty" maxLength:"64" doc:"Name of the waiver that let it pass"`
}

// PolicyProgram is the name of the program that evaluates policies. It lies beside the runner.
const PolicyProgram = "dayfly-policy"

// PolicyQuery is the standard input of dayfly-policy evaluate, which the runner writes, and PolicyAnswer its standard
// output. Both programs are of one version.
type PolicyQuery struct {
	Input    json.RawMessage `json:"input"` // a plan or a state, as the engine shows it in JSON
	Packages []PolicyPackage `json:"packages"`
}

// PolicyPackage is a directory with a package of policies.
type PolicyPackage struct {
	Name      string `json:"name"`      // by which the answer names it
	Directory string `json:"directory"` // absolute
}

// PolicyAnswer has an item for each package of the query, in its order.
type PolicyAnswer struct {
	Packages []PackageAnswer `json:"packages"`
}

// PackageAnswer is the result of one package for the input.
type PackageAnswer struct {
	Name     string           `json:"name"`
	Rules    int              `json:"rules"`           // that were evaluated
	Findings []PackageFinding `json:"findings"`        // by rule, address and message
	Error    string           `json:"error,omitempty"` // why it could not be evaluated, as a sentence
}

// PackageFinding is one result of a rule.
type PackageFinding struct {
	Rule    string `json:"rule"` // package and name, such as main.deny_public_bucket
	Warns   bool   `json:"warns,omitempty"`
	Address string `json:"address,omitempty"`
	Message string `json:"message"`
}
