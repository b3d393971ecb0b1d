package httpapi

import (
	"context"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

// ByDelivery names a delivery in the address.
type ByDelivery struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the delivery" example:"dlv_01k1xz4m2p7q9r3s5t8v"`
}

func (in ByDelivery) name() string { return in.ID }

// deliveryRoutes are for the admins who look at deliveries, and for the side of a pool that performs them.
func (s *server) deliveryRoutes() {
	const tag = "deliveries"
	s.add(route{id: "list-deliveries", method: http.MethodGet, path: "/v1/deliveries", summary: "List deliveries, the newest first", tag: tag, audience: people, role: api.RoleAdmin},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			Paged
			State string `query:"state" enum:"waiting,claimed,done,failed" doc:"Only those in this state"`
			For   string `query:"for" maxLength:"64" doc:"Only those that the notification of this name wants"`
		}) (*answer[api.Page[api.Delivery]], error) {
			return reply(s.plane.Deliveries(ctx, who, api.DeliveryFilter{State: in.State, For: in.For, Cursor: in.Cursor, Limit: in.Limit}))
		}))
	s.add(route{id: "replay-delivery", method: http.MethodPost, path: "/v1/deliveries/{id}/replay", summary: "Let a delivery that has failed be tried again", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, one[ByDelivery](s.plane.ReplayDelivery))
	s.add(route{id: "claim-deliveries", method: http.MethodPost, path: "/v1/deliveries/claims", summary: "Claim deliveries of the pool that are due", tag: tag, audience: stacks}, posted(s.plane.ClaimDeliveries))
	s.add(route{id: "report-delivery", method: http.MethodPost, path: "/v1/deliveries/{id}/result", summary: "Report the outcome of a try of a delivery", tag: tag, audience: stacks, large: true, errors: []int{404, 409}}, told[struct {
		ByDelivery
		Sent
	}](s.plane.DeliveryDone))
}

func (s *server) scheduleRoutes() {
	const tag = "schedules"
	schedule, _ := kind.Of(kind.Schedule)
	s.add(route{id: "list-scheduled-runs", method: http.MethodGet, named: schedule, path: settingPath(schedule) + "/runs", summary: "List the next and last run of each workspace of a schedule", tag: tag, audience: people, role: api.RoleViewer, errors: []int{404}},
		known(func(ctx context.Context, who controlplane.Principal, in *struct {
			ByName
			Paged
		}) (*answer[api.Page[api.ScheduledRun]], error) {
			return reply(s.plane.ScheduledRuns(ctx, who, in.name(), in.Cursor, in.Limit))
		}))
	s.add(route{id: "list-workspace-schedules", method: http.MethodGet, path: "/v1/workspaces/{workspace}/schedules", summary: "List the schedules of a workspace, with their next and last run", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}}, one[ByWorkspace](s.plane.WorkspaceSchedules))
}
