package layers

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func refuse(format string, args ...any) error {
	return workflow.Refuse(workflow.ErrInvalid, "BASE", format, args...)
}

// Open opens a base for linux on arch (amd64, arm64). It must be pinned by a digest: NAME@sha256:... in a registry,
// or PATH@sha256:... here, where PATH begins with / or a dot. A PATH is an OCI layout and the digest of its manifest or index, or
// a file and its SHA-256: an image as `docker save` writes it, or a root file system as a tar, both perhaps gzipped.
// Empty is an image without files. Credentials of a registry are those of Docker's configuration.
func Open(ctx context.Context, base, arch string) (v1.Image, error) {
	if base == "" {
		return nothing(arch)
	}
	ref, digest, _ := strings.Cut(base, "@")
	here := strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, ".")
	if !digestForm.MatchString(digest) {
		fix := "docker buildx imagetools inspect " + ref + " shows it"
		if here {
			fix = "for a file sha256sum shows it, for an OCI layout its index.json"
		}
		return nil, refuse("%s is not exact, because a name can be moved to another image: write BASE=%s@sha256:... (%s)", base, ref, fix)
	}
	img, err := open(ctx, ref, digest, arch, here)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the base %s: %w", base, err)
	}
	if config.Architecture != arch || config.OS != "linux" {
		return nil, refuse("%s is for %s/%s and the image is for linux/%s: name the base of that architecture, or set GOARCH=%[3]s",
			base, config.OS, config.Architecture, arch)
	}
	return img, nil
}

func open(ctx context.Context, ref, digest, arch string, here bool) (v1.Image, error) {
	platform := v1.Platform{OS: "linux", Architecture: arch}
	if !here {
		named, err := name.NewDigest(ref + "@" + digest)
		if err != nil {
			return nil, refuse("%v", err)
		}
		img, err := remote.Image(named, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithPlatform(platform))
		if err != nil {
			return nil, fmt.Errorf("fetch the base: %w", err)
		}
		return img, nil
	}
	info, err := os.Stat(ref)
	if err != nil {
		return nil, refuse("%v", err)
	}
	if info.IsDir() {
		return fromLayout(ref, digest, platform)
	}
	return fromFile(ref, digest, arch)
}

// nothing is an image of no files. It has the media types of OCI.
func nothing(arch string) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: arch, RootFS: v1.RootFS{Type: "layers"}})
}

func fromLayout(dir, digest string, platform v1.Platform) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, refuse("%s is not an OCI layout: %v", dir, err)
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	if img, err := index.Image(hash); err == nil {
		return img, nil
	}
	inner, err := index.ImageIndex(hash)
	if err != nil {
		return nil, refuse("the OCI layout %s has no image %s: its index.json names those that it has", dir, digest)
	}
	manifest, err := inner.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.Satisfies(platform) {
			return inner.Image(m.Digest)
		}
	}
	return nil, refuse("%s of the OCI layout %s has no image for %s", digest, dir, platform)
}

func fromFile(file, digest, arch string) (v1.Image, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, refuse("%v", err)
	}
	defer func() { _ = in.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return nil, err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return nil, refuse("%s has the digest %s, and not %s", file, got, digest)
	}
	saved, err := isSaved(file)
	if err != nil {
		return nil, refuse("%s is not a tar: %v", file, err)
	}
	if saved {
		img, err := tarball.Image(func() (io.ReadCloser, error) { return unzipped(file) }, nil)
		if err != nil {
			return nil, refuse("%s: %v (save one image, by its name and tag)", file, err)
		}
		return img, nil
	}
	img, err := nothing(arch)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return unzipped(file) }, tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{CreatedBy: "a root file system, " + digest}})
}

// isSaved reports whether a tar is a saved image, which has a manifest.json, and not a root file system.
func isSaved(file string) (bool, error) {
	in, err := unzipped(file)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }()
	files := tar.NewReader(in)
	some := false
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) && some {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if some = true; path.Clean(header.Name) == "manifest.json" {
			return true, nil
		}
	}
}

// unzipped opens a file, and undoes gzip if it is gzipped.
func unzipped(file string) (io.ReadCloser, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(f)
	type both struct {
		io.Reader
		io.Closer
	}
	if magic, _ := in.Peek(2); string(magic) != "\x1f\x8b" {
		return both{in, f}, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return both{z, f}, nil
}
