package layers

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Path is the PATH of programs in the image.
const Path = "/usr/local/bin:/usr/bin:/bin"

// Find returns where a program lies in a file system, or "": a name is looked up on Path, and a|b is whichever is there
// first.
func (t *Tree) Find(program string) string {
	for _, name := range strings.Split(program, "|") {
		dirs := strings.Split(Path, ":")
		if strings.Contains(name, "/") {
			dirs = []string{"/"}
		}
		for _, dir := range dirs {
			p := path.Join(dir, name)
			if at, ok := t.Resolve(p); ok && !t.nodes[at].isDir() {
				return p
			}
		}
	}
	return ""
}

// Files returns the content of files of an image by the path that was asked for; those that are not there are missing.
func (t *Tree) Files(img v1.Image, paths ...string) (map[string][]byte, error) {
	wanted := map[string][]string{}
	for _, p := range paths {
		if at, ok := t.Resolve(p); ok && t.nodes[at].kind == tar.TypeReg {
			wanted[at] = append(wanted[at], p)
		}
	}
	got := map[string][]byte{}
	err := walk(img, func(header *tar.Header, r io.Reader) error {
		asked := wanted[clean(header.Name)]
		if len(asked) == 0 {
			return nil
		}
		b, err := io.ReadAll(r)
		for _, p := range asked {
			got[p] = b
		}
		return err
	})
	return got, err
}

// Missing lists the parts that a task needs and that a finished image lacks: each of the programs, for arch and with
// its loader, and CA certificates.
func Missing(img v1.Image, arch string, programs ...string) (lacks []string, err error) {
	tree, err := Read(img)
	if err != nil {
		return nil, err
	}
	asked := []string{tree.Bundle()}
	var found []string
	for _, p := range programs {
		if at := tree.Find(p); at != "" {
			found = append(found, at)
		} else {
			lacks = append(lacks, "it has no "+strings.ReplaceAll(p, "|", " or "))
		}
	}
	files, err := tree.Files(img, append(asked, found...)...)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		content := files[p]
		if bytes.HasPrefix(content, []byte("#!")) {
			continue
		}
		loader, err := Loader(bytes.NewReader(content), arch)
		if err != nil {
			lacks = append(lacks, fmt.Sprintf("its %s does not run on linux/%s: %v", p, arch, err))
			continue
		}
		if _, there := tree.Resolve(loader); !there {
			lacks = append(lacks, fmt.Sprintf("its %s is not statically linked, and needs %s, which is not there", p, loader))
		}
	}
	if len(Certificates(files[asked[0]])) == 0 {
		lacks = append(lacks, "it has no CA certificates")
	}
	return lacks, nil
}

// Loader returns the loader that a program of Linux for arch needs, or "" if it is statically linked. The error says why it is
// not such a program.
func Loader(program io.ReaderAt, arch string) (string, error) {
	machine, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if !ok {
		return "", fmt.Errorf("%s is not an architecture of tasks", arch)
	}
	f, err := elf.NewFile(program)
	if err != nil {
		return "", errors.New("it is not an ELF program")
	}
	if f.Machine != machine {
		return "", fmt.Errorf("it is for %s", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(b), "\x00"), err
		}
	}
	return "", nil
}

// Size is the sum of an image's compressed layers, in bytes.
func Size(img v1.Image) (int64, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	var size int64
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return size, nil
}
