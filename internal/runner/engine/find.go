package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// binary is an engine and its version, as it reports it, or before it was asked, as in its name (nil: none).
type binary struct {
	path    string
	version *version.Version
	digest  string // of the archive that it was downloaded in; empty: it was not
}

// maxCandidates bounds how many binaries are asked for their version.
const maxCandidates = 20

// candidates lists the places of an engine that exist, the likeliest first: in each extra
// directory <engine>, then <engine>_<version> and <engine>/<version>/<engine> with the highest version first; then
// <engine> in the directories of PATH. Names with a version outside the constraint are left out.
func candidates(engine string, extra []string, searchPath string, want version.Constraints) []binary {
	var found []binary
	add := func(path string, v *version.Version) {
		if !executable(path) || slices.ContainsFunc(found, func(c binary) bool { return c.path == path }) {
			return
		}
		if v == nil || fits(want, v) {
			found = append(found, binary{path: path, version: v})
		}
	}
	for _, dir := range extra {
		if !filepath.IsAbs(dir) {
			continue
		}
		add(filepath.Join(dir, engine), nil)
		for _, c := range versioned(dir, engine) {
			add(c.path, c.version)
		}
	}
	for _, dir := range filepath.SplitList(searchPath) {
		// A relative directory of PATH would be searched in the workspace's own code.
		if filepath.IsAbs(dir) {
			add(filepath.Join(dir, engine), nil)
		}
	}
	return found
}

// versioned lists the binaries of a directory that have their version in their name.
func versioned(dir, engine string) []binary {
	var found []binary
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if v, ok := strings.CutPrefix(e.Name(), engine+"_"); ok {
			if parsed, err := version.NewVersion(v); err == nil {
				found = append(found, binary{path: filepath.Join(dir, e.Name()), version: parsed})
			}
		}
	}
	entries, err = os.ReadDir(filepath.Join(dir, engine))
	if err == nil {
		for _, e := range entries {
			if parsed, err := version.NewVersion(e.Name()); err == nil {
				found = append(found, binary{path: filepath.Join(dir, engine, e.Name(), engine), version: parsed})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b binary) int { return b.version.Compare(a.version) })
	return found
}

// fits reports whether a version satisfies a constraint. A build from source counts as the
// version that it is on the way to; other pre-releases have to be asked for, as everywhere.
func fits(want version.Constraints, v *version.Version) bool {
	return want == nil || want.Check(v) || (v.Prerelease() == "dev" && want.Check(v.Core()))
}

func executable(path string) bool {
	info, err := os.Stat(path) //nolint:gosec // G703: PATH and the extra directories are the runner's own configuration
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// parseConstraint reads engine_version; nil means that any version will do.
func parseConstraint(s string) (version.Constraints, error) {
	want, err := toolcache.Read(s)
	if err != nil {
		return nil, &Failure{
			Reason: workflow.ReasonEngineNotFound, Err: workflow.ErrInvalid,
			Detail: fmt.Sprintf("engine_version %s is not a version or constraint, such as 1.11.4 or ~> 1.10", quote(s)),
		}
	}
	return want, nil
}

// Search is an engine that is being looked for.
type Search struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the search has ended and the rest is set
	bin    binary
	err    error
}

