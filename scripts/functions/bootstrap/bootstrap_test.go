package bootstrap_test

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
)

const root = "../../.."

func build(t *testing.T, arch string) (bootstrap.Artifact, []byte) {
	t.Helper()
	cfg := bootstrap.Config{Root: root, Out: t.TempDir(), Arch: arch, Version: "v1.2.3-test"}
	got, err := bootstrap.Build(t.Context(), cfg, "./scripts/functions/bootstrap/testdata/hello")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Name != "hello" || got[0].Bootstrap != filepath.Join(cfg.Out, "hello", "bootstrap") {
		t.Fatalf("artifacts %+v, want hello alone, under %s", got, cfg.Out)
	}
	data, err := os.ReadFile(got[0].Zip)
	if err != nil {
		t.Fatal(err)
	}
	return got[0], data
}

// The same source gives the same bytes, so that a deployment uploads only what changed.
func TestBuild_IsReproducible(t *testing.T) {
	_, first := build(t, "")
	_, second := build(t, "")
	if !bytes.Equal(first, second) {
		t.Errorf("two builds of the same source differ: %d and %d bytes", len(first), len(second))
	}
}

func TestBuild_MakesWhatLambdaStarts(t *testing.T) {
	a, data := build(t, "arm64")
	binary, err := elf.Open(a.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	if binary.Machine != elf.EM_AARCH64 {
		t.Errorf("built for %s, want arm64", binary.Machine)
	}
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("links %v (%v), want a static binary", libraries, err)
	}
	content, err := os.ReadFile(a.Bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte("v1.2.3-test")) {
		t.Error("the binary does not hold its version")
	}

	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	if want := []string{"bootstrap", "LICENSE", "THIRD_PARTY_LICENSES.txt"}; !slices.Equal(names, want) {
		t.Fatalf("the zip holds %v, want %v", names, want)
	}
	if f := z.File[2]; f.Mode() != 0o644 || f.UncompressedSize64 == 0 || f.Modified.Year() != 1980 {
		t.Errorf("licenses zipped with mode %s, %d bytes, time %s", f.Mode(), f.UncompressedSize64, f.Modified)
	}
	if f := z.File[0]; f.Mode() != 0o755 || f.Modified.Year() != 1980 || f.UncompressedSize64 != uint64(len(content)) {
		t.Errorf("zipped with mode %s, time %s, %d bytes; want -rwxr-xr-x, 1980, %d", f.Mode(), f.Modified, f.UncompressedSize64, len(content))
	}
}

// One function alone, without a zip, is what SAM takes from its directory of artifacts.
func TestBuild_OneFunctionRightIntoItsPlace(t *testing.T) {
	cfg := bootstrap.Config{Root: root, Out: t.TempDir(), Version: "v1.2.3-test", NoZip: true, Flat: true}
	if _, err := bootstrap.Build(t.Context(), cfg, "./scripts/functions/bootstrap/testdata/hello"); err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadDir(cfg.Out)
	if err != nil || len(there) != 3 || there[2].Name() != "bootstrap" {
		t.Errorf("it made %v, %v; want bootstrap and two files of licenses", there, err)
	}
}

func TestBuild_TellsWhatTheCompilerSays(t *testing.T) {
	cfg := bootstrap.Config{Root: root, Out: t.TempDir()}
	_, err := bootstrap.Build(t.Context(), cfg, "./scripts/functions/bootstrap/testdata/missing")
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("missing")) {
		t.Errorf("error %v, want one that names the package", err)
	}
	if left, _ := os.ReadDir(cfg.Out); len(left) > 0 {
		t.Errorf("a failed build left %v", left)
	}
}
