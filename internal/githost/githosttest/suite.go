package githosttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// Open makes the host under test.
type Open func(client *http.Client, address string, token redact.String) (githost.Host, error)

const (
	repo   = "example/infra"
	marker = "<!-- dayfly:1 -->"
)

// sha makes the name of a commit.
func sha(digit string) string { return strings.Repeat(digit, 40) }

// world is a server with the host under test.
type world struct {
	*Server

	host githost.Host
	open Open
	now  time.Time
}

func client(t *testing.T, list ...string) *http.Client {
	t.Helper()
	p, err := outbound.ReadPrivate(list)
	if err != nil {
		t.Fatal(err)
	}
	return p.Client(outbound.Limits{Setting: "private_deliveries of the agent", Body: githost.MaxBody})
}

// Run holds a host to the suite, against the stand-in of its kind.
func Run(t *testing.T, kind Kind, open Open) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"ReadsAPullRequestWithItsFiles", readsAPull},
		{"SaysWhoMayWrite", saysWhoMayWrite},
		{"AForkIsOne", aFork},
		{"ClosedIsNotMerged", closedAndMerged},
		{"FindsThePullRequestOfAMerge", findsByMerge},
		{"ManyFilesAreReadAndMoreAreToldAsTruncated", manyFiles},
		{"AMovingHeadIsReadAgain", movingHead},
		{"ReadsACommentBack", readsBack},
		{"MakesOneCommentAndEditsIt", oneComment},
		{"AForgedMarkerIsLeftAlone", forgedMarker},
		{"FindsItsCommentBehindOthers", behindOthers},
		{"AnEmptyMarkerIsRefused", emptyMarker},
		{"SetsAStatusAgainAndAgain", setsStatus},
		{"AStatusOnAForkIsNotAFailure", forkStatus},
		{"WhatAPersonMustChangeIsPermanent", permanent},
		{"WhatPassesIsNotPermanent", transient},
		{"NoErrorHoldsTheToken", noToken},
		{"NoPrivateAddressIsCalledThatIsNotListed", noPrivate},
		{"NoRedirectIsFollowed", noRedirect},
		{"NamesCannotLeadElsewhere", noTraversal},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{Server: New(kind), open: open, now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
			t.Cleanup(w.Stop)
			w.Clock(func() time.Time { // called with the server's lock held
				w.now = w.now.Add(time.Second)
				return w.now
			})
			var err error
			if w.host, err = open(client(t, "127.0.0.1"), w.URL, w.Token()); err != nil {
				t.Fatal(err)
			}
			c.test(t, w)
		})
	}
}

