package identity_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/oidc"
)

const sha = "6dcb09b5b57875f334f61aebed695e2e4193db5e"

// github are the claims that GitHub documents, of a push to a protected branch.
func github(change oidc.Claims) oidc.Claims {
	out := oidc.Claims{
		"event_name": "push", "ref": "refs/heads/main", "ref_protected": "true", "ref_type": "branch", "sha": sha,
		"repository": "Acme/Infra", "repository_id": "74", "repository_owner_id": "65", "actor": "ada", "actor_id": "1001",
	}
	maps.Copy(out, change)
	return out
}

// gitlab are the claims that GitLab documents, of the same.
func gitlab(change oidc.Claims) oidc.Claims {
	out := oidc.Claims{
		"pipeline_source": "push", "ref": "main", "ref_type": "branch", "ref_path": "refs/heads/main", "ref_protected": "true", "sha": sha,
		"project_path": "acme/net/infra", "project_id": "22", "namespace_id": "72", "user_login": "ada", "user_id": "1001",
	}
	maps.Copy(out, change)
	return out
}

func TestPipelineOf_ReadsWhatEachHostSays(t *testing.T) {
	hub, lab := api.Pipelines{Kind: api.PipelinesGitHub, Host: "github.com"}, api.Pipelines{Kind: api.PipelinesGitLab, Host: "gitlab.example.com"}
	for name, c := range map[string]struct {
		of     api.Pipelines
		claims oidc.Claims
		want   record.Pipeline
	}{
		"a push at GitHub": {hub, github(nil), record.Pipeline{
			Protected: true, Host: "github.com", Repository: "Acme/Infra", Commit: sha, Ref: "refs/heads/main", ActorID: "1001",
		}},
		"a pull request at GitHub": {hub, github(oidc.Claims{"event_name": "pull_request", "ref": "refs/pull/17/merge", "ref_protected": "false"}), record.Pipeline{
			Host: "github.com", Repository: "Acme/Infra", Commit: sha, Ref: "refs/pull/17/merge", Number: 17, ActorID: "1001",
		}},
		"a push at GitLab": {lab, gitlab(nil), record.Pipeline{
			Protected: true, Host: "gitlab.example.com", Repository: "acme/net/infra", Commit: sha, Ref: "refs/heads/main", ActorID: "1001",
		}},
		"a merge request at GitLab": {lab, gitlab(oidc.Claims{"pipeline_source": "merge_request_event", "ref": "fix", "ref_path": "refs/merge-requests/9/head"}), record.Pipeline{
			Host: "gitlab.example.com", Repository: "acme/net/infra", Commit: sha, Ref: "refs/merge-requests/9/head", Number: 9, ActorID: "1001",
		}},
		"a branch that is named like a merge request": {lab, gitlab(oidc.Claims{"pipeline_source": "merge_request_event", "ref": "refs/merge-requests/9/head", "ref_path": "refs/heads/refs/merge-requests/9/head"}), record.Pipeline{
			Host: "gitlab.example.com", Repository: "acme/net/infra", Commit: sha, Ref: "refs/heads/refs/merge-requests/9/head", ActorID: "1001",
		}},
		"claims that are missing, long or twice": {lab, gitlab(oidc.Claims{"user_id": "1002", "sha": "main", "project_path": []any{"a/b", "c/d"}, "ref_path": nil, "user_login": strings.Repeat("a", 256)}), record.Pipeline{
			Protected: true, Host: "gitlab.example.com", Ref: "main", ActorID: "1002",
		}},
	} {
		if d := cmp.Diff(c.want, identity.PipelineOf(c.of, api.TrustRule{}, c.claims)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A pipeline is protected only where its token says so, of an event that no pull request causes.
func TestPipelineOf_IsProtectedOnlyByItsToken(t *testing.T) {
	exact, wild := map[string]string{"environment": "production"}, map[string]string{"environment": "prod*"}
	for name, c := range map[string]struct {
		kind   string
		rule   map[string]string
		claims oidc.Claims
		want   bool
	}{
		"GitHub: push":                               {"github", nil, github(nil), true},
		"GitHub: schedule":                           {"github", nil, github(oidc.Claims{"event_name": "schedule"}), true},
		"GitHub: by hand":                            {"github", nil, github(oidc.Claims{"event_name": "workflow_dispatch"}), true},
		"GitHub: release of a protected tag":         {"github", nil, github(oidc.Claims{"event_name": "release"}), true},
		"GitHub: pull_request":                       {"github", nil, github(oidc.Claims{"event_name": "pull_request"}), false},
		"GitHub: pull_request_target":                {"github", nil, github(oidc.Claims{"event_name": "pull_request_target"}), false},
		"GitHub: pull_request_review":                {"github", nil, github(oidc.Claims{"event_name": "pull_request_review"}), false},
		"GitHub: issue_comment":                      {"github", nil, github(oidc.Claims{"event_name": "issue_comment"}), false},
		"GitHub: workflow_run":                       {"github", nil, github(oidc.Claims{"event_name": "workflow_run"}), false},
		"GitHub: repository_dispatch":                {"github", nil, github(oidc.Claims{"event_name": "repository_dispatch"}), false},
		"GitHub: merge_group":                        {"github", nil, github(oidc.Claims{"event_name": "merge_group"}), false},
		"GitHub: another event":                      {"github", nil, github(oidc.Claims{"event_name": "Push"}), false},
		"GitHub: no event":                           {"github", nil, github(oidc.Claims{"event_name": nil}), false},
		"GitHub: two events":                         {"github", nil, github(oidc.Claims{"event_name": []any{"push", "pull_request"}}), false},
		"GitHub: a push of a pull request's ref":     {"github", nil, github(oidc.Claims{"ref": "refs/pull/17/merge"}), false},
		"GitHub: not protected":                      {"github", nil, github(oidc.Claims{"ref_protected": "false"}), false},
		"GitHub: does not say whether":               {"github", nil, github(oidc.Claims{"ref_protected": nil}), false},
		"GitHub: environment":                        {"github", exact, github(oidc.Claims{"ref_protected": "false", "environment": "production"}), true},
		"GitHub: environment of a form":              {"github", wild, github(oidc.Claims{"ref_protected": "false", "environment": "production"}), false},
		"GitHub: environment that no rule names":     {"github", nil, github(oidc.Claims{"ref_protected": "false", "environment": "production"}), false},
		"GitHub: environment of a pull request":      {"github", exact, github(oidc.Claims{"event_name": "pull_request", "environment": "production"}), false},
		"GitHub: GitLab's claims":                    {"github", nil, gitlab(nil), false},
		"GitLab: push":                               {"gitlab", nil, gitlab(nil), true},
		"GitLab: web":                                {"gitlab", nil, gitlab(oidc.Claims{"pipeline_source": "web"}), true},
		"GitLab: api":                                {"gitlab", nil, gitlab(oidc.Claims{"pipeline_source": "api"}), true},
		"GitLab: merge_request_event":                {"gitlab", nil, gitlab(oidc.Claims{"pipeline_source": "merge_request_event"}), false},
		"GitLab: external_pull_request_event":        {"gitlab", nil, gitlab(oidc.Claims{"pipeline_source": "external_pull_request_event"}), false},
		"GitLab: child of any":                       {"gitlab", nil, gitlab(oidc.Claims{"pipeline_source": "parent_pipeline"}), false},
		"GitLab: of another project":                 {"gitlab", nil, gitlab(oidc.Claims{"pipeline_source": "pipeline"}), false},
		"GitLab: not protected":                      {"gitlab", nil, gitlab(oidc.Claims{"ref_protected": "false"}), false},
		"GitLab: protected environment":              {"gitlab", exact, gitlab(oidc.Claims{"ref_protected": "false", "environment": "production", "environment_protected": "true"}), true},
		"GitLab: environment that is not protected":  {"gitlab", exact, gitlab(oidc.Claims{"ref_protected": "false", "environment": "production", "environment_protected": "false"}), false},
		"GitLab: environment that does not say":      {"gitlab", exact, gitlab(oidc.Claims{"ref_protected": "false", "environment": "production"}), false},
		"GitLab: GitHub's claims":                    {"gitlab", nil, github(nil), false},
		"a host that this version does not know yet": {"forgejo", nil, github(nil), false},
	} {
		if got := identity.PipelineOf(api.Pipelines{Kind: c.kind, Host: "h"}, api.TrustRule{Claims: c.rule}, c.claims); got.Protected != c.want {
			t.Errorf("%s: protected is %t, want %t", name, got.Protected, c.want)
		}
	}
}

// With any claims, no pipeline of a pull request is protected, and all that is kept is bounded.
func FuzzPipelineOf(f *testing.F) {
	for _, c := range []oidc.Claims{github(nil), gitlab(nil), github(oidc.Claims{"event_name": "pull_request", "ref": "refs/pull/17/merge"}), {}, {"event_name": []any{map[string]any{}}}} {
		text, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "github", "production")
		f.Add(string(text), "gitlab", "*")
	}
	f.Fuzz(func(t *testing.T, text, kind, environment string) {
		var claims oidc.Claims
		if json.Unmarshal([]byte(text), &claims) != nil {
			return
		}
		got := identity.PipelineOf(api.Pipelines{Kind: kind, Host: "h"}, api.TrustRule{Claims: map[string]string{"environment": environment}}, claims)
		event := map[string]string{"github": "event_name", "gitlab": "pipeline_source"}[kind]
		said := claims.Strings(event)
		if got.Protected && (len(said) != 1 || strings.Contains(said[0], "request") || strings.Contains(said[0], "comment")) {
			t.Errorf("an event %q is protected", said)
		}
		if got.Protected && !slices.Equal(claims.Strings("ref_protected"), []string{"true"}) && (environment == "" || strings.Contains(environment, "*")) {
			t.Error("protected by nothing")
		}
		if got.Number < 0 || got.Number > 999_999_999 || got.Number != 0 && got.Protected {
			t.Errorf("got %+v", got)
		}
		for _, s := range []string{got.Repository, got.Ref, got.ActorID, got.Commit} {
			if len(s) > 255 {
				t.Errorf("%d bytes are kept", len(s))
			}
		}
	})
}
