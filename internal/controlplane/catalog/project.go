package catalog

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// mostProjectDepth bounds the tree: how many projects lie between a workspace and the root, the root included.
const mostProjectDepth = 8

// Projects reads a project and those above it into the change, the nearest first; the root is the last.
func Projects(ctx context.Context, c *ledger.Change, org, name string) (out []record.Project, err error) {
	for range mostProjectDepth {
		p, ok, err := ledger.Load[record.Project](ctx, c, record.ProjectKey(org, name))
		switch {
		case err != nil:
			return nil, err
		case !ok && name == record.GlobalProject:
			p = record.Project{Name: name}
		case !ok:
			return nil, workflow.Refuse(workflow.ErrNotFound, "project", "there is no project %q", text.Cut(name, 64))
		}
		if out = append(out, p); p.Name == record.GlobalProject {
			return out, nil
		}
		name = p.Parent
	}
	return nil, workflow.Refuse(workflow.ErrInvalid, "project", "project %q lies too deep: at most %d projects lie on the way from the root", text.Cut(name, 64), mostProjectDepth)
}
