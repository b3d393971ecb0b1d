// Package githosttest has stand-ins of the REST APIs of GitHub and GitLab, written from their public documentation, and
// the suite that every githost.Host is held to. The stand-ins hold state and no git objects; they are for tests, on the
// loopback only.
package githosttest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/redact"
)

// Kind is the kind of host whose API a server speaks.
type Kind string

// The kinds of servers.
const (
	GitHub Kind = "github" // as GitHub Enterprise Server: below /api/v3
	GitLab Kind = "gitlab"
)

// Bot is the login of the user whose token a server gives out.
const Bot = "dayfly-bot"

// Access is the access of a user to a repository.
type Access int

// The accesses; each includes those before it.
const (
	Nothing Access = iota
	Reads
	Writes
	Administers
)

// File is a changed file.
type File struct {
	Path     string
	Previous string // of a renamed one: its former name
}

// Pull is a pull request or merge request.
type Pull struct {
	Repository     string
	HeadRepository string // empty: Repository
	Author         string // login; it is made if there is none
	Head           string // 40 digits
	BaseRef        string // empty: main
	Files          []File

	number              int
	state               string // open, closed, merged
	mergeCommit, diffed string
}

// Comment is a comment on a pull request.
type Comment struct {
	ID               int64
	Author, Text     string
	Created, Updated time.Time

	on     *Pull
	system bool
}

// Status is a status of a commit. States are in the host's own words.
type Status struct {
	Commit, State, Context, Description, URL string

	repository string
}

// Answer is an answer of the server in place of its own.
type Answer struct {
	Path   string // only to a request whose path has this in it
	Status int
	Header map[string]string
	Body   string
}

// Server is a stand-in. Its methods may be called concurrently.
type Server struct {
	URL string // its address, as people write it down

	kind  Kind
	http  *httptest.Server
	token string

	mu       sync.Mutex
	now      func() time.Time
	before   func(method, path string)
	lags     bool
	calls    int
	answers  []Answer
	users    []string // the id of one is its place and 101
	repos    []string // the same, and 501
	access   map[[2]string]Access
	pulls    []*Pull
	comments []*Comment
	last     int64
	statuses []Status
}

// New starts a server on the loopback.
func New(kind Kind) *Server {
	s := &Server{kind: kind, token: "tok_" + rand.Text(), now: time.Now, access: map[[2]string]Access{}, last: 1000}
	mux := http.NewServeMux()
	if kind == GitHub {
		s.routeGitHub(mux)
	} else {
		s.routeGitLab(mux)
	}
	s.http = httptest.NewServer(s.guard(mux))
	s.URL = s.http.URL
	return s
}

// Stop ends the server.
func (s *Server) Stop() { s.http.Close() }

// Token is the credential of Bot, which may write to each repository unless Member says otherwise.
func (s *Server) Token() redact.String { return redact.New(s.token) }

// Clock sets where the server has its time from.
func (s *Server) Clock(now func() time.Time) { s.locked(func() { s.now = now }) }

// Before is called before each request is answered; it may change the state of the server.
func (s *Server) Before(call func(method, path string)) { s.locked(func() { s.before = call }) }

// Lag lets GitLab's changes of merge requests stay those of the head before the latest push.
func (s *Server) Lag(lags bool) { s.locked(func() { s.lags = lags }) }

// Calls counts the requests with a token that was taken.
func (s *Server) Calls() (n int) {
	s.locked(func() { n = s.calls })
	return n
}

// Next has the next request with such a path answered in another way, once.
func (s *Server) Next(a Answer) { s.locked(func() { s.answers = append(s.answers, a) }) }

// Member gives a user an access to a repository, and returns the user's id.
func (s *Server) Member(repository, login string, may Access) (id int64) {
	s.locked(func() {
		s.repository(repository)
		id = s.user(login)
		s.access[[2]string{repository, login}] = may
	})
	return id
}

// User returns the id of a user.
func (s *Server) User(login string) (id int64) {
	s.locked(func() { id = s.user(login) })
	return id
}

// Open opens a pull request and returns its number.
func (s *Server) Open(p Pull) (number int) {
	s.locked(func() {
		s.repository(p.Repository)
		s.user(p.Author)
		if p.HeadRepository == "" {
			p.HeadRepository = p.Repository
		}
		s.repository(p.HeadRepository)
		if p.BaseRef == "" {
			p.BaseRef = "main"
		}
		p.state, p.diffed, p.number = "open", p.Head, 1
		for _, q := range s.pulls {
			if q.Repository == p.Repository {
				p.number++
			}
		}
		number = p.number
		s.pulls = append(s.pulls, &p)
	})
	return number
}

// Push gives a pull request a new head and new changed files.
func (s *Server) Push(repository string, number int, head string, files ...File) {
	s.change(repository, number, func(p *Pull) {
		p.diffed, p.Head, p.Files = p.Head, head, files
		s.say(p, p.Author, "added 1 commit").system = true
	})
}

// Merge merges a pull request by a commit.
func (s *Server) Merge(repository string, number int, commit string) {
	s.change(repository, number, func(p *Pull) { p.state, p.mergeCommit = "merged", commit })
}

// Close closes a pull request without merging it.
func (s *Server) Close(repository string, number int) {
	s.change(repository, number, func(p *Pull) { p.state = "closed" })
}

