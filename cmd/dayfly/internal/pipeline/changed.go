package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Git asks the git program about the clone that a directory is in. It changes nothing there, but Order may fetch a
// commit.
type Git struct {
	Dir     string   // empty: the current directory
	Environ []string // of the program
}

// Commit is the full hash of the commit that a revision names.
func (g Git) Commit(ctx context.Context, revision string) (string, error) {
	if strings.HasPrefix(revision, "-") {
		return "", fmt.Errorf("%q is not a revision", revision)
	}
	out, err := g.resolve(ctx, revision)
	if err != nil {
		return "", g.missing(ctx, revision, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (g Git) resolve(ctx context.Context, revision string) ([]byte, error) {
	return g.run(ctx, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
}

// Remote is the address of the remote named origin.
func (g Git) Remote(ctx context.Context) (string, error) {
	out, err := g.run(ctx, "remote", "get-url", "origin")
	return strings.TrimSpace(string(out)), err
}

// Changed lists the files, from the top of the repository, in which head differs from base. With fork it lists those
// that head changed since both had a commit in common, as a pull request does. A file that was renamed is listed
// under both names. If the clone lacks a commit, the error says how the job gets it.
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
	// A submodule is one name here, no matter which of its files changed.
	out, err := g.run(ctx, "diff", "--name-only", "--no-renames", "-z", both[0], both[1], "--")
	if err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
}

// Order is where a commit stands to a later one, head.
type Order string

// The orders.
const (
	Same    Order = "same"
	Before  Order = "before"  // head has it in its history
	After   Order = "after"   // it has head in its history: head is the older one
	Apart   Order = "apart"   // neither has the other: the branch was force-pushed
	Unknown Order = "unknown" // neither the clone nor its remote has it
)

// Order says how a commit, in full, stands to head. If a whole clone lacks it, it is fetched: it may be newer than
// the clone. A shallow clone is refused where its history does not suffice.
func (g Git) Order(ctx context.Context, commit, head string) (Order, error) {
	switch {
	case commit == head:
		return Same, nil
	case !commitForm().MatchString(commit): // another program said so: it must not be a flag
		return "", fmt.Errorf("%q is not a commit: want 40 hexadecimal digits", commit)
	}
	if _, err := g.Commit(ctx, head); err != nil {
		return "", err
	}
	if _, err := g.resolve(ctx, commit); err != nil {
		if !lacks(err) || g.shallow(ctx) {
			return "", g.missing(ctx, commit, err)
		}
		if err := g.fetch(ctx, commit); err != nil {
			return Unknown, nil //nolint:nilerr // for whichever reason, it is not here
		}
	}

	for _, c := range []struct {
		older, newer string
		is           Order
	}{{commit, head, Before}, {head, commit, After}} {
		_, err := g.run(ctx, "merge-base", "--is-ancestor", c.older, c.newer)
		if err == nil {
			return c.is, nil
		}
		if !lacks(err) {
			return "", err
		}
	}
	if g.shallow(ctx) { // the missing history may hold the answer
		return "", tooShallow("the history between " + commit + " and " + head)
	}
	return Apart, nil
}

// fetch gets a commit from the remote that the clone is of. Nobody is asked for a password.
func (g Git) fetch(ctx context.Context, commit string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	g.Environ = append(slices.Clone(g.Environ), "GIT_TERMINAL_PROMPT=0")
	_, err := g.run(ctx, "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "origin", commit)
	return err
}

const fetchTime = time.Minute

// Missed lists the commits, in full, that changed one of the files after last and up to where a push to head began,
// the newest first: that push alone would not have applied them. A merge stands for the commits that it brought.
// Nothing is listed where it is not known where the push began.
func (g Git) Missed(ctx context.Context, last, began, head string, files []string) ([]string, error) {
	_, err := g.resolve(ctx, began)
	var common []byte
	if err == nil {
		common, err = g.run(ctx, "merge-base", began, head) // after a force push it did not begin in its history
	}
	if lacks(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	args := []string{"--literal-pathspecs", "rev-list", "--first-parent", last + ".." + strings.TrimSpace(string(common)), "--"}
	out, err := g.run(ctx, append(args, files[:min(len(files), maxFiles)]...)...)
	return strings.Fields(string(out)), err
}

const maxFiles = 500 // of one command: Linux takes 2 MiB of arguments

// missing says that the clone lacks a part of the history, and why if that is known.
func (g Git) missing(ctx context.Context, part string, err error) error {
	switch {
	case !lacks(err):
		return err
	case g.shallow(ctx):
		return tooShallow(part)
	}
	return fmt.Errorf("the clone lacks %s: fetch it first, or name another commit with --base", part)
}

// lacks reports whether git found nothing wrong but that something is not there or not so.
func lacks(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && (exit.ExitCode() == 1 || len(exit.Stderr) == 0)
}

func (g Git) shallow(ctx context.Context) bool {
	out, err := g.run(ctx, "rev-parse", "--is-shallow-repository")
	return err == nil && strings.TrimSpace(string(out)) == "true"
}

func tooShallow(part string) error {
	return fmt.Errorf("the clone is shallow and lacks %s: fetch all of the history "+
		"(GitHub Actions: fetch-depth: 0 of actions/checkout; GitLab CI: the variable GIT_DEPTH: 0)", part)
}

// run returns the output of git. Its error holds git's own message, which is about the clone.
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
