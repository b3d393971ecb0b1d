// Package layers writes files onto a base as layers of an image, and lists the files of the resulting image. The same
// files on the same base give the same digest. It runs nothing and asks no Docker engine; it does not decide which
// files.
package layers

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Modes of files in an image.
const (
	Plain      = 0o644
	Executable = 0o755
	Shared     = 0o1777 // of /tmp
)

// Entry is a file, a symbolic link or a directory to put into an image. It is a file unless Dir or Link says otherwise.
type Entry struct {
	Path string // from the root, with or without a leading slash
	Mode int64  // of a directory: 0 means 0755, and then a directory of the base keeps its own
	User int    // owner and group; 0 is root
	Dir  bool
	Link string // where a symbolic link points to
	From string // the file of this machine that has the content
	Data []byte // the content, if From is empty
}

type node struct {
	kind byte // as in a tar header
	link string
}

func (n node) isDir() bool { return n.kind == tar.TypeDir }

// Tree is a file system: where things lie, and where links lead. It is not safe for concurrent use.
type Tree struct{ nodes map[string]node }

// NewTree is an empty file system.
func NewTree() *Tree { return &Tree{nodes: map[string]node{"": {kind: tar.TypeDir}}} }

// Read reads the file system of an image, all layers as one.
func Read(img v1.Image) (*Tree, error) {
	t := NewTree()
	err := walk(img, func(header *tar.Header, _ io.Reader) error {
		at := clean(header.Name)
		// A tar may name a file without naming its directory.
		for dir := parent(at); dir != ""; dir = parent(dir) {
			if _, ok := t.nodes[dir]; !ok {
				t.nodes[dir] = node{kind: tar.TypeDir}
			}
		}
		n := node{kind: header.Typeflag, link: header.Linkname}
		if n.kind == tar.TypeLink { // a hard link names its file from the root
			n.link = "/" + clean(n.link)
		}
		if at != "" {
			t.nodes[at] = n
		}
		return nil
	})
	return t, err
}

// walk calls visit for everything in the flattened file system of an image.
func walk(img v1.Image, visit func(*tar.Header, io.Reader) error) error {
	flat := mutate.Extract(img)
	defer func() { _ = flat.Close() }()
	in := tar.NewReader(flat)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the layers of an image: %w", err)
		}
		if err := visit(header, in); err != nil {
			return err
		}
	}
}

func clean(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// parent is the directory of a clean path; that of the root is the root.
func parent(p string) string { return clean(path.Dir("/" + p)) }

// Most links that one path may lead through, as in Linux.
const maxLinks = 40

// Resolve follows every link of a path, and says where it ends and whether something is there. A path with a loop of
// links does not exist. After a missing directory, the rest of the path is taken literally.
func (t *Tree) Resolve(p string) (at string, ok bool) {
	rest := strings.Split(clean(p), "/")
	links := 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			at = parent(at)
			continue
		}
		next := clean(at + "/" + name)
		n, exists := t.nodes[next]
		if !exists {
			return clean(next + "/" + path.Join(rest...)), false
		}
		if n.kind != tar.TypeSymlink && n.kind != tar.TypeLink {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return next, false
		}
		if path.IsAbs(n.link) {
			at = ""
		}
		rest = append(strings.Split(n.link, "/"), rest...)
	}
	return at, true
}

// Place puts entries onto the tree and returns them in order of their paths: each where the links of the tree lead it,
// with the directories that were missing. Of two entries for one place the later one counts.
func (t *Tree) Place(entries []Entry) ([]Entry, error) {
	placed := map[string]Entry{}
	for _, e := range entries {
		wanted := clean(e.Path)
		dir, _ := t.Resolve(parent(wanted))
		if err := t.makeDirs(dir, placed); err != nil {
			return nil, fmt.Errorf("put %s into the image: %w", wanted, err)
		}
		e.Path = clean(dir + "/" + path.Base(wanted))
		was, exists := t.nodes[e.Path]
		if e.Dir {
			at, _ := t.Resolve(e.Path)
			if n, ok := t.nodes[at]; ok && n.isDir() && e.Mode == 0 {
				continue // it keeps its owner and mode
			}
			if err := t.makeDirs(at, placed); err != nil {
				return nil, fmt.Errorf("put %s into the image: %w", wanted, err)
			}
			e.Path = at
			if e.Mode == 0 {
				e.Mode = Executable
			}
			placed[at] = e
			continue
		}
		if exists && was.isDir() {
			return nil, fmt.Errorf("put %s into the image: there is a directory at %s", wanted, e.Path)
		}
		n := node{kind: tar.TypeReg}
		if e.Link != "" {
			n = node{kind: tar.TypeSymlink, link: e.Link}
		}
		t.nodes[e.Path], placed[e.Path] = n, e
	}
	return slices.SortedFunc(maps.Values(placed), func(a, b Entry) int { return strings.Compare(a.Path, b.Path) }), nil
}

// makeDirs adds the directories of a resolved path that are missing, to the tree and to placed.
func (t *Tree) makeDirs(dir string, placed map[string]Entry) error {
	for at := ""; at != dir; {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(dir, at), "/"), "/")
		at = clean(at + "/" + name)
		switch n, ok := t.nodes[at]; {
		case !ok:
			t.nodes[at] = node{kind: tar.TypeDir}
			placed[at] = Entry{Path: at, Dir: true, Mode: Executable}
		case !n.isDir():
			return fmt.Errorf("/%s is not a directory", at)
		}
	}
	return nil
}
