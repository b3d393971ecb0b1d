package githosttest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// PullEvent is the body of GitHub's event pull_request. No two events are the same.
func (s *Server) PullEvent(repository string, number int, action, head string) []byte {
	repo := s.hubRepository(repository)
	return s.event(repo, map[string]any{"action": action, "pull_request": map[string]any{
		"number": number, "head": map[string]any{"sha": head, "repo": repo}, "base": map[string]any{"ref": "main"}, "user": map[string]any{"id": s.User(Bot), "login": Bot},
	}})
}

// CommentEvent is the body of GitHub's event issue_comment, about a comment that somebody has written.
func (s *Server) CommentEvent(repository string, number int, id int64, login, text string) []byte {
	return s.event(s.hubRepository(repository), map[string]any{
		"action": "created", "issue": map[string]any{"number": number, "pull_request": map[string]any{}},
		"comment": map[string]any{"id": id, "user": map[string]any{"id": s.User(login), "login": login}, "body": text, "created_at": "2026-01-01T00:00:00Z"},
	})
}

func (s *Server) hubRepository(path string) (out map[string]any) {
	s.locked(func() { out = map[string]any{"id": s.repository(path), "full_name": path} })
	return out
}

func (s *Server) event(repository, of map[string]any) []byte {
	of["repository"], of["nonce"] = repository, rand.Text()
	body, err := json.Marshal(of)
	if err != nil {
		panic(err) // a map of strings and numbers can be written
	}
	return body
}

// Sign is the value of GitHub's header X-Hub-Signature-256.
func Sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
