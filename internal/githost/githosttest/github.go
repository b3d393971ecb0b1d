package githosttest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// routeGitHub serves the API of https://docs.github.com/rest for pull requests, collaborators, issue comments and
// commit statuses, and one question of GraphQL.
func (s *Server) routeGitHub(mux *http.ServeMux) {
	in := func(pattern string, needs Access, do func(w http.ResponseWriter, r *http.Request, repository string)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /api/v3/repos/{owner}/{repo}/"+path, func(w http.ResponseWriter, r *http.Request) {
			repository := r.PathValue("owner") + "/" + r.PathValue("repo")
			switch may := s.access[[2]string{repository, Bot}]; {
			case may == Nothing:
				s.refuse(w, http.StatusNotFound, "Not Found")
			case may < needs:
				s.refuse(w, http.StatusForbidden, "Resource not accessible by personal access token")
			default:
				do(w, r, repository)
			}
		})
	}
	in("GET pulls/{number}", Reads, s.onPull(func(w http.ResponseWriter, _ *http.Request, p *Pull) { send(w, http.StatusOK, s.hubPull(p)) }))
	in("GET pulls/{number}/files", Reads, s.onPull(s.hubFiles))
	in("GET commits/{sha}/pulls", Reads, s.hubPullsOf)
	in("GET collaborators/{login}/permission", Reads, s.hubPermission)
	in("GET issues/{number}/{part}", Reads, func(w http.ResponseWriter, r *http.Request, repository string) {
		if r.PathValue("number") == "comments" {
			s.hubComment(w, r, repository)
			return
		}
		s.onPull(s.hubComments)(w, r, repository)
	})
	in("POST issues/{number}/comments", Reads, s.onPull(func(w http.ResponseWriter, r *http.Request, p *Pull) {
		if text, ok := s.hubText(w, r); ok {
			send(w, http.StatusCreated, s.hubShow(s.say(p, Bot, text)))
		}
	}))
	in("PATCH issues/comments/{id}", Reads, s.hubComment)
	in("POST statuses/{sha}", Writes, s.hubStatus)
	mux.HandleFunc("POST /api/graphql", func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(body(r)["query"], "viewer") {
			send(w, http.StatusOK, map[string]any{"errors": []any{map[string]any{"message": "A query attribute must be specified and must be a string."}}})
			return
		}
		send(w, http.StatusOK, map[string]any{"data": map[string]any{"viewer": map[string]any{"login": Bot, "databaseId": s.user(Bot)}}})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { s.refuse(w, http.StatusNotFound, "Not Found") })
}

// onPull finds the pull request that a path names.
func (s *Server) onPull(do func(w http.ResponseWriter, r *http.Request, p *Pull)) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, repository string) {
		p := s.pull(repository, number(r, "number"))
		if p == nil {
			s.refuse(w, http.StatusNotFound, "404 Not Found")
			return
		}
		do(w, r, p)
	}
}

func (s *Server) hubUser(login string) map[string]any {
	return map[string]any{"id": s.user(login), "login": login, "type": "User"}
}

func (s *Server) hubPull(p *Pull) map[string]any {
	repo := func(path string) map[string]any { return map[string]any{"id": s.repository(path), "full_name": path} }
	state, merged := p.state, p.state == "merged"
	made, at := p.mergeCommit, any(nil)
	if merged {
		state, at = "closed", s.time()
	} else {
		made = strings.Repeat("e", 40) // a merge that was only tried
	}
	return map[string]any{
		"number": p.number, "state": state, "merged": merged, "merged_at": at, "merge_commit_sha": made, "user": s.hubUser(p.Author), "changed_files": len(p.Files),
		"head": map[string]any{"sha": p.Head, "ref": "change", "repo": repo(p.HeadRepository)},
		"base": map[string]any{"sha": strings.Repeat("b", 40), "ref": p.BaseRef, "repo": repo(p.Repository)},
	}
}

// hubFiles lists the changed files: at most 3,000, 30 on a page.
func (s *Server) hubFiles(w http.ResponseWriter, r *http.Request, p *Pull) {
	list, next := page(r, p.Files[:min(len(p.Files), 3000)], 30)
	out := []map[string]any{}
	for _, f := range list {
		one := map[string]any{"filename": f.Path, "status": "modified"}
		if f.Previous != "" {
			one["status"], one["previous_filename"] = "renamed", f.Previous
		}
		out = append(out, one)
	}
	s.hubList(w, r, out, next)
}

