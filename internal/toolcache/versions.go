package toolcache

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-version"
	"golang.org/x/sys/unix"

	"github.com/dayfly-dev/dayfly/internal/disk"
)

// saidDir is the directory of a Cache with a file for each program: the version that it reported.
const saidDir = ".said"

// Program identifies a program on the disk. Installing it again changes some of these fields.
type Program struct {
	Path    string `json:"path"` // without links
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // when its inode was changed, in nanoseconds: no user can set it
}

// Identify describes the program that a path leads to.
func Identify(path string) (Program, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Program{}, err
	}
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return Program{}, fmt.Errorf("look at %s: %w", path, err)
	}
	return Program{path, uint64(s.Dev), s.Ino, s.Size, s.Ctim.Nano()}, nil //nolint:unconvert // its type differs between systems
}

// said is a program and the version that it says it is.
type said struct {
	Program Program `json:"program"`
	Version string  `json:"version"`
}

// Said returns the version that a program reported, if it is still the same.
func (c *Cache) Said(p Program) (*version.Version, bool) {
	if c == nil || c.Dir == "" {
		return nil, false
	}
	text, err := os.ReadFile(c.saidFile(p))
	if err != nil {
		return nil, false // it was not asked yet
	}
	var was said
	if json.Unmarshal(text, &was) != nil || was.Program != p {
		return nil, false
	}
	v, err := version.NewVersion(was.Version)
	return v, err == nil
}

// Remember keeps the version that a program reported, so that it need not be started for that again. It must be built
// from the named Go package: a script, or a version manager under an engine's name, may report another one tomorrow.
// If it cannot be kept, the program is asked again.
func (c *Cache) Remember(p Program, pkg string, v *version.Version) {
	if c == nil || c.Dir == "" {
		return
	}
	if info, err := buildinfo.ReadFile(p.Path); err != nil || info.Path != pkg {
		return
	}
	text, _ := json.Marshal(said{p, v.String()}) // it cannot fail
	file := c.saidFile(p)
	for _, dir := range []string{c.Dir, filepath.Dir(file)} {
		if makeDir(dir) != nil {
			return
		}
	}
	_ = disk.Replace(file, text)
}

func (c *Cache) saidFile(p Program) string {
	return filepath.Join(c.Dir, saidDir, strings.ReplaceAll(strings.TrimPrefix(p.Path, "/"), "/", "%"))
}
