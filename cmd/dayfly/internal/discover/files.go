package discover

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// file has values for root modules: variables, or settings of a backend.
type file struct {
	name     string   // from the top of the tree
	names    []string // that it sets
	only     bool     // it sets nothing else
	settings map[string]any
	env      string // the environment that it is for; empty: none, or all
	sort     sort   // what its name says of that
}

// Words and ends of names.
var (
	variableEnds  = []string{".tfvars", ".tfvars.json"}
	encryptedEnds = []string{".enc", ".gpg", ".age", ".sops", ".asc", ".encrypted", ".vault"}
	exampleWords  = []string{"example", "examples", "sample", "samples", "template", "dist", "tmpl", "tpl"}
)

const encrypted = "it is encrypted, and a run cannot read it: store what it has with dayfly secret set"

func endsIn(name string, ends []string) bool {
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) })
}

// isVariables reports whether a file is one of variables by its name, plain or encrypted.
func isVariables(name string) bool {
	return endsIn(name, variableEnds) || endsIn(name, encryptedEnds) && strings.Contains(name, ".tfvars.")
}

// noteFile notes a file that may have values. It is read when the modules are known. An example is one that somebody
// has to copy and fill in first.
func (w *walk) noteFile(name string) {
	base := path.Base(name)
	isExample := slices.ContainsFunc(words(base), func(word string) bool { return slices.Contains(exampleWords, word) })
	switch {
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, `\`): // no workspace can name it
	case isExample && strings.Contains(base, "tfvars"):
		w.samples = append(w.samples, path.Dir(name))
	case isVariables(base) || strings.Contains(base, ".tfbackend"):
		w.loose = append(w.loose, name)
	case !isExample:
		w.small = append(w.small, name)
	}
}

// readFiles reads the files of variables, and gives them to the modules that load them by themselves. It returns the
// others.
func (w *walk) readFiles() (files []*file) {
	for _, name := range w.loose {
		f := &file{name: name}
		content, err := readFile(w.fsys, name)
		switch {
		case err != nil:
			w.passOver(name, "it cannot be read")
			continue
		case isEncrypted(name, content):
			w.passOver(name, encrypted)
			continue
		}
		f.read(content)
		plain := strings.TrimSuffix(path.Base(name), ".json")
		if m := w.modules[path.Dir(name)]; m != nil && (plain == "terraform.tfvars" || strings.HasSuffix(plain, ".auto.tfvars")) {
			m.auto, m.loads = append(m.auto, f.names...), true
			continue
		}
		files = append(files, f)
	}
	return files
}

func (w *walk) passOver(name, why string) {
	w.out.Files = append(w.out.Files, Left{File: name, Why: why})
}

func isEncrypted(name string, content []byte) bool {
	marks := []string{"\x00GITCRYPT", "ENC[AES256_GCM,", "$ANSIBLE_VAULT;", "age-encryption.org/", "BEGIN AGE ENCRYPTED", "BEGIN PGP MESSAGE"}
	return endsIn(name, encryptedEnds) ||
		slices.ContainsFunc(marks, func(mark string) bool { return bytes.Contains(content, []byte(mark)) })
}

func (f *file) read(content []byte) {
	f.names, f.only = engine.Assignments(content, f.name)
	if f.only {
		f.settings = engine.Settings(content, f.name)
	}
}

// pairFiles gives each file to the root modules that it is for.
func (w *walk) pairFiles(files []*file, roots []*module) {
	for _, f := range files {
		own, elsewhere := w.ownerOf(f.name, roots)
		from := f.name
		if own != nil {
			from = own.rel(f.name)
		}
		if home := below(path.Dir(from), exampleHomes); home != "" {
			w.passOver(f.name, "it lies below "+home+", with values to copy or to try")
		} else if elsewhere != "" {
			w.passOver(f.name, "it lies in "+elsewhere+", which is no root module")
		} else if why := f.pair(own, roots); why != "" {
			w.passOver(f.name, why)
		}
	}
}

// pair takes a file as settings where a backend lacks them, else as variables. It returns why it is neither.
func (f *file) pair(own *module, roots []*module) (why string) {
	of := rootsOf(f, own, roots, func(m *module) bool { return m.isSettings(f) })
	for _, m := range of {
		m.configs = append(m.configs, m.own(f))
	}
	if len(of) > 0 {
		return ""
	}
	if !isVariables(f.name) {
		return "no backend here lacks what it sets"
	}
	of = rootsOf(f, own, roots, func(m *module) bool { return m.isVariables(f) || m == own && len(f.names) == 0 })
	for _, m := range of {
		m.vars = append(m.vars, m.own(f))
	}
	if len(of) == 0 {
		return "no root module declares the variables that it sets"
	}
	return ""
}

// own is a file as one of a root module, for the environment that its path from there names.
func (m *module) own(f *file) *file {
	mine := *f
	mine.env, mine.sort = environment(strings.TrimLeft(m.rel(f.name), "./"))
	return &mine
}

func (m *module) rel(name string) string { return relative("/"+m.dir, "/"+name) }

// ownerOf is the root module that a file lies in; elsewhere is other code that it lies in instead.
func (w *walk) ownerOf(name string, roots []*module) (own *module, elsewhere string) {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		m := w.modules[dir]
		switch {
		case m != nil && slices.Contains(roots, m):
			return m, ""
		case m != nil && m.code.Blocks > 0:
			return nil, dir
		case dir == ".":
			return nil, ""
		}
	}
}

// rootsOf are the root modules that a file is for: the one that it lies in, else of those below the nearest directory
// above it that has root modules, the ones whose paths have most in common with its own.
func rootsOf(f *file, own *module, roots []*module, fits func(*module) bool) (of []*module) {
	if own != nil && fits(own) {
		return []*module{own}
	}
	for dir := path.Dir(f.name); ; dir = path.Dir(dir) {
		most, found := 0, false
		for _, m := range roots {
			if found = found || inside(m.dir, dir); !inside(m.dir, dir) || !fits(m) {
				continue
			}
			common := inCommon(relative("/"+dir, "/"+f.name), relative("/"+dir, "/"+m.dir))
			if common > most {
				most, of = common, nil
			}
			if common == most {
				of = append(of, m)
			}
		}
		if found || dir == "." {
			return of
		}
	}
}

// inCommon is how many directories of a root module the path of a file names too, as config/prod.tfvars names that of
// live/prod.
func inCommon(name, dir string) (count int) {
	named := append(strings.Split(path.Dir(name), "/"), core(path.Base(name)))
	named = append(named, words(path.Base(name))...)
	for part := range strings.SplitSeq(dir, "/") {
		if slices.Contains(named, part) {
			count++
		}
	}
	return count
}

// isVariables reports whether a root module declares what a file sets: half of it, or one that has no value yet.
func (m *module) isVariables(f *file) bool {
	declared := 0
	for _, name := range f.names {
		hasDefault, ok := m.code.Variables[name]
		switch {
		case !ok:
		case !hasDefault && !slices.Contains(m.auto, name):
			return true
		default:
			declared++
		}
	}
	return declared > 0 && 2*declared >= len(f.names)
}

// lacking are the variables of a module that have no default, and that none of the files sets.
func (m *module) lacking(files []*file) (names []string) {
	given := slices.Clone(m.auto)
	for _, f := range files {
		given = append(given, f.names...)
	}
	for name, hasDefault := range m.code.Variables {
		if !hasDefault && !slices.Contains(given, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
