package docker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"
)

// File is a file of an image: where it lies on this machine, and where in the image.
type File struct{ From, To string }

// Image is an image that contains only files.
type Image struct {
	Tag        string
	Files      []File
	Links      map[string]string // symbolic links: from, to
	Path       string            // PATH of its processes
	Entrypoint []string
	Labels     map[string]string
}

// Build makes an image with the engine behind socket; empty means DefaultSocket.
func Build(ctx context.Context, socket string, image Image) error {
	if socket == "" {
		socket = DefaultSocket
	}
	e := newEngine(socket)
	defer e.close()
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(image.context(w)) }()
	defer func() { _ = r.Close() }()
	response, err := e.open(ctx, http.MethodPost, "/build", url.Values{"t": {image.Tag}, "rm": {"1"}, "forcerm": {"1"}}, r, "application/x-tar")
	if err != nil {
		return fmt.Errorf("build image %s: %w", image.Tag, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := follow(response.Body, socket); err != nil {
		return fmt.Errorf("build image %s: %w", image.Tag, err)
	}
	return nil
}

// context writes the build context: a Dockerfile, and the tree that becomes the root.
func (i Image) context(w io.Writer) error {
	quoted := func(list []string) string {
		text, _ := json.Marshal(list) // of strings: it cannot fail
		return string(text)
	}
	lines := []string{"FROM scratch", "COPY root/ /"}
	if i.Path != "" {
		lines = append(lines, "ENV PATH="+i.Path)
	}
	for name, value := range i.Labels {
		lines = append(lines, fmt.Sprintf("LABEL %q=%q", name, value))
	}
	lines = append(lines, fmt.Sprintf("USER %d:%d", DefaultUID, DefaultUID), "ENTRYPOINT "+quoted(i.Entrypoint))
	text := strings.Join(lines, "\n") + "\n"
	out := tar.NewWriter(w)
	if err := out.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	for _, f := range i.Files {
		if err := copyFile(out, f); err != nil {
			return fmt.Errorf("put %s into image: %w", f.From, err)
		}
	}
	for from, to := range i.Links {
		header := &tar.Header{Typeflag: tar.TypeSymlink, Name: path.Join("root", from), Linkname: to, Mode: 0o777, ModTime: time.Unix(0, 0)}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
	}
	return out.Close()
}

func copyFile(out *tar.Writer, f File) error {
	in, err := os.Open(f.From)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode().Perm()&0o111 != 0 {
		mode = 0o755
	}
	header := &tar.Header{Name: path.Join("root", f.To), Mode: mode, Size: info.Size(), ModTime: info.ModTime()}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(out, in, info.Size())
	return err
}
