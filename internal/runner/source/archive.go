package source

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Objects opens objects of a bucket. An empty region means that of the machine. Its errors are sentences without any
// secret, classified as those of Fetch.
type Objects interface {
	Object(ctx context.Context, region, bucket, key string) (io.ReadCloser, error)
}

// fetchArchive fetches a file, checks its digest, and only then looks into it.
func fetchArchive(ctx context.Context, r Request) (_ Fetched, err error) {
	a := *r.Source.Archive
	want, err := hex.DecodeString(a.SHA256)
	if err != nil || len(want) != sha256.Size {
		return Fetched{}, workflow.Refuse(workflow.ErrInvalid, "source.archive.sha256", "want the 64 hexadecimal digits of the archive's SHA-256")
	}
	file, err := os.CreateTemp(r.TempDir, "archive-")
	if err != nil {
		return Fetched{}, fmt.Errorf("make temporary file: %w", err)
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }()
	body, err := openArchive(ctx, r)
	if err != nil {
		return Fetched{}, err
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, sum), &limited{body, maxBytes})
	_ = body.Close()
	switch {
	case context.Cause(ctx) != nil:
		return Fetched{}, fmt.Errorf("fetch %s: %w", quote(a.URL), context.Cause(ctx))
	case errors.Is(err, errTooMuch):
		return Fetched{}, workflow.Refuse(workflow.ErrTooLarge, "source.archive.url", "%s has more than %d MiB", quote(a.URL), maxBytes>>20)
	case err != nil:
		return Fetched{}, fmt.Errorf("fetch %s: %w", quote(a.URL), err)
	case !bytes.Equal(sum.Sum(nil), want):
		return Fetched{}, workflow.Refuse(workflow.ErrInvalid, "source.archive.sha256", "%s has the SHA-256 %x and not %s: it was replaced, or the workspace names another file; nothing of it was used",
			quote(a.URL), sum.Sum(nil), strings.ToLower(a.SHA256))
	}
	r.Log("fetched %s (%d bytes), with the SHA-256 of the workspace's settings", quote(a.URL), size)

	to, err := newTree(r)
	if err != nil {
		return Fetched{}, err
	}
	defer to.close()
	to.fate = ofRepository(a.Path)
	if err := (&unpacker{to: to, made: map[string]bool{".": true}}).unpack(ctx, file, size); err != nil {
		return Fetched{}, err
	}
	out, err := to.placed(r, "unpacked", "source.archive.path", a.Path)
	out.Digest = hex.EncodeToString(want)
	return out, err
}

// openArchive begins to read the archive from where it is.
func openArchive(ctx context.Context, r Request) (io.ReadCloser, error) {
	a := *r.Source.Archive
	u, err := url.Parse(a.URL)
	if err != nil || u.Host == "" {
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.archive.url", "%s is not the address of an archive", quote(a.URL))
	}
	switch u.Scheme {
	case "s3":
		if r.Objects == nil {
			return nil, workflow.Refuse(workflow.ErrUnsupported, "source.archive.url", "this runner has no identity in AWS to read %s with: use a pool on AWS, or https", quote(a.URL))
		}
		return r.Objects.Object(ctx, a.Region, u.Host, strings.TrimPrefix(u.Path, "/"))
	case "https", "http": // the control plane lets http pass for this machine only
		token, err := resolveRef(ctx, r, "source.archive.token_ref", a.TokenRef)
		if err != nil {
			return nil, err
		}
		return download(ctx, u, token, r.caPEM)
	default:
		return nil, workflow.Refuse(workflow.ErrInvalid, "source.archive.url", "the scheme is https or s3, not %s", quote(u.Scheme))
	}
}

// unpacker writes the entries of an archive into a tree.
type unpacker struct {
	to   *tree
	made map[string]bool // directories
}

// unpack finds out the format of a file by its first bytes. size is its length.
func (p *unpacker) unpack(ctx context.Context, file *os.File, size int64) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	in := bufio.NewReader(file)
	begin, _ := in.Peek(4)
	var err error
	switch {
	case bytes.HasPrefix(begin, []byte("PK")):
		err = p.zip(ctx, file, size)
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(in); err == nil {
			err = p.tar(ctx, plain)
		}
	default:
		err = p.tar(ctx, in)
	}
	if _, refused := errors.AsType[*workflow.Error](err); err == nil || refused || context.Cause(ctx) != nil {
		return err
	}
	return workflow.Refuse(workflow.ErrInvalid, "source.archive", "the archive cannot be read as a tar, tar.gz or zip file: %s", text.Cut(err.Error(), 200))
}

func (p *unpacker) tar(ctx context.Context, in io.Reader) error {
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader: // git archive notes the commit there
			continue
		case tar.TypeDir, tar.TypeReg, tar.TypeSymlink:
		default:
			return workflow.Refuse(workflow.ErrInvalid, "source.archive", "%s is not a file, directory or symbolic link (type %q); leave it out of the archive", quote(h.Name), h.Typeflag)
		}
		if err := p.entry(ctx, h.Name, h.FileInfo().Mode(), h.Linkname, archive); err != nil {
			return err
		}
	}
}

func (p *unpacker) zip(ctx context.Context, file io.ReaderAt, size int64) error {
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return err
	}
	for _, f := range archive.File {
		if err := p.zipped(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (p *unpacker) zipped(ctx context.Context, f *zip.File) error {
	content, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	target := ""
	if f.Mode()&fs.ModeSymlink != 0 {
		const maxTarget = 4096
		b, err := io.ReadAll(io.LimitReader(content, maxTarget))
		if err != nil {
			return err
		}
		target = string(b)
	}
	return p.entry(ctx, f.Name, f.Mode(), target, content)
}

// entry writes one entry, with the directories above it that the archive did not name.
func (p *unpacker) entry(ctx context.Context, name string, mode fs.FileMode, target string, content io.Reader) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	clean := path.Clean(name)
	if name == "" || strings.ContainsAny(name, "\\\x00") || !filepath.IsLocal(filepath.FromSlash(clean)) {
		return workflow.Refuse(workflow.ErrInvalid, "source.archive", "the archive has an entry named %s, which leads out of it; such an archive is not unpacked", quote(name))
	}
	if parts := strings.Split(clean, "/"); slices.ContainsFunc(parts, leftOut) {
		return nil
	}
	if err := p.above(clean); err != nil {
		return err
	}
	switch {
	case mode.IsDir():
		return p.directory(clean, mode)
	case mode&fs.ModeSymlink != 0:
		return p.to.link(clean, target)
	case mode.IsRegular():
		return p.to.file(clean, mode, content)
	default:
		return workflow.Refuse(workflow.ErrInvalid, "source.archive", "%s is not a file, directory or link (%s); leave it out of the archive", quote(name), mode.Type())
	}
}

// leftOut names directories of tools, which hold credentials or files of one machine.
func leftOut(name string) bool { return name == ".git" || name == ".terraform" }

func (p *unpacker) above(name string) error {
	dir := path.Dir(name)
	if p.made[dir] {
		return nil
	}
	if err := p.above(dir); err != nil {
		return err
	}
	return p.directory(dir, 0o755)
}

func (p *unpacker) directory(name string, mode fs.FileMode) error {
	if p.made[name] {
		return nil
	}
	p.made[name] = true
	return p.to.dir(name, mode)
}
