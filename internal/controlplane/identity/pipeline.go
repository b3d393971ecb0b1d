package identity

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// dialect names the claims of a host's tokens that hold the data of a pipeline. The names are those of GitHub's
// "OpenID Connect reference" and of GitLab's "OpenID Connect (OIDC) authentication using ID tokens".
type dialect struct {
	repository, actorID, event string
	// events are those that no pull request and no comment can cause, and that run the code at their ref. Any other
	// event may have such a cause: workflow_run and repository_dispatch follow other events; the pipeline of a parent
	// or of another project may be that of a merge request.
	events []string
	// guarded is the claim that is "true" for a protected environment; empty if the host has no such claim.
	guarded string
}

var dialects = map[string]dialect{
	api.PipelinesGitHub: {
		repository: "repository", actorID: "actor_id", event: "event_name",
		events: []string{"push", "workflow_dispatch", "schedule", "release"},
	},
	api.PipelinesGitLab: {
		repository: "project_path", actorID: "user_id", event: "pipeline_source",
		events: []string{"push", "web", "schedule", "api", "trigger"}, guarded: "environment_protected",
	},
}

var pullForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^refs/(?:pull|merge-requests)/([1-9][0-9]{0,8})/[a-z]+$`)
})

// maxClaim is the longest claim of a pipeline that is kept. A longer one counts as missing: cut, it would name
// something else.
const maxClaim = 255

// pipelineOf reads the pipeline of a token from its claims. It is a pure function. The pipeline is protected only if
// the token says so: its event is one of the host's list, and its ref is protected, or the rule that it fits names an
// environment, whose protection the admin has vouched for with that. A claim that is missing protects nothing.
func pipelineOf(of api.Pipelines, rule api.TrustRule, claims oidc.Claims) record.Pipeline {
	d := dialects[of.Kind]
	claim := func(name string) string {
		if v := claims.Strings(name); len(v) == 1 && len(v[0]) <= maxClaim {
			return v[0]
		}
		return ""
	}
	out := record.Pipeline{
		Host: of.Host, Repository: claim(d.repository), Ref: claim("ref"), ActorID: claim(d.actorID),
	}
	if sha := claim("sha"); len(sha) == 40 && pullrequest.IsCommit(sha) {
		out.Commit = sha
	}
	// GitLab's ref may be the mere name of a branch, which anybody chooses; its ref_path is written out.
	if path := claim("ref_path"); path != "" {
		out.Ref = path
	}
	if m := pullForm().FindStringSubmatch(out.Ref); m != nil {
		out.Number, _ = strconv.Atoi(m[1]) // at most nine digits
	}
	environment := rule.Claims["environment"]
	named := environment != "" && !strings.Contains(environment, "*") && (d.guarded == "" || claim(d.guarded) == "true")
	out.Protected = out.Number == 0 && slices.Contains(d.events, claim(d.event)) && (claim("ref_protected") == "true" || named)
	return out
}

// checkPipelines refuses pipelines of an unknown kind or host, and names the host as addresses do.
func checkPipelines(of *api.Pipelines) error {
	if of == nil {
		return nil
	}
	if _, ok := dialects[of.Kind]; !ok {
		return workflow.Invalid("pipelines.kind", "want github or gitlab, not %q", text.Cut(of.Kind, 20))
	}
	host, path, ok := pullrequest.Repository("https://" + of.Host + "/a")
	if !ok || path != "a" || strings.ContainsRune(of.Host, '@') {
		return workflow.Invalid("pipelines.host", "want the host of the repositories, such as github.com, not %q", text.Cut(of.Host, 80))
	}
	of.Host = host
	return nil
}

// Unprotected says that who is a pipeline that somebody without the right to change a protected ref may have written,
// such as that of a pull request. With any role it only views, submits previews of its commit, and cancels those.
func (who Principal) Unprotected() bool { return who.Pipeline != nil && !who.Pipeline.Protected }

// ofPullRequests are the actions beyond viewing that an unprotected pipeline may do. Each of them confines it to the
// runs of its own commit.
var ofPullRequests = []string{"workflow.submit", "workflow.cancel"}

// confined is the refusal of an action that an unprotected pipeline may not do.
func confined(who Principal, action string) error {
	of := who.Pipeline
	return workflow.Refuse(workflow.ErrForbidden, "", "%s is not for this pipeline of %s/%s: its ref %s is not protected, or a pull request started it. "+
		"It may view, submit previews of its commit, and cancel those. Run it on a protected ref, or name an environment in the rule of issuer %s",
		action, of.Host, of.Repository, text.Cut(of.Ref, 100), who.Issuer)
}

// Confine refuses an unprotected pipeline an action that goes beyond its own commit; action names it in the refusal.
// It is a pure function.
func (who Principal) Confine(action string, own bool) error {
	if !who.Unprotected() || own {
		return nil
	}
	return confined(who, action)
}

// pipelineText describes the pipeline of a token in the audit trail.
func pipelineText(p *record.Pipeline) string {
	if p == nil {
		return ""
	}
	kind := "an unprotected"
	if p.Protected {
		kind = "a protected"
	}
	return fmt.Sprintf(", of %s pipeline of %s/%s at %s of %s (%s)", kind, p.Host, p.Repository, p.Commit, p.Ref, p.Submitter())
}