func (w *world) read(t *testing.T, r githost.Read) githost.Facts {
	t.Helper()
	r.Repository = repo
	f, err := w.host.Read(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func check(t *testing.T, subject string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", subject, d)
	}
}

// fails checks that an error is the one error of hosts, and returns how long to wait.
func fails(t *testing.T, err error, permanent bool, says ...string) time.Duration {
	t.Helper()
	e, ok := errors.AsType[*githost.Error](err)
	if !ok {
		t.Fatalf("got %v, want a *githost.Error", err)
	}
	if e.Permanent != permanent {
		t.Errorf("%v: permanent is %t, want %t", e, e.Permanent, permanent)
	}
	for _, s := range says {
		if !strings.Contains(e.Error(), s) {
			t.Errorf("got %q, want it to say %q", e, s)
		}
	}
	return e.RetryAfter
}

func readsAPull(t *testing.T, w *world) {
	id := w.Member(repo, "ann", Writes)
	w.Open(Pull{Repository: repo, Author: "bob", Head: sha("1")})
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a"), BaseRef: "release", Files: []File{{Path: "net/main.tf"}, {Path: "new.tf", Previous: "old.tf"}, {Path: "old.tf"}}})
	check(t, "facts", githost.Facts{
		Number: 2, State: githost.Open, Head: sha("a"), HeadRepository: repo, BaseRef: "release",
		Author: githost.Person{ID: id, Login: "ann", CanWrite: true}, Files: []string{"net/main.tf", "new.tf", "old.tf"},
	}, w.read(t, githost.Read{Number: n}))
	w.Push(repo, n, sha("b"), File{Path: "only.tf"})
	f := w.read(t, githost.Read{Number: n})
	check(t, "head after a push", sha("b"), f.Head)
	check(t, "files after a push", []string{"only.tf"}, f.Files)
}

func saysWhoMayWrite(t *testing.T, w *world) {
	for may, want := range map[Access]bool{Nothing: false, Reads: false, Writes: true, Administers: true} {
		login := fmt.Sprint("user-", int(may))
		w.Member(repo, login, may)
		n := w.Open(Pull{Repository: repo, Author: login, Head: sha("a")})
		check(t, login, want, w.read(t, githost.Read{Number: n}).Author.CanWrite)
	}
	// Of another repository.
	w.Member("example/other", "eve", Administers)
	n := w.Open(Pull{Repository: repo, Author: "eve", Head: sha("a")})
	check(t, "an author who may write elsewhere", false, w.read(t, githost.Read{Number: n}).Author.CanWrite)
}

func aFork(t *testing.T, w *world) {
	w.Member(repo, "ann", Writes)
	n := w.Open(Pull{Repository: repo, HeadRepository: "eve/infra", Author: "ann", Head: sha("f")})
	f := w.read(t, githost.Read{Number: n})
	check(t, "fork", true, f.Fork)
	check(t, "its repository", "eve/infra", f.HeadRepository)
}

func closedAndMerged(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	check(t, "open", "", w.read(t, githost.Read{Number: n}).MergeCommit)
	w.Close(repo, n)
	check(t, "closed", githost.Closed, w.read(t, githost.Read{Number: n}).State)
	w.Merge(repo, n, sha("c"))
	f := w.read(t, githost.Read{Number: n})
	check(t, "merged", githost.Merged, f.State)
	check(t, "merged as", sha("c"), f.MergeCommit)
}

func findsByMerge(t *testing.T, w *world) {
	w.Open(Pull{Repository: repo, Author: "ann", Head: sha("1")})
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	w.Merge(repo, n, sha("c"))
	check(t, "of the merge", n, w.read(t, githost.Read{Commit: sha("c")}).Number)
	check(t, "of a head that is not merged", 0, w.read(t, githost.Read{Commit: sha("1")}).Number)
	check(t, "of the head that is merged", 0, w.read(t, githost.Read{Commit: sha("a")}).Number)
	_, err := w.host.Read(t.Context(), githost.Read{Repository: repo, Commit: "main"})
	fails(t, err, true, "commit")
}

// GitLab sends its limit for a minute: a client that spread its calls by it would need longer than the test gives.
func manyFiles(t *testing.T, w *world) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	files := func(n int) (list []File) {
		for i := range n {
			list = append(list, File{Path: fmt.Sprintf("f/%d", i)})
		}
		return list
	}
	for n, truncated := range map[int]bool{0: false, 30: false, 100: false, 250: false, 3001: true} {
		f, err := w.host.Read(ctx, githost.Read{Repository: repo, Number: w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a"), Files: files(n)})})
		if err != nil {
			t.Fatal(err)
		}
		if f.FilesTruncated != truncated || !truncated && len(f.Files) != n || truncated && len(f.Files) < 1000 {
			t.Errorf("of %d files got %d, truncated: %t", n, len(f.Files), f.FilesTruncated)
		}
	}
}

func movingHead(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a"), Files: []File{{Path: "harmless"}}})
	pushed := false
	w.Before(func(_, path string) {
		if !pushed && (strings.HasSuffix(path, "/files") || strings.HasSuffix(path, "/diffs")) {
			pushed = true
			w.Push(repo, n, sha("b"), File{Path: "other"})
		}
	})
	_, err := w.host.Read(t.Context(), githost.Read{Repository: repo, Number: n})
	fails(t, err, false, "pushed")
	f := w.read(t, githost.Read{Number: n})
	check(t, "head", sha("b"), f.Head)
	check(t, "files", []string{"other"}, f.Files)
}

func readsBack(t *testing.T, w *world) {
	bob := w.Member(repo, "bob", Writes)
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	other := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("b")})
	id := w.Comment(repo, n, "bob", "dayfly apply")
	got := w.read(t, githost.Read{Number: n, CommentID: id}).Comment
	if got == nil || got.Created.IsZero() || !got.Created.Equal(got.Updated) {
		t.Fatalf("got %+v, want a comment with its time", got)
	}
	check(t, "comment", githost.CommentFacts{ID: id, Author: githost.Person{ID: bob, Login: "bob", CanWrite: true}, Text: "dayfly apply", Created: got.Created, Updated: got.Updated}, *got)
	w.Edit(id, strings.Repeat("ä", githost.MaxText))
	edited := w.read(t, githost.Read{Number: n, CommentID: id}).Comment
	if !edited.Updated.After(got.Updated) || !edited.Created.Equal(got.Created) || len(edited.Text) > githost.MaxText || len(edited.Text) < githost.MaxText/2 {
		t.Errorf("edited: got %d bytes, made %v, updated %v", len(edited.Text), edited.Created, edited.Updated)
	}
	if c := w.read(t, githost.Read{Number: other, CommentID: id}).Comment; c != nil {
		t.Errorf("the comment of another pull request was read: %+v", c)
	}
	w.Delete(id)
	if c := w.read(t, githost.Read{Number: n, CommentID: id}).Comment; c != nil {
		t.Errorf("a deleted comment was read: %+v", c)
	}
}

