package source

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/disk"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxDepth bounds how deep directories may lie in each other.
const maxDepth = 64

// tree writes a source below one directory, within bounds. Links are made last and checked when
// all else is in place, so that nothing is ever written through one. All names are slash-separated
// and relative to the top.
type tree struct {
	root    *os.Root // nil: nothing is written, only looked at
	owner   *Owner
	fate    func(name string) fate
	aside   string    // where files are put that are kept apart; empty: nowhere
	digest  hash.Hash // of all that is written; nil: none is made
	limits  limits
	entries int
	files   int
	bytes   int64
	apart   int64 // of the bytes, those that were set aside
	states  int   // files that are not part of the code, because they hold state
	links   []link
	advice  string   // on links that lead out of the source
	cut     []string // links that lead out of the source and are left out

	pointers []string // files that stand for others, which are not fetched
}

// pointerHead begins a file that git LFS keeps in place of a large one, as the specification of git LFS says.
const pointerHead = "version https://git-lfs.github.com/spec/v1\n"

type link struct{ name, target string }

// cut is the target in the copy of a link that leads out of the source: the link itself. Who reads it gets an error,
// where a missing file could be taken for one that the code can do without.
func cut(name string) string { return path.Base(name) }

// maxLinksSaid is how many links the log names.
const maxLinksSaid = 10

func newTree(r Request) (*tree, error) {
	if err := os.MkdirAll(r.Dest, 0o700); err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	root, err := os.OpenRoot(r.Dest)
	if err != nil {
		return nil, fmt.Errorf("open work directory: %w", err)
	}
	t := &tree{root: root, owner: r.Owner, aside: r.Aside, advice: adviceOn(r.Source), limits: limits{
		entries: cmp.Or(r.limits.entries, maxEntries),
		bytes:   cmp.Or(r.limits.bytes, maxBytes),
	}}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty", r.Dest)
	}
	if err == nil {
		err = t.own(".")
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("open work directory: %w", err)
	}
	return t, nil
}

func (t *tree) close() { _ = t.root.Close() }

// dir makes one directory; its parent is there already.
func (t *tree) dir(name string, perm fs.FileMode) error {
	if err := t.count(name); err != nil {
		return err
	}
	if t.fate(name+"/") != kept { // an engine takes even an empty one for a workspace's
		return nil
	}
	t.note('d', name, 0, "")
	if t.root == nil {
		return nil
	}
	if err := t.root.Mkdir(name, 0o700); err != nil {
		return writing(name, err)
	}
	// Chmod sets the bits, because Mkdir's are subject to the umask.
	if err := t.root.Chmod(name, perm.Perm()|0o700); err != nil {
		return writing(name, err)
	}
	return t.own(name)
}

// file writes one file, sets it aside or drops it, by its fate. It does not exist yet.
func (t *tree) file(name string, perm fs.FileMode, content io.Reader) error {
	if err := t.count(name); err != nil {
		return err
	}
	fate := t.fate(name)
	if t.digest != nil && (fate == kept || strings.HasSuffix(name, EnvironmentFile)) {
		t.note('f', name, perm, "")
		before := t.bytes
		content = io.TeeReader(content, t.digest)
		defer func() { fmt.Fprintf(t.digest, "\x00%d\x00", t.bytes-before) }()
	}
	switch fate {
	case aside:
		t.states++
		before := t.bytes
		defer func() { t.apart += t.bytes - before }()
		return t.setAside(name, content)
	case hollow:
		t.states++
		return t.setAside(name, strings.NewReader(""))
	case dropped:
		t.states++
		return nil
	case kept:
	}
	t.files++
	peeked := bufio.NewReaderSize(content, len(pointerHead))
	if head, _ := peeked.Peek(len(pointerHead)); string(head) == pointerHead { // an error comes again with the reading
		t.pointers = append(t.pointers, name)
	}
	content = peeked
	if t.root == nil {
		return t.copy(io.Discard, content)
	}
	return t.put(t.root, name, perm, content, t.owner)
}

