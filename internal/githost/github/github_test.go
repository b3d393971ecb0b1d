package github_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/githost/github"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

func open(client *http.Client, address string, token redact.String) (githost.Host, error) {
	return github.New(client, address, token)
}

func TestHost_IsWhatEveryHostIs(t *testing.T) {
	githosttest.Run(t, githosttest.GitHub, open)
}

const repo = "example/infra"

func start(t *testing.T) (*githosttest.Server, githost.Host) {
	t.Helper()
	s := githosttest.New(githosttest.GitHub)
	t.Cleanup(s.Stop)
	h, err := open(http.DefaultClient, s.URL, s.Token())
	if err != nil {
		t.Fatal(err)
	}
	return s, h
}

// A login can be given up, and taken by somebody else.
func TestRead_WhoTookALoginDoesNotGetItsAccess(t *testing.T) {
	s, h := start(t)
	s.Member(repo, "ann", githosttest.Writes)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: strings.Repeat("a", 40)})
	s.Next(githosttest.Answer{Path: "/permission", Status: 200, Body: `{"permission":"admin","user":{"id":7,"login":"ann"}}`})
	for _, want := range []bool{false, true} {
		f, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n})
		if err != nil || f.Author.CanWrite != want {
			t.Errorf("got %+v, %v, want %t", f.Author, err, want)
		}
	}
}

func TestRead_AppsAndGhostsMayNotWrite(t *testing.T) {
	s, h := start(t)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "updates[bot]", Head: strings.Repeat("a", 40)})
	s.Next(githosttest.Answer{Path: "/permission", Status: 404, Body: `{"message":"updates[bot] is not a user"}`})
	f, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n})
	if err != nil || f.Author.CanWrite || f.Author.Login != "updates[bot]" {
		t.Errorf("got %+v, %v", f.Author, err)
	}
}

// GitHub refuses what is asked in GraphQL with status 200.
func TestComment_ARefusalOfGraphQLIsOne(t *testing.T) {
	s, h := start(t)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: strings.Repeat("a", 40)})
	for body, permanent := range map[string]bool{`{"data":null,"errors":[{"type":"FORBIDDEN","message":"Resource not accessible"}]}`: true, `{"data":{}}`: false} {
		s.Next(githosttest.Answer{Path: "/graphql", Status: 200, Body: body})
		_, err := h.Comment(t.Context(), githost.Comment{Repository: repo, Number: n, Marker: "<!-- d -->", Body: "<!-- d -->"})
		if e, ok := errors.AsType[*githost.Error](err); !ok || e.Permanent != permanent {
			t.Errorf("%s: got %v", body, err)
		}
	}
	if list := s.Comments(repo, n); len(list) != 0 {
		t.Errorf("got %+v, want no comment of an unknown author", list)
	}
}

// GitHub tries each open pull request's merge, and names that commit too.
func TestRead_AMergeThatWasOnlyTriedIsNone(t *testing.T) {
	s, h := start(t)
	s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: strings.Repeat("a", 40)})
	tried := strings.Repeat("e", 40)
	s.Next(githosttest.Answer{Path: "/commits/", Status: 200, Body: `[{"number":1,"state":"open","merged_at":null,"merge_commit_sha":"` + tried + `","base":{"repo":{"full_name":"` + repo + `"}}}]`})
	if f, err := h.Read(t.Context(), githost.Read{Repository: repo, Commit: tried}); err != nil || f.Number != 0 {
		t.Errorf("got %+v, %v, want none", f, err)
	}
}

func TestRead_ADeletedForkIsAFork(t *testing.T) {
	s, h := start(t)
	n := s.Open(githosttest.Pull{Repository: repo, Author: "ann", Head: strings.Repeat("a", 40)})
	pull := `{"number":1,"state":"open","user":null,"changed_files":0,"head":{"sha":"` + strings.Repeat("a", 40) + `","repo":null},"base":{"ref":"main","repo":{"id":501}}}`
	s.Next(githosttest.Answer{Path: "/pulls/1", Status: 200, Body: pull})
	s.Next(githosttest.Answer{Path: "/files", Status: 200, Body: "[]"})
	s.Next(githosttest.Answer{Path: "/pulls/1", Status: 200, Body: pull})
	f, err := h.Read(t.Context(), githost.Read{Repository: repo, Number: n})
	if err != nil || !f.Fork || f.HeadRepository != "" || f.Author != (githost.Person{}) {
		t.Errorf("got %+v, %v", f, err)
	}
}
