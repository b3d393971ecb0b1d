package catalog

import (
	"cmp"
	"regexp"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The forms of a role's ARN and of a role's path, as IAM defines them.
var (
	roleARN = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^arn:aws(?:-[a-z]+){0,3}:iam::[0-9]{12}:role(/(?:[!-.0-~]+/)*)[A-Za-z0-9+=,.@_-]{1,64}$`)
	})
	rolePath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^/(?:[!-.0-~]+/)+$`) })
)

const maxRolePath = 512

// checkRoles refuses roles of a workspace that are not role ARNs. Both lie under one path, so that a pool that may
// assume one may assume the other.
func checkRoles(w *api.Workspace) error {
	if err := checkRole("role", w.Role); err != nil {
		return err
	}
	if err := checkRole("preview_role", w.PreviewRole); err != nil {
		return err
	}
	if w.Role != "" && w.PreviewRole != "" && pathOfRole(w.Role) != pathOfRole(w.PreviewRole) {
		return workflow.Invalid("preview_role", "role and preview_role lie under the same path, and %s and %s do not: a pool assumes roles under one path", pathOfRole(w.Role), pathOfRole(w.PreviewRole))
	}
	return nil
}

// checkRole refuses anything but a role ARN.
func checkRole(field, arn string) error {
	if arn == "" {
		return nil
	}
	if path := pathOfRole(arn); path == "" || len(path) > maxRolePath {
		return workflow.Invalid(field, "%q is not the ARN of a role, such as arn:aws:iam::123456789012:role/dayfly/POOL/NAME", text.Cut(arn, 200))
	}
	return nil
}

// pathOfRoles is the path of the roles of a workspace; "" if it has none.
func pathOfRoles(w api.Workspace) string { return pathOfRole(cmp.Or(w.Role, w.PreviewRole)) }

// pathOfRole is the path of a role ARN: "/" if the role has no path, and "" for anything but a role ARN.
func pathOfRole(arn string) string {
	m := roleARN().FindStringSubmatch(arn)
	if m == nil {
		return ""
	}
	return m[1]
}

// checkRolePath refuses an invalid path of roles.
func checkRolePath(path string) error {
	if path != "" && (!rolePath().MatchString(path) || len(path) > maxRolePath || strings.Contains(path, "*")) {
		return workflow.Invalid("role_path", "%q is not a path of roles, such as /dayfly/POOL/: it begins and ends with a slash", text.Cut(path, 200))
	}
	return nil
}

// checkRoleOfPool refuses a workspace with roles that the pool's tasks may not assume. For a pool without a path, the
// account's policies decide alone.
func checkRoleOfPool(r record.Pool, w api.Workspace) error {
	arn := cmp.Or(w.Role, w.PreviewRole)
	if arn == "" || r.RolePath == "" || strings.HasPrefix(pathOfRole(arn), r.RolePath) {
		return nil
	}
	return workflow.Refuse(workflow.ErrForbidden, "role", "pool %s assumes roles under the path %s only, and %s is not one of them: move the role there, or name another pool", r.Name, r.RolePath, text.Cut(arn, 200))
}
