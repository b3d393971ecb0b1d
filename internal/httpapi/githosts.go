package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

func (s *server) gitHostRoutes() {
	const tag = "git hosts"
	host, _ := kind.Of(kind.GitHost)
	s.add(route{id: "rotate-webhook-secret", method: http.MethodPost, named: host, path: settingPath(host) + "/secret", summary: "Make the secret of a git host's webhook anew; the answer has it, this once", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{404, 409}}, one[ByName](s.plane.RotateWebhookSecret))
	s.add(route{id: "take-webhook", method: http.MethodPost, path: "/v1/webhooks/{organization}/{git_host}", summary: "Take an event of a git host, signed with the webhook's secret", tag: tag, audience: open, large: true, errors: []int{401, 429}},
		direct(func(ctx context.Context, in *struct {
			Hook
			GitHost      string `path:"git_host" maxLength:"64" doc:"Name of the git host" example:"github"`
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

// Hook has the source of an event, and the headers of its host.
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
