// Package discover finds the root modules of a tree of code and describes each as a workspace. It only reads: it runs
// no engine, follows no link out of the tree, and says of each directory why it was or was not taken.
package discover

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	gitsource "github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Bounds of a tree.
const (
	maxEntries = 500_000
	maxBytes   = 512 << 20 // of files that are read
)

// Options are settings that all workspaces have in common.
type Options struct {
	Project string
	Engine  string // of code that does not say which; empty means terraform
	GitURL  string // where the runners find the tree; empty means in the directory itself
	GitRef  string

	Workspaces []string // of the engine, or stacks, where they must be chosen
	Terragrunt string   // TerragruntTrees or TerragruntUnits; empty means trees
	Include    []string // directories, or patterns for them, that are taken though they would be left out
}

// Workspace is one that was found.
type Workspace struct {
	api.Workspace
	Dir     string   `json:"dir"` // of the root module, from the top of the tree
	Why     string   `json:"why"` // it is a root module
	Backend string   `json:"backend"`
	Notes   []string `json:"notes,omitempty"` // settings that were not carried over, and choices to make

	from  *project // that it was made for; nil: none
	needs []string // directories of workspaces that run before it
}

// Left is a directory that was not taken, or a file with values that no workspace reads.
type Left struct {
	Dir  string `json:"dir,omitempty"`
	File string `json:"file,omitempty"`
	Why  string `json:"why"`
}

// Found has the workspaces of a tree.
type Found struct {
	Workspaces []Workspace `json:"workspaces"`
	Doubtful   []Left      `json:"doubtful,omitempty"` // directories that may be root modules
	Left       []Left      `json:"left_out"`
	Files      []Left      `json:"files,omitempty"` // with values, that no workspace reads
	Notes      []string    `json:"notes,omitempty"` // about no one workspace
}

// module is a directory with code.
type module struct {
	dir      string
	code     engine.Code
	tofu     bool     // it has files that only OpenTofu reads
	lock     []byte   // of its providers
	signs    []string // that an engine has run here
	vars     []*file  // of variables
	loads    bool     // the engine itself loads some
	auto     []string // the variables that those set
	configs  []*file  // of settings that the backend lacks
	pins     []pin    // versions of engines
	engines  []string // the engine's own workspaces that are seen here
	called   string   // a directory that calls it as a module
	linked   string   // a directory with links to its files
	sample   bool     // it has an example of a file of variables
	examples bool     // there are examples of its use below it
	projects []project

	elsewhere      bool // it is run or called by units
	readsWorkspace bool // the name of the engine's workspace, itself or in a module that it calls
}

type walk struct {
	fsys    fs.FS
	modules map[string]*module
	loose   []string          // files of variables and settings
	small   []string          // files that may have settings
	samples []string          // directories with examples of files of variables
	linked  map[string]string // directories with files that others link to, and by which
	entries int
	bytes   int64
	out     Found

	pulumi  map[string]*pulumi     // by directory
	hcl     []string               // files of Terragrunt
	hclRead map[string]engine.Unit // those that were read
	units   []*unit                // of Terragrunt
	trees   map[string][]project   // that name a directory with units
	called  map[string]string      // directories that units and stacks call, and by which
	groupOf map[string]string      // directory of the workspace that each unit is in
	unread  map[string][]string    // files of other programs
}

