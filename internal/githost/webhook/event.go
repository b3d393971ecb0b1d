package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/strict"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Opened    Kind = "opened"    // a pull request was opened, also again
	Updated   Kind = "updated"   // its head is another commit now
	Closed    Kind = "closed"    // it was closed, or merged
	Commented Kind = "commented" // somebody wrote a comment on it
	Pushed    Kind = "pushed"    // a branch has another commit now
	Ignored   Kind = "ignored"   // nothing is done about it; Why says why
)

// MaxText is how many bytes of a comment are kept. A command is in its first line.
const MaxText = 4 << 10

// Event is the content of a webhook, in the words of no host. Only the fields of its kind are set. Ids are the host's
// own, above zero where they are known; commits have 40 or 64 hexadecimal digits in lower case.
type Event struct {
	Kind         Kind
	Why          string // with Ignored
	Repository   string // path at the host, as the host writes it
	RepositoryID int64

	Number      int    // of the pull request
	Head        string // its newest commit; GitHub's comments lack this and the next two
	BaseRef     string // the branch that it is for, without refs/heads/
	Fork        bool   // the head is in another repository, or its repository is gone
	Merged      bool
	MergeCommit string // with Merged: the commit on BaseRef
	AuthorID    int64  // of the pull request; of a comment, its author; of a push, the person who pushed
	Author      string // their name, for people; empty where the host does not name it

	CommentID int64
	Text      string    // of the comment, at most MaxText bytes
	At        time.Time // of the comment, by the host's clock

	Ref   string // with Pushed: refs/heads/...
	After string // with Pushed: its commit now
}

// Parse reads a webhook that Verify has let pass. An event that this version does not use is Ignored; one that lacks
// a required field is refused with the name of the field.
func Parse(kind string, header http.Header, body []byte) (Event, error) {
	switch kind {
	case github:
		return parse(body, header.Get("X-GitHub-Event"), map[string]func([]byte) (Event, error){
			"pull_request": githubPull, "issue_comment": githubComment, "push": githubPush, "ping": ping,
		})
	case gitlab:
		return parse(body, header.Get("X-Gitlab-Event"), map[string]func([]byte) (Event, error){
			"Merge Request Hook": gitlabMerge, "Note Hook": gitlabNote, "Push Hook": gitlabPush,
		})
	}
	return Event{}, workflow.Invalid("kind", "there are no webhooks of such a host")
}

func parse(body []byte, name string, known map[string]func([]byte) (Event, error)) (Event, error) {
	read, ok := known[name]
	if !ok {
		return ignored("no use is made of events of the kind " + text.Quote(name, 40)), nil
	}
	if !json.Valid(body) || !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return Event{}, workflow.Invalid("body", "the body is not a JSON object: choose the content type application/json for the webhook")
	}
	return read(body)
}

func ping([]byte) (Event, error) { return ignored("the webhook works"), nil }

func ignored(why string) Event { return Event{Kind: Ignored, Why: why} }

// decode reads a body of which only some fields matter. Those have one spelling and stand once.
func decode[T any](body []byte) (out T, err error) {
	if err = strict.Unmarshal(body, &out); err != nil {
		return out, workflow.Invalid("body", "the event does not have the form of its kind: %s", text.Cut(strings.ToValidUTF8(err.Error(), "?"), 200))
	}
	return out, nil
}

// A check is the required form of one field; the first that fails is reported.
type check struct {
	field string
	ok    bool
	want  string
}

func first(checks ...check) error {
	for _, c := range checks {
		if !c.ok {
			return workflow.Invalid(c.field, "%s is missing, or it is not %s", c.field, c.want)
		}
	}
	return nil
}

func id(field string, n int64) check { return check{field, n > 0, "a number above zero"} }

func number(field string, n int64) check {
	return check{field, n > 0 && n < 1<<31, "a number above zero"}
}

func commit(field, s string) check {
	hex := strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
	return check{field, hex && (len(s) == 40 || len(s) == 64), "a commit of 40 or 64 hexadecimal digits"}
}

// path is of a repository: at least an owner and a name, of the characters that hosts allow.
func path(field, s string) check {
	ok := len(s) <= 500 && strings.Count(s, "/") > 0
	for part := range strings.SplitSeq(s, "/") {
		ok = ok && part != "" && part != "." && part != ".." && strings.Trim(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-+~") == ""
	}
	return check{field, ok, "the path of a repository"}
}

func ref(field, s string) check {
	return check{field, s != "" && len(s) <= 255 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }) < 0, "the name of a branch"}
}

// name is of a person, for people.
func name(s string) string { return text.Head(s, 255) }

// when reads a time in the forms that hosts write.
func when(field, s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05 UTC", "2006-01-02 15:04:05 -0700"} {
		if t, err := time.Parse(layout, s); err == nil && t.Year() > 1970 && t.Year() < 10_000 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, workflow.Invalid(field, "%s is not a time: %s", field, text.Quote(s, 40))
}

// pushed is the event of a ref that has another commit now.
func pushed(e Event, refField, afterField string) (Event, error) {
	branch, ok := strings.CutPrefix(e.Ref, "refs/heads/")
	if !ok {
		return ignored(fmt.Sprintf("%s is not a branch", text.Quote(e.Ref, 80))), nil
	}
	if strings.Trim(e.After, "0") == "" && e.After != "" {
		return ignored(fmt.Sprintf("the branch %s was deleted", text.Quote(branch, 80))), nil
	}
	e.Kind = Pushed
	return e, first(ref(refField, branch), commit(afterField, e.After))
}
