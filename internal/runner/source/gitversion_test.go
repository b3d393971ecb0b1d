package source_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// tagged serves a repository with a commit for each of its tags; of an annotated one the name begins with @.
func tagged(t *testing.T, tags ...string) (*httpServer, *repository) {
	t.Helper()
	top := t.TempDir()
	r := newRepository(t, filepath.Join(top, "app.git"))
	for _, name := range tags {
		bare := strings.TrimPrefix(name, "@")
		r.tag(bare, r.commit("main", file("main.tf", bare)), bare != name)
	}
	r.set(plumbing.NewSymbolicReference(plumbing.HEAD, "refs/heads/main"))
	return newHTTPServer(t, top, "", "", false), r
}

// ofVersion fetches the highest tag that fits, and says what is in its main.tf, and the first line of the log.
func ofVersion(t *testing.T, server *httpServer, version string) (content, said string, err error) {
	t.Helper()
	dest := filepath.Join(t.TempDir(), "work")
	fetched, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Git: &api.GitSource{URL: server.URL + "/app.git", Version: version}}, Dest: dest, TempDir: t.TempDir(),
		Log: func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" },
	})
	if err != nil {
		return "", said, err
	}
	if !strings.Contains(said, "commit "+fetched.Commit) {
		t.Errorf("the log does not name commit %s: %s", fetched.Commit, said)
	}
	return read(t, dest)["main.tf"], said, nil
}

// R2: a version is the highest tag that fits.
func TestFetch_GitVersionIsTheHighestTagThatFits(t *testing.T) {
	server, _ := tagged(t, "v1.9.0", "@v1.10.2", "1.4.2", "v1.4.1", "v2.0.0-rc.1", "v2.0.0-rc.2", "@0.9.0", "2024", "v3", "net/v9.0.0", "release-9.9.9", "v1.4.2.9")
	for version, want := range map[string]string{
		"~> 1.4":         "v1.10.2",
		"~> 1.4.0":       "1.4.2",
		">= 0.1, < 1.0":  "0.9.0",
		"1.4.2":          "1.4.2",
		"= 1.4.1":        "v1.4.1",
		">= 1":           "v1.10.2",
		">= 2.0.0-rc.1":  "v2.0.0-rc.2",
		"2.0.0-rc.1":     "v2.0.0-rc.1",
		"!= 1.10.2, ~>1": "v1.9.0",
	} {
		got, said, err := ofVersion(t, server, version)
		if err != nil || got != want || !strings.Contains(said, "tag "+want+", the highest that fits "+version) {
			t.Errorf("%s: got %q and %v, want %s; log: %s", version, got, err, want, said)
		}
	}
	for version, says := range map[string]string{
		"~> 4.0":  "its highest are v2.0.0-rc.2, v2.0.0-rc.1, v1.10.2, v1.9.0, 1.4.2",
		"~> 2.0":  "no tag of the repository fits",
		"== main": "is not a version or a constraint",
	} {
		_, _, err := ofVersion(t, server, version)
		if refusal, ok := errors.AsType[*workflow.Error](err); !ok || refusal.Field != "source.git.version" || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want a refusal that says %q", version, err, says)
		}
	}
}

func TestFetch_GitVersionWithoutTagsOrWithTwo(t *testing.T) {
	none, _ := tagged(t, "latest")
	if _, _, err := ofVersion(t, none, "~> 1.0"); !errors.Is(err, workflow.ErrNotFound) || !strings.Contains(err.Error(), "no tag that is a version") {
		t.Errorf("without versions: got %v", err)
	}
	two, r := tagged(t, "v1.0.0", "1.0.0")
	if _, _, err := ofVersion(t, two, "1.0.0"); !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), "name different commits") {
		t.Errorf("with two: got %v", err)
	}
	same := r.commit("main", file("main.tf", "same"))
	r.tag("v1.1.0", same, true)
	r.tag("1.1.0", same, false)
	if got, _, err := ofVersion(t, two, ">= 1"); err != nil || got != "same" {
		t.Errorf("with two of one commit: got %q, %v", got, err)
	}
	_, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Git: &api.GitSource{URL: two.URL + "/app.git", Version: "1.0.0", Ref: "main"}}, Dest: t.TempDir(), TempDir: t.TempDir(),
	})
	if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), "either ref or version") {
		t.Errorf("with a ref: got %v", err)
	}
}
