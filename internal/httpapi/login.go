package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	formType  = "application/x-www-form-urlencoded"
	tokenPath = "/v1/token"
)

func (s *server) loginRoutes() {
	const tag = "tokens"
	s.add(route{id: "issue-token", method: http.MethodPost, path: tokenPath, summary: "Give a token that ends by itself, for an issuer's token or a service principal's secret", tag: tag, audience: open, errors: []int{401, 429}},
		direct(func(ctx context.Context, in *struct {
			From
			ContentType   string `header:"Content-Type" doc:"application/x-www-form-urlencoded"`
			Authorization string `header:"Authorization" doc:"HTTP Basic with the id and the secret of a service principal"`
			RawBody       []byte `contentType:"application/x-www-form-urlencoded"`
		}) (*answer[api.IssuedToken], error) {
			asked, err := readTokenRequest(in.ContentType, in.Authorization, string(in.RawBody))
			if err != nil {
				return nil, err
			}
			var out api.IssuedToken
			err = s.gate.SignIn(ctx, in.address, func() (err error) {
				out, err = s.plane.IssueToken(ctx, asked)
				return err
			})
			return reply(out, err)
		}))
	s.add(route{id: "get-login-options", method: http.MethodGet, path: "/v1/login", summary: "Say with which issuers people log in", tag: tag, audience: open},
		direct(func(ctx context.Context, in *struct {
			Organization string `query:"organization" default:"default" maxLength:"64" doc:"Name of the organization"`
		}) (*answer[api.LoginOptions], error) {
			return reply(s.plane.LoginOptions(ctx, in.Organization))
		}))
	s.serviceRoutes(tag)
}

func (s *server) serviceRoutes(tag string) {
	const address = "/v1/service-principals/{service_principal}"
	s.add(route{id: "create-service-principal", method: http.MethodPost, path: "/v1/service-principals", summary: "Make a service principal; the answer has its secret, this once", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{409}}, posted(s.plane.CreateService))
	s.add(route{id: "list-service-principals", method: http.MethodGet, path: "/v1/service-principals", summary: "List service principals", tag: tag, audience: people, role: api.RoleAdmin}, paged(s.plane.Services))
	s.add(route{id: "get-service-principal", method: http.MethodGet, path: address, summary: "Show a service principal", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404}}, one[ByService](s.plane.Service))
	s.add(route{id: "update-service-principal", method: http.MethodPatch, path: address, summary: "Change the settings of a service principal that are named", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, sent[struct {
		ByService
		Sent
	}](s.plane.UpdateService))
	s.add(route{id: "rotate-service-principal-secret", method: http.MethodPost, path: address + "/secret", summary: "Make a new secret of a service principal; the answer has it, this once", tag: tag, audience: people, role: api.RoleAdmin, status: http.StatusCreated, errors: []int{404, 409}}, sent[struct {
		ByService
		Sent
	}](s.plane.RotateSecret))
	s.add(route{id: "delete-service-principal", method: http.MethodDelete, path: address, summary: "Delete a service principal; its tokens end", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, gone[ByService](s.plane.DeleteService))
}

// readTokenRequest reads the form of POST /v1/token. Parameters that are not known are passed over, and none may stand
// there twice, as RFC 6749 wants it.
func readTokenRequest(contentType, authorization, body string) (in api.TokenRequest, err error) {
	refuse := func(field, format string, args ...any) (api.TokenRequest, error) {
		return in, workflow.Refuse(workflow.ErrInvalid, field, format, args...)
	}
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != formType {
		return refuse("", "send the request as a form: with Content-Type: %s", formType)
	}
	form, err := url.ParseQuery(body)
	if err != nil {
		return refuse("", "the form cannot be read: each value is URL-encoded")
	}
	for name, values := range form {
		if len(values) > 1 {
			return refuse("", "%.40q stands in the form more than once", name)
		}
	}
	if form.Get("actor_token") != "" {
		return refuse("actor_token", "a token for somebody else is not given here: leave actor_token out")
	}
	if form.Get("resource") != "" {
		return refuse("audience", "name the organization by audience, and leave resource out")
	}
	in = api.TokenRequest{
		GrantType: form.Get("grant_type"), Audience: form.Get("audience"), RequestedTokenType: form.Get("requested_token_type"), Scope: form.Get("scope"),
		SubjectToken: form.Get("subject_token"), SubjectTokenType: form.Get("subject_token_type"), ClientID: form.Get("client_id"), ClientSecret: form.Get("client_secret"),
	}
	if v := form.Get("expiration"); v != "" {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil || n == 0 {
			return refuse("expiration", "want a number of seconds")
		}
		in.Expiration = int(n)
	}
	scheme, text, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return in, nil
	}
	if in.ClientSecret != "" {
		return refuse("client_secret", "send the secret by HTTP Basic or in the form, and not by both")
	}
	pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	id, secret, ok := strings.Cut(string(pair), ":")
	if err != nil || !ok || in.ClientID != "" && in.ClientID != id {
		return refuse("client_id", "the header Authorization is not HTTP Basic with the client id and its secret")
	}
	in.ClientID, in.ClientSecret = id, secret // neither has characters that would be encoded
	return in, nil
}

// asOAuth gives a problem the form of RFC 6749. A subject token that is not taken is an invalid request (RFC 8693).
func asOAuth(p api.Problem) api.Problem {
	field := ""
	if len(p.Errors) > 0 {
		field = p.Errors[0].Field
	}
	p.OAuth, p.Description = "invalid_request", p.Detail
	switch p.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		p.OAuth = "temporarily_unavailable"
		return p
	case http.StatusInternalServerError:
		p.OAuth = "server_error"
		return p
	case http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return p
	case http.StatusUnauthorized:
		if field != "subject_token" {
			p.OAuth = "invalid_client"
			return p
		}
	}
	switch field {
	case "grant_type":
		p.OAuth = "unsupported_grant_type"
	case "scope":
		p.OAuth = "invalid_scope"
	case "audience":
		p.OAuth = "invalid_target"
	}
	p.Status, p.Title = http.StatusBadRequest, http.StatusText(http.StatusBadRequest)
	return p
}

// asOAuth rewrites the answer to a request for a token that was refused, wherever that happened.
func (b *buffered) asOAuth() {
	var p api.Problem
	if b.status < http.StatusBadRequest || json.Unmarshal(b.body.Bytes(), &p) != nil {
		return
	}
	header := b.header
	b.reset()
	p = asOAuth(p)
	header.Del("WWW-Authenticate")
	if p.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Basic realm="dayfly"`)
	}
	write(b, p, header)
	b.header.Set("Content-Type", "application/json")
}
