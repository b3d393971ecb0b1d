package httpapi

import (
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// ByPolicyGroup names a policy group in the address.
type ByPolicyGroup struct {
	PolicyGroup string `path:"policy_group" maxLength:"64" doc:"Name of the policy group" example:"network-rules"`
}

func (in ByPolicyGroup) name() string { return in.PolicyGroup }

// ByWaiver names a waiver in the address.
type ByWaiver struct {
	Waiver string `path:"waiver" maxLength:"64" doc:"Name of the waiver" example:"legacy-bucket"`
}

func (in ByWaiver) name() string { return in.Waiver }

// policyRoutes are about what runs are held to. Everybody may see it, and admins say it.
func (s *server) policyRoutes() {
	const tag, group, waiver = "policies", "/v1/policy-groups/{policy_group}", "/v1/waivers/{waiver}"
	s.add(route{id: "put-policy-group", method: http.MethodPut, path: group, summary: "Create or change a policy group", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, put[struct {
		ByPolicyGroup
		Sent
	}](http.StatusCreated, func(g api.PolicyGroup) string { return g.Name }, s.plane.PutPolicyGroup))
	s.add(route{id: "list-policy-groups", method: http.MethodGet, path: "/v1/policy-groups", summary: "List policy groups", tag: tag, audience: people, role: api.RoleViewer}, paged(s.plane.PolicyGroups))
	s.add(route{id: "get-policy-group", method: http.MethodGet, path: group, summary: "Show a policy group", tag: tag, audience: people, role: api.RoleViewer, errors: []int{404}}, one[ByPolicyGroup](s.plane.PolicyGroup))
	s.add(route{id: "delete-policy-group", method: http.MethodDelete, path: group, summary: "Delete a policy group that has no waivers in force", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, gone[ByPolicyGroup](s.plane.DeletePolicyGroup))
	s.add(route{id: "put-waiver", method: http.MethodPut, path: waiver, summary: "Give or change a waiver", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, put[struct {
		ByWaiver
		Sent
	}](http.StatusCreated, func(w api.Waiver) string { return w.Name }, s.plane.PutWaiver))
	s.add(route{id: "list-waivers", method: http.MethodGet, path: "/v1/waivers", summary: "List waivers, also those that are over", tag: tag, audience: people, role: api.RoleViewer}, paged(s.plane.Waivers))
	s.add(route{id: "get-waiver", method: http.MethodGet, path: waiver, summary: "Show a waiver", tag: tag, audience: people, role: api.RoleViewer, errors: []int{404}}, one[ByWaiver](s.plane.Waiver))
	s.add(route{id: "delete-waiver", method: http.MethodDelete, path: waiver, summary: "Take a waiver back: runs that start from now on do not pass by it", tag: tag, audience: people, role: api.RoleAdmin, errors: []int{404, 409}}, gone[ByWaiver](s.plane.DeleteWaiver))
}