// put writes one file that is not there yet. Its owner is nil for the runner's own user.
func (t *tree) put(root *os.Root, name string, perm fs.FileMode, content io.Reader, owner *Owner) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return writing(name, err)
	}
	err = t.copy(f, content)
	if err == nil {
		err = f.Chmod(perm.Perm() | 0o600)
	}
	if err == nil && owner != nil {
		err = f.Chown(owner.UID, owner.GID)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return writing(name, err)
	}
	return nil
}

// copy copies a file within the bounds of the source.
func (t *tree) copy(to io.Writer, content io.Reader) error {
	n, err := io.Copy(to, io.LimitReader(content, t.limits.bytes-t.bytes+1))
	if t.bytes += n; err == nil && t.bytes > t.limits.bytes {
		err = workflow.Refuse(workflow.ErrTooLarge, "source", "the source has more than %d MiB; leave out files that the run does not need, or name a smaller directory as the source", t.limits.bytes>>20)
	}
	return err
}

// link notes a symbolic link. One that leads out of the tree by its own text is refused, unless only tools beside the
// engine read it: such a link is cut. The digest has the link that the copy has, so that a copy of the copy has the same.
func (t *tree) link(name, target string) error {
	if err := t.count(name); err != nil {
		return err
	}
	if t.fate(name) != kept {
		t.states++
		return nil
	}
	leaves := target == "" || path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(name), target))
	switch {
	case leaves && !isForTools(path.Base(name)):
		return t.leaves(name, target)
	case leaves, target == cut(name):
		target = cut(name)
		t.cut = append(t.cut, quote(name))
	}
	t.note('l', name, 0, target)
	t.links = append(t.links, link{name, target})
	return nil
}

// isForTools reports whether a file of this name is read by linters, editors and people, and not by an engine or its
// code: one whose name is hidden, and the usual documents.
func isForTools(base string) bool {
	if strings.HasPrefix(base, ".") {
		return !strings.HasPrefix(base, ".terraform") || base == ".terraform-version"
	}
	name, _, _ := strings.Cut(base, ".")
	return path.Ext(base) == ".md" || slices.Contains([]string{
		"README", "LICENSE", "NOTICE", "CHANGELOG", "CODEOWNERS", "OWNERS", "Makefile", "Taskfile", "Justfile", "justfile",
	}, name)
}

// finish makes the links. One that leaves the tree by way of others is found only now, by
// following it as far as it goes; one that leads nowhere is harmless, and so is one that is cut.
func (t *tree) finish() error {
	for _, l := range t.links {
		if err := t.root.Symlink(l.target, l.name); err != nil { // the owner of its directory may replace it
			return writing(l.name, err)
		}
	}
	for _, l := range t.links {
		if l.target == cut(l.name) {
			continue
		}
		if _, err := t.root.Stat(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return t.leaves(l.name, l.target)
		}
	}
	return nil
}

// say writes to the log what of the source was not taken as it is.
func (t *tree) say(r Request) {
	if t.states > 0 {
		r.Log("set aside %s of engine state (*.tfstate): not part of the code", text.Count(t.states, "file"))
	}
	if len(t.cut) > 0 {
		r.Log("left out %s out of the source: %s", text.Count(len(t.cut), "link"), text.Some(t.cut, maxLinksSaid))
	}
}

// placed finishes a tree that has more than the root module, and returns the place of the root module. did is the
// verb for the log; name, which field gives, is the directory of the root module, and empty for the top.
func (t *tree) placed(r Request, did, field, name string) (Fetched, error) {
	if err := t.finish(); err != nil {
		return Fetched{}, err
	}
	r.Log("%s %s (%d bytes)", did, text.Count(t.files, "file"), t.bytes-t.apart)
	t.say(r)
	return t.module(r, field, name)
}

