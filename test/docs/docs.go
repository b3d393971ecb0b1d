// Package docs reads the documents of the repository, so that its tests can hold them against the program: links and
// anchors, the length of lines, tables, and the shell blocks, which are run. It judges no words.
package docs

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// LineLimit is the column before which a line of prose ends.
const LineLimit = 120

// Block is a fenced block of a document.
type Block struct {
	Line int    // of its first line of text, counted from 1
	Lang string // what stands behind the fence, such as sh
	Text string
}

// line is a line of a document, and whether it is within a fence.
type line struct {
	number int
	text   string
	code   bool
}

// lines leaves the fences themselves out.
func lines(doc string) (all []line, blocks []Block) {
	var open *Block
	number := 0
	for text := range strings.Lines(doc) {
		number++
		text = strings.TrimRight(text, "\n")
		lang, fence := strings.CutPrefix(strings.TrimSpace(text), "```")
		switch {
		case fence && open == nil:
			open = &Block{Line: number + 1, Lang: lang}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		default:
			if open != nil {
				open.Text += text + "\n"
			}
			all = append(all, line{number, text, open != nil})
		}
	}
	return all, blocks
}

// Blocks returns the fenced blocks of a document.
func Blocks(doc string) []Block {
	_, blocks := lines(doc)
	return blocks
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Links returns the targets in the repository that a document links to, with their anchors.
func Links(doc string) []string {
	var out []string
	all, _ := lines(doc)
	for _, l := range all {
		if l.code {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(l.text, -1) {
			if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
				out = append(out, m[1])
			}
		}
	}
	return out
}

// Anchors returns the anchors of the headings of a document, as the usual viewers make them.
func Anchors(doc string) []string {
	var out []string
	times := map[string]int{}
	all, _ := lines(doc)
	for _, l := range all {
		title := strings.TrimLeft(l.text, "#")
		if l.code || title == l.text || !strings.HasPrefix(title, " ") {
			continue
		}
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))
		times[anchor]++
		if n := times[anchor]; n > 1 {
			anchor += "-" + string(rune('0'+n-1))
		}
		out = append(out, anchor)
	}
	return out
}

// LongLines returns the numbers of lines of prose that do not end before LineLimit. Tables, code and lines with a link
// may be longer.
func LongLines(doc string) []int {
	var out []int
	all, _ := lines(doc)
	for _, l := range all {
		prose := !l.code && !strings.HasPrefix(strings.TrimSpace(l.text), "|") && !strings.Contains(l.text, "](") && !strings.Contains(l.text, "://")
		if prose && utf8.RuneCountInString(l.text) >= LineLimit {
			out = append(out, l.number)
		}
	}
	return out
}

// item begins an item of a list.
var item = regexp.MustCompile(`^\s*([*-]|\d+\.) `)

// ends is the end of a sentence.
var ends = regexp.MustCompile(`[.?!]\)?\s+`)

// Sentences returns the sentences of a document's prose. An item of a list, and a table's cell, begins a new one.
func Sentences(doc string) (out []string) {
	text := ""
	flush := func() {
		for text != "" {
			end := len(text)
			if at := ends.FindStringIndex(text); at != nil {
				end = at[1]
			}
			out, text = append(out, strings.TrimSpace(text[:end])), text[end:]
		}
	}
	all, _ := lines(doc)
	for _, l := range all {
		trimmed := strings.TrimSpace(l.text)
		if l.code || trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "|") || item.MatchString(l.text) {
			flush()
		}
		if !l.code && !strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "|") {
			text = strings.TrimSpace(text + " " + trimmed)
		}
	}
	flush()
	return out
}