func (w *world) comment(t *testing.T, number int, id int64, text string) githost.Posted {
	t.Helper()
	p, err := w.host.Comment(t.Context(), githost.Comment{Repository: repo, Number: number, ID: id, Marker: marker, Body: marker + "\n" + text})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func oneComment(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	edit := githost.Comment{Repository: repo, Number: n, Marker: marker, Body: marker + "\ntwo", OnlyEdit: true}
	if got, err := w.host.Comment(t.Context(), edit); err != nil || got.ID != 0 || len(w.Comments(repo, n)) != 0 {
		t.Errorf("there was none to edit: got %+v, %v", got, err)
	}
	first := w.comment(t, n, 0, "one")
	again, err := w.host.Comment(t.Context(), edit)
	if err != nil {
		t.Fatal(err)
	}
	byID := w.comment(t, n, first.ID, "three")
	if again.ID != first.ID || byID.ID != first.ID || !again.Updated.After(first.Updated) || !byID.Updated.After(again.Updated) {
		t.Errorf("got %+v, %+v, %+v, want one comment, edited twice", first, again, byID)
	}
	list := w.Comments(repo, n)
	if len(list) != 1 || list[0].Text != marker+"\nthree" || list[0].Author != Bot || !list[0].Updated.Equal(byID.Updated) {
		t.Errorf("got %+v", list)
	}
	w.Delete(first.ID)
	anew := w.comment(t, n, first.ID, "four")
	if list := w.Comments(repo, n); anew.ID == first.ID || len(list) != 1 || list[0].Text != marker+"\nfour" {
		t.Errorf("after it was deleted: got %+v", list)
	}
}

func forgedMarker(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "eve", Head: sha("a")})
	forged := w.Comment(repo, n, "eve", marker+"\nall is well")
	w.Comment(repo, n, Bot, "I quote: "+marker)
	own := w.comment(t, n, 0, "true")
	list := w.Comments(repo, n)
	if len(list) != 3 || own.ID == forged || list[0].Text != marker+"\nall is well" || list[2].Text != marker+"\ntrue" {
		t.Errorf("got %+v", list)
	}
	check(t, "the next one", own.ID, w.comment(t, n, 0, "again").ID)
}

func behindOthers(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	for range 250 {
		w.Comment(repo, n, "ann", "hm")
	}
	own := w.comment(t, n, 0, "one")
	check(t, "id", own.ID, w.comment(t, n, 0, "two").ID)
	check(t, "comments", 251, len(w.Comments(repo, n)))
}

func emptyMarker(t *testing.T, w *world) {
	n := w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	for _, c := range []githost.Comment{{Body: "x"}, {Marker: marker, Body: "x" + marker}} {
		c.Repository, c.Number = repo, n
		_, err := w.host.Comment(t.Context(), c)
		fails(t, err, true, "marker")
	}
	check(t, "calls", 0, w.Calls())
}

func setsStatus(t *testing.T, w *world) {
	w.Open(Pull{Repository: repo, Author: "ann", Head: sha("a")})
	failure := "failure"
	if w.kind == GitLab {
		failure = "failed"
	}
	for _, c := range []struct {
		state githost.StatusState
		want  string
	}{{githost.Pending, "pending"}, {githost.Pending, "pending"}, {githost.Failure, failure}, {githost.Failure, failure}, {githost.Pending, "pending"}, {githost.Success, "success"}} {
		err := w.host.Status(t.Context(), githost.Status{
			Repository: repo, Commit: sha("a"), State: c.state, Context: "dayfly/preview", Description: strings.Repeat("ä", 300), URL: "https://dayfly.example.com/runs/1",
		})
		if err != nil {
			t.Fatalf("%s: %v", c.state, err)
		}
		list := w.Statuses(repo, sha("a"))
		if len(list) != 1 || list[0].State != c.want || list[0].Context != "dayfly/preview" || list[0].URL != "https://dayfly.example.com/runs/1" || list[0].Description == "" {
			t.Errorf("%s: got %+v", c.state, list)
		}
	}
	_ = w.host.Status(t.Context(), githost.Status{Repository: repo, Commit: sha("a"), State: githost.Success, Context: "dayfly/other"})
	check(t, "contexts", 2, len(w.Statuses(repo, sha("a"))))
	fails(t, w.host.Status(t.Context(), githost.Status{Repository: repo, Commit: sha("9"), State: githost.Success, Context: "x"}), true, sha("9"))
}

func forkStatus(t *testing.T, w *world) {
	w.Open(Pull{Repository: repo, HeadRepository: "eve/infra", Author: "eve", Head: sha("f")})
	if err := w.host.Status(t.Context(), githost.Status{Repository: repo, Commit: sha("f"), State: githost.Pending, Context: "dayfly"}); err != nil {
		t.Error(err)
	}
}