func (s *Server) hubList(w http.ResponseWriter, r *http.Request, list []map[string]any, next int) {
	if next != 0 {
		q := r.URL.Query()
		q.Set("page", fmt.Sprint(next))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, s.URL, r.URL.Path, q.Encode()))
	}
	send(w, http.StatusOK, list)
}

func (s *Server) hubPullsOf(w http.ResponseWriter, r *http.Request, repository string) {
	sha := r.PathValue("sha")
	if known, _ := s.knows(repository, sha); !known {
		s.refuse(w, http.StatusUnprocessableEntity, "No commit found for SHA: "+sha)
		return
	}
	out := []map[string]any{}
	for _, p := range s.pulls {
		if p.Repository == repository && (p.Head == sha || p.mergeCommit == sha) {
			one := s.hubPull(p)
			delete(one, "merged") // a list has it not
			out = append(out, one)
		}
	}
	s.hubList(w, r, out, 0)
}

func (s *Server) hubPermission(w http.ResponseWriter, r *http.Request, repository string) {
	login := r.PathValue("login")
	if !slices.Contains(s.users, login) {
		s.refuse(w, http.StatusNotFound, login+" is not a user")
		return
	}
	// Everybody reads a public repository; maintain is shown as write.
	permission := map[Access]string{Nothing: "read", Reads: "read", Writes: "write", Administers: "admin"}[s.access[[2]string{repository, login}]]
	send(w, http.StatusOK, map[string]any{"permission": permission, "role_name": permission, "user": s.hubUser(login)})
}

func (s *Server) hubShow(c *Comment) map[string]any {
	return map[string]any{
		"id": c.ID, "body": c.Text, "user": s.hubUser(c.Author), "created_at": c.Created.Format(time.RFC3339), "updated_at": c.Updated.Format(time.RFC3339),
		"issue_url": fmt.Sprintf("%s/api/v3/repos/%s/issues/%d", s.URL, c.on.Repository, c.on.number),
	}
}

func (s *Server) hubComments(w http.ResponseWriter, r *http.Request, p *Pull) {
	var all []map[string]any
	for _, c := range s.comments {
		if c.on == p && !c.system {
			all = append(all, s.hubShow(c))
		}
	}
	list, next := page(r, all, 30)
	s.hubList(w, r, list, next)
}

// hubComment shows or edits a comment, which a repository has wherever it was written.
func (s *Server) hubComment(w http.ResponseWriter, r *http.Request, repository string) {
	id := r.PathValue("id") + r.PathValue("part")
	i := slices.IndexFunc(s.comments, func(c *Comment) bool {
		return fmt.Sprint(c.ID) == id && c.on.Repository == repository && !c.system
	})
	if i < 0 {
		s.refuse(w, http.StatusNotFound, "Not Found")
		return
	}
	c := s.comments[i]
	if r.Method == http.MethodPatch {
		text, ok := s.hubText(w, r)
		if !ok {
			return
		}
		if c.Author != Bot && s.access[[2]string{repository, Bot}] < Writes {
			s.refuse(w, http.StatusForbidden, "Must have admin rights to Repository.")
			return
		}
		c.Text, c.Updated = text, s.time()
	}
	send(w, http.StatusOK, s.hubShow(c))
}

func (s *Server) hubText(w http.ResponseWriter, r *http.Request) (string, bool) {
	text := body(r)["body"]
	if text == "" || utf8.RuneCountInString(text) > 65536 {
		s.refuse(w, http.StatusUnprocessableEntity, "Validation Failed")
		return "", false
	}
	return text, true
}

func (s *Server) hubStatus(w http.ResponseWriter, r *http.Request, repository string) {
	got, sha := body(r), r.PathValue("sha")
	known, _ := s.knows(repository, sha)
	switch {
	case !known:
		s.refuse(w, http.StatusUnprocessableEntity, "No commit found for SHA: "+sha)
	case !slices.Contains([]string{"error", "failure", "pending", "success"}, got["state"]) || utf8.RuneCountInString(got["description"]) > 140:
		s.refuse(w, http.StatusUnprocessableEntity, "Validation Failed")
	default:
		s.statuses = append(s.statuses, Status{sha, got["state"], got["context"], got["description"], got["target_url"], repository})
		send(w, http.StatusCreated, map[string]any{"state": got["state"], "context": got["context"]})
	}
}
