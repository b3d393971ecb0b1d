package source

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Sources are the directory sources of a machine. Its methods may be called concurrently. Their errors are those of
// Fetch.
type Sources struct {
	Roots []string // directories below which a source may lie; none refuses all
	Data  string   // the data directory of this machine's own agent, no part of which is a source; empty: unknown
}

// Check refuses a directory that is a data directory or lies in one, or in which Data lies. Other mistakes are found
// when it is copied.
func (s Sources) Check(dir string) error {
	from, where, err := openDirectory(dir, s.Roots)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat(".")
	if err != nil {
		return reading(where, err)
	}
	return refuseData(where, info, newOwnData(s.Data))
}

// Copy copies to an empty directory the part of a source that a container may read: the files that Fetch takes, and
// the state of the root module. A state below another directory becomes an empty file. Fetch makes the same tree of
// the copy as of the source. top is the path of the source.
func (s Sources) Copy(ctx context.Context, dir, top, dest string) error {
	from, _, err := s.open(dir)
	if err != nil {
		return err
	}
	defer from.close()
	to, err := newTree(Request{Source: api.Source{Directory: dir}, Dest: dest, Aside: dest})
	if err != nil {
		return err
	}
	defer to.close()
	to.fate = handedOn(top)
	if err := from.copy(ctx, top, to); err != nil {
		return err
	}
	return to.finish()
}

// Digest is a SHA-256 over the names, kinds and contents of a source's files, as a run would copy them now. top is
// the path of the source.
func (s Sources) Digest(ctx context.Context, dir, top string) (string, error) {
	from, _, err := s.open(dir)
	if err != nil {
		return "", err
	}
	defer from.close()
	t := &tree{fate: ofDirectory(top), advice: adviceOn(api.Source{}), digest: sha256.New(), limits: limits{entries: maxEntries, bytes: maxBytes}}
	if err := from.copy(ctx, top, t); err != nil {
		return "", err
	}
	return t.sum(), nil
}

// opened is a source that is not refused.
type opened struct {
	root  *os.Root
	owner uint32
	data  *ownData
}

// open opens a source and returns its path without links.
func (s Sources) open(dir string) (*opened, string, error) {
	root, where, err := openDirectory(dir, s.Roots)
	if err != nil {
		return nil, "", err
	}
	o := &opened{root: root, data: newOwnData(s.Data)}
	info, err := root.Stat(".")
	if err == nil {
		err = refuseData(where, info, o.data)
	}
	if err == nil {
		err = same(where, info)
	}
	if err != nil {
		o.close()
		return nil, "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		o.owner = st.Uid
	}
	return o, where, nil
}

// same refuses a directory that is not the one of that path: its path was judged, and the directory is copied.
func same(where string, opened fs.FileInfo) error {
	info, err := os.Stat(where)
	if err == nil && !os.SameFile(info, opened) {
		err = workflow.Refuse(workflow.ErrConflict, "source.directory", "%s was replaced meanwhile: submit the run again", quote(where))
	}
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	return nil
}

func (o *opened) close() { _ = o.root.Close() }

func (o *opened) copy(ctx context.Context, top string, to *tree) error {
	return (&copier{from: o.root, to: to, top: path.Clean(top), owner: o.owner, data: o.data}).dir(ctx, ".")
}
