// Package githost is the part of a git host's API that deliveries need: read a pull request, write the one comment,
// set a commit's status. It executes no code of a repository and fetches none. It keeps nothing: each call names all
// that it needs, may be repeated, and is bounded in calls, pages and bytes.
package githost

import (
	"context"
	"regexp"
	"strings"
	"time"
)

// Host is the API of a git host with the credential of a pool's side. Its errors are *Error.
type Host interface {
	// Read reads a pull request (a merge request of GitLab), its changed files, and a comment. All of it is of one
	// head: where that moves meanwhile, the error is not permanent.
	Read(ctx context.Context, r Read) (Facts, error)
	// Comment makes the one comment with a marker, or edits it. It is idempotent but for two calls at once.
	Comment(ctx context.Context, c Comment) (Posted, error)
	// Status sets a commit's status. It is idempotent. GitLab has none for the commits of forks: there it does nothing.
	Status(ctx context.Context, s Status) error
}

// Bounds of reading.
const (
	MaxFiles    = 3000     // entries of a pull request's changed files; GitHub lists no more
	MaxComments = 3000     // comments in which the own one is looked for
	MaxText     = 64 << 10 // bytes of a comment; a longer one is cut
	MaxBody     = 16 << 20 // bytes of an answer that the HTTP client of a host should take: lists hold patches
)

// Read names the pull request and the comment to read.
type Read struct {
	Repository string // its path: owner/name, on GitLab also with groups between
	Number     int    // of the pull request; zero: it is found by Commit
	Commit     string // with Number zero: the commit that a merge made
	CommentID  int64  // zero: no comment is read
}

// State is where a pull request stands.
type State string

// The states of a pull request.
const (
	Open   State = "open"
	Closed State = "closed" // without being merged
	Merged State = "merged"
)

// Facts are the present facts about a pull request.
type Facts struct {
	Number         int // zero: no pull request was merged as Read.Commit, and nothing else is known
	State          State
	Head           string // newest commit of it
	HeadRepository string // path of the repository that Head is in; empty if the host does not say it, as of a deleted fork
	Fork           bool   // whether that is another one than Read.Repository
	BaseRef        string // name of the branch that it is to be merged to
	MergeCommit    string // of a merged one: the commit on that branch
	Author         Person
	Files          []string // that differ, each name once, with the former names of renamed ones
	FilesTruncated bool     // whether more differ
	Comment        *CommentFacts
}

// Person is a user of a host.
type Person struct {
	ID       int64  // never given to another user
	Login    string // can be changed, and then taken by another user
	CanWrite bool   // whether they may push to the repository of the pull request
}

// CommentFacts are a comment as it is now. Facts have none where it is gone, or is not of this pull request.
type CommentFacts struct {
	ID      int64
	Author  Person
	Text    string // at most MaxText bytes
	Created time.Time
	Updated time.Time
}

// Comment is the one comment of us on a pull request.
type Comment struct {
	Repository string
	Number     int
	ID         int64  // of the comment; zero, or one that is gone: the credential's own one with Marker is edited, else one is made
	Marker     string // how Body begins
	Body       string
	OnlyEdit   bool // whether none is made where there is none
}

// Posted is a comment that was written; zero where none was to be made.
type Posted struct {
	ID      int64
	Updated time.Time // by the host's clock
}

// StatusState is the state of a status.
type StatusState string

// The states of a status.
const (
	Pending StatusState = "pending"
	Success StatusState = "success"
	Failure StatusState = "failure"
)

// Status is the status of a commit in one context.
type Status struct {
	Repository  string
	Commit      string
	State       StatusState
	Context     string // one status is shown of each
	Description string // a sentence; one that is longer than the host takes is cut
	URL         string // of the details; may be empty
}

var (
	segment = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,255}$`)
	commit  = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)
)

// CheckRepository refuses a text that cannot be the path of a repository of at most so many segments.
func CheckRepository(path string, maxSegments int) error {
	parts := strings.Split(path, "/")
	if len(parts) < 2 || len(parts) > maxSegments {
		return Refuse("%.200q is not the path of a repository, such as owner/name", path)
	}
	for _, p := range parts {
		if !segment.MatchString(p) || p == "." || p == ".." {
			return Refuse("%.200q is not the path of a repository, such as owner/name", path)
		}
	}
	return nil
}

// CheckCommit refuses a text that is not the whole name of a commit.
func CheckCommit(name string) error {
	if !commit.MatchString(name) {
		return Refuse("%.100q is not the whole name of a commit", name)
	}
	return nil
}

// Check refuses a comment that could not be found again.
func (c Comment) Check() error {
	if c.Marker == "" || !strings.HasPrefix(c.Body, c.Marker) {
		return Refuse("the comment does not begin with its marker")
	}
	return nil
}

// Names collects the files of a pull request, each once.
type Names struct {
	all     []string
	seen    map[string]bool
	entries int
}

// Add adds the names of one changed file. An empty name is none.
func (n *Names) Add(names ...string) {
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	n.entries++
	for _, name := range names {
		if name != "" && !n.seen[name] {
			n.seen[name] = true
			n.all = append(n.all, name)
		}
	}
}

// Files returns the names, and whether there are fewer entries than the host counts.
func (n *Names) Files(counted int) (files []string, truncated bool) {
	return n.all, n.entries < counted
}
