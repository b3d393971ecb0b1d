// Package gitserver serves git repositories over HTTP with git's own program, for tests and demonstrations on this
// machine. Everybody who reaches it may read and push.
package gitserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNone means that this machine has no git.
var ErrNone = errors.New("git is not on this machine")

// Handler serves the bare repositories below a directory, each under its path there.
func Handler(ctx context.Context, dir string) (http.Handler, error) {
	out, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return nil, ErrNone
	}
	return &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir, "REMOTE_USER=anybody"},
	}, nil
}
