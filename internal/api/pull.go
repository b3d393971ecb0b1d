package api

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The kinds of git hosts.
const (
	HostGitHub = "github" // GitHub, also an Enterprise Server
	HostGitLab = "gitlab" // GitLab, also self-managed
)

// HostAddress is the address of the web pages of a kind of git host; empty for an unknown kind.
func HostAddress(kind string) string {
	return map[string]string{HostGitHub: "https://github.com", HostGitLab: "https://gitlab.com"}[kind]
}

// GitHost is a git host whose webhooks are accepted, and at which pull requests are answered. The control plane holds
// no credential for it: each call to it is a delivery, which a pool makes with the credential of token_ref.
type GitHost struct {
	Name        string     `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"github"`
	Description string     `json:"description,omitempty" maxLength:"1000" doc:"Its purpose"`
	Kind        string     `json:"host" enum:"github,gitlab" doc:"Kind of the host" example:"github"`
	URL         string     `json:"url,omitempty" maxLength:"2000" doc:"https:// address of the web pages of a host of your own; default https://github.com or https://gitlab.com" example:"https://git.example.com"`
	TokenRef    string     `json:"token_ref" minLength:"1" maxLength:"2048" doc:"Reference of the secret, on the side of the pool, with the token that reads pull requests, comments and sets statuses" example:"file:github-token"`
	Pool        string     `json:"pool,omitempty" maxLength:"64" doc:"Name of the pool whose side calls the host; default the pool that every organization starts with" example:"default"`
	Members     []Member   `json:"members,omitempty" maxItems:"500" doc:"Users of the host that may command by comments, with their principals"`
	IsDisabled  bool       `json:"is_disabled,omitempty" doc:"Whether its webhooks are refused"`
	Generation  int        `json:"generation,omitempty" doc:"How often the secret of its webhook was made anew; not taken"`
	CreatedAt   *time.Time `json:"created_at,omitempty" doc:"When it was made; not taken"`
	Version     int64      `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Key implements Setting.
func (g GitHost) Key() (name string, version int64) { return g.Name, g.Version }

// Normal implements Setting.
func (g GitHost) Normal(string) Setting {
	g.Generation, g.CreatedAt, g.Version = 0, nil, 0
	g.URL = cmp.Or(strings.TrimRight(g.URL, "/"), HostAddress(g.Kind))
	g.Members = slices.Clone(g.Members)
	for i := range g.Members {
		g.Members[i].PrincipalID = ""
	}
	return g
}

// Member maps a user of a git host to a principal. A host reuses names that were given up, but never ids.
type Member struct {
	ID          int64             `json:"id" minimum:"1" doc:"Number of the user at the host, which never changes" example:"583231"`
	Principal   string            `json:"principal" minLength:"1" maxLength:"320" doc:"Its principal, so that nobody approves their own runs: the name of a principal, or ISSUER/SUBJECT of an issuer" example:"anna"`
	PrincipalID string            `json:"principal_id,omitempty" doc:"Id of that principal; not taken" example:"prn_01k1xz4m2p7q9r3s5t8v"`
	Role        string            `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Role in the whole organization" example:"operator"`
	Grants      map[string]string `json:"grants,omitempty" doc:"Roles in projects, and in all below them" example:"{\"global\":\"operator\"}"`
}

// WebhookSecret is the secret for a webhook at a git host. It is shown once.
type WebhookSecret struct {
	URL    string `json:"url" doc:"Where the host sends its events; a path, where the control plane does not know its own address" example:"https://dayfly.example.com/v1/webhooks/default/github"`
	Secret string `json:"secret" doc:"The secret (GitHub) or signing token (GitLab) of the webhook" example:"whsec_..."`
}

// WebhookTaken is the outcome of an event.
type WebhookTaken struct {
	IsTaken bool   `json:"is_taken" doc:"Whether something follows from it"`
	Reason  string `json:"reason" doc:"What, or why not" example:"the pull request is read"`
}

// MaxCommand is how many bytes of a comment are read. A command is in its first line.
const MaxCommand = 4 << 10

