package githosttest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxCounted is how many changed files GitLab counts and lists, unless an admin of it says otherwise.
const maxCounted = 1000

// routeGitLab serves the API of https://docs.gitlab.com/api for merge requests, members, notes and commit statuses.
func (s *Server) routeGitLab(mux *http.ServeMux) {
	in := func(pattern string, needs Access, do func(w http.ResponseWriter, r *http.Request, repository string)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /api/v4/projects/{project}"+path, func(w http.ResponseWriter, r *http.Request) {
			repository := s.labProject(r.PathValue("project"))
			switch may := s.access[[2]string{repository, Bot}]; {
			case may == Nothing:
				s.refuse(w, http.StatusNotFound, "404 Project Not Found")
			case may < needs:
				s.refuse(w, http.StatusForbidden, "403 Forbidden")
			default:
				w.Header().Set("Ratelimit-Limit", "60") // for a minute: a client that spreads its calls by it waits
				do(w, r, repository)
			}
		})
	}
	in("GET ", Reads, func(w http.ResponseWriter, _ *http.Request, repository string) {
		send(w, http.StatusOK, map[string]any{"id": s.repository(repository), "path_with_namespace": repository})
	})
	in("GET /merge_requests/{number}", Reads, s.onPull(func(w http.ResponseWriter, _ *http.Request, p *Pull) { send(w, http.StatusOK, s.labMerge(p)) }))
	in("GET /merge_requests/{number}/diffs", Reads, s.onPull(s.labDiffs))
	in("GET /repository/commits/{sha}", Reads, func(w http.ResponseWriter, r *http.Request, repository string) {
		sha := r.PathValue("sha")
		if known, _ := s.knows(repository, sha); !known {
			s.refuse(w, http.StatusNotFound, "404 Commit Not Found")
			return
		}
		send(w, http.StatusOK, map[string]any{"id": sha})
	})
	in("GET /repository/commits/{sha}/merge_requests", Reads, s.labMergesOf)
	in("GET /members/all/{user}", Reads, s.labMember)
	in("GET /merge_requests/{number}/notes", Reads, s.onPull(s.labNotes))
	in("POST /merge_requests/{number}/notes", Reads, s.onPull(func(w http.ResponseWriter, r *http.Request, p *Pull) {
		if text, ok := s.labText(w, r); ok {
			send(w, http.StatusCreated, s.labNote(s.say(p, Bot, text)))
		}
	}))
	in("GET /merge_requests/{number}/notes/{id}", Reads, s.onPull(s.labOneNote))
	in("PUT /merge_requests/{number}/notes/{id}", Reads, s.onPull(s.labOneNote))
	in("POST /statuses/{sha}", Writes, s.labStatus)
	mux.HandleFunc("GET /api/v4/user", func(w http.ResponseWriter, _ *http.Request) { send(w, http.StatusOK, s.labUser(Bot)) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { s.refuse(w, http.StatusNotFound, "404 Not Found") })
}

// labProject is the path of a project that is named by path or number.
func (s *Server) labProject(name string) string {
	if id, err := strconv.Atoi(name); err == nil && id > 500 && id <= 500+len(s.repos) {
		return s.repos[id-501]
	}
	return name
}

func (s *Server) labUser(login string) map[string]any {
	return map[string]any{"id": s.user(login), "username": login, "state": "active"}
}

func (s *Server) labMerge(p *Pull) map[string]any {
	state, count, diffed := p.state, strconv.Itoa(len(p.Files)), p.Head
	if state == "open" {
		state = "opened"
	}
	if len(p.Files) > maxCounted {
		count = strconv.Itoa(maxCounted) + "+"
	}
	if s.lags {
		diffed = p.diffed
	}
	return map[string]any{
		"iid": p.number, "state": state, "sha": p.Head, "merge_commit_sha": none(p.mergeCommit), "squash_commit_sha": nil,
		"author": s.labUser(p.Author), "target_branch": p.BaseRef, "source_branch": "change", "changes_count": count,
		"project_id": s.repository(p.Repository), "source_project_id": s.repository(p.HeadRepository), "target_project_id": s.repository(p.Repository),
		"diff_refs": map[string]any{"base_sha": strings.Repeat("b", 40), "start_sha": strings.Repeat("b", 40), "head_sha": diffed},
	}
}

