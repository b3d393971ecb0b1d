package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
)

func (s *server) gitHostRoutes() {
	const tag, address = "git hosts", "/v1/git-hosts/{git_host}"
	s.add(route{id: "put-git-host", method: http.MethodPut, path: address, summary: "Create or change a git host", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, put[struct {
		ByGitHost
		Sent
	}](http.StatusCreated, func(g api.GitHost) string { return g.Name }, s.plane.PutGitHost))
	s.add(route{id: "list-git-hosts", method: http.MethodGet, path: "/v1/git-hosts", summary: "List git hosts", tag: tag, audience: people, role: api.RoleAdmin}, paged(s.plane.GitHosts))
	s.add(route{id: "get-git-host", method: http.MethodGet, path: address, summary: "Show a git host", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404}}, one[ByGitHost](s.plane.GitHost))
	s.add(route{id: "rotate-webhook-secret", method: http.MethodPost, path: address + "/secret", summary: "Make the secret of a git host's webhook anew; the answer has it, this once", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{404, 409}}, one[ByGitHost](s.plane.RotateWebhookSecret))
	s.add(route{id: "delete-git-host", method: http.MethodDelete, path: address, summary: "Delete a git host; its webhooks are refused, and its pull requests are not answered", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, gone[ByGitHost](s.plane.DeleteGitHost))
	s.add(route{id: "take-webhook", method: http.MethodPost, path: "/v1/webhooks/{organization}/{git_host}", summary: "Take an event of a git host, signed with the webhook's secret", tag: tag, audience: open, large: true, errors: []int{401, 429}},
		direct(func(ctx context.Context, in *struct {
			ByGitHost
			Hook
			Organization string `path:"organization" maxLength:"64" doc:"Name of the organization" example:"default"`
			RawBody      []byte `contentType:"application/json"`
		}) (*answer[api.WebhookTaken], error) {
			var out api.WebhookTaken
			err := s.gate.SignIn(ctx, in.address, func() (err error) {
				out, err = s.plane.Webhook(ctx, in.Organization, in.GitHost, in.header, in.RawBody)
				return err
			})
			return reply(out, err)
		}))
}

// ByGitHost names a git host in the address.
type ByGitHost struct {
	GitHost string `path:"git_host" maxLength:"64" doc:"Name of the git host" example:"github"`
}

func (in ByGitHost) name() string { return in.GitHost }

// Hook knows where an event comes from, and what its host says beside the body.
type Hook struct {
	address string
	header  http.Header
}

// Resolve implements huma.Resolver.
func (h *Hook) Resolve(ctx huma.Context) []error {
	h.address = admission.Address(ctx.RemoteAddr())
	h.header = http.Header{}
	ctx.EachHeader(func(name, value string) { h.header.Add(name, value) })
	return nil
}