// StartSearch starts the search for the engine of a job, whose Root is not needed yet. An engine must be started to
// report its version, which takes time, and meanwhile the source can be fetched. The host is for the search alone.
// Run reports the result in its first step. nil means that the job has no engine to find. The caller must call End.
func StartSearch(ctx context.Context, h Host, j Job) *Search {
	if !api.EngineOf(j.Spec.Engine).Program {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Search{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.bin, s.err = find(ctx, h, j, j.Spec.Engine, j.Spec.EngineVersion)
	}()
	return s
}

// End stops the search if it still runs, and waits for its end. A nil Search has nothing to stop.
func (s *Search) End() {
	if s != nil {
		s.cancel()
		<-s.done
	}
}

// Wait waits until the search has ended. A nil Search has.
func (s *Search) Wait() {
	if s != nil {
		<-s.done
	}
}

// located waits for the search that was started for a job, or searches itself.
func located(ctx context.Context, h Host, j Job) (binary, error) {
	if j.Search == nil {
		return find(ctx, h, j, j.Spec.Engine, j.Spec.EngineVersion)
	}
	j.Search.Wait() // it ends with the same ctx
	return j.Search.bin, j.Search.err
}

// find returns the first binary of an engine that reports a version within a constraint.
func find(ctx context.Context, h Host, j Job, engine, constraint string) (binary, error) {
	want, err := parseConstraint(constraint)
	if err != nil {
		return binary{}, err
	}
	searchPath := j.Path
	if searchPath == "" {
		searchPath = os.Getenv("PATH")
	}
	places := candidates(engine, j.EnginePath, searchPath, want)
	var seen []string
	for _, c := range places[:min(len(places), maxCandidates)] {
		v, err := says(ctx, h, j, engines()[engine], c.path)
		switch {
		case context.Cause(ctx) != nil:
			return binary{}, err
		case err != nil:
			seen = append(seen, fmt.Sprintf("%s (no version: %v)", c.path, err))
		case !fits(want, v):
			seen = append(seen, fmt.Sprintf("%s (%s)", c.path, v))
		default:
			return binary{path: c.path, version: v}, nil
		}
	}
	bin, err := download(ctx, h, j, engine, want)
	if err == nil || context.Cause(ctx) != nil {
		return bin, err
	}
	return binary{}, notFound(engine, constraint, j.EnginePath, append(seen, otherVersions(j, engine, searchPath, places)...), err)
}

// maxListed is how many places a failure names of those that were looked at.
const maxListed = 3

func notFound(engine, want string, extra, seen []string, download error) error {
	wanted := engine
	if want != "" {
		wanted += " " + want
	}
	where := "in PATH"
	if len(extra) > 0 {
		where = "in PATH and " + text.Some(extra, maxListed)
	}
	found := "found none"
	if len(seen) > 0 {
		found = "found " + text.Some(seen, maxListed)
	}
	return &Failure{
		Reason: workflow.ReasonEngineNotFound, Err: workflow.ErrNotFound,
		Detail: text.Middle(fmt.Sprintf("this runner has no %s: searched %s, %s; %v; install it there or change the workspace's engine_version", wanted, where, found, download), maxDetail),
	}
}

// says returns the version that a program says it is, or said when it was asked before and was the same.
func says(ctx context.Context, h Host, j Job, e engine, path string) (*version.Version, error) {
	before, unknown := toolcache.Identify(path)
	if unknown == nil {
		if v, ok := j.Tools.Said(before); ok {
			return v, nil
		}
	}
	v, err := ask(ctx, h, e, path, j.TempDir)
	if after, gone := toolcache.Identify(path); err == nil && unknown == nil && gone == nil && after == before {
		j.Tools.Remember(before, e.pkg, v)
	}
	return v, err
}

// ask makes a program say its version.
func ask(ctx context.Context, h Host, e engine, path, dir string) (*version.Version, error) {
	out := &tail{limit: 64 << 10}
	code, err := h.Exec(ctx, Command{
		Args: append([]string{path}, e.ask...), Dir: dir, Env: append(baseEnv(""), withoutFlags),
		Stdout: out, Stderr: io.Discard, Quiet: true,
	})
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, fmt.Errorf("exit code %d", code)
	}
	return e.version(out.bytes())
}

// askJSON asks terraform and tofu.
func askJSON() []string { return []string{"version", "-json"} }

// versionOfJSON reads their answer.
func versionOfJSON(out []byte) (*version.Version, error) {
	var doc struct {
		Version string `json:"terraform_version"` // tofu uses the same key
	}
	if err := json.Unmarshal(bytes.TrimSpace(out), &doc); err != nil || doc.Version == "" {
		return nil, fmt.Errorf("its answer is not that of terraform or tofu")
	}
	return version.NewVersion(doc.Version)
}

// minAt reports whether a version, or a pre-release of it, is at least the other.
func minAt(v *version.Version, oldest string) bool {
	return v.Core().GreaterThanOrEqual(version.Must(version.NewVersion(oldest)))
}
