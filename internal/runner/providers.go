package runner

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/providercache"
)

// left is what the engine left for the cache of providers.
type left struct {
	packages string   // directory of what it installed; empty: nothing new
	used     []string // hashes of what it had from the cache
}

// leave notes what is left for the cache. The engine still uses it.
func (r *run) leave(packages string, used []string) { r.left = left{packages, used} }

// leaveProviders moves what is left for the cache to where the launcher finds it. Call it when no process of the job is
// left. It costs no disk, and what goes wrong with it does not concern the run: a later one leaves the same.
func (r *run) leaveProviders() {
	if r.left.packages == "" && len(r.left.used) == 0 {
		return
	}
	if err := moveProviders(r.dirs.work, r.left); err != nil {
		r.log.Info("providers not left for the cache", "err", err)
	}
}

func moveProviders(work string, l left) error {
	// The engine may have put a link in place of each directory of its own. The root keeps it inside the work directory.
	root, err := os.OpenRoot(work)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Mkdir(providercache.LeftName, 0o700); err != nil {
		return err
	}
	if l.packages != "" {
		from, err := filepath.Rel(work, l.packages)
		if err == nil {
			err = root.Rename(from, filepath.Join(providercache.LeftName, providercache.LeftPackages))
		}
		if err != nil {
			return err
		}
	}
	return root.WriteFile(filepath.Join(providercache.LeftName, providercache.LeftUsed), []byte(strings.Join(append(l.used, ""), "\n")), 0o600)
}

const (
	mirrorTime = 15 * time.Second // for one question to the mirror
	maxMirror  = 1 << 20          // bytes of an answer
)

// mirrored asks the mirror whether it has a version of a provider. If it does not answer, the engine installs the
// provider as ever.
func (r *run) mirrored(ctx context.Context, source, version string) bool {
	ctx, cancel := context.WithTimeout(ctx, mirrorTime)
	defer cancel()
	has, err := askMirror(ctx, http.DefaultClient, r.cfg.ProviderMirror, source, version)
	if err != nil {
		r.log.Info("mirror of providers not asked", "provider", source, "err", err)
	}
	return has
}

// askMirror reads what a network mirror says of a version. For a bucket, what it does not have is often no other answer
// than what it does not give.
func askMirror(ctx context.Context, client *http.Client, mirror, source, version string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, mirror+source+"/"+version+".json", nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return false, nil
	}
	var doc struct {
		Archives map[string]json.RawMessage `json:"archives"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxMirror)).Decode(&doc)
	return err == nil && doc.Archives[providercache.Platform()] != nil, err
}
