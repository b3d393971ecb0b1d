package gitserver_test

import (
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/gitserver"
)

func TestHandler_TakesWhatIsPushedAndGivesItBack(t *testing.T) {
	dir := t.TempDir()
	handler, err := gitserver.Handler(t.Context(), dir)
	if errors.Is(err, gitserver.ErrNone) {
		t.Skip(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	git := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", args...)
		c.Dir, c.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	git("init", "--quiet", "--bare", "team/infra.git")
	git("init", "--quiet", "work")
	git("-C", "work", "-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "--quiet", "--allow-empty", "--message", "first")
	git("-C", "work", "push", "--quiet", server.URL+"/team/infra.git", "HEAD:refs/heads/main")
	git("clone", "--quiet", "--branch=main", server.URL+"/team/infra.git", filepath.Join(dir, "clone"))
	if got := git("-C", "clone", "log", "--format=%s"); got != "first\n" {
		t.Errorf("got %q", got)
	}
}
