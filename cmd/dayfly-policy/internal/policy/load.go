package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
	"go.yaml.in/yaml/v3"
)

// Bounds of a package.
const (
	maxEntries = 20_000   // files and directories of any kind
	maxFiles   = 5_000    // that are read
	maxBytes   = 32 << 20 // of these
)

// testSuffix ends the names of files with tests.
const testSuffix = "_test.rego"

// loaded is a package as it was read.
type loaded struct {
	modules   map[string]*ast.Module // by path below the directory
	tests     map[string]*ast.Module // of files that end in testSuffix
	documents map[string]any         // the data of rules
}

// reader walks one directory, within bounds.
type reader struct {
	root      *os.Root
	withTests bool
	entries   int
	files     int
	bytes     int64
	into      loaded
}

// load reads the package in a directory: Rego, and JSON and YAML as data under the path of their directory, as OPA
// does. Names that begin with a dot are passed over. Nothing outside the directory is read.
func load(directory string, withTests bool) (*loaded, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("open the package: %w", err)
	}
	defer func() { _ = root.Close() }()
	r := &reader{root: root, withTests: withTests, into: loaded{
		modules: map[string]*ast.Module{}, tests: map[string]*ast.Module{}, documents: map[string]any{},
	}}
	if err := fs.WalkDir(root.FS(), ".", r.visit); err != nil {
		return nil, err
	}
	return &r.into, nil
}

func (r *reader) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return fmt.Errorf("read the package: %w", err)
	}
	if r.entries++; r.entries > maxEntries {
		return fmt.Errorf("the package has more than %d files and directories", maxEntries)
	}
	if name != "." && strings.HasPrefix(d.Name(), ".") {
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if d.Type()&fs.ModeSymlink != 0 {
		if err := r.checkLink(name); err != nil {
			return err
		}
	}
	if d.IsDir() || !read(name) || strings.HasSuffix(name, testSuffix) && !r.withTests {
		return nil
	}
	raw, err := r.file(name)
	if err != nil {
		return err
	}
	if path.Ext(name) == ".rego" {
		return r.module(name, raw)
	}
	return r.document(name, raw)
}

// read reports whether files of a name are read.
func read(name string) bool {
	switch path.Ext(name) {
	case ".rego", ".json", ".yaml", ".yml":
		return true
	}
	return false
}

// checkLink refuses links that would silently leave out rules or data: a link to a directory, which is not followed,
// and one that leads nowhere or out of the package.
func (r *reader) checkLink(name string) error {
	info, err := r.root.Stat(name)
	switch {
	case err != nil:
		return fmt.Errorf("%s: is a symbolic link that leads nowhere or out of the package; put the file itself there", name)
	case info.IsDir():
		return fmt.Errorf("%s: is a symbolic link to a directory, which is not followed; put the files themselves there", name)
	}
	return nil
}

func (r *reader) file(name string) ([]byte, error) {
	if r.files++; r.files > maxFiles {
		return nil, fmt.Errorf("the package has more than %d files of Rego, JSON and YAML", maxFiles)
	}
	// Without O_NONBLOCK, a pipe would block for ever.
	f, err := r.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the package: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the package: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is not a regular file", name)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxBytes-r.bytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the package: %w", err)
	}
	if r.bytes += int64(len(raw)); r.bytes > maxBytes {
		return nil, fmt.Errorf("the package has more than %d MiB of Rego, JSON and YAML", maxBytes>>20)
	}
	return raw, nil
}

func (r *reader) module(name string, raw []byte) error {
	m, err := parseModule(name, string(raw))
	if err != nil {
		return err
	}
	if strings.HasSuffix(name, testSuffix) {
		r.into.tests[name] = m
	} else {
		r.into.modules[name] = m
	}
	return nil
}

// parseModule reads Rego v1. An older file gets an error that says how to bring it up to date.
func parseModule(name, source string) (*ast.Module, error) {
	options := ast.ParserOptions{RegoVersion: ast.RegoV1, ProcessAnnotation: true, Capabilities: capabilities()}
	m, err := ast.ParseModuleWithOpts(name, source, options)
	if err == nil {
		return m, nil
	}
	options.RegoVersion, options.Capabilities = ast.RegoV0, nil
	if old, oldErr := ast.ParseModuleWithOpts(name, source, options); oldErr == nil && old != nil {
		return nil, fmt.Errorf("%s: is written in Rego v0 (%w); want v1, where a rule reads `deny contains msg if { ... }`. "+
			"`opa fmt --write --v0-v1 DIR` rewrites it", name, firstOf(err))
	}
	return nil, err
}

// document adds a file of data.
func (r *reader) document(name string, raw []byte) error {
	parse, format := parseYAML, "YAML"
	if path.Ext(name) == ".json" {
		parse, format = util.UnmarshalJSON, "JSON"
	}
	var doc any
	if err := parse(raw, &doc); err != nil {
		return fmt.Errorf("%s: is not %s that can be read: %w", name, format, err)
	}
	if dir := path.Dir(name); dir != "." {
		keys := strings.Split(dir, "/")
		for i := len(keys) - 1; i >= 0; i-- {
			doc = map[string]any{keys[i]: doc}
		}
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want an object at the top of a file of data that lies at the top of the package", name)
	}
	if err := merge(r.into.documents, object, "data"); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// parseYAML reads one document. OPA would pass over those that follow it.
func parseYAML(raw []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	for i := 0; ; i++ {
		var node yaml.Node
		switch err := decoder.Decode(&node); {
		case errors.Is(err, io.EOF):
			return util.Unmarshal(raw, into)
		case err != nil:
			return err
		case i > 0:
			return errors.New("it holds more than one document; put each into a file of its own")
		}
	}
}

var errTwice = errors.New("is given by another file too; give it once, move one of the files into a directory of its own, or begin its name with a dot")

// merge adds b to a. A name in both must be an object in both.
func merge(a, b map[string]any, at string) error {
	for k, v := range b {
		have, ok := a[k]
		if !ok {
			a[k] = v
			continue
		}
		x, isX := have.(map[string]any)
		y, isY := v.(map[string]any)
		if !isX || !isY {
			return fmt.Errorf("%s.%s %w", at, k, errTwice)
		}
		if err := merge(x, y, at+"."+k); err != nil {
			return err
		}
	}
	return nil
}
