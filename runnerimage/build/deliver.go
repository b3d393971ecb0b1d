package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// deliver writes the image to OUTPUT, pushes it, or gives it to the local Docker engine if neither is asked for.
func (c config) deliver(ctx context.Context, img v1.Image, temp string, out io.Writer) error {
	if c.output == "" && !c.push {
		if err := c.load(ctx, img); err != nil {
			return err
		}
	}
	if c.output != "" {
		if err := c.write(img); err != nil {
			return fmt.Errorf("write OUTPUT: %w", err)
		}
		fmt.Fprintf(out, "written to %s\n", c.output)
	}
	if c.push {
		if err := remote.Write(c.image, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push %s: %w", c.image, err)
		}
		fmt.Fprintf(out, "pushed %s\n", c.image)
	}
	if c.sbom != "" {
		if err := c.list(ctx, img, temp, out); err != nil {
			return fmt.Errorf("SBOM: %w", err)
		}
	}
	if c.signKey != "" {
		return c.sign(ctx, img, out)
	}
	return nil
}

// load gives the image to the local Docker engine.
func (c config) load(ctx context.Context, img v1.Image) error {
	if _, err := c.run(ctx, nil, "docker", "version"); err != nil {
		return errNoEngine
	}
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(tarball.Write(c.image, img, w)) }()
	defer func() { _ = r.Close() }()
	cmd := exec.CommandContext(ctx, "docker", "load", "-q")
	cmd.Env, cmd.Stdin = c.environment(), r
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("docker load: %w: %s", err, said)
	}
	return nil
}

// write writes a tar for docker load, or an OCI layout into a directory.
func (c config) write(img v1.Image) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(c.output)), 0o755); err != nil { //nolint:gosec // it holds no secret
		return err
	}
	if strings.HasSuffix(c.output, ".tar") {
		return tarball.WriteToFile(c.output, c.image, img)
	}
	return c.layout(img, c.output)
}

func (c config) layout(img v1.Image, dir string) error {
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": c.image.TagStr()}),
		layout.WithPlatform(v1.Platform{OS: "linux", Architecture: c.arch}))
}

// list writes the list of the image's contents beside OUTPUT or into dist, and attaches it to a pushed image as a
// referrer.
func (c config) list(ctx context.Context, img v1.Image, temp string, out io.Writer) error {
	syft, err := c.foreign(ctx, "syft", "")
	if err != nil {
		return err
	}
	dir := filepath.Join(temp, "scanned")
	if err := c.layout(img, dir); err != nil {
		return err
	}
	ending, media := ".spdx.json", types.MediaType("application/spdx+json")
	if c.sbom == cyclonedx {
		ending, media = ".cdx.json", "application/vnd.cyclonedx+json"
	}
	file := strings.TrimSuffix(filepath.Clean(c.output), ".tar") + ending
	if c.output == "" {
		file = filepath.Join("dist", strings.NewReplacer("/", "-", ":", "-").Replace(c.image.String())+ending)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // it holds no secret
		return err
	}
	// Nothing is asked of the network: neither for newer versions nor for licenses.
	if _, err := c.run(ctx, []string{"SYFT_CHECK_FOR_APP_UPDATE=false"}, syft, "scan", "oci-dir:"+dir, "--quiet",
		"--source-name", c.image.String(), "--source-version", c.version, "-o", c.sbom+"="+file); err != nil {
		return err
	}
	fmt.Fprintf(out, "contents listed in %s\n", file)
	if !c.push {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	subject, err := partial.Descriptor(img)
	if err != nil {
		return err
	}
	list := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), media)
	if list, err = mutate.Append(list, mutate.Addendum{Layer: static.NewLayer(content, media), MediaType: media}); err != nil {
		return err
	}
	attached, ok := mutate.Subject(list, *subject).(v1.Image)
	if !ok {
		return fmt.Errorf("attach it to %s", subject.Digest)
	}
	digest, err := attached.Digest()
	if err != nil {
		return err
	}
	if err := remote.Write(c.image.Digest(digest.String()), attached, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("attach it to %s: %w", subject.Digest, err)
	}
	fmt.Fprintf(out, "contents attached as %s\n", digest)
	return nil
}

// sign signs the pushed image. The key is named by reference: its value stays with the program that signs.
func (c config) sign(ctx context.Context, img v1.Image, out io.Writer) error {
	cosign, err := c.foreign(ctx, "cosign", "")
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	signed := c.image.Digest(digest.String()).Name()
	cmd := exec.CommandContext(ctx, cosign, "sign", "--yes", "--tlog-upload=false", "--key", c.signKey, signed)
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("sign %s: %w: %s", signed, err, said)
	}
	fmt.Fprintf(out, "signed %s\n", signed)
	return nil
}