// The kinds of deliveries about pull requests.
const (
	DeliverRead = "pull_read" // the pull request, its changed files, and a comment are read
	DeliverShow = "pull_show" // its status is set and its comment edited
)

// HostCall is a call to a git host, with the pool's credential.
type HostCall struct {
	Kind       string    `json:"host" enum:"github,gitlab" doc:"Kind of the host" example:"github"`
	URL        string    `json:"url" doc:"Address of its web pages" example:"https://github.com"`
	TokenRef   string    `json:"token_ref" doc:"Reference of the secret with the token"`
	Repository string    `json:"repository" doc:"Path of the repository" example:"example/infra"`
	Number     int       `json:"number" doc:"Number of the pull request" example:"17"`
	Read       *ReadPull `json:"read,omitempty" doc:"To read it"`
	Show       *ShowPull `json:"show,omitempty" doc:"To show its outcome"`
}

// ReadPull reads a pull request, its changed files, and a comment.
type ReadPull struct {
	Comment int64 `json:"comment,omitempty" doc:"Number of the comment that is read back; none: no comment"`
}

// ShowPull sets the status of a commit, and edits the one comment.
type ShowPull struct {
	Comment     int64  `json:"comment,omitempty" doc:"Number of the comment; none: it is found by the marker, or made"`
	Marker      string `json:"marker" doc:"With which the comment begins"`
	Body        string `json:"body,omitempty" doc:"The comment; none: it is left as it is"`
	Commit      string `json:"commit" doc:"The commit whose status is set"`
	State       string `json:"state" enum:"pending,success,failure" doc:"The status"`
	Context     string `json:"context" doc:"Name of the status"`
	Description string `json:"description" doc:"The status in a sentence"`
	Link        string `json:"link,omitempty" doc:"Where more is said"`
}

// The states of a pull request.
const (
	PullOpen   = "open"
	PullClosed = "closed"
	PullMerged = "merged"
)

// PullFacts has the facts about a pull request from its git host.
type PullFacts struct {
	State          string        `json:"state" enum:"open,closed,merged" doc:"Where it stands"`
	Head           string        `json:"head" maxLength:"64" doc:"Its newest commit"`
	HeadRepository string        `json:"head_repository,omitempty" maxLength:"500" doc:"Path of the repository that the commit is in"`
	IsFork         bool          `json:"is_fork,omitempty" doc:"Whether that is another repository"`
	BaseRef        string        `json:"base_ref,omitempty" maxLength:"255" doc:"The branch that it is for"`
	MergeCommit    string        `json:"merge_commit,omitempty" maxLength:"64" doc:"Of a merged one: the commit on that branch"`
	Author         Person        `json:"author" doc:"Author of the pull request"`
	Files          []string      `json:"files,omitempty" maxItems:"10000" doc:"Files that it changes, with the former names of renamed ones"`
	IsTruncated    bool          `json:"is_truncated,omitempty" doc:"Whether it changes more than these"`
	Comment        *CommentFacts `json:"comment,omitempty" doc:"The comment that was asked for; none: there is none"`
}

// Person is somebody at a git host.
type Person struct {
	ID       int64  `json:"id" doc:"Number of the user"`
	Login    string `json:"login,omitempty" maxLength:"255" doc:"Name of the user, for people"`
	CanWrite bool   `json:"can_write,omitempty" doc:"Whether they may write to the repository"`
}

// CommentFacts is a comment as its git host has it now.
type CommentFacts struct {
	ID      int64     `json:"id" doc:"Number of the comment"`
	Author  Person    `json:"author" doc:"Author of the comment"`
	Text    string    `json:"text" maxLength:"70000" doc:"Text of the comment"`
	Created time.Time `json:"created" doc:"When it was written, by the host's clock"`
	Updated time.Time `json:"updated" doc:"When it was last edited, by the host's clock"`
}

// CommentShown is a comment of ours as it was written.
type CommentShown struct {
	ID int64     `json:"id" doc:"Number of the comment"`
	At time.Time `json:"at" doc:"When it was written, by the host's clock"`
}
