package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/awsaccess"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ArtifactCommands are about the files that runs store. Their bytes never pass through the control plane: they are
// read where they are stored.
type ArtifactCommands struct {
	List artifactList `cmd:"" help:"List the artifacts of a workflow, and where they are."`
	Get  artifactGet  `cmd:"" help:"Copy an artifact of a workflow, from this machine's data directory or with your own access to AWS."`
}

type artifactList struct {
	Workflow string `arg:"" help:"Id of the workflow."`
}

// Run prints the artifacts.
func (c *artifactList) Run(a *cli.App, cl *client.Client) error {
	return cli.List(a, artifactsOf(cl, c.Workflow), "no artifacts",
		[]string{"ARTIFACT", "ATTEMPT", "BYTES", "SHA-256", "WHERE", "KEPT UNTIL"}, func(one api.Artifact) []string {
			where := placeOfArtifact(one.Place)
			if one.PlacedAt == nil {
				where = "it never arrived"
			}
			return []string{
				term.Clean(one.Name), fmt.Sprint(one.Attempt), fmt.Sprint(one.Size), one.SHA256[:min(len(one.SHA256), 12)], where,
				one.ExpiresAt.Local().Format("2006-01-02"),
			}
		})
}

func artifactsOf(cl *client.Client, id string) func(context.Context, string, int) (api.Page[api.Artifact], error) {
	return func(ctx context.Context, cursor string, limit int) (api.Page[api.Artifact], error) {
		return cl.Artifacts(ctx, id, cursor, limit)
	}
}

// placeOfArtifact says where the bytes of an artifact are.
func placeOfArtifact(p api.Place) string {
	if p.Kind == api.PlaceS3 {
		return term.Clean("s3://" + p.Bucket + "/" + p.Key)
	}
	return term.Clean(fmt.Sprintf("agent %s of pool %s", p.Instance, p.Pool))
}

type artifactGet struct {
	Workflow string `arg:"" help:"Id of the workflow."`
	Name     string `arg:"" help:"Name of the artifact, such as files/sbom.json."`
	To       string `type:"path" placeholder:"FILE" help:"The file to make; default the last part of the name, in this directory."`
	Attempt  int    `help:"The attempt that stored it; default the latest."`
	secretStore
}

// Run copies the artifact. The file is there when it has been checked, and not before; it replaces none.
func (c *artifactGet) Run(a *cli.App, cl *client.Client) error {
	one, err := c.find(a, cl)
	if err != nil {
		return err
	}
	to := cmp.Or(c.To, path.Base(one.Name))
	if filepath.Base(to) == "-" {
		return cli.Usage(errors.New("artifacts are copied to files: name one with --to"))
	}
	dir, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return cli.Usage(err)
	}
	defer dir.Close() //nolint:errcheck // a directory
	err = disk.CreateIn(dir, filepath.Base(to), func(w io.Writer) error {
		if one.Place.Kind == api.PlaceS3 {
			return awsaccess.FetchS3(a.Ctx, one, w)
		}
		return c.read(a, one, w)
	})
	switch {
	case errors.Is(err, fs.ErrExist):
		return cli.Usage(fmt.Errorf("%s exists already: name another file with --to", to))
	case err != nil:
		return fmt.Errorf("get artifact %s: %w", one.Name, err)
	}
	return a.Done(one, "%s", to)
}

// find returns the artifact of the latest attempt that has one of the name.
func (c *artifactGet) find(a *cli.App, cl *client.Client) (one api.Artifact, err error) {
	all, _, err := cli.Gather(a, cli.Everything, artifactsOf(cl, c.Workflow))
	if err != nil {
		return one, err
	}
	found := false
	for _, each := range all { // the latest attempt comes last
		if each.Name == c.Name && each.PlacedAt != nil && (c.Attempt == 0 || c.Attempt == each.Attempt) {
			one, found = each, true
		}
	}
	if one.Kind == api.ArtifactOutputs {
		return one, workflow.Refuse(workflow.ErrForbidden, "", "%s has values of sensitive outputs, which only runs of the workspaces get that name them as inputs: read them with the engine itself", c.Name)
	}
	if !found {
		return one, workflow.Refuse(workflow.ErrNotFound, "", "workflow %s has no artifact %s: dayfly artifact list %s names all", c.Workflow, c.Name, c.Workflow)
	}
	return one, nil
}

// read copies the bytes from the data directory of this machine's agent.
func (c *artifactGet) read(a *cli.App, one api.Artifact, to io.Writer) error {
	_, data, err := c.open(a)
	if err != nil {
		return err
	}
	f, err := artifact.NewDirectory(filepath.Join(data, embedded.ArtifactsDir)).Open(one.Place.Key)
	if errors.Is(err, workflow.ErrConflict) {
		return workflow.Refuse(workflow.ErrNotFound, "", "it is not in %s: it lies with %s; run this command on that machine, as the user of the agent, with --data if its data directory is another", data, placeOfArtifact(one.Place))
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return artifact.CopyChecked(to, f, one.Size, one.SHA256)
}
