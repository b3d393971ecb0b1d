package httpapi

import (
	"net/http"
	"reflect"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// ByTree names a tree in the address.
type ByTree struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the tree" example:"tree_01k1xz4m2p7q9r3s5t8v"`
}

func (in ByTree) name() string { return in.ID }

func (s *server) treeRoutes() {
	const tag = "trees"
	s.add(route{id: "submit-tree", method: http.MethodPost, path: "/v1/trees", summary: "Run a workspace and all that depend on it, in order", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, status: http.StatusCreated, errors: []int{404, 409}}, keyed(s.plane.SubmitTree))
	s.add(route{id: "list-trees", method: http.MethodGet, path: "/v1/trees", summary: "List trees, the newest first", tag: tag, audience: people, role: api.RoleViewer, scope: inAny}, paged(s.plane.Trees))
	s.add(route{id: "get-tree", method: http.MethodGet, path: "/v1/trees/{id}", summary: "Show a tree, with where each of its workspaces stands", tag: tag, audience: people, role: api.RoleViewer, scope: inProject, errors: []int{404}}, one[ByTree](s.plane.Tree))
	s.add(route{id: "cancel-tree", body: reflect.TypeFor[*api.WithReason](), method: http.MethodPost, path: "/v1/trees/{id}/cancel", summary: "Cancel the waiting nodes of a tree, and its runs that have not ended", tag: tag, audience: people, role: api.RoleOperator, scope: inProject, errors: []int{404, 409}}, sent[struct {
		ByTree
		Sent
	}](s.plane.CancelTree))
}