// Tree looks for root modules in a directory and below.
func Tree(dir string, o Options) (Found, error) {
	top, err := os.OpenRoot(dir)
	if err != nil {
		return Found{}, fmt.Errorf("read the tree: %w", err)
	}
	defer top.Close() //nolint:errcheck // it was only read
	w := &walk{
		fsys: top.FS(), modules: map[string]*module{}, pulumi: map[string]*pulumi{}, trees: map[string][]project{},
		called: map[string]string{}, linked: map[string]string{}, groupOf: map[string]string{}, unread: map[string][]string{}, hclRead: map[string]engine.Unit{},
	}
	if err := fs.WalkDir(w.fsys, ".", w.visit); err != nil {
		return Found{}, fmt.Errorf("read the tree %s: %w", dir, err)
	}

	w.read()
	w.readUnits(w.hcl)
	if err := w.readProjects(); err != nil {
		return Found{}, err
	}
	s, err := newSource(dir, o)
	if err != nil {
		return Found{}, err
	}

	if err := cmp.Or(w.checkInclude(o.Include), w.readPins(s)); err != nil {
		return Found{}, err
	}

	roots := w.candidates(o.Include)
	w.pairFiles(append(w.readFiles(), w.readSettings(roots)...), roots)
	w.sortOut(s)
	w.out.Workspaces = append(w.out.Workspaces, w.terragrunt(s)...)
	for _, dir := range slices.Sorted(maps.Keys(w.pulumi)) {
		w.out.Workspaces = append(w.out.Workspaces, w.stacks(w.pulumi[dir], s)...)
	}
	unique(w.out.Workspaces)
	order(w.out.Workspaces)
	slices.SortFunc(w.out.Workspaces, func(a, b Workspace) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(w.out.Left, func(a, b Left) int { return strings.Compare(a.Dir, b.Dir) })
	return w.out, nil
}

// visit notes the relevant files of a directory. It reads nothing yet.
func (w *walk) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return w.unreadable(name, d, err)
	}
	if w.entries++; w.entries > maxEntries {
		return fmt.Errorf("it has more than %d files: begin further down", maxEntries)
	}
	dir, base := path.Dir(name), path.Base(name)
	switch {
	case d.Type()&fs.ModeSymlink != 0 && !isCode(base):
		if info, err := fs.Stat(w.fsys, name); err == nil && info.IsDir() {
			w.leave(name, "it is a link to a directory, which is not followed")
		} else if err == nil {
			w.noteFile(name)
		}
	case d.IsDir() && name != ".":
		return w.enter(name, dir, base)
	case d.IsDir():
	case isCode(base):
		return w.addCode(dir, base, d)
	case base == unitFile || base == stackFile:
		w.hcl = append(w.hcl, name)
		return w.count(d)
	case slices.Contains(engine.PulumiFiles(), base):
		w.pulumi[dir] = cmp.Or(w.pulumi[dir], &pulumi{dir: dir, file: base})
	default:
		w.noteOther(name)
		w.noteFile(name)
	}
	return nil
}

