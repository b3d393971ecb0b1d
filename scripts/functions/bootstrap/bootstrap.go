// Package bootstrap builds the Lambda functions as Lambda's provided.al2023 runtime wants them: a
// static binary called bootstrap, with the licenses of its content beside it, and a zip of them that
// depends on nothing but the source. It deploys nothing.
package bootstrap

import (
	"archive/zip"
	"cmp"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Name is what Lambda's OS-only runtimes start.
const Name = "bootstrap"

// Licenses are the files of the root that ship with every function.
var Licenses = []string{"LICENSE", "THIRD_PARTY_LICENSES.txt"}

// Config says what to build for whom.
type Config struct {
	Root    string // the root of the module; the working directory of the go command
	Out     string // where the artifacts go: OUT/NAME/bootstrap and OUT/NAME.zip
	Arch    string // GOARCH; empty means this machine's
	Version string // what main.version becomes; empty means "unknown"
	NoZip   bool   // leave the zips out
	Flat    bool   // the files of the one function go right into Out
}

// Artifact is one built function.
type Artifact struct {
	Name      string // the last element of its package
	Bootstrap string // absolute path of the binary
	Zip       string // absolute path of the zip; empty with Config.NoZip
}

// Functions lists the packages of the functions of this module, as the go command takes them: every
// directory functions/NAME with a main.go.
func Functions(root string) ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(root, "functions", "*", "main.go"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range mains {
		out = append(out, "./functions/"+filepath.Base(filepath.Dir(m)))
	}
	slices.Sort(out)
	return out, nil
}

// Build compiles and links the packages in one call of the go command and puts each in its place.
// Two packages of the same last element are refused. It answers in the order of the packages.
func Build(ctx context.Context, cfg Config, packages ...string) (out []Artifact, err error) {
	if len(packages) == 0 {
		return nil, errors.New("build functions: there is none to build")
	}
	outDir, err := filepath.Abs(cfg.Out)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(outDir, 0o755); err != nil { //nolint:gosec // what is shipped is for everybody
		return nil, err
	}
	temp, err := os.MkdirTemp(outDir, ".build-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := compile(ctx, cfg, temp, packages); err != nil {
		return nil, err
	}
	for _, p := range packages {
		a := Artifact{Name: path.Base(p)}
		if slices.ContainsFunc(out, func(o Artifact) bool { return o.Name == a.Name }) {
			return nil, fmt.Errorf("build functions: two packages are called %s", a.Name)
		}
		if err := place(&a, cfg, temp, outDir); err != nil {
			return nil, fmt.Errorf("build function %s: %w", a.Name, err)
		}
		out = append(out, a)
	}
	return out, nil
}

// pages is the package of the console. Its functions are not inlined: each component of a page would be in the binary
// once more for every place that uses it, and they take longer to load than to call.
const pages = "github.com/dayfly-dev/dayfly/internal/console"

// compile builds every package into dir, named by its last element. The build knows nothing of the
// machine, of the path and of the state of the work tree; what differs between two is the version.
func compile(ctx context.Context, cfg Config, dir string, packages []string) error {
	args := []string{
		"build", "-tags", "lambda.norpc", "-trimpath", "-buildvcs=false",
		"-gcflags", pages + "=-l", "-ldflags", "-s -w -X main.version=" + cmp.Or(cfg.Version, "unknown"),
		"-o", dir + string(filepath.Separator),
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...) //nolint:gosec // packages of this module
	cmd.Dir = cfg.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+cmp.Or(cfg.Arch, runtime.GOARCH))
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build functions: %w\n%s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

func place(a *Artifact, cfg Config, temp, out string) error {
	home := filepath.Join(out, a.Name)
	if cfg.Flat {
		home = out
	}
	if err := os.MkdirAll(home, 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	a.Bootstrap = filepath.Join(home, Name)
	if err := os.Rename(filepath.Join(temp, a.Name), a.Bootstrap); err != nil {
		return err
	}
	for _, name := range Licenses {
		text, err := os.ReadFile(filepath.Join(cfg.Root, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(home, name), text, 0o644); err != nil { //nolint:gosec // as above
			return err
		}
	}
	if cfg.NoZip {
		return nil
	}
	// Written aside and moved: who uploads it never sees half of it.
	half := filepath.Join(temp, a.Name+".zip")
	if err := pack(home, half); err != nil {
		return err
	}
	a.Zip = filepath.Join(out, a.Name+".zip")
	return os.Rename(half, a.Zip)
}

// epoch is the time of every file in a zip: the earliest that the format can tell.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack writes a zip of a function's files, and is the same bytes for the same files.
func pack(home, name string) (err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // what is shipped is for everybody
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	z := zip.NewWriter(file)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	// Lambda runs the file only where its mode in the zip says that everybody may.
	if err := add(z, home, Name, 0o755); err != nil {
		return err
	}
	for _, license := range Licenses {
		if err := add(z, home, license, 0o644); err != nil {
			return err
		}
	}
	return z.Close()
}

func add(z *zip.Writer, dir, name string, mode fs.FileMode) error {
	in, err := os.Open(filepath.Join(dir, name)) //nolint:gosec // made above
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: epoch}
	header.SetMode(mode)
	w, err := z.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
