package console

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	terminal "github.com/buildkite/terminal-to-html/v3"

	"github.com/dayfly-dev/dayfly/internal/text"
)

// logLines shows lines. There may be thousands, so they have no template.
func logLines(v *view, l logData, lines []logLine) templ.Component {
	before, after, _ := strings.Cut(templ.EscapeString(string(v.to(l.line(0)))), "line=0#L0")
	var b bytes.Buffer
	for _, line := range lines {
		at := line.at.UTC().Format("15:04:05.000 UTC")
		fmt.Fprintf(&b, `<div id="L%d"><a href="%sline=%d#L%d%s" title="%s">%d</a><span>%s`, line.n, before, line.n, line.n, after, at, line.n, paint(line.text))
		if line.cut {
			b.WriteString("<b>... cut here; the download has all of it</b>")
		}
		b.WriteString("</span></div>")
	}
	return written(b.Bytes())
}

// paint is a line of a log as HTML: its text in span elements whose classes are its colours. Each line begins without
// colours. A page shows windows of a log, so the line that set a colour may not be there; and a colour that a program
// forgot to end does not go on to the end of the log.
//
// This is the only HTML of the pages that no template escapes. terminal-to-html also makes links and images of escape
// sequences, so it gets none but colours, and text without control characters.
func paint(line string) string {
	if !strings.Contains(line, "\x1b") {
		return templ.EscapeString(plain(line))
	}
	if s := terminal.Render([]byte(shown(line, colours))); s != "&nbsp;" {
		return s
	}
	return "" // it stands for a line without text
}

// plain is the text of a line of a log, without colours.
func plain(line string) string {
	return shown(line, func(string) string { return "" })
}

// shown is the text of a line on a terminal: the part after the last return to its beginning, without escape sequences.
// Those that set colours are replaced.
func shown(line string, colours func(parameters string) string) string {
	line = strings.TrimRight(line, "\r\n")
	line = line[strings.LastIndexByte(line, '\r')+1:]
	var b strings.Builder
	for piece, sequence := range text.Escapes(line) {
		b.WriteString(strings.ReplaceAll(clean(piece), "\n", "␊"))
		if s, ok := strings.CutPrefix(sequence, "\x1b["); ok && strings.HasSuffix(s, "m") {
			b.WriteString(colours(strings.TrimSuffix(s, "m")))
		}
	}
	return b.String()
}

// colours is an escape sequence that sets colours, made anew from the parameters that are known. Of 256 colours and of
// millions it takes the nearest of the eight for which the pages have one in the dark and in the light.
func colours(parameters string) string {
	in := strings.FieldsFunc(parameters, func(r rune) bool { return r == ';' || r == ':' })
	if len(in) == 0 {
		return "\x1b[0m"
	}
	var out []string
	for len(in) > 0 && len(out) < 16 {
		p, err := strconv.ParseUint(in[0], 10, 8)
		in = in[1:]
		switch {
		case err != nil:
		case p == 38 || p == 48:
			colour, used := extended(in)
			if colour >= 0 {
				out = append(out, strconv.Itoa(int(p)-8+colour))
			}
			in = in[used:]
		case p <= 5 || p == 9 || p >= 21 && p <= 25 || p == 29 || p >= 30 && p <= 49 || p >= 90 && p <= 107:
			out = append(out, strconv.FormatUint(p, 10))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "\x1b[" + strings.Join(out, ";") + "m"
}

// extended is which of the eight colours is nearest to 5;N or 2;R;G;B, or -1, and how many parameters that took.
func extended(in []string) (colour, used int) {
	n := make([]int, 4)
	for i := range min(len(in), len(n)) {
		n[i], _ = strconv.Atoi(in[i]) // anything but a number is 0
	}
	nearest := func(r, g, b, half int) int {
		bit := func(of, value int) int {
			if of >= half {
				return value
			}
			return 0
		}
		return bit(r, 1) + bit(g, 2) + bit(b, 4)
	}
	switch {
	case n[0] == 2 && len(in) >= 4:
		return nearest(n[1], n[2], n[3], 128), 4
	case n[0] != 5 || len(in) < 2:
		return -1, min(len(in), 1)
	case n[1] < 16:
		return n[1] & 7, 2
	case n[1] < 232: // a cube with six values of each
		c := n[1] - 16
		return nearest(c/36, c/6%6, c%6, 3), 2
	}
	return 7, 2
}