// module returns where the root module is, in a tree that is finished. name is as in placed.
func (t *tree) module(r Request, field, name string) (Fetched, error) {
	out := Fetched{Root: r.Dest, Aside: r.Aside, Digest: t.sum(), Pointers: t.pointers}
	if name == "" {
		return out, nil
	}
	name = path.Clean(name)
	if _, err := t.root.Stat(name); r.Made && errors.Is(err, fs.ErrNotExist) {
		out.Awaited = func() error { return made(r.Dest, field, name) }
	} else if err := directory(t.root, field, name); err != nil {
		return Fetched{}, err
	}
	module := filepath.FromSlash(name)
	if out.Root = filepath.Join(r.Dest, module); out.Aside != "" {
		out.Aside = filepath.Join(r.Aside, module)
	}
	return out, nil
}

// directory checks that the root module is there, and below the top.
func directory(top *os.Root, field, name string) error {
	info, err := top.Stat(name)
	if err != nil || !info.IsDir() {
		return workflow.Refuse(workflow.ErrNotFound, field, "the source has no directory %s", quote(name))
	}
	return nil
}

// made checks a root module that hooks have made.
func made(dest, field, name string) error {
	top, err := os.OpenRoot(dest)
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	defer func() { _ = top.Close() }()
	if err := directory(top, field, name); err != nil {
		return err
	}
	entries := 0
	return fs.WalkDir(top.FS(), name, func(name string, d fs.DirEntry, err error) error {
		if entries++; err != nil || entries > maxEntries {
			return cmp.Or(err, workflow.Refuse(workflow.ErrTooLarge, field, "the root module has more than %d files, directories and links", maxEntries))
		}
		if d.Type()&fs.ModeSymlink == 0 {
			return nil
		}
		target, _ := top.Readlink(name)
		if _, err := top.Stat(name); err == nil || errors.Is(err, fs.ErrNotExist) || target == cut(name) {
			return nil
		}
		return workflow.Refuse(workflow.ErrInvalid, field, "the symbolic link %s points to %s, outside the source: have the hook that makes it copy the file instead", quote(name), quote(target))
	})
}

func (t *tree) count(name string) error {
	t.entries++
	if t.entries > t.limits.entries {
		return workflow.Refuse(workflow.ErrTooLarge, "source", "the source has more than %d files, directories and links; leave out files that the run does not need, or name a smaller directory as the source", t.limits.entries)
	}
	if strings.Count(name, "/") >= maxDepth {
		return workflow.Refuse(workflow.ErrTooLarge, "source", "the source has directories more than %d deep", maxDepth)
	}
	return nil
}

// own gives a directory to its owner.
func (t *tree) own(name string) error {
	if t.owner == nil {
		return nil
	}
	if err := disk.GiveOne(t.root, name, t.owner.UID, t.owner.GID); err != nil {
		return writing(name, err)
	}
	return nil
}

func writing(name string, err error) error {
	// The path in an error of package os is that in the work directory, which says nothing to a user.
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	if _, refused := errors.AsType[*workflow.Error](err); refused {
		return err
	}
	return fmt.Errorf("write %s: %w", quote(name), err)
}

// adviceOn says what to do about a link that leads out of a source, so that its files stay shared.
func adviceOn(s api.Source) string {
	switch {
	case s.Git != nil:
		return "move what it points to into the repository, or into a submodule of it"
	case s.Archive != nil:
		return "make the archive of a directory above both, and name the root module in source.archive.path"
	default:
		return "name a directory above both as the source, and the one of the root module as its path (source: {directory: ../.., path: envs/prod})"
	}
}

func (t *tree) leaves(name, target string) error {
	relative := ""
	if path.IsAbs(target) {
		relative = ", and let the link begin with ../ instead of /"
	}
	return workflow.Refuse(workflow.ErrInvalid, "source", "the symbolic link %s points to %s, outside the source: %s%s", quote(name), quote(target), t.advice, relative)
}

// quote shows foreign text in an error: quoted, and cut where it is long.
func quote(s string) string { return text.Quote(s, 200) }
