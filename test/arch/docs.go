package arch

import (
	"regexp"
	"strings"
)

// Row is one line of a table of a document, its cells without the space around them.
type Row []string

// Table returns the rows of the first table below a heading, without the table's own head. The
// heading is given without its number signs.
func Table(doc, heading string) []Row {
	var rows []Row
	below, head := false, true
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"):
			if below && len(rows) > 0 {
				return rows
			}
			below = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
		case !below:
		case strings.HasPrefix(line, "|---"):
			head = false
		case strings.HasPrefix(line, "|") && !head:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		case line == "" && len(rows) > 0:
			return rows
		}
	}
	return rows
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
	code     = regexp.MustCompile("`([^`]+)`")
)

// NamedTests returns the tests that a text names.
func NamedTests(text string) []string { return first(testName, text) }

// DeclaredTests returns the tests that a Go file declares.
func DeclaredTests(source string) []string { return first(testFunc, source) }

// Code returns what a text sets as code.
func Code(text string) []string { return first(code, text) }

func first(re *regexp.Regexp, text string) []string {
	var out []string
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}
