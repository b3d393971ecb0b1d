package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Git asks the git program about the clone that a directory is in. It changes nothing there.
type Git struct {
	Dir     string   // empty: the current directory
	Environ []string // of the program
}

// Commit is the full hash of what a revision names.
func (g Git) Commit(ctx context.Context, revision string) (string, error) {
	if strings.HasPrefix(revision, "-") {
		return "", fmt.Errorf("%q is not a revision", revision)
	}
	out, err := g.run(ctx, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		return "", g.missing(ctx, revision, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Remote is the address of the remote named origin.
func (g Git) Remote(ctx context.Context) (string, error) {
	out, err := g.run(ctx, "remote", "get-url", "origin")
	return strings.TrimSpace(string(out)), err
}

// Changed lists the files, from the top of the repository, in which head differs from base. With fork it is what head
// changed since both had a commit in common, which is what a pull request changes. A file that was renamed is listed
// under both names. What the clone lacks is said, with how the job gets it.
func (g Git) Changed(ctx context.Context, base, head string, fork bool) ([]string, error) {
	var both [2]string
	for i, revision := range []string{base, head} {
		commit, err := g.Commit(ctx, revision)
		if err != nil {
			return nil, err
		}
		both[i] = commit
	}
	if fork {
		out, err := g.run(ctx, "merge-base", both[0], both[1])
		if err != nil {
			return nil, g.missing(ctx, "the last commit that "+base+" and "+head+" have in common", err)
		}
		both[0] = strings.TrimSpace(string(out))
	}
	// A submodule is one name here, whatever changed inside.
	out, err := g.run(ctx, "diff", "--name-only", "--no-renames", "-z", both[0], both[1], "--")
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// missing says that the clone has no such commit, and why that is where it is known.
func (g Git) missing(ctx context.Context, what string, err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 && len(exit.Stderr) > 0 {
		return err
	}
	shallow, failed := g.run(ctx, "rev-parse", "--is-shallow-repository")
	if failed == nil && strings.TrimSpace(string(shallow)) == "true" {
		return fmt.Errorf("the clone is shallow and lacks %s: fetch all of the history "+
			"(GitHub Actions: fetch-depth: 0 of actions/checkout; GitLab CI: the variable GIT_DEPTH: 0)", what)
	}
	return fmt.Errorf("the clone lacks %s: fetch it first, or name another commit with --base", what)
}

// run returns what git prints. Its error holds what git said, which is about the clone.
func (g Git) run(ctx context.Context, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "git", args...) //nolint:gosec // revisions were resolved, or do not begin with a dash
	c.Dir, c.Env = g.Dir, g.Environ
	out, err := c.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		said, _, _ := bytes.Cut(bytes.TrimSpace(exit.Stderr), []byte("\n"))
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return out, nil
}
