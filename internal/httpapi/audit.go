package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
)

func (s *server) auditRoutes() {
	const tag = "audit"
	s.add(route{id: "list-audit-events", method: http.MethodGet, path: "/v1/audit", summary: "List changes and refusals, the newest first", tag: tag, audience: people, role: api.RoleAdmin},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			Paged
			Actor   string    `query:"actor" maxLength:"320" doc:"Only entries of this principal, by its name or its id" example:"ann"`
			Action  string    `query:"action" maxLength:"64" doc:"Only this action; with * at its end all actions that begin so" example:"token.*"`
			Target  string    `query:"target" maxLength:"200" doc:"Only entries about this name or id" example:"network"`
			Outcome string    `query:"outcome" enum:"done,refused" doc:"Only entries of this outcome"`
			Since   time.Time `query:"since" doc:"Only from this time on" example:"2026-11-01T00:00:00Z"`
			Until   time.Time `query:"until" doc:"Only from before this time" example:"2026-12-01T00:00:00Z"`
			After   string    `query:"after" maxLength:"100" doc:"With order asc: only entries after the one with this id"`
			Order   string    `query:"order" enum:"desc,asc" doc:"desc, the default: the newest first; asc: the oldest first"`
		}) (*answer[api.Page[api.AuditEvent]], error) {
			return reply(s.plane.Audit(ctx, who, api.AuditFilter{
				Actor: in.Actor, Action: in.Action, Target: in.Target, Outcome: in.Outcome, Since: in.Since, Until: in.Until,
				After: in.After, Order: in.Order, Cursor: in.Cursor, Limit: in.Limit,
			}))
		}))
	s.add(route{id: "list-audit-seals", method: http.MethodGet, path: "/v1/audit/seals", summary: "List the seals of the audit trail, the oldest first", tag: tag, audience: people, role: api.RoleAdmin},
		known(func(ctx context.Context, who controlplane.Principal, in *Paged) (*answer[api.SealPage], error) {
			return reply(s.plane.Seals(ctx, who, in.Cursor, in.Limit))
		}))
}