func none(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// labDiffs lists the changed files. It is as old as may be: no headers describe pages, and large ones fail.
func (s *Server) labDiffs(w http.ResponseWriter, r *http.Request, p *Pull) {
	if n, _ := strconv.Atoi(r.FormValue("per_page")); n > 30 {
		s.refuse(w, http.StatusInternalServerError, "500 Internal Server Error")
		return
	}
	list, _ := page(r, p.Files[:min(len(p.Files), maxCounted)], 20)
	out := []map[string]any{}
	for _, f := range list {
		one := map[string]any{"new_path": f.Path, "old_path": f.Path, "renamed_file": f.Previous != "", "diff": "@@ -1 +1 @@\n"}
		if f.Previous != "" {
			one["old_path"] = f.Previous
		}
		out = append(out, one)
	}
	send(w, http.StatusOK, out)
}

func (s *Server) labMergesOf(w http.ResponseWriter, r *http.Request, repository string) {
	sha := r.PathValue("sha")
	if known, _ := s.knows(repository, sha); !known {
		s.refuse(w, http.StatusNotFound, "404 Commit Not Found")
		return
	}
	out := []map[string]any{}
	for _, p := range s.pulls {
		if p.Repository == repository && (p.Head == sha || p.mergeCommit == sha) {
			one := s.labMerge(p)
			delete(one, "diff_refs") // a list has it not
			out = append(out, one)
		}
	}
	send(w, http.StatusOK, out)
}

// labMember shows the access of a member, inherited or not: Guest 10, Reporter 20, Developer 30, Maintainer 40.
func (s *Server) labMember(w http.ResponseWriter, r *http.Request, repository string) {
	id := number(r, "user")
	login := ""
	if id > 100 && id <= 100+len(s.users) {
		login = s.users[id-101]
	}
	level := map[Access]int{Reads: 20, Writes: 30, Administers: 40}[s.access[[2]string{repository, login}]]
	if level == 0 {
		s.refuse(w, http.StatusNotFound, "404 Not found")
		return
	}
	one := s.labUser(login)
	one["access_level"] = level
	send(w, http.StatusOK, one)
}

func (s *Server) labNote(c *Comment) map[string]any {
	const form = "2006-01-02T15:04:05.000Z"
	return map[string]any{
		"id": c.ID, "body": c.Text, "author": s.labUser(c.Author), "system": c.system, "noteable_type": "MergeRequest", "noteable_iid": c.on.number, //nolint:misspell // GitLab's word
		"created_at": c.Created.Format(form), "updated_at": c.Updated.Format(form),
	}
}

func (s *Server) labNotes(w http.ResponseWriter, r *http.Request, p *Pull) {
	var all []map[string]any
	for _, c := range s.comments {
		if c.on == p {
			all = append(all, s.labNote(c))
		}
	}
	if r.FormValue("sort") != "asc" {
		slices.Reverse(all)
	}
	list, next := page(r, all, 20)
	if w.Header().Set("X-Next-Page", ""); next != 0 {
		w.Header().Set("X-Next-Page", fmt.Sprint(next))
	}
	send(w, http.StatusOK, list)
}

// labOneNote shows or edits a note. Only its author edits it.
func (s *Server) labOneNote(w http.ResponseWriter, r *http.Request, p *Pull) {
	c := s.comment(int64(number(r, "id")))
	if c == nil || c.on != p {
		s.refuse(w, http.StatusNotFound, "404 Not found")
		return
	}
	if r.Method == http.MethodPut {
		text, ok := s.labText(w, r)
		if !ok {
			return
		}
		if c.Author != Bot {
			s.refuse(w, http.StatusForbidden, "403 Forbidden")
			return
		}
		c.Text, c.Updated = text, s.time()
	}
	send(w, http.StatusOK, s.labNote(c))
}

func (s *Server) labText(w http.ResponseWriter, r *http.Request) (string, bool) {
	text := body(r)["body"]
	if text == "" || utf8.RuneCountInString(text) > 1000000 {
		s.refuse(w, http.StatusBadRequest, "400 Bad request - Note is invalid")
		return "", false
	}
	return text, true
}

// labStatus sets a status. A pending one cannot become pending, and a commit must be on a branch of the project.
// https://gitlab.com/gitlab-org/gitlab-foss/-/issues/25807 https://gitlab.com/gitlab-org/gitlab-foss/-/issues/24696
func (s *Server) labStatus(w http.ResponseWriter, r *http.Request, repository string) {
	got, sha := body(r), r.PathValue("sha")
	known, branch := s.knows(repository, sha)
	latest := ""
	for _, one := range s.statuses {
		if one.repository == repository && one.Commit == sha && one.Context == got["name"] {
			latest = one.State
		}
	}
	switch {
	case !known:
		s.refuse(w, http.StatusNotFound, "404 Commit Not Found")
	case !branch:
		s.refuse(w, http.StatusNotFound, "404 References for commit Not Found")
	case !slices.Contains([]string{"pending", "running", "success", "failed", "canceled", "skipped"}, got["state"]):
		s.refuse(w, http.StatusBadRequest, "state does not have a valid value")
	case utf8.RuneCountInString(got["description"]) > 255:
		s.refuse(w, http.StatusBadRequest, "description is too long (maximum is 255 characters)")
	case latest == "pending" && got["state"] == "pending":
		s.refuse(w, http.StatusBadRequest, `Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via "enqueue")`)
	default:
		s.statuses = append(s.statuses, Status{sha, got["state"], got["name"], got["description"], got["target_url"], repository})
		send(w, http.StatusCreated, map[string]any{"id": len(s.statuses), "sha": sha, "status": got["state"], "name": got["name"], "created_at": s.time().Format(time.RFC3339)})
	}
}
