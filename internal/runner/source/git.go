package source

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// defaultUsername is the user name of a token that has none; the large hosts accept it.
const defaultUsername = "x-access-token"

// remote is one conversation with a git server: its references, then one pack.
type remote interface {
	AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error)
	UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
	Close() error
}

func fetchGit(ctx context.Context, r Request) (_ Fetched, err error) {
	g := *r.Source.Git
	a, err := checkGit(g)
	if err != nil {
		return Fetched{}, err
	}
	c := checkout{Request: r, git: g, home: a}
	if c.credential, err = resolveCredential(ctx, r, g); err != nil {
		return Fetched{}, err
	}
	if c.to, err = newTree(r); err != nil {
		return Fetched{}, err
	}
	defer c.to.close()
	c.to.fate = ofRepository(filepath.ToSlash(g.Path))
	commit, err := c.take(ctx, repository{url: a, dir: ".", choose: func(adv *packp.AdvRefs) (want, error) { return choose(adv, g) }})
	if err == nil {
		err = c.takeSubmodules(ctx)
	}
	if err != nil {
		return Fetched{}, err
	}
	out, err := c.to.placed(r, "checked out", "source.git.path", filepath.ToSlash(g.Path))
	out.Commit = commit
	return out, err
}

// checkout is a source that is being checked out, with its submodules.
type checkout struct {
	Request
	git        api.GitSource
	home       address // of the source itself
	credential string  // for its host
	to         *tree
	waiting    []repository // submodules that were found
	found      int          // submodules so far
}

// repository is a repository that is checked out into one directory of the tree: the source, or one of its
// submodules.
type repository struct {
	url    address
	dir    string // in the tree
	depth  int    // how many repositories it is a submodule of
	choose func(adv *packp.AdvRefs) (want, error)
}

// take checks out one repository, and returns its commit. It removes the fetched objects.
func (c *checkout) take(ctx context.Context, repo repository) (string, error) {
	temp, err := os.MkdirTemp(c.TempDir, "git-")
	if err != nil {
		return "", fmt.Errorf("make temporary directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	credential := ""
	if repo.url.sameHost(c.home) {
		credential = c.credential
	}
	var open func(ctx context.Context) (remote, error)
	if repo.url.scheme == "ssh" {
		open, err = sshRemote(repo.url, c.git, credential, temp)
	} else {
		open, err = httpRemote(repo.url, c.git, credential, c.caPEM)
	}
	if err != nil {
		return "", err
	}
	f := fetcher{url: repo.url, open: open, temp: temp, objects: filesystem.NewStorageWithOptions(
		osfs.New(filepath.Join(temp, "objects")), cache.NewObjectLRU(8<<20), filesystem.Options{LargeObjectThreshold: 1 << 20},
	)}
	defer func() { _ = f.objects.Close() }()
	commit, name, err := f.fetch(ctx, repo.choose)
	if err != nil {
		return "", f.explain(ctx, err, credential)
	}
	c.Log("commit %s of %s%s", commit.Hash, repo.url, name)
	top, err := commit.Tree()
	if err == nil {
		err = writeTree(ctx, top, repo.dir, c.to, c.submodulesOf(top, repo))
	}
	if err != nil {
		return "", f.explain(ctx, err, credential)
	}
	return commit.Hash.String(), nil
}

// resolveCredential returns the token or key, and masks it before anything can print it.
func resolveCredential(ctx context.Context, r Request, g api.GitSource) (string, error) {
	field, ref := "token_ref", g.TokenRef
	if g.SSHKeyRef != "" {
		field, ref = "ssh_key_ref", g.SSHKeyRef
	}
	return resolveRef(ctx, r, "source.git."+field, ref)
}

// resolveRef returns the secret that a field's reference names, and masks it; empty if there is no reference.
func resolveRef(ctx context.Context, r Request, field, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	if r.Secrets == nil {
		return "", fmt.Errorf("%w: %s: this runner has no secrets", ErrCredential, field)
	}
	value, err := r.Secrets.Resolve(ctx, ref)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrCredential, field, err)
	}
	credential := value.Reveal()
	if strings.HasSuffix(field, ".token_ref") {
		// A token never has a line end, and a file of one nearly always does.
		credential = strings.TrimSpace(credential)
		if hasControl(credential) {
			return "", fmt.Errorf("%w: %s: %s holds more than one line", ErrCredential, field, quote(ref))
		}
	}
	if credential == "" {
		return "", fmt.Errorf("%w: %s: %s is empty", ErrCredential, field, quote(ref))
	}
	r.Mask(credential)
	return credential, nil
}

// fetcher brings the objects of one commit to disk.
type fetcher struct {
	url     address
	open    func(ctx context.Context) (remote, error)
	objects *filesystem.Storage
	temp    string // directory for a pack on its way there
}

