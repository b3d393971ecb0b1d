package gitlab_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/githost/gitlab"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

func open(client *http.Client, address string, token redact.String) (githost.Host, error) {
	return gitlab.New(client, address, token)
}

func TestHost_IsWhatEveryHostIs(t *testing.T) {
	githosttest.Run(t, githosttest.GitLab, open)
}

const repo = "example/network/infra"

func start(t *testing.T) (*githosttest.Server, githost.Host) {
	t.Helper()
	s := githosttest.New(githosttest.GitLab)
	t.Cleanup(s.Stop)
	h, err := open(http.DefaultClient, s.URL, s.Token())
	if err != nil {
		t.Fatal(err)
	}
	return s, h
}

func head(digit string) string { return strings.Repeat(digit, 40) }

// GitLab finds the changes of a push some time after it has the push.
func TestRead_ChangesOfTheHeadBeforeAreNotTaken(t *testing.T) {
	s, h := start(t)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: head("a")})
	s.Push(repo, n, head("b"))
	s.Lag(true)
	_, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n})
	if e, ok := errors.AsType[*githost.Error](err); !ok || e.Permanent {
		t.Errorf("got %v, want an error that passes", err)
	}
	s.Lag(false)
	if f, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n}); err != nil || f.Head != head("b") {
		t.Errorf("got %+v, %v", f, err)
	}
}

// merge is what GitLab says of a merge request with other fields.
func merge(fields string) string {
	return `{"iid":1,"sha":"` + head("a") + `","diff_refs":{"head_sha":"` + head("a") + `"},"target_branch":"main",
		"project_id":501,"source_project_id":501,"target_project_id":501,"changes_count":"0",` + fields + `}`
}

func TestRead_SaysWhatAMergeMade(t *testing.T) {
	s, h := start(t)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: head("a")})
	for fields, want := range map[string]string{
		`"state":"merged","merge_commit_sha":"` + head("c") + `","squash_commit_sha":"` + head("d") + `"`: head("c"),
		`"state":"merged","merge_commit_sha":null,"squash_commit_sha":"` + head("d") + `"`:                head("d"),
		`"state":"merged","merge_commit_sha":null,"squash_commit_sha":null`:                               head("a"),
	} {
		s.Next(githosttest.Answer{Path: "/merge_requests/1", Status: 200, Body: merge(fields)})
		s.Next(githosttest.Answer{Path: "/diffs", Status: 200, Body: "[]"})
		s.Next(githosttest.Answer{Path: "/merge_requests/1", Status: 200, Body: merge(fields)})
		f, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n})
		if err != nil || f.State != githost.Merged || f.MergeCommit != want {
			t.Errorf("%s: got %+v, %v", fields, f, err)
		}
	}
}

func TestRead_WhatIsBeingMergedIsReadAgain(t *testing.T) {
	s, h := start(t)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: head("a")})
	s.Next(githosttest.Answer{Path: "/merge_requests/1", Status: 200, Body: merge(`"state":"locked"`)})
	_, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n})
	if e, ok := errors.AsType[*githost.Error](err); !ok || e.Permanent {
		t.Errorf("got %v, want an error that passes", err)
	}
}

// GitLab writes notes itself, in the name of a user.
func TestRead_ANoteOfGitLabIsNotAComment(t *testing.T) {
	s, h := start(t)
	s.Member(repo, "ann", githosttest.Writes)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: head("a")})
	id := s.Comment(repo, n, "ann", "dayfly apply")
	s.Push(repo, n, head("b"))
	for _, c := range []struct {
		id   int64
		want bool
	}{{id, true}, {id + 1, false}} {
		f, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n, CommentID: c.id})
		if err != nil || (f.Comment != nil) != c.want {
			t.Errorf("note %d: got %+v, %v", c.id, f.Comment, err)
		}
	}
}

func TestRead_BlockedMembersMayNotWrite(t *testing.T) {
	s, h := start(t)
	id := s.Member(repo, "ann", githosttest.Writes)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: head("a")})
	s.Next(githosttest.Answer{Path: "/members/all/", Status: 200, Body: fmt.Sprintf(`{"id":%d,"state":"blocked","access_level":50}`, id)})
	if f, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n}); err != nil || f.Author.CanWrite {
		t.Errorf("got %+v, %v", f.Author, err)
	}
}
