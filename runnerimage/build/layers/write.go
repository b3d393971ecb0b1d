package layers

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is some files, and their line in the image's history.
type Layer struct {
	Name    string
	Entries []Entry
}

// Append puts layers onto a base, each over those before it. Nothing in them is younger than created.
func Append(base v1.Image, layers []Layer, created time.Time) (v1.Image, error) {
	tree, err := Read(base)
	if err != nil {
		return nil, err
	}
	manifest, err := base.Manifest()
	if err != nil {
		return nil, err
	}
	media := types.OCILayer
	if manifest.MediaType == types.DockerManifestSchema2 {
		media = types.DockerLayer
	}
	var adds []mutate.Addendum
	for _, l := range layers {
		entries, err := tree.Place(l.Entries)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			continue
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			r, w := io.Pipe()
			go func() { _ = w.CloseWithError(write(w, entries, created)) }()
			return r, nil
		}, tarball.WithCompressedCaching, tarball.WithMediaType(media))
		if err != nil {
			return nil, fmt.Errorf("write the layer %s: %w", l.Name, err)
		}
		adds = append(adds, mutate.Addendum{Layer: layer, MediaType: media, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "dayfly: " + l.Name}})
	}
	return mutate.Append(base, adds...)
}

// write writes a tar that depends on nothing but its entries.
func write(w io.Writer, entries []Entry, created time.Time) error {
	out := tar.NewWriter(w)
	for _, e := range entries {
		header := &tar.Header{Format: tar.FormatPAX, Name: e.Path, Mode: e.Mode, Uid: e.User, Gid: e.User, ModTime: created}
		switch {
		case e.Dir:
			header.Typeflag, header.Name = tar.TypeDir, e.Path+"/"
		case e.Link != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.Link, 0o777
		case e.From != "":
			if err := copyFile(out, header, e.From); err != nil {
				return err
			}
			continue
		default:
			header.Typeflag, header.Size = tar.TypeReg, int64(len(e.Data))
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(e.Data); err != nil {
			return err
		}
	}
	return out.Close()
}

func copyFile(out *tar.Writer, header *tar.Header, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(out, in, info.Size())
	return err
}
