// Package thirdparty finds the licenses of the modules that are linked into what ships, and writes them as one file. It
// knows a license by the name of its file only, and judges none.
package thirdparty

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// File is the name of the file, at the root and wherever it ships.
const File = "THIRD_PARTY_LICENSES.txt"

// Text is a license or a notice.
type Text struct {
	Of      string // a module with its version
	File    string // its path in the module
	Content string
}

var (
	license = regexp.MustCompile(`(?i)licen[cs]e|copying`)
	notice  = regexp.MustCompile(`(?i)^(notice|patents|copyright)`)
)

// Find returns the texts of a module that hold for its linked packages, which are directories of it: those of each such
// directory and of all above it. Code from elsewhere often lies in a directory with its own license.
func Find(of string, module fs.FS, linked ...string) (out []Text, err error) {
	dirs := map[string]bool{}
	for _, dir := range linked {
		for ; !dirs[dir]; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	licensed := false
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		entries, err := fs.ReadDir(module, dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			is := license.MatchString(e.Name())
			if !e.Type().IsRegular() || path.Ext(e.Name()) == ".go" || !is && !notice.MatchString(e.Name()) {
				continue
			}
			file := path.Join(dir, e.Name())
			content, err := fs.ReadFile(module, file)
			if err != nil {
				return nil, err
			}
			licensed = licensed || is
			out = append(out, Text{Of: of, File: file, Content: string(content)})
		}
	}
	if !licensed {
		return nil, errors.New(of + " is linked and has no file with its license: it may not ship")
	}
	return out, nil
}

const intro = `Dayfly links the modules below into its programs. Their licenses and notices follow; a text of several modules
stands once, below their names. Dayfly's own license is in the file LICENSE.
`

// Format writes texts as one file, the same for every order of them. Spaces at the ends of lines make no difference.
func Format(texts []Text) string {
	texts = slices.SortedFunc(slices.Values(texts), func(a, b Text) int {
		return cmp.Or(strings.Compare(a.Of, b.Of), strings.Compare(a.File, b.File))
	})
	var contents []string
	heads := map[string]string{}
	for _, t := range texts {
		content := tidy(t.Content)
		if heads[content] == "" {
			contents = append(contents, content)
		}
		heads[content] += fmt.Sprintf("%s: %s\n", t.Of, t.File)
	}
	var out strings.Builder
	out.WriteString(intro)
	for _, content := range contents {
		fmt.Fprintf(&out, "\n%s\n%s%s\n%s", strings.Repeat("=", 80), heads[content], strings.Repeat("-", 80), content)
	}
	return out.String()
}

func tidy(text string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\r\n")) {
		out.WriteString(strings.TrimRight(line, " \t\r\n") + "\n")
	}
	return out.String()
}
