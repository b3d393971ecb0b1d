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

// providerUpdate is the contribution of a run to the cache of providers.
type providerUpdate struct {
	packages string   // directory of installed packages; empty: none are new
	used     []string // hashes of packages from the cache
}

// noteProviders notes the update of the cache. The engine still uses the packages.
func (r *run) noteProviders(packages string, used []string) {
	r.providers = providerUpdate{packages, used}
}

// lent is the cache of packages that the launcher has put into the work directory; empty: none.
func (r *run) lent() string {
	dir := filepath.Join(r.dirs.work, providercache.TaskLent)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// handOverProviders moves the new packages to a directory that the launcher reads. Call it when no process of the job
// remains. It costs no disk, and an error does not concern the run: a later one hands over the same.
func (r *run) handOverProviders() {
	if dir := r.lent(); dir != "" && !r.spoilt {
		if err := os.Rename(dir, filepath.Join(r.dirs.work, providercache.TaskKept)); err != nil {
			r.log.Info("cache of packages not handed over", "err", err)
		}
	}
	if r.providers.packages == "" && len(r.providers.used) == 0 {
		return
	}
	if err := moveProviders(r.dirs.work, r.providers); err != nil {
		r.log.Info("providers not handed over to the cache", "err", err)
	}
}

func moveProviders(work string, l providerUpdate) error {
	// The engine may have put a link in place of each directory of its own. The root keeps it inside the work directory.
	root, err := os.OpenRoot(work)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Mkdir(providercache.TaskDir, 0o700); err != nil {
		return err
	}
	if l.packages != "" {
		from, err := filepath.Rel(work, l.packages)
		if err == nil {
			err = root.Rename(from, filepath.Join(providercache.TaskDir, providercache.TaskPackages))
		}
		if err != nil {
			return err
		}
	}
	return root.WriteFile(filepath.Join(providercache.TaskDir, providercache.TaskUsed), []byte(strings.Join(append(l.used, ""), "\n")), 0o600)
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

// askMirror asks a network mirror for a version. A bucket often answers the same for files that it does not have and
// for those that it refuses.
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