// Comment writes a comment as a user and returns its number.
func (s *Server) Comment(repository string, number int, login, text string) (id int64) {
	s.change(repository, number, func(p *Pull) { id = s.say(p, login, text).ID })
	return id
}

// Edit changes the text of a comment.
func (s *Server) Edit(id int64, text string) {
	s.locked(func() {
		if c := s.comment(id); c != nil {
			c.Text, c.Updated = text, s.time()
		}
	})
}

// Delete deletes a comment.
func (s *Server) Delete(id int64) {
	s.locked(func() { s.comments = slices.DeleteFunc(s.comments, func(c *Comment) bool { return c.ID == id }) })
}

// Comments lists the comments of people and programs on a pull request, the oldest first.
func (s *Server) Comments(repository string, number int) (list []Comment) {
	s.change(repository, number, func(p *Pull) {
		for _, c := range s.comments {
			if c.on == p && !c.system {
				list = append(list, *c)
			}
		}
	})
	return list
}

// Statuses lists the statuses of a commit: the latest of each context, in the order in which they were set.
func (s *Server) Statuses(repository, commit string) (list []Status) {
	s.locked(func() {
		for _, one := range s.statuses {
			if one.repository == repository && one.Commit == commit {
				list = slices.DeleteFunc(list, func(o Status) bool { return o.Context == one.Context })
				list = append(list, one)
			}
		}
	})
	return list
}

func (s *Server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// change does something to a pull request that there must be.
func (s *Server) change(repository string, number int, do func(*Pull)) {
	s.locked(func() {
		p := s.pull(repository, number)
		if p == nil {
			panic(fmt.Sprintf("githosttest: %s has no pull request %d", repository, number))
		}
		do(p)
	})
}

// The functions below are called with the lock held.

// time is the server's: GitHub has seconds, GitLab milliseconds.
func (s *Server) time() time.Time {
	if s.kind == GitHub {
		return s.now().UTC().Truncate(time.Second)
	}
	return s.now().UTC().Truncate(time.Millisecond)
}

func place(list *[]string, one string, first int64) int64 {
	i := slices.Index(*list, one)
	if i < 0 {
		i = len(*list)
		*list = append(*list, one)
	}
	return int64(i) + first
}

func (s *Server) user(login string) int64 { return place(&s.users, login, 101) }

// repository returns the id of a repository, which is made if there is none.
func (s *Server) repository(path string) int64 {
	if !slices.Contains(s.repos, path) {
		s.access[[2]string{path, Bot}] = Writes
	}
	return place(&s.repos, path, 501)
}

func (s *Server) pull(repository string, number int) *Pull {
	for _, p := range s.pulls {
		if p.Repository == repository && p.number == number {
			return p
		}
	}
	return nil
}

func (s *Server) comment(id int64) *Comment {
	for _, c := range s.comments {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (s *Server) say(p *Pull, login, text string) *Comment {
	s.user(login)
	s.last++
	at := s.time()
	c := &Comment{ID: s.last, Author: login, Text: text, Created: at, Updated: at, on: p}
	s.comments = append(s.comments, c)
	return c
}

// knows says whether a commit is in a repository, and whether on a branch of it: a commit of a fork is on none.
func (s *Server) knows(repository, commit string) (known, branch bool) {
	for _, p := range s.pulls {
		if p.Repository == repository && (p.Head == commit || p.diffed == commit || p.mergeCommit == commit) {
			known = true
			branch = branch || p.HeadRepository == repository || p.mergeCommit == commit
		}
	}
	return known, branch
}

// guard checks the token, and gives the answer that Next set.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		before := s.before
		s.mu.Unlock()
		if before != nil {
			before(r.Method, r.URL.Path)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		given := r.Header.Get("Private-Token")
		if s.kind == GitHub {
			given, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		}
		if given != s.token {
			if s.kind == GitHub {
				s.refuse(w, http.StatusUnauthorized, "Bad credentials")
			} else {
				s.refuse(w, http.StatusUnauthorized, "401 Unauthorized")
			}
			return
		}
		s.calls++
		if i := slices.IndexFunc(s.answers, func(a Answer) bool { return strings.Contains(r.URL.Path, a.Path) }); i >= 0 {
			a := s.answers[i]
			s.answers = slices.Delete(s.answers, i, i+1)
			w.Header().Set("Content-Type", "application/json")
			for k, v := range a.Header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(a.Status)
			_, _ = w.Write([]byte(a.Body))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) refuse(w http.ResponseWriter, status int, message string) {
	send(w, status, map[string]any{"message": message})
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// page is the part of a list that a request asks for, and the number of the next page; 0: there is none.
func page[T any](r *http.Request, list []T, usual int) (part []T, next int) {
	size, number := usual, 1
	if n, err := strconv.Atoi(r.FormValue("per_page")); err == nil && n > 0 {
		size = min(n, 100)
	}
	if n, err := strconv.Atoi(r.FormValue("page")); err == nil && n > 0 {
		number = n
	}
	from := min((number-1)*size, len(list))
	to := min(from+size, len(list))
	if to < len(list) {
		next = number + 1
	}
	return list[from:to], next
}

func number(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.PathValue(name))
	if err != nil {
		return -1
	}
	return n
}

// body reads the body of a request.
func body(r *http.Request) (got map[string]string) {
	_ = json.NewDecoder(http.MaxBytesReader(nil, r.Body, 2<<20)).Decode(&got)
	return got
}