// want is the object that a ref asks the server for.
type want struct {
	hash plumbing.Hash // fetched without its history; zero means that it is looked for in the whole history
	tip  bool          // hash is advertised, so every server serves it
	name string        // for errors
	part string        // the prefix of the commit's hash, to search for it in the history
	said string        // for the log, why it was chosen
}

var hexRef = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{7,40}$`) })

// choose finds the commit of a source among the branches, tags and commits that the server has.
func choose(adv *packp.AdvRefs, g api.GitSource) (want, error) {
	if g.Version != "" {
		return chooseVersion(adv, g.Version)
	}
	ref := g.Ref
	if ref == "" || ref == "HEAD" {
		if adv.Head == nil {
			return want{}, workflow.Refuse(workflow.ErrNotFound, "source.git.ref", "the repository has no default branch; name a branch, tag or commit in ref")
		}
		return want{hash: *adv.Head, tip: true, name: "HEAD"}, nil
	}
	if hash, ok := adv.References[ref]; ok && strings.HasPrefix(ref, "refs/") {
		return want{hash: hash, tip: true, name: ref}, nil
	}
	branch, isBranch := adv.References["refs/heads/"+ref]
	tag, isTag := adv.References["refs/tags/"+ref]
	switch {
	case isBranch && isTag && branch != tag:
		return want{}, workflow.Refuse(workflow.ErrInvalid, "source.git.ref", "the repository has both a branch and a tag %s; write refs/heads/%s or refs/tags/%s", quote(ref), ref, ref)
	case isBranch:
		return want{hash: branch, tip: true, name: "branch " + ref}, nil
	case isTag:
		return want{hash: tag, tip: true, name: "tag " + ref}, nil
	}
	commit := strings.ToLower(ref)
	switch {
	case !hexRef().MatchString(commit):
		return want{}, missing(ref)
	case len(commit) < 40:
		return want{name: "commit " + commit, part: commit}, nil
	}
	return chooseCommit(adv, plumbing.NewHash(commit)), nil
}

// chooseCommit asks for one commit, by no name.
func chooseCommit(adv *packp.AdvRefs, hash plumbing.Hash) want {
	tip := slices.Contains(slices.Collect(maps.Values(adv.References)), hash)
	return want{hash: hash, tip: tip, name: "commit " + hash.String(), part: hash.String()}
}

func missing(ref string) error {
	return workflow.Refuse(workflow.ErrNotFound, "source.git.ref", "the repository has no branch, tag or commit %s", quote(ref))
}

// fetch fetches the objects of the chosen commit, without its history if the server allows that. said is for the log.
func (f *fetcher) fetch(ctx context.Context, choose func(adv *packp.AdvRefs) (want, error)) (_ *object.Commit, said string, err error) {
	session, adv, err := f.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = session.Close() }()
	w, err := choose(adv)
	if err != nil {
		return nil, "", err
	}
	canAsk := w.tip || adv.Capabilities.Supports(capability.AllowReachableSHA1InWant) || adv.Capabilities.Supports(capability.Capability("allow-any-sha1-in-want"))
	if !w.hash.IsZero() && canAsk {
		err := f.pack(ctx, session, adv, []plumbing.Hash{w.hash}, true)
		if err == nil {
			commit, err := f.commit(w.hash, w.name)
			return commit, w.said, err
		}
		if w.tip || context.Cause(ctx) != nil {
			return nil, "", err
		}
		// The server offers to look for any commit, and did not find this one. It may still be in the history,
		// which a new conversation fetches.
		again, all, err := f.begin(ctx)
		if err != nil {
			return nil, "", err
		}
		_ = session.Close()
		session, adv = again, all
	}
	if err := f.pack(ctx, session, adv, tips(adv), false); err != nil {
		return nil, "", err
	}
	hash, err := f.find(w.part)
	if err != nil {
		return nil, "", err
	}
	commit, err := f.commit(hash, w.name)
	return commit, w.said, err
}

// begin opens a conversation.
func (f *fetcher) begin(ctx context.Context) (remote, *packp.AdvRefs, error) {
	session, err := f.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	adv, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		_ = session.Close()
		return nil, nil, err
	}
	return session, adv, nil
}

// tips returns every branch and tag.
func tips(adv *packp.AdvRefs) []plumbing.Hash {
	var hashes []plumbing.Hash
	for name, hash := range adv.References {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/") {
			hashes = append(hashes, hash)
		}
	}
	slices.SortFunc(hashes, func(a, b plumbing.Hash) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(hashes)
}

// find looks a commit up by the beginning of its hash.
func (f *fetcher) find(prefix string) (plumbing.Hash, error) {
	// The storage compares whole bytes; a half one at the end is compared here.
	whole, err := hex.DecodeString(prefix[:len(prefix)/2*2])
	if err != nil {
		return plumbing.ZeroHash, missing(prefix)
	}
	hashes, err := f.objects.HashesWithPrefix(whole)
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("look for commit %s: %w", prefix, err)
	}
	var found []plumbing.Hash
	for _, h := range hashes {
		if !strings.HasPrefix(h.String(), prefix) || slices.Contains(found, h) {
			continue
		}
		if _, err := object.GetCommit(f.objects, h); err == nil {
			found = append(found, h)
		}
	}
	switch len(found) {
	case 0:
		return plumbing.ZeroHash, missing(prefix)
	case 1:
		return found[0], nil
	default:
		return plumbing.ZeroHash, workflow.Refuse(workflow.ErrInvalid, "source.git.ref", "%d commits begin with %s; write more of it", len(found), quote(prefix))
	}
}

// commit reads a commit, by way of the tags that point to it.
func (f *fetcher) commit(hash plumbing.Hash, name string) (*object.Commit, error) {
	const maxTagDepth = 10 // tags of tags
	for range maxTagDepth {
		commit, err := object.GetCommit(f.objects, hash)
		if err == nil {
			return commit, nil
		}
		tag, tagErr := object.GetTag(f.objects, hash)
		if tagErr != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		hash = tag.Target
	}
	return nil, workflow.Refuse(workflow.ErrInvalid, "source.git.ref", "%s is a tag of tags that leads to no commit", name)
}

// writeTree writes one directory of a commit, and those below it. It calls submodule with the place and the commit of
// each submodule.
func writeTree(ctx context.Context, from *object.Tree, dir string, to *tree, submodule func(name string, commit plumbing.Hash) error) error {
	for _, e := range from.Entries {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := checkEntry(dir, e.Name); err != nil {
			return err
		}
		name := path.Join(dir, e.Name)
		switch e.Mode {
		case filemode.Dir:
			if err := to.dir(name, 0o755); err != nil {
				return err
			}
			sub, err := from.Tree(e.Name)
			if err != nil {
				return fmt.Errorf("read tree %s: %w", quote(name), err)
			}
			if err := writeTree(ctx, sub, name, to, submodule); err != nil {
				return err
			}
		case filemode.Submodule:
			if err := to.dir(name, 0o755); err != nil {
				return err
			}
			if err := submodule(name, e.Hash); err != nil {
				return err
			}
		case filemode.Symlink, filemode.Regular, filemode.Deprecated, filemode.Executable:
			if err := writeBlob(from, e, name, to); err != nil {
				return err
			}
		default:
			return workflow.Refuse(workflow.ErrInvalid, "source.git", "%s has a mode that git does not know", quote(name))
		}
	}
	return nil
}

func writeBlob(from *object.Tree, e object.TreeEntry, name string, to *tree) error {
	file, err := from.TreeEntryFile(&e)
	if err != nil {
		return fmt.Errorf("read %s: %w", quote(name), err)
	}
	content, err := file.Reader()
	if err != nil {
		return fmt.Errorf("read %s: %w", quote(name), err)
	}
	defer func() { _ = content.Close() }()
	switch e.Mode {
	case filemode.Symlink:
		const maxTarget = 4096
		target, err := io.ReadAll(io.LimitReader(content, maxTarget))
		if err != nil {
			return fmt.Errorf("read %s: %w", quote(name), err)
		}
		return to.link(name, string(target))
	case filemode.Executable:
		return to.file(name, 0o755, content)
	default:
		return to.file(name, 0o644, content)
	}
}

// checkEntry refuses names that git itself never writes into a tree.
func checkEntry(dir, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || strings.EqualFold(name, ".git") {
		return workflow.Refuse(workflow.ErrInvalid, "source.git", "the repository has an entry named %s in %s; such a tree is not checked out", quote(name), quote(dir))
	}
	return nil
}

// explain turns an error of a transport into a sentence, without the credential, which a server may have repeated in
// its message.
func (f *fetcher) explain(ctx context.Context, err error, credential string) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("fetch %s: %w", f.url, cause)
	}
	if _, ok := errors.AsType[*workflow.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, transport.ErrAuthenticationRequired) && credential == "":
		return workflow.Refuse(workflow.ErrForbidden, "source.git", "%s asks for credentials: name a secret in token_ref", f.url)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return workflow.Refuse(workflow.ErrForbidden, "source.git", "%s does not accept the credentials", f.url)
	case errors.Is(err, transport.ErrRepositoryNotFound) && credential == "":
		return workflow.Refuse(workflow.ErrNotFound, "source.git.url", "there is no repository %s, or it is private: then name a secret in token_ref", f.url)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return workflow.Refuse(workflow.ErrNotFound, "source.git.url", "there is no repository %s that these credentials can read", f.url)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return workflow.Refuse(workflow.ErrNotFound, "source.git.url", "the repository %s is empty", f.url)
	case errors.Is(err, errTooMuch):
		return workflow.Refuse(workflow.ErrTooLarge, "source.git.url", "%s sent more than %d MiB", f.url, maxBytes>>20)
	}
	why := err.Error()
	if credential != "" {
		why = strings.ReplaceAll(why, credential, "[redacted]")
	}
	return fmt.Errorf("fetch %s: %s", f.url, text.Cut(why, 500))
}