// unreadable leaves out a file or directory that cannot be read; the top of the tree must be readable.
func (w *walk) unreadable(name string, d fs.DirEntry, err error) error {
	if name == "." {
		return err
	}
	w.leave(name, "it cannot be read")
	if d != nil && d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// addCode notes a file of code, which makes its directory a module.
func (w *walk) addCode(dir, base string, d fs.DirEntry) error {
	m := w.module(dir)
	m.tofu = m.tofu || strings.Contains(base, ".tofu")
	if target, err := fs.ReadLink(w.fsys, path.Join(dir, base)); err == nil && d.Type()&fs.ModeSymlink != 0 {
		w.linked[path.Join(dir, path.Dir(target))] = dir
	}
	return w.count(d)
}

// count bounds the files that are read.
func (w *walk) count(d fs.DirEntry) error {
	if info, err := d.Info(); err == nil {
		w.bytes += info.Size()
	}
	if w.bytes > maxBytes {
		return fmt.Errorf("its code has more than %d bytes: begin further down", maxBytes)
	}
	return nil
}

// enter decides whether a directory is walked.
func (w *walk) enter(name, dir, base string) error {
	switch {
	case base == ".terraform" || base == "terraform.tfstate.d": // read with their module
		return fs.SkipDir
	case base == "vendor" || base == "node_modules":
		w.leave(name, "it has the code of others")
		return fs.SkipDir
	case strings.HasPrefix(base, "."):
		return fs.SkipDir
	}
	if _, err := fs.Lstat(w.fsys, path.Join(name, ".dayfly-data")); err == nil {
		w.leave(name, "it is a data directory of Dayfly")
		return fs.SkipDir
	}
	return nil
}

func (w *walk) note(format string, args ...any) {
	w.out.Notes = append(w.out.Notes, fmt.Sprintf(format, args...))
}

func (w *walk) leave(dir, why string) { w.out.Left = append(w.out.Left, Left{Dir: dir, Why: why}) }

func (w *walk) module(dir string) *module {
	m := w.modules[dir]
	if m == nil {
		m = &module{dir: dir}
		w.modules[dir] = m
	}
	return m
}

func isCode(base string) bool {
	return !strings.HasPrefix(base, ".") &&
		slices.ContainsFunc([]string{".tf", ".tf.json", ".tofu", ".tofu.json"}, func(end string) bool { return strings.HasSuffix(base, end) })
}

// read reads the modules, and notes which of them calls which.
func (w *walk) read() {
	for _, dir := range slices.Sorted(maps.Keys(w.modules)) {
		m := w.modules[dir]
		m.code = engine.ReadCode(w.fsys, dir, api.EngineTofu)
		m.lock, _ = readFile(w.fsys, path.Join(dir, ".terraform.lock.hcl"))
		m.findSigns(w.fsys)
	}
	for _, dir := range slices.Sorted(maps.Keys(w.modules)) {
		for _, source := range w.modules[dir].code.Modules {
			if !local(source) {
				continue
			}
			target := path.Join(dir, source)
			if callee := w.modules[target]; callee != nil && target != dir {
				callee.called = cmp.Or(callee.called, dir)
			}
		}
	}
	w.readName()
	for dir, m := range w.modules {
		if m.linked = w.linked[dir]; m.linked == dir {
			m.linked = ""
		}
		m.sample = slices.Contains(w.samples, dir)
		for at := dir; at != "."; {
			home := path.Base(at)
			if at = path.Dir(at); w.modules[at] != nil && (home == "examples" || home == "example") {
				w.modules[at].examples = true
			}
		}
	}
}

// findSigns looks for files of an engine that has run here.
func (m *module) findSigns(fsys fs.FS) {
	seen := map[string]bool{}
	for _, name := range []string{".terraform", "terraform.tfstate", "terraform.tfstate.d"} {
		if _, err := fs.Stat(fsys, path.Join(m.dir, name)); err == nil {
			m.signs = append(m.signs, name)
		}
	}
	if selected, err := readFile(fsys, path.Join(m.dir, ".terraform/environment")); err == nil {
		if name := strings.TrimSpace(string(selected)); name != "" && name != "default" {
			seen[name] = true
		}
	}
	entries, _ := fs.ReadDir(fsys, path.Join(m.dir, "terraform.tfstate.d"))
	for _, e := range entries[:min(len(entries), 1000)] {
		if e.IsDir() {
			seen[e.Name()] = true
		}
	}
	if slices.Contains(m.signs, "terraform.tfstate") && len(seen) > 0 {
		seen["default"] = true
	}
	m.engines = slices.Sorted(maps.Keys(seen))
}

// engine is the program that runs a module.
func (m *module) engine(otherwise string) string {
	switch {
	case m.tofu || m.code.Encrypts || bytes.Contains(m.lock, []byte("registry.opentofu.org/")):
		return api.EngineTofu
	case bytes.Contains(m.lock, []byte("registry.terraform.io/")):
		return api.EngineTerraform
	}
	return cmp.Or(m.pinned(), otherwise, api.EngineTerraform)
}

// readFile reads a small file, as far as it is one.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	return readSmall(fsys, name, 1<<20)
}

func readSmall(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s: want a file of at most %d bytes", text.Quote(name, 200), limit)
	}
	return fs.ReadFile(fsys, name)
}

// source is where runners find the tree.
type source struct {
	Options
	dir    string // absolute
	prefix string // of its top in the repository

	top        string   // of the repository
	submodules []string // their directories
}

func newSource(dir string, o Options) (source, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	s := source{Options: o, dir: abs, top: abs}
	if err != nil || o.GitURL == "" {
		return s, err
	}
	for at := abs; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			s.top, s.prefix = at, relative(at, abs)
			s.submodules, err = gitsource.Submodules(at)
			return s, err
		} else if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		if at == filepath.Dir(at) {
			return s, nil // no clone: the tree is taken for the whole repository
		}
	}
}

// nameOf is the name of a workspace for a directory of the tree, before it is made valid.
func (s source) nameOf(dir string) string {
	if dir == "." {
		return filepath.Base(s.dir)
	}
	return dir
}

// repository is the clone that the tree lies in; without one, the tree.
func (s source) repository() string {
	if top := repositoryOf(s.dir); top != filepath.Dir(top) {
		return top
	}
	return s.dir
}

// of is the source of a directory of the tree.
func (s source) of(dir string) api.Source {
	if s.GitURL == "" {
		return api.Source{Directory: filepath.Join(s.dir, filepath.FromSlash(dir))}
	}
	inside := path.Join(s.prefix, dir)
	if inside == "." {
		inside = ""
	}
	return api.Source{Git: &api.GitSource{URL: s.GitURL, Ref: s.GitRef, Path: inside}}
}
